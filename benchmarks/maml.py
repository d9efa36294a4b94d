"""One outer step of second-order MAML against PyTorch: an eager loop over tasks, and `torch.func`;
and on 2-D regression ARML against MAML.

Regression: 25 tasks, 10 support and 10 query points, 2-40-40-1. Images: Conv-4, 32 filters, batch
statistics, 3 channels, 5-way, 15 queries a class, 4 tasks. 5 inner steps, Adam, float32. On
regression ours draws its tasks inside the step; PyTorch's are ready in memory.

`--problems methods` measures one outer step of every method against MAML's, each by its recipe as
it stands, on 2-D regression and on pictures of 28 px (Conv-4, 4 tasks, 5-way, 1-shot).
`--problems gpu`: memory and time of Plain-Multi on an accelerator, on pictures of noise of 84 px.
The memory is the most that XLA held at a time, with what it tried while it compiled.
"""

from argparse import Namespace
from typing import Any

from arml.experiment.recipes import RECIPES
from common import Worker, arguments, contest, machine, spread, write

OPPONENTS = ("loop", "func")
"""Those of `torch_maml.py`."""
STEP = ("core", "nn", "algorithms", "training/fit.py")
"""The code of an outer step."""
DISPATCH = {"regression2d": 50, "folders": 1}
"""Outer steps of one call."""


def regression(options: Namespace, before: dict[str, Any]) -> None:
    """2-D regression, and ARML's step against MAML's."""
    rounds, seconds = (3, 0.5) if options.quick else (9, 1.0)

    def ours(name: str) -> Worker:
        return Worker("arml_steps.py", "regression2d", name, DISPATCH["regression2d"])

    maml = ours("regression2d/maml")
    variants = [f"regression2d/{name}" for name in ("arml-official", "arml-paper", "arml-film")]
    torch = [Worker("torch_maml.py", n, "regression") for n in OPPONENTS]
    theirs = [*torch, *map(ours, variants)]
    results = [
        {"pair": ["regression2d/maml", name], **result}
        for name, result in zip(
            (*OPPONENTS, *variants),
            contest(maml, theirs, rounds=rounds, seconds=seconds),
            strict=True,
        )
    ]
    for worker in (maml, *theirs):
        worker.close()
    write("regression2d", results, before, quick=options.quick, sources=STEP)


def images(options: Namespace, before: dict[str, Any]) -> None:
    """Conv-4 on pictures of some sizes."""
    results: list[dict[str, Any]] = []
    rounds, seconds = (3, 1.0) if options.quick else (5, 2.0)
    for size in (28, 84):
        for shots in (1, 5):
            what = ("conv4", size, shots)
            ours = Worker("arml_steps.py", *what)
            theirs = [Worker("torch_maml.py", n, *what) for n in OPPONENTS]
            duels = contest(ours, theirs, rounds=rounds, seconds=seconds)
            for worker in (ours, *theirs):
                worker.close()
            for name, result in zip(OPPONENTS, duels, strict=True):
                results.append({"pixels": size, "shots": shots, "opponent": name, **result})
            # After each: a setting may take minutes.
            write("conv4", results, before, quick=options.quick, sources=STEP)


def methods(options: Namespace, before: dict[str, Any]) -> None:
    """Every method's step against MAML's."""
    results: list[dict[str, Any]] = []
    rounds, seconds = (3, 0.5) if options.quick else (9, 2.0)
    for problem, dispatch in DISPATCH.items():
        maml = Worker("arml_steps.py", problem, f"{problem}/maml", dispatch)
        for name in (name for name in RECIPES if name.startswith(f"{problem}/")):
            theirs = Worker("arml_steps.py", problem, name, dispatch)
            (result,) = contest(maml, [theirs], rounds=rounds, seconds=seconds)
            theirs.close()
            results.append({"pair": [f"{problem}/maml", name], **result})
            print(name, result["times_as_fast"], flush=True)
            # After each: all of them take a quarter of an hour.
            write("methods", results, before, quick=options.quick, sources=STEP)
        maml.close()


def gpu(options: Namespace, before: dict[str, Any]) -> None:
    """20 steps of each method, by shots and by how many tasks are learned at once."""
    rows: list[dict[str, Any]] = []
    for recipe in (f"plain-multi/{name}" for name in ("protonet", "arml", "maml", "arml-paper")):
        for shots, chunk in ((1, 1), (1, 4), (5, 1), (5, 4)):
            worker = Worker("arml_steps.py", "plain-multi", recipe, shots, chunk)
            row = {"recipe": recipe, "shots": shots, "chunk": chunk, **worker.facts}
            rows.append({**row, "seconds": spread([worker.seconds(1) for _ in range(20)])})
            worker.close()
            write("gpu", rows, before, sources=STEP)


PROBLEMS = {"regression": regression, "images": images, "methods": methods, "gpu": gpu}


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS)[:2])
    options = parser.parse_args()
    before = machine()
    for problem in options.problems:
        PROBLEMS[problem](options, before)


if __name__ == "__main__":
    main()
