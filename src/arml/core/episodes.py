"""Examples and tasks: the two values that everything else passes around.

The shape vocabulary of the whole library: `tasks`, `support`, `query`, `ways` (classes of a task),
`shots` (support examples a class), `queries`, `features`, `prototypes`, `vertices`, `code`
(a task's representation).
"""

import abc
from dataclasses import dataclass
from typing import Literal, NamedTuple

import equinox as eqx
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped


class Examples(NamedTuple):
    """A set of labelled examples.

    `x` has shape `[n, *features]`; `y` is `[n, targets]` floats (regression) or `[n]` integer
    classes `0 <= y < ways` (classification).
    """

    x: Float[Array, "n *features"]
    y: Shaped[Array, "n *targets"]


class Task(NamedTuple):
    """One few-shot task: learn from `support`, be judged on `query`.

    `family` is the index of the data family that the task came from. It is for reports only: no
    learner sees it. `classes` says which of the distribution's classes the task's own are, where
    there are such: training may use it (TADAM's auxiliary task), adaptation never sees it.
    """

    support: Examples
    query: Examples
    family: Int[Array, ""]
    classes: Int[Array, " ways"] | None = None


@dataclass(frozen=True)
class Problem:
    """What is fixed about every task of a distribution: what a learner needs to be built.

    `features` is the shape of one input; `outputs` the number of classes (ways) or of regression
    targets; `shots` the support examples a class (classification) or in all (regression);
    `queries` likewise for the query set; `classes` the number of classes that tasks draw theirs
    from, 0 where there is no such list.
    """

    kind: Literal["regression", "classification"]
    features: tuple[int, ...]
    outputs: int
    shots: int
    queries: int
    classes: int = 0

    @property
    def support(self) -> int:
        """Support examples of one task."""
        return self.shots * (self.outputs if self.kind == "classification" else 1)

    @property
    def query(self) -> int:
        """Query examples of one task."""
        return self.queries * (self.outputs if self.kind == "classification" else 1)


class TaskDistribution(eqx.Module):
    """A distribution over tasks. Its arrays (pixels, say) are data, not parameters."""

    families: eqx.AbstractVar[tuple[str, ...]]
    problem: eqx.AbstractVar[Problem]

    @abc.abstractmethod
    def sample(self, key: PRNGKeyArray) -> Task:
        """Draw ONE task (no task axis). Pure and jittable; every task has the same shapes."""
