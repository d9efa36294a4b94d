"""The kind of a task, in numbers. Nothing here needs JAX."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Problem:
    """The properties that all tasks of a distribution share, and that a learner is built from.

    `features` is the shape of one input; `outputs` the number of classes (ways) or of regression
    targets; `shots` the support examples of each class (classification) or in all (regression);
    `queries` likewise for the query set; `classes` the number of classes that tasks draw theirs
    from, 0 where there is no such list.

        problem = arml.Problem("regression", (1,), outputs=1, shots=5, queries=10)
        problem.support, problem.query
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
