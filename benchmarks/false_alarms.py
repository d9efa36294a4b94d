"""How often novelty is above 1 for test tasks of the families that a shipped learner knows: 5% was
asked for. Support sets of the training's size, smaller ones made of the tasks' queries, and single
queries. Results go to `results/false_alarms.json`.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import arml
from arml.core.novelty import Novelty
from arml.predict.embedding import task_vectors
from arml.predict.novelty import bound
from common import machine, write

SETS = ((2, 1), (2, 3), (3, 1), (3, 5), (5, 3))
"""Classes and examples of each in the smaller support sets."""


def small_sets(known: Novelty, queries: np.ndarray) -> dict[str, float]:
    """The rates of support sets drawn from queries `[tasks, classes, each, d]`."""
    rates = {}
    for ways, shots in SETS:
        rng, alarms = np.random.default_rng(0), []
        for task in queries:
            some = task[rng.permutation(len(task))[:ways]][
                :, rng.permutation(task.shape[1])[:shots]
            ]
            distances = known.distances(some.reshape(-1, some.shape[-1]))
            alarms.append(distances.mean() > bound(known, ways * shots))
        rates[f"{ways} classes, {shots} examples of each"] = float(np.mean(alarms))
    return rates


def measure(name: str, n: int) -> dict[str, Any]:
    portable = arml.load(name).portable
    known, problem = portable.novelty, portable.problem
    assert known is not None
    with tempfile.TemporaryDirectory() as folder:
        tasks = portable.experiment.tasks.build(Path(folder) / "split.json").test
    own, _, queries = task_vectors(portable.learner, tasks, split="test", n=n, chunk=10)
    distances = np.array([known.distances(each).mean() for each in own])
    result: dict[str, Any] = {
        "tasks": n,
        "support": float(np.mean(distances > bound(known, own.shape[1]))),
    }
    if known.query is not None:
        single = known.distances(queries.reshape(-1, queries.shape[-1]))
        result["queries"] = float(np.mean(single > known.query))
        grouped = queries.reshape(n, problem.outputs, -1, queries.shape[-1])
        result |= {"sets": small_sets(known, grouped)}
    return result


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=100)
    options = parser.parse_args()
    before = machine()
    results = {name: measure(name, options.tasks) for name in ("starter", "regression2d")}
    write("false_alarms", results, before)
    print(results)


if __name__ == "__main__":
    main()
