"""Write the learner of tables that ships, from a run, with its probabilities calibrated.

    python benchmarks/ship_tables.py RUN FOLDER [--regression]

The temperature is chosen on the development tables of `benchmarks/table_origins.json` and on no
other: of classes it divides the logits, of numbers it multiplies the scale of the distribution.
"""

import argparse
import dataclasses
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import t as student

import arml
from arml.core.calibration import expected_error, temperature
from arml.predict.sharing import write_learner
from tables import PLACE, QUERIES, Learned, _logits, tasks


def calibrated(learned: Learned, regression: bool, most: int) -> float:
    kind = "regression" if regression else "classification"
    origins = json.loads(PLACE.read_text())[kind]["development"]
    found: list[Any] = []
    for origin in origins[: most or None]:
        for _, _, x, y, query, y_query in tasks(origin, (5, 10, 20), 1, regression):
            if regression:
                centre, scale = learned.numbers(x, y, query).T
                found.append(((y_query - centre) / scale)[:20])
            else:
                full = np.pad(query, ((0, QUERIES - len(query)), (0, 0), (0, 0)))
                support = learned.sized(x, y.astype(np.int32))
                logits = np.asarray(_logits(learned.learner, support, jnp.asarray(full)))
                found.append((logits[: len(query)][:20], y_query[:20]))
    if regression:
        off = np.concatenate(found)
        widths = np.exp(np.linspace(-1.5, 1.5, 61))
        return float(
            widths[np.argmax([student.logpdf(off / w, 4).mean() - np.log(w) for w in widths])]
        )
    logits, y = (np.concatenate(part) for part in zip(*found, strict=True))
    best = temperature(logits, y)
    print("calibration error", expected_error(logits, y), "->", expected_error(logits, y, best))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run")
    parser.add_argument("folder")
    parser.add_argument("--regression", action="store_true")
    parser.add_argument("--tables", type=int, default=0, help="only so many tables")
    options = parser.parse_args()
    found = calibrated(Learned(options.run), options.regression, options.tables)
    print("temperature", found)
    portable = arml.load(options.run).portable
    write_learner(dataclasses.replace(portable, temperature=found), options.folder)


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    main()
