"""One outer step of every method against MAML's, on 2-D regression and on 28 px images.

Regression: 25 tasks, 10 support and 10 query points. Images: Conv-4, 4 tasks, 5-way, 1-shot, 15
queries a class. Each is its recipe as it stands.
"""

import sys

from arml.experiment.recipes import RECIPES
from common import Worker, arguments, duel, machine, write

DISPATCH = {"regression2d": 50, "folders": 1}


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--problems", nargs="+", choices=DISPATCH, default=list(DISPATCH))
    parser.add_argument("--methods", nargs="+", metavar="NAME", help="these only")
    options = parser.parse_args()
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
