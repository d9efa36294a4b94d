"""What a graph that is read is worth where families conflict, with a small perceptron, so that many
trainings fit on one core: `starter-conflict` at 16 px in grey, one model a family, one for all, and
ARML with templates by its number of vertices.

Every model trains for equally many outer steps a family and is scored on the same validation tasks
of each family. ARML is also scored with every task's reading replaced: by the mean reading, by that
of the family with the other question, and by an equal share of all vertices. What is done stands in
`results/tailoring.json` after each training; the same command trains what is missing.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from arml.algorithms.arml import ARMLOptions
from arml.algorithms.mumomaml import MUMOMAMLOptions
from arml.algorithms.proto_maml import ProtoMAMLOptions
from arml.algorithms.protonet import ProtoNetOptions
from arml.algorithms.tadam import TADAMOptions
from arml.algorithms.tapnet import TapNetOptions
from arml.core.episodes import Examples, Problem, Task, TaskDistribution
from arml.core.learner import Conditioned, MetaLearner
from arml.nn.networks import MLPOptions
from arml.tasks.conflict import QUESTIONS, ConflictOptions
from arml.training.evaluate import evaluate
from arml.training.step import OuterOptions, make_interval, make_step, start
from common import HERE, machine, write

SIDE = 16
SCALED: dict[str, Any] = {"scale": 0.05, "learn_scale": True}
READING: dict[str, Any] = {
    "head": "prototypes",
    "inner_steps": 0,
    "reads": "features",
    "structure": "spread",
    "gate": "templates",
    "layers": 0,
    "gamma_s": 0.5,
    "vertex_init": "middle",
    "mu_2": 0.1,
}
METHODS: dict[str, Any] = {
    "protonet": ProtoNetOptions(**SCALED),
    "mahalanobis": ProtoNetOptions(**SCALED, metric="mahalanobis"),
    "tapnet": TapNetOptions(**SCALED),
    "tadam": TADAMOptions(**SCALED, metric="squared"),
    "proto-maml": ProtoMAMLOptions(inner_rate=0.05),
    "mumomaml": MUMOMAMLOptions(head="prototypes", inner_steps=0, modulation="film"),
    "arml-means": ARMLOptions(**{**READING, "structure": "classes"}, vertices=4),
    **{f"arml-{n}": ARMLOptions(**READING, vertices=n) for n in (1, 2, 4, 8)},
    "arml-4-sharp": ARMLOptions(**{**READING, "gamma_s": 0.25}, vertices=4),
    "arml-4-steps": ARMLOptions(**{**READING, "inner_steps": 3}, inner_rate=0.05, vertices=4),
}


class Small(TaskDistribution):
    """The same tasks in grey, `SIDE` pixels a side, as vectors of mean zero."""

    families: tuple[str, ...] = eqx.field(static=True)
    problem: Problem = eqx.field(static=True)
    tasks: TaskDistribution

    def sample(self, key: PRNGKeyArray) -> Task:
        task = self.tasks.sample(key)
        return task._replace(support=small(task.support), query=small(task.query))


def small(examples: Examples) -> Examples:
    """Means over squares of pixels."""
    x, n = examples.x[..., 0], len(examples.x)
    each = x.shape[1] // SIDE
    x = jnp.mean(x.reshape(n, SIDE, each, SIDE, each), axis=(2, 4)).reshape(n, -1)
    return Examples(2 * x - 1, examples.y)


def shrunk(tasks: TaskDistribution) -> Small:
    """Those tasks as `Small` ones."""
    problem = replace(tasks.problem, features=(SIDE * SIDE,))
    return Small(tasks.families, problem, tasks)


@dataclass(frozen=True)
class Cell:
    """One training."""

    families: tuple[str, ...]
    method: str
    shots: int
    steps: int
    """Outer steps a family."""
    seed: int

    @property
    def name(self) -> str:
        who = "+".join(self.families)
        return f"{self.method}, {who}, {self.shots}-shot, {self.steps} steps, seed {self.seed}"


def splits(families: tuple[str, ...], shots: int, queries: int) -> Any:
    """Training and validation tasks of some families."""
    return ConflictOptions(shots=shots, queries=queries, families=families).build(Path("none"))


def trained(cell: Cell, *, rate: float) -> MetaLearner:
    """The learner after its outer steps, 8 tasks of 5 queries a class each."""
    tasks = shrunk(splits(cell.families, cell.shots, 5).train)
    steps, chunk = cell.steps * len(cell.families), 40
    net_key, key, train_key = jax.random.split(jax.random.key(cell.seed), 3)
    net = MLPOptions(hidden=(256, 128), init="he").build(tasks.problem, key=net_key)
    learner = METHODS[cell.method].build(net, tasks.problem, key=key)
    optimiser = OuterOptions(outer_rate=rate, schedule="cosine", clip=10.0).build(steps)
    step = make_step(optimiser, batch=8, key=train_key)
    interval = make_interval(step, steps=chunk, scan=True)
    state = start(learner, optimiser)
    for _ in range(-(-steps // chunk)):
        state, record = interval(tasks, state)
    assert bool(jnp.all(record.finite))
    return state.learner


class Always(eqx.Module):
    """An encoder that gives every task the same code."""

    code: Array

    def __call__(self, support: Examples) -> tuple[Array, float]:
        return self.code, 0.0


def readings(learner: Conditioned, tasks: TaskDistribution, n: int = 100) -> np.ndarray:
    """What training tasks read."""

    @eqx.filter_jit
    def read(learner: Conditioned, keys: Array) -> Array:
        def one(key: Array) -> Array:
            return learner.encode(learner.look(learner.net, tasks.sample(key).support))[0]

        return jax.vmap(one)(keys)

    return np.asarray(read(learner, jax.random.split(jax.random.key(7), n)))


def replaced(
    learner: Conditioned, each: dict[str, np.ndarray]
) -> Iterator[tuple[str, str, MetaLearner]]:
    """The learner with other readings: what is replaced, for which family, and the learner."""
    means = {family: r.mean(axis=0) for family, r in each.items()}
    over_all = np.mean(list(means.values()), axis=0)
    for family in each:
        others = {"mean": over_all, "equal": np.full_like(over_all, 1 / len(over_all))}
        topic, question = family.split("-")
        for other in means:
            if other.split("-")[0] == topic and other.split("-")[1] != question:
                others["other"] = means[other]
        for name, code in others.items():
            yield name, family, eqx.tree_at(lambda m: m.encode, learner, Always(jnp.asarray(code)))


def measured(cell: Cell, *, tasks: int, rate: float) -> dict[str, Any]:
    """Train, and score on validation tasks of each family."""
    begun = time.monotonic()
    learner = trained(cell, rate=rate)
    each = {f: splits((f,), cell.shots, 10) for f in cell.families}

    def score(one: MetaLearner, family: str) -> np.ndarray:
        of = shrunk(each[family].validation)
        return evaluate(one, of, split="validation", n=tasks, chunk=50).values

    own = {family: score(learner, family) for family in cell.families}
    found: dict[str, Any] = {
        "accuracy": {f: round(float(v.mean()), 4) for f, v in own.items()},
        "values": {f: " ".join(f"{x:.2f}" for x in v) for f, v in own.items()},
    }
    if isinstance(learner, Conditioned) and cell.method.startswith("arml"):
        read = {f: readings(learner, shrunk(split.train)) for f, split in each.items()}
        found["readings"] = {f: np.round(r.mean(axis=0), 3).tolist() for f, r in read.items()}
        found["lost"] = {}
        for name, family, other in replaced(learner, read):
            change = own[family] - score(other, family)
            half = 1.96 * change.std(ddof=1) / len(change) ** 0.5
            entry = [round(float(change.mean()), 4), round(float(half), 4)]
            found["lost"].setdefault(name, {})[family] = entry
    return {**found, "seconds": round(time.monotonic() - begun, 1)}


def main() -> None:
    """Train what is missing, one cell after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--methods", nargs="+", default=["protonet", "arml-4"], choices=list(METHODS)
    )
    parser.add_argument("--families", nargs="+", default=["glyphs-character", "glyphs-style"])
    parser.add_argument("--specialists", action="store_true", help="one model a family as well")
    parser.add_argument("--shots", type=int, default=5)
    parser.add_argument("--steps", type=int, default=400, help="outer steps a family")
    parser.add_argument("--rate", type=float, default=0.003, help="outer rate")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--tasks", type=int, default=400, help="validation tasks a family")
    given = parser.parse_args()
    path = HERE / "results" / "tailoring.json"
    before = machine()
    done = json.loads(path.read_text())["results"] if path.exists() else {}
    together = tuple(QUESTIONS) if given.families == ["all"] else tuple(given.families)
    apart = [(family,) for family in together] if given.specialists else []
    for seed in given.seeds:
        for families in (together, *apart):
            for method in given.methods:
                cell = Cell(families, method, given.shots, given.steps, seed)
                name = cell.name + (f", rate {given.rate:g}" if given.rate != 0.003 else "")
                if name not in done:
                    done[name] = measured(cell, tasks=given.tasks, rate=given.rate)
                    print(name, done[name]["accuracy"], done[name].get("lost", ""), flush=True)
                    write("tailoring", done, before)


if __name__ == "__main__":
    main()
