"""Accuracy of short trainings on one's own pictures, after equally many tasks: by the method, by
how many tasks a step has, and by whether the features stand beside the edges of a picture.

5-way 5-shot, 15 queries, 32 px, tasks as `arml train --data` chooses them, 400 tasks of the
validation and of the test classes; each seed divides the classes anew.
`results/short_trainings.json` keeps each training as soon as it is scored; the same command makes
what is missing, and several may run side by side.
"""

import argparse
import json
from contextlib import closing
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

import numpy as np
from filelock import FileLock

from arml.experiment.choose import choose
from arml.experiment.recipes import recipe
from arml.experiment.running import fresh
from arml.tasks.options import splits_of
from arml.training.evaluate import evaluate
from arml.training.fit import intervals
from arml.training.options import FitOptions, training_key
from common import HERE, machine, write

RESULTS = HERE / "results" / "short_trainings.json"
SCORED = 400


def trained(
    data: Path, name: str, *, batch: int, tasks: int, seed: int, edges: bool
) -> dict[str, float]:
    """The accuracies of one training."""
    own, _ = choose([str(data)])
    made = replace(
        recipe(name),
        steps=tasks // batch,
        batch=batch,
        seed=seed,
        tasks=replace(own.tasks, split_seed=seed),
        network=replace(own.network, edges=edges),
    )
    with TemporaryDirectory() as folder:
        splits = splits_of(made.tasks.build(Path(folder) / "split.json"))
    state, key = fresh(made, splits.train.problem).state, training_key(seed)
    with closing(intervals(FitOptions.of(made), state, splits.train, None, key=key)) as loop:
        for moment in loop:
            state = moment.state
    return {
        part: round(
            float(np.mean(evaluate(state.learner, splits, SCORED, split=part, chunk=1).values)), 4
        )
        for part in ("validation", "test")
    }


def results() -> dict[str, dict[str, float]]:
    """The rows that the file holds, by their names."""
    return json.loads(RESULTS.read_text())["results"] if RESULTS.exists() else {}


def main() -> None:
    """Make what is missing, one training after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="+", type=Path, help="zips with one folder for each class")
    parser.add_argument(
        "--recipes", nargs="+", default=["folders/protonet-scaled", "folders/arml-mahalanobis"]
    )
    parser.add_argument("--batches", nargs="+", type=int, default=[4, 2])
    parser.add_argument("--tasks", nargs="+", type=int, default=[400])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--edges", action="store_true", help="with the edges of a picture")
    given = parser.parse_args()
    before = machine()
    each = product(given.data, given.tasks, given.recipes, given.batches, given.seeds)
    for data, tasks, method, batch, seed in each:
        features = ", edges" if given.edges else ""
        name = f"{data.stem}, {tasks} tasks, {method}{features}, {batch} a step, seed {seed}"
        if name in results():
            continue
        row = trained(data, method, batch=batch, tasks=tasks, seed=seed, edges=given.edges)
        print(name, row, flush=True)
        with FileLock(Path(gettempdir()) / "short_trainings.lock"):
            write("short_trainings", {**results(), name: row}, before)


if __name__ == "__main__":
    main()
