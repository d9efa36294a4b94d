"""How often novelty is above 1 for test tasks of the families that a shipped learner knows: 5% was
asked for. Support sets of several sizes, each embedded as a predictor embeds it, and single queries
beside them. Results go to `results/false_alarms.json`.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import arml
from arml.predict.embedding import set_vectors, task_vectors
from common import machine, write

SETS = ((2, 1), (2, 3), (2, 10), (3, 1), (3, 5), (4, 2), (5, 1), (5, 3), (5, 10))
"""Classes, and examples of each, of the support sets."""


def measure(name: str, n: int) -> dict[str, Any]:
    portable = arml.load(name).portable
    known, problem = portable.novelty, portable.problem
    assert known is not None
    with tempfile.TemporaryDirectory() as folder:
        tasks = portable.experiment.tasks.build(Path(folder) / "split.json").test
    result: dict[str, Any] = {"tasks": n}
    if problem.kind == "regression":
        own = task_vectors(portable.learner, tasks, split="test", n=n, chunk=10)[0]
        distances = np.array([known.distances(each).mean() for each in own])
        return result | {"support": float(np.mean(distances > known.support))}
    for ways, shots in SETS:
        found = set_vectors(portable.learner, tasks, (ways, shots), split="test", n=n, chunk=1)
        own, queries = (
            known.distances(part.reshape(-1, part.shape[-1])).reshape(n, -1) for part in found[:2]
        )
        support, query = known.bounds(np.full(ways, shots))
        result[f"{ways} classes, {shots} examples of each"] = {
            "support": float(np.mean(own.mean(axis=1) > support)),
            "queries": float(np.mean(queries > query)),
        }
    return result


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=300)
    options = parser.parse_args()
    before = machine()
    results = {name: measure(name, options.tasks) for name in ("starter", "regression2d")}
    write("false_alarms", results, before)
    print(results)


if __name__ == "__main__":
    main()
