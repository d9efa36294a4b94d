"""Does a task need what it reads of the graph? The learner of tables with its readings replaced.

    python benchmarks/table_graph.py LEARNER OUT.json

On the development tables of `benchmarks/table_origins.json`, each task is learned with its own
reading, with the mean reading of all tasks, and with that of a task of the next table. The learner
is the same; a difference is the graph's part in its predictions.
"""

import dataclasses
import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from arml.algorithms.tables import Tables
from arml.core.compilation import short
from arml.results.files import write_json
from tables import PLACE, Learned, tasks

SIZES = (5, 20)


@short
def reads(learner: Tables, support):
    return learner.reads(support)


def with_reading(learner: Tables, reading: np.ndarray) -> Tables:
    """The learner for which every task has this reading: all templates are its blend."""

    def blend(templates):
        one = jnp.einsum("v,v...->...", jnp.asarray(reading, jnp.float32), templates)
        return jnp.broadcast_to(one, templates.shape)

    return dataclasses.replace(
        learner, scales=blend(learner.scales), settings=blend(learner.settings)
    )


def main() -> None:
    name, out = sys.argv[1:]
    learned = Learned.load(name)
    learner = learned.learner
    found = []
    for origin in json.loads(PLACE.read_text())["classification"]["development"]:
        for size, _, *task in tasks(origin, SIZES, 1, False):
            x, y = task[:2]
            reading = np.asarray(reads(learner, learned.sized(x, y.astype(np.int32))))
            found.append((origin, size, task, reading))
    readings = np.stack([reading for *_, reading in found])
    rows = []
    for i, (origin, size, (x, y, query, y_query), reading) in enumerate(found):
        of_same = [j for j, (_, n, *_) in enumerate(found) if n == size]
        other = of_same[(of_same.index(i) + 1) % len(of_same)]
        scores = {}
        for kind, used in {
            "own": reading,
            "mean": readings.mean(axis=0),
            "another's": readings[other],
        }.items():
            learned.learner = with_reading(learner, used)
            chances = learned.chances(x, y, query)
            own = np.clip(chances[np.arange(len(y_query)), y_query], 1e-6, 1)
            right = np.mean(chances.argmax(axis=1) == y_query)
            scores[kind] = [float(right), float(-np.log(own).mean())]
        rows.append({"table": origin, "size": size, "reading": reading.tolist(), "scores": scores})
    summary = {}
    for kind in ("mean", "another's"):
        off = np.array([np.subtract(r["scores"]["own"], r["scores"][kind]) for r in rows])
        half = 1.96 * off.std(axis=0, ddof=1) / np.sqrt(len(off))
        summary[f"own less {kind}"] = {
            part: [float(off[:, k].mean()), float(half[k])]
            for k, part in enumerate(("accuracy", "log loss"))
        }
    summary["mean reading"] = readings.mean(axis=0).tolist()
    summary["spread of the readings"] = readings.std(axis=0).tolist()
    write_json(Path(out), {"learner": name, "summary": summary, "tasks": rows})
    print(json.dumps(summary, indent=1))


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    main()
