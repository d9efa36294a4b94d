"""How a learner grows, and a learner between two stages."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from arml.core.checks import at_least
from arml.core.learner import MetaLearner
from arml.grow.vertices import own_vertices
from arml.results.files import Json
from arml.training.step import OuterOptions


@dataclass(frozen=True)
class GrowthOptions:
    """How a learner grows."""

    steps: int = 2_000
    """Outer steps of a stage."""
    trial: float = 0.25
    """Share of the steps that a candidate and its rival each take. The steps of the loser count."""
    bound: float = 0.1
    """A stage may raise the log loss of a known family by so much: 0.1 is about 10% of the loss. It
    is undone if the whole interval lies above."""
    replay: float = 0.5
    """Share of the tasks that are of known families which the stage lacks."""
    tasks: int = 200
    """Held-out tasks of a family that a decision looks at."""
    most: int = 16
    """Vertices that a learner may have."""
    prune: bool = True
    """Remove vertices that no family needs."""
    grow: bool = True
    """Propose vertices at all."""
    batch: int = 25
    """Tasks of one outer step."""
    outer: OuterOptions = field(default_factory=OuterOptions)
    """The outer optimiser."""
    seed: int = 0
    """Seeds the training tasks."""
    curve: bool = True
    """Score held-out tasks of the stage ten times."""

    def check(self) -> None:
        """Raise `ValueError` if an option is invalid."""
        at_least(self, ("steps", "tasks", "most", "batch"), 1)
        at_least(self, ("trial", "replay"), 0, most=1)
        at_least(self, ("bound",), 0)
        self.outer.check()


@dataclass(frozen=True)
class Growth:
    """A learner between two stages."""

    learner: MetaLearner
    known: tuple[str, ...] = ()
    """The families that have come."""
    stages: int = 0
    """Stages that it has been through."""
    names: tuple[str, ...] = ()
    """The vertices. A name is never given twice."""
    made: int = 0
    """Vertices that were ever made."""
    tasks: int = 0
    """Training tasks that it took, with those of rejected candidates."""
    replayed: int = 0
    """Of these, tasks of known families."""
    records: tuple[Json, ...] = ()
    """Its decisions."""


def begun(learner: MetaLearner, known: Sequence[str] = ()) -> Growth:
    """A learner before the first stage that it grows in; `known` are the families that it knows."""
    count = own_vertices(learner) or 0
    return Growth(learner, tuple(known), names=tuple(f"V{i}" for i in range(count)), made=count)
