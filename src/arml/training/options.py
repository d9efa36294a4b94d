"""The options of a training."""

from dataclasses import dataclass, fields

import jax
from jaxtyping import PRNGKeyArray

from arml.core.checks import at_least
from arml.core.episodes import Problem
from arml.training.devices import at_once
from arml.training.evaluate import at_once_by_default
from arml.training.step import OuterOptions


@dataclass(frozen=True)
class FitOptions:
    """How a learner is trained. `Experiment` has the same options."""

    outer: OuterOptions
    steps: int
    batch: int
    interval: int
    validate_every: int
    validation_tasks: int
    scan: bool
    chunk: int

    @classmethod
    def of(cls, experiment: object) -> "FitOptions":
        """The options of an experiment."""
        return cls(**{field.name: getattr(experiment, field.name) for field in fields(cls)})

    @classmethod
    def usual(cls, problem: Problem, steps: int) -> "FitOptions":
        """The options of the recipes for such tasks. On a CPU, convolutions are neither scanned nor
        batched over tasks."""
        images = len(problem.features) == 3
        batch, interval = (4, 20) if images else (25, 100)
        chunk = min(batch, at_once_by_default(problem))
        return cls(OuterOptions(), steps, batch, interval, 10 * interval, 200, not images, chunk)

    def check(self) -> None:
        """Raise `ValueError` if an option is invalid."""
        counts = ("steps", "batch", "interval", "chunk", "validate_every", "validation_tasks")
        at_least(self, counts, 1)
        at_once(self.chunk, self.batch)
        self.outer.check()


def seeded(seed: int) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """The keys of the initial weights and of the training tasks."""
    weights, training = jax.random.split(jax.random.key(seed))
    return weights, training


def training_key(seed: int) -> PRNGKeyArray:
    """The key of the training tasks."""
    return seeded(seed)[1]
