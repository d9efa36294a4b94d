"""One outer step of every method against MAML's, on 2-D regression and on 28 px images.

Regression: 25 tasks, 10 support and 10 query points. Images: Conv-4, 4 tasks, 5-way, 1-shot, 15
queries a class. Each is its recipe as it stands.

`--gpu`: memory and time of Plain-Multi on an accelerator, on pictures of noise of 84 px, for
`results/gpu.json`. The memory is the most that XLA held at a time, which includes what it tried
while it compiled.
"""

import sys

from arml.experiment.recipes import RECIPES
from common import Worker, arguments, duel, machine, spread, write

DISPATCH = {"regression2d": 50, "folders": 1}
ON_GPU = ("protonet", "arml", "maml", "arml-paper")


def gpu() -> None:
    """20 steps of each method, by shots and by how many tasks are learned at once."""
    before, rows = machine(), []
    for name in ON_GPU:
        for shots in (1, 5):
            for chunk in (1, 4):
                recipe = f"plain-multi/{name}"
                worker = Worker(
                    sys.executable, "arml_steps.py", "plain-multi", recipe, shots, chunk
                )
                row = {"recipe": recipe, "shots": shots, "chunk": chunk, **worker.facts}
                rows.append({**row, "seconds": spread([worker.seconds(1) for _ in range(20)])})
                worker.close()
                write("gpu", rows, before)


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--problems", nargs="+", choices=DISPATCH, default=list(DISPATCH))
    parser.add_argument("--methods", nargs="+", metavar="NAME", help="these only")
    parser.add_argument("--gpu", action="store_true", help="Plain-Multi on an accelerator")
    options = parser.parse_args()
    if options.gpu:
        gpu()
        return
    before, results = machine(), []
    rounds, seconds = (3, 0.5) if options.quick else (9, 2.0)
    for problem in options.problems:

        def step(name: str, problem: str = problem) -> Worker:
            recipe = f"{problem}/{name}"
            return Worker(sys.executable, "arml_steps.py", problem, recipe, DISPATCH[problem])

        maml = step("maml")
        names = [name.partition("/")[2] for name in RECIPES if name.startswith(f"{problem}/")]
        for name in options.methods or names:
            theirs = step(name)
            result = duel(maml, theirs, rounds=rounds, seconds=seconds)
            theirs.close()
            results.append({"pair": [f"{problem}/maml", f"{problem}/{name}"], **result})
            took, times = result["theirs_seconds"]["median"], result["times_as_fast"]["median"]
            print(
                f"{problem}/{name}: {1e3 * took:.2f} ms, {times:.2f} times MAML's, "
                f"{theirs.facts['parameters']:,} meta-parameters",
                flush=True,
            )
            # After each: all of them take a quarter of an hour.
            write("methods", results, before, quick=options.quick)
        maml.close()


if __name__ == "__main__":
    main()
