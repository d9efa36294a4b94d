"""What a prediction costs: for one input and for a thousand, warm and in a new process, and how
large a learner and a predictor are on disk.

The weights are initial ones, which do not change the time; the learners are those of the recipes
`starter/arml`, `starter/protonet` and `regression2d/arml`, with as many support examples as their
tasks have.
"""

import json
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from common import arguments, machine, spread, write

MANY = 1000
RECIPES = ("starter/arml", "starter/protonet", "regression2d/arml")


def prepare(recipe: str, folder: Path) -> None:
    """Save a learner, a predictor and a task of the recipe."""
    import jax
    import numpy as np

    import arml

    experiment = arml.recipe(recipe)
    tasks = experiment.tasks.build(folder / "split.json").train
    learner = arml.build(experiment, tasks.problem)
    few = arml.FewShotLearner(learner, tasks.problem, experiment, tasks.families)
    few.save(folder / "learner")
    task = tasks.sample(jax.random.key(0))
    x, y = np.asarray(task.support.x), np.asarray(task.support.y)
    few.adapt(x, y).save(folder / "predictor")
    queries = np.asarray(task.query.x)
    many = np.concatenate([queries] * -(-MANY // len(queries)))[:MANY]
    np.savez(folder / "task.npz", x=x, y=y, many=many)


def measure(folder: Path, rounds: int) -> dict[str, Any]:
    """In this process, which is new: the first prediction, then those after it."""
    begun = time.perf_counter()
    times: dict[str, list[float]] = {}

    def clock(name: str, do: Any) -> Any:
        before = time.perf_counter()
        done = do()
        times.setdefault(name, []).append(time.perf_counter() - before)
        return done

    import numpy as np

    import arml

    predictor = clock(
        "load a predictor, with the import", lambda: arml.load_predictor(folder / "predictor")
    )
    task = np.load(folder / "task.npz")
    many = task["many"]
    clock("first prediction: adapt, compile, one input", lambda: predictor.predict(many[:1]))
    new_process = time.perf_counter() - begun
    learner = arml.load(folder / "learner")
    for _ in range(rounds):
        clock("one input", lambda: predictor.predict(many[:1]))
    for _ in range(rounds):
        clock(f"{MANY} inputs", lambda: predictor.predict(many))
    for _ in range(max(1, rounds // 3)):
        again = clock("adapt", lambda: learner.adapt(task["x"], task["y"]))
        clock("first prediction of another task of the same size", partial(again.predict, many[:1]))
    return {
        "new process to the first prediction": new_process,
        **{name: spread(values) for name, values in times.items()},
    }


def size(folder: Path) -> dict[str, int]:
    """Bytes of each file."""
    return {path.name: path.stat().st_size for path in sorted(folder.iterdir())}


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--recipes", nargs="+", default=RECIPES)
    parser.add_argument("--measure", type=Path, help="what the new process does")
    options = parser.parse_args()
    rounds = 5 if options.quick else 30
    if options.measure is not None:
        print(json.dumps(measure(options.measure, rounds)))
        return
    before, results = machine(), {}
    for recipe in options.recipes:
        with tempfile.TemporaryDirectory() as name:
            prepare(recipe, Path(name))
            command = [sys.executable, __file__, "--measure", name]
            command += ["--quick"] if options.quick else []
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            results[recipe] = {
                "seconds": json.loads(done.stdout),
                "bytes": {kind: size(Path(name) / kind) for kind in ("learner", "predictor")},
            }
        print(recipe, json.dumps(results[recipe], indent=2))
    write("predict", results, before, quick=options.quick)


if __name__ == "__main__":
    main()
