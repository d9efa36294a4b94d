"""How often 90% intervals hold the targets: the learner of functions that ships, on new tasks.

Tasks are drawn from the validation split's keys. Results go to `results/coverage.json`.
"""

import argparse
import json
from pathlib import Path

import equinox as eqx
import jax
import numpy as np

import arml
from arml.tasks.functions import functions_2d
from arml.training.provenance import provenance

RESULTS = Path(__file__).parent / "results" / "coverage.json"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=60)
    n = parser.parse_args().tasks
    few, rows = arml.load("regression2d"), []
    for shots in (10, 20):
        sample = eqx.filter_jit(functions_2d(shots=shots, queries=10).sample)
        within, width = [], []
        for key in jax.random.split(jax.random.key(1), n):
            task = jax.tree.map(np.asarray, sample(key))
            predictor = few.adapt(task.support.x, task.support.y[:, 0])
            low, high = predictor.interval(task.query.x)
            targets = task.query.y[:, 0]
            within.append(float(np.mean((low <= targets) & (targets <= high))))
            width.append(float(np.median(high - low)))
        error = 1.96 * float(np.std(within, ddof=1)) / n**0.5
        rows.append(
            {
                "shots": shots,
                "tasks": n,
                "level": 0.9,
                "coverage": float(np.mean(within)),
                "ci95": error,
                "median_width": float(np.median(width)),
            }
        )
        print(rows[-1], flush=True)
    RESULTS.write_text(json.dumps({"rows": rows, **provenance()}, indent=2) + "\n")


if __name__ == "__main__":
    main()
