"""The kind of a task, in numbers. Nothing here needs JAX."""

from dataclasses import dataclass
from difflib import get_close_matches
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

    **Raises** `ValueError` in one line for another kind, and for a count below 1.
    """

    kind: Literal["regression", "classification"]
    features: tuple[int, ...]
    outputs: int
    shots: int
    queries: int
    classes: int = 0

    def __post_init__(self) -> None:
        kinds = ("regression", "classification")
        if self.kind not in kinds:
            close = get_close_matches(str(self.kind), kinds, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"one of {', '.join(kinds)}"
            raise ValueError(f"unknown kind of problem {self.kind!r}; {hint}")
        if not isinstance(self.features, tuple):
            raise ValueError(f"features must be a shape such as (2,), got {self.features!r}")
        for name in ("outputs", "shots", "queries"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, got {getattr(self, name)}: raise it")

    @property
    def support(self) -> int:
        """Support examples of one task."""
        return self.shots * (self.outputs if self.kind == "classification" else 1)

    @property
    def query(self) -> int:
        """Query examples of one task."""
        return self.queries * (self.outputs if self.kind == "classification" else 1)
