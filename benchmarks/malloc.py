"""One outer step of second-order MAML with Conv-4 under settings of glibc's `malloc`: seconds of
the processor (user and system together), page faults, and the memory of the process.

The sides are the settings of `arml train`, with which its process starts (`ours`); those of them
that `mallopt` can change in a running process, before JAX is imported (`early`) and after JAX has
started its threads (`late`); and none (`glibc`). They are processes that take turns.

5-way, 15 queries a class, 4 tasks on all cores, 5 inner steps, pictures of noise.

`python malloc.py early SIZE SHOTS` is such a worker.
"""

import ctypes
import os
import sys
from tempfile import TemporaryDirectory

from arml.results.machine import MALLOC_SETTINGS
from common import Worker, arguments, contest, machine, write

OURS = ":".join(f"glibc.malloc.{name}={value}" for name, value in MALLOC_SETTINGS.items())
MALLOPT = ((-4, 0), (-8, 1), (-1, 2**31 - 1))
"""M_MMAP_MAX, M_ARENA_MAX and M_TRIM_THRESHOLD of <malloc.h>; it has no switch for large pages."""


def work(when: str, size: str, shots: str) -> None:
    """The worker, with `mallopt` called `early` or `late`."""
    if when == "late":
        import jax

        jax.block_until_ready(jax.jit(lambda x: x @ x)(jax.numpy.ones((500, 500))))
    libc = ctypes.CDLL(None)
    assert all(libc.mallopt(*pair) for pair in MALLOPT), "malloc refused a setting"
    import arml_steps

    sys.argv = ["arml_steps.py", "conv4", size, shots]
    arml_steps.main()


def main() -> None:
    if sys.argv[1:2] in (["early"], ["late"]):
        work(*sys.argv[1:])
        return
    parser = arguments(__doc__ or "")
    parser.add_argument("--tasks", nargs="+", default=["84/1", "28/1"], help="SIZE/SHOTS")
    options = parser.parse_args()
    rounds, seconds = (5, 1.0) if options.quick else (9, 5.0)
    before, rows = machine(), []
    with TemporaryDirectory() as programs:  # all sides run the same program: it is compiled once
        for task in options.tasks:
            size, shots = task.split("/")
            every = {
                "JAX_COMPILATION_CACHE_DIR": programs,
                "JAX_NUM_CPU_DEVICES": str(before["cores"]),
            }
            sides = [
                Worker("arml_steps.py", "conv4", size, shots, GLIBC_TUNABLES=OURS, **every),
                Worker("malloc.py", "early", size, shots, **every),
                Worker("malloc.py", "late", size, shots, **every),
                Worker("arml_steps.py", "conv4", size, shots, **every),
            ]
            found = contest(sides[0], sides[1:], rounds=rounds, seconds=seconds)
            for side in sides:
                side.close()
            for name, result in zip(("early", "late", "glibc"), found, strict=True):
                rows.append({"pixels": int(size), "shots": int(shots), "opponent": name, **result})
                print(task, name, result["times_as_fast"], flush=True)
            write("malloc", rows, before, quick=options.quick, sources=("core", "nn", "results"))


if __name__ == "__main__":
    os.environ.pop("GLIBC_TUNABLES", None)
    if os.environ.get("BENCHMARK_CLOCK") != "processor":
        # Page faults are the system's work for this process, so they count, too.
        os.environ["BENCHMARK_CLOCK"] = "processor"
        os.execv(sys.executable, [sys.executable, *sys.argv])
    main()
