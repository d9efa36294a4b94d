"""Does it help to train on real tables? One learner on synthetic tables, one on real, one on both.

    python benchmarks/table_arms.py OUT.json [--steps 1500] [--seed 0]

The three are trained in the same way for as many steps. The real tables are the development tables
of `benchmarks/table_origins.json`, and half of the tasks of `both` are synthetic. All are scored on
the held-out tables (the result is of the form of `benchmarks/tables.py`, for
`benchmarks/table_summary.py`), without a temperature. Nothing is shipped.
"""

import argparse
import csv
import dataclasses
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import equinox as eqx
import jax
import jax.numpy as jnp

import arml
from arml.datasets.tables import load_tables
from arml.results.files import write_json
from arml.tasks.tables import RealTables, SyntheticTables
from tables import PLACE, Learned, scored, table, tasks

ROWS, SHOTS = 1_000, (5, 20)
"""The most rows of a development table, and examples a class."""


class Both(arml.TaskDistribution):
    """Half of the tasks are of one distribution, half of the other."""

    one: arml.TaskDistribution
    other: arml.TaskDistribution
    families = ("one", "other")
    problem = property(lambda self: self.one.problem)

    def sample(self, key):
        pick_key, task_key = jax.random.split(key)
        first = jax.random.bernoulli(pick_key)
        tasks = (part.sample(task_key)._replace(classes=None) for part in (self.one, self.other))
        drawn = jax.tree.map(lambda a, b: jnp.where(first, a, b), *tasks)
        return drawn._replace(family=(~first).astype(jnp.int32))


def development(synthetic: SyntheticTables, origins: list[str]) -> RealTables:
    """Tasks of all the development tables."""
    with TemporaryDirectory() as folder:
        for origin in origins:
            cells, target = table(origin)
            with (Path(folder) / f"{origin}.csv").open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                writer.writerow([*(f"c{name}" for name in cells), "target"])
                rows = list(zip(*cells.values(), target, strict=True))
                some = jax.random.permutation(jax.random.key(0), len(rows))[:ROWS].tolist()
                writer.writerows(rows[i] for i in some)
        columns = synthetic.problem.features[0]
        loaded = load_tables(
            [folder], Path(folder) / "split.json", predict="classes", columns=columns
        )
    every = dataclasses.replace(loaded, parts={"train": [one.origin for one in loaded.tables]})
    part = every.part("train")
    return RealTables(part.values, synthetic.problem, part.names, str(part.digests), whole=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=1_500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    origins = json.loads(PLACE.read_text())["classification"]
    experiment = arml.recipe("tables/tables")
    synthetic = SyntheticTables(experiment.tasks.problem)
    real = development(synthetic, origins["development"])
    arms = {"synthetic": synthetic, "real": real, "both": Both(synthetic, real)}
    names = {}
    for name, distribution in arms.items():
        kept = options.out.with_name(f"{options.out.stem}-{name}-{options.steps}.eqx")
        learner = arml.build("tables/tables", synthetic, seed=options.seed)
        if not kept.exists():
            fitted = arml.fit(
                learner,
                distribution,
                steps=options.steps,
                seed=options.seed,
                outer=experiment.outer,
                batch=experiment.batch,
                interval=experiment.interval,
                chunk=experiment.chunk,
                scan=experiment.scan,
                progress=True,
            )
            eqx.tree_serialise_leaves(kept, fitted.learner)
        names[name] = Learned(eqx.tree_deserialise_leaves(kept, learner))
    found = []
    for origin in origins["test"]:
        for one in tasks(origin, SHOTS, 2, False):
            row = {"table": origin, "size": one[0], "seed": one[1]}
            found.append({**row, "scores": scored(names, one, [])})
        print(origin, flush=True)
    told = {"kind": "classification", "part": "test", "steps": options.steps, "seed": options.seed}
    write_json(options.out, {**told, "tasks": found})


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    main()
