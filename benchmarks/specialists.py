"""How much tailoring can gain at most: one model a family, the family known, against one model for
all, at equal outer steps a family.

Where specialists are no better than the generalist, no method that tailors by family can be. Each
training is a run folder under `--runs`, so that the same command takes up where it stopped; scores
are those on validation tasks of one family each, the same for both models. What is done stands in
`results/specialists.json` after each training.
"""

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from arml.core.learner import Conditioned
from arml.experiment import Experiment, Run, run
from arml.experiment.recipes import recipe
from arml.tasks.conflict import QUESTIONS, ConflictOptions
from arml.training.evaluate import evaluate
from common import HERE, machine, write

GROUPS: dict[str, tuple[str, ...]] = {
    name: tuple(q for q in QUESTIONS if q.startswith(name))
    for name in ("glyphs", "icons", "textures")
}
"""Families of the same pictures under conflicting questions."""
RESULTS = HERE / "results" / "specialists.json"


@dataclass(frozen=True)
class Cell:
    """One training on some families."""

    group: str
    families: tuple[str, ...]
    method: str
    seed: int
    steps: int
    """Outer steps a family."""
    shots: int

    @property
    def name(self) -> str:
        """Of its run folder, and in the results."""
        who = "all" if len(self.families) > 1 else self.families[0]
        return f"{self.group}-{self.shots}shot-{self.steps}-{self.method}-{who}-{self.seed}"


SCALED = {"scale": 0.05, "learn_scale": True}
READING = {
    "head": "prototypes",
    "inner_steps": 0,
    "learn_rates": False,
    "reads": "features",
    "structure": "spread",
    "gate": "templates",
    "layers": 0,
    "gamma_s": 0.5,
    "vertex_init": "middle",
    "mu_2": 0.1,
}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "protonet": ("protonet", SCALED),
    "mahalanobis": ("protonet", {**SCALED, "metric": "mahalanobis"}),
    "tadam": ("tadam", {**SCALED, "metric": "squared"}),
    **{f"arml-{n}": ("arml", {**READING, "vertices": n}) for n in (1, 2, 4, 8, 16)},
}
"""The algorithm of a recipe, and what is changed of it."""


def experiment(cell: Cell) -> Experiment:
    """The training of a cell: few queries, because two cores are few."""
    algorithm, changes = METHODS[cell.method]
    base = recipe(f"starter-conflict/{algorithm}")
    tasks = ConflictOptions(shots=cell.shots, queries=5, families=cell.families)
    steps = cell.steps * len(cell.families)
    outer = replace(base.outer, encoder_factor=1.0)
    return replace(
        base,
        tasks=tasks,
        algorithm=replace(base.algorithm, **changes),
        outer=outer,
        steps=steps,
        seed=cell.seed,
        checkpoint_every=20,
        validate_every=steps - steps % 20,
        validation_tasks=10,
    )


def scores(folder: Path, cell: Cell, *, tasks: int) -> dict[str, Any]:
    """The score on the first validation tasks of each family by itself."""
    trained = Run(folder)
    learner = trained.learner
    each = {
        family: ConflictOptions(shots=cell.shots, queries=10, families=(family,)).build(folder)
        for family in cell.families
    }
    learners = {"": learner}
    readings: dict[str, Any] = {}
    if isinstance(learner, Conditioned):
        readings = {family: read(learner, split.train) for family, split in each.items()}
        mean = jnp.asarray(np.mean(list(readings.values()), axis=0))
        learners["mean reading"] = eqx.tree_at(lambda m: m.encode, learner, Always(mean))
    found: dict[str, Any] = {}
    for family, split in each.items():
        for name, one in learners.items():
            values = evaluate(one, split.validation, split="validation", n=tasks, chunk=1).values
            key = f"{family}, {name}" if name else family
            found[key] = {
                "mean": float(values.mean()),
                "values": " ".join(f"{v:.3f}" for v in values),
            }
    return {
        "families": found,
        "readings": {family: np.round(r, 3).tolist() for family, r in readings.items()},
        "seconds": trained.seconds,
        "step": trained.step,
    }


class Always(eqx.Module):
    """An encoder that gives every task the same code."""

    code: Array

    def __call__(self, support: Any) -> tuple[Array, float]:
        return self.code, 0.0


def read(learner: Conditioned, tasks: Any) -> np.ndarray:
    """What the tasks of a distribution read, on average."""

    @eqx.filter_jit
    def code(learner: Conditioned, key: Array) -> Array:
        return learner.encode(learner.look(learner.net, tasks.sample(key).support))[0]

    return np.mean([code(learner, jax.random.key(i)) for i in range(40)], axis=0)


def main() -> None:
    """Train what is missing, one cell after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs/specialists"))
    parser.add_argument("--groups", nargs="+", default=list(GROUPS), choices=list(GROUPS))
    parser.add_argument("--methods", nargs="+", default=["protonet"], choices=list(METHODS))
    parser.add_argument("--steps", type=int, default=200, help="outer steps a family")
    parser.add_argument("--shots", type=int, default=5)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--tasks", type=int, default=400, help="validation tasks a family")
    parser.add_argument("--generalists-only", action="store_true")
    given = parser.parse_args()
    before = machine()
    done = json.loads(RESULTS.read_text())["results"] if RESULTS.exists() else {}
    for seed in given.seeds:
        for method in given.methods:
            for group in given.groups:
                names = GROUPS[group]
                alone = [] if given.generalists_only else [(name,) for name in names]
                for families in (names, *alone):
                    cell = Cell(group, families, method, seed, given.steps, given.shots)
                    if cell.name in done:
                        continue
                    folder = given.runs / cell.name
                    run(experiment(cell), folder)
                    done[cell.name] = scores(folder, cell, tasks=given.tasks)
                    means = {f: round(s["mean"], 4) for f, s in done[cell.name]["families"].items()}
                    print(cell.name, means, f"{done[cell.name]['seconds']:.0f} s", flush=True)
                    write("specialists", done, before)


if __name__ == "__main__":
    main()
