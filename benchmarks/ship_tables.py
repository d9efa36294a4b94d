"""Write the learner of tables that ships, from a run, with its probabilities calibrated.

    python benchmarks/ship_tables.py RUN FOLDER [--regression]

The temperature is chosen on the development tables of `benchmarks/table_origins.json` and on no
other. Of classes it divides the logits, and gives the highest likelihood. Of numbers it multiplies
the scale of the distribution, and is that with which the 80% interval covers 80% of the targets
[1].

[1] Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World, 2005: conformal prediction.
"""

import argparse
import dataclasses
from typing import Any

import jax
import numpy as np
from scipy.special import stdtrit

import arml
import table_prior  # noqa: F401  (it registers the run's tasks)
from arml.predict.learner import mean_cross_entropy, temperature
from arml.tasks.own import OwnOptions
from tables import ORIGINS, ROWS, SHOTS, Learned, tasks

LEVEL = 0.8
"""The level of the interval of numbers that is calibrated."""


def calibrated(learned: Learned, regression: bool) -> float:
    """The temperature of the learner's probabilities, or of the scale of its numbers."""
    found: list[Any] = []
    for origin in ORIGINS["regression" if regression else "classification"]["development"]:
        sizes = ROWS if regression else SHOTS[1:]
        for _, _, x, y, query, y_query in tasks(origin, sizes, 1, regression):
            if regression:
                centre, scale = learned.numbers(x, y, query).T
                found.append(((y_query - centre) / scale)[:20])
            else:
                found.append((learned.logits(x, y, query)[:20], y_query[:20]))
    if regression:
        return conformal(np.abs(np.concatenate(found)))
    logits, y = (np.concatenate(part) for part in zip(*found, strict=True))
    best = temperature(logits, y)
    print("log loss", mean_cross_entropy(logits, y), "->", mean_cross_entropy(logits, y, best))
    return best


def conformal(off: np.ndarray) -> float:
    """The factor of the scales with which `LEVEL` of the targets lie within the interval."""
    rank = np.ceil(LEVEL * (len(off) + 1)) / len(off)
    return float(np.quantile(off, rank, method="higher") / stdtrit(4, (1 + LEVEL) / 2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run")
    parser.add_argument("folder")
    parser.add_argument("--regression", action="store_true")
    options = parser.parse_args()
    found = calibrated(Learned.load(options.run), options.regression)
    print("temperature", found)
    learner = arml.load(options.run)
    # Its tasks are drawn by a file that users do not have.
    tasks = OwnOptions("table_prior.py", "SyntheticTables", file="table_prior.py")
    experiment = dataclasses.replace(learner.experiment, tasks=tasks)
    dataclasses.replace(learner, experiment=experiment, temperature=found).save(options.folder)


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    main()
