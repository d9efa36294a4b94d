"""How a learner is trained, as data."""

from dataclasses import dataclass, fields

import jax
from jaxtyping import PRNGKeyArray

from arml.core.checks import at_least
from arml.core.episodes import Problem
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
        """Those of an experiment."""
        return cls(**{field.name: getattr(experiment, field.name) for field in fields(cls)})

    @classmethod
    def usual(cls, problem: Problem, steps: int) -> "FitOptions":
        """Those of the recipes for such tasks: convolutions are neither scanned nor batched over
        tasks on a CPU."""
        images = len(problem.features) == 3
        batch, interval = (4, 20) if images else (25, 100)
        chunk = min(batch, at_once_by_default(problem))
        return cls(OuterOptions(), steps, batch, interval, 10 * interval, 200, not images, chunk)

    def check(self) -> None:
        """Raise `ValueError` if an option is invalid."""
        at_least(self, ("steps", "batch", "interval", "chunk"), 1)
        at_least(self, ("validate_every", "validation_tasks"), 1)
        if self.batch % min(self.chunk, self.batch):
            raise ValueError(
                f"chunk must divide the batch of {self.batch} tasks or be larger, got "
                f"{self.chunk}: change one of them"
            )
        self.outer.check()


def seeded(seed: int) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """The keys of the initial weights and of the training tasks."""
    weights, training = jax.random.split(jax.random.key(seed))
    return weights, training


def training_key(seed: int) -> PRNGKeyArray:
    """The key of the training tasks."""
    return seeded(seed)[1]
