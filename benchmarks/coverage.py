"""How often 90% intervals hold the targets: the learner of functions that ships, alone and together
with a Gaussian process, as `arml adapt` predicts, on new tasks. And how often an example is said to
be far off: in these tasks, and after one target was moved by ten standard deviations.

Tasks are drawn from the validation split's keys. Results go to `results/coverage.json`.
"""

import argparse
import json
from pathlib import Path

import equinox as eqx
import jax
import numpy as np

import arml
from arml.predict.simple import Uses
from arml.results.intervals import score_of
from arml.tasks.functions import functions_2d
from arml.training.provenance import provenance

RESULTS = Path(__file__).parent / "results" / "coverage.json"
USES: tuple[Uses, ...] = ("learner", "together")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=60)
    n = parser.parse_args().tasks
    few, rows = arml.load("regression2d"), []
    for shots in (10, 20):
        sample = eqx.filter_jit(functions_2d(shots=shots, queries=10).sample)
        within: dict[Uses, list[float]] = {uses: [] for uses in USES}
        width: dict[Uses, list[float]] = {uses: [] for uses in USES}
        named, found, rng = [], [], np.random.default_rng(0)
        for key in jax.random.split(jax.random.key(1), n):
            task = jax.tree.map(np.asarray, sample(key))
            predictor = few.adapt(task.support.x, task.support.y[:, 0])
            predictor.errors()  # its parts serve both
            targets = task.query.y[:, 0]
            named.append(len(predictor.using("together").errors().far) > 0)
            place, y = int(rng.integers(shots)), np.array(task.support.y[:, 0])
            y[place] = y.mean() + 10 * y.std() * rng.choice([-1, 1])
            found.append(place in few.adapt(task.support.x, y).using("together").errors().far)
            for uses in USES:
                low, high = predictor.using(uses).interval(task.query.x)
                within[uses].append(float(np.mean((low <= targets) & (targets <= high))))
                width[uses].append(float(np.median(high - low)))
        rows.append(
            {
                "shots": shots,
                "named": score_of(np.array(named, float)),
                "named_if_moved": score_of(np.array(found, float)),
            }
        )
        print(rows[-1], flush=True)
        for uses in USES:
            row = {
                "uses": uses,
                "shots": shots,
                "level": 0.9,
                "coverage": score_of(np.array(within[uses])),
                "median_width": float(np.median(width[uses])),
            }
            rows.append(row)
            print(row, flush=True)
    RESULTS.write_text(json.dumps({"rows": rows, **provenance()}, indent=2) + "\n")


if __name__ == "__main__":
    main()
