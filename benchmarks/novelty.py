"""Can a learner tell families that its meta-training never saw?

One family is left out of meta-training; the learner is exported, with the bank and the calibration
that novelty needs; then tasks of the family that was left out and test tasks of the others are told
apart by the novelty of their support sets, and of their queries: AUROC. Short trainings: this
measures the score, not the learner.
"""

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array
from scipy.stats import mannwhitneyu

import arml
from arml.core.episodes import Problem, Task, TaskDistribution
from arml.datasets.starter import load_starter
from arml.experiment.loaded import Run
from arml.predict.embedding import measured_novelty, task_vectors
from arml.predict.inference import inductive
from arml.tasks.functions import FAMILIES
from arml.tasks.images import listed
from arml.tasks.options import FunctionsOptions, Splits, StarterOptions
from common import HERE, machine, write


class Among(TaskDistribution):
    """The tasks of a distribution that are of some of its families."""

    tasks: TaskDistribution
    allowed: tuple[int, ...] = eqx.field(static=True)
    families: tuple[str, ...] = eqx.field(static=True)
    problem: Problem = eqx.field(static=True)

    def sample(self, key: Array) -> Task:
        def refused(key: Array) -> Array:
            family = self.tasks.sample(key).family
            return ~jax.numpy.any(family == jax.numpy.asarray(self.allowed))

        key = jax.lax.while_loop(refused, lambda key: jax.random.split(key, 1)[0], key)
        return self.tasks.sample(key)


def among(tasks: TaskDistribution, allowed: tuple[int, ...]) -> Among:
    return Among(tasks, allowed, tasks.families, tasks.problem)


@dataclass(frozen=True)
class FunctionsWithout(FunctionsOptions):
    """The 2-D functions but for one family."""

    held_out: str = FAMILIES[-1]

    def build(self, split: Path, *, progress: Any = None) -> Splits:
        tasks = among(
            self._tasks(), tuple(i for i, name in enumerate(FAMILIES) if name != self.held_out)
        )
        return Splits(tasks, tasks, tasks, {})

    def unseen(self) -> TaskDistribution:
        return among(self._tasks(), (FAMILIES.index(self.held_out),))


@dataclass(frozen=True)
class StarterWithout(StarterOptions):
    """The starter set but for one family."""

    held_out: str = "textures"

    def build(self, split: Path, *, progress: Any = None) -> Splits:
        parts = (self._part(part, unseen=False) for part in ("train", "validation", "test"))
        return Splits(*parts, {"without": self.held_out})

    def unseen(self) -> TaskDistribution:
        return self._part("test", unseen=True)

    def _part(self, part: str, *, unseen: bool) -> TaskDistribution:
        families, split = load_starter()
        kept = [f for f in families if (f.name == self.held_out) == unseen]
        images = listed(
            kept, split, part=part, ways=self.ways, shots=self.shots, queries=self.queries
        )
        return images.on_the_device()


arml.register("tasks", "functions-without", FunctionsWithout)
arml.register("tasks", "starter-without", StarterWithout)


RUNS = (
    ("starter", "arml", "icons"),
    ("starter", "arml", "textures"),
    ("starter", "protonet", "icons"),
    ("regression2d", "arml", "quadratic surface"),
    ("starter", "protonet", "textures"),
    ("regression2d", "arml", "ripple"),
)


def experiment(problem: str, algorithm: str, held_out: str) -> arml.Experiment:
    """A short training without one family."""
    made = arml.recipe(f"{problem}/{algorithm}")
    if problem == "starter":
        # A step of ARML takes five times as long.
        steps = 300 if algorithm == "arml" else 800
        tasks: Any = StarterWithout(queries=5, held_out=held_out)
    else:
        steps, tasks = 5_000, FunctionsWithout(held_out=held_out)
    return replace(
        made,
        tasks=tasks,
        outer=replace(made.outer, warmup=min(steps // 10, made.outer.warmup)),
        steps=steps,
        checkpoint_every=steps,
        validate_every=steps,
        validation_tasks=100,
    )


def told_apart(known: np.ndarray, new: np.ndarray) -> dict[str, float]:
    """AUROC of `new` being larger, and how many of each exceed 1: false alarms, and detections."""
    wins = mannwhitneyu(new, known).statistic
    return {
        "auroc": float(wins / (len(new) * len(known))),
        "known_above_one": float(np.mean(known > 1)),
        "new_above_one": float(np.mean(new > 1)),
    }


def measure(folder: Path, tasks: int) -> dict[str, Any]:
    """How well a run tells the family that it was trained without."""
    run = Run(folder)
    learner, chunk = inductive(run.learner), run.experiment.chunk
    splits = run.splits
    novelty = measured_novelty(learner, splits.train, splits.validation, tasks=tasks, chunk=chunk)
    assert novelty is not None
    found: dict[str, list[np.ndarray]] = {"support": [], "query": []}
    for distribution in (splits.test, run.experiment.tasks.unseen()):
        own, queries = task_vectors(learner, distribution, split="test", n=tasks, chunk=chunk)[:2]
        found["support"].append(
            np.array([novelty.distances(each).mean() for each in own]) / novelty.support
        )
        if novelty.query is not None:
            flat = queries.reshape(-1, queries.shape[-1])
            found["query"].append(novelty.distances(flat) / novelty.query)
    return {
        "steps": run.step,
        "validation_tasks": tasks,
        "test_tasks_each": tasks,
        "bank": list(novelty.bank.shape),
        **{name: told_apart(*pair) for name, pair in found.items() if pair},
    }


def kept(name: str) -> dict[str, Any]:
    """The results of earlier runs: each takes minutes, and stands by itself."""
    path = HERE / "results" / f"{name}.json"
    return dict(json.loads(path.read_text())["results"]) if path.exists() else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs/novelty"), help="kept, resumed")
    parser.add_argument("--only", nargs="+", default=[], help="recipes, families left out")
    parser.add_argument("--tasks", type=int, default=200)
    options = parser.parse_args()
    before, results = machine(), kept("novelty")
    for problem, algorithm, held_out in RUNS:
        if options.only and not {held_out, f"{problem}/{algorithm}"} & set(options.only):
            continue
        folder = options.runs / f"{problem}-{algorithm}-{held_out.replace(' ', '-')}"
        arml.run(experiment(problem, algorithm, held_out), folder)
        found = measure(folder, options.tasks)
        results[f"{problem}/{algorithm} without {held_out}"] = found
        print(f"{problem}/{algorithm} without {held_out}: {found}", flush=True)
    write("novelty", results, before)


if __name__ == "__main__":
    main()
