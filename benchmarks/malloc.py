"""One outer step of second-order MAML with Conv-4, with glibc's own settings of `malloc` and with
those of `arml train`: seconds of the processor (user and system together), page faults, and the
memory of the process.

5-way, 15 queries a class, 4 tasks on all cores, 5 inner steps, pictures of noise. The two sides
are processes that take turns.
"""

import os

from arml.results.machine import MALLOC
from common import Worker, arguments, contest, machine, write

OURS = ":".join(f"glibc.malloc.{name}={value}" for name, value in MALLOC.items())


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--tasks", nargs="+", default=["84/1", "28/1"], help="SIZE/SHOTS")
    options = parser.parse_args()
    os.environ["BENCHMARK_CLOCK"] = "processor"
    rounds, seconds = (5, 2.0) if options.quick else (9, 5.0)
    before, rows = machine(), []
    for task in options.tasks:
        size, shots = map(int, task.split("/"))
        what = ("arml_steps.py", "conv4", size, shots)
        sides = [Worker(*what, GLIBC_TUNABLES=tunables) for tunables in (OURS, "")]
        (result,) = contest(sides[0], sides[1:], rounds=rounds, seconds=seconds)
        for side in sides:
            side.close()
        rows.append({"pixels": size, "shots": shots, **result})
        write("malloc", rows, before, quick=options.quick, sources=("core", "nn", "results"))


if __name__ == "__main__":
    main()
