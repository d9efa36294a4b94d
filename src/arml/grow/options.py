"""Options of growing, and the state of a learner between two stages."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from arml.core.checks import at_least
from arml.core.learner import MetaLearner
from arml.grow.vertices import own_vertices
from arml.results.files import Json
from arml.training.step import OuterOptions


@dataclass(frozen=True)
class GrowthOptions:
    """Options of growing."""

    steps: int = 2_000
    """Outer steps of a stage."""
    trial: float = 0.25
    """Share of the steps that a candidate and its rival each take before one is chosen. Both are
    counted."""
    bound: float = 0.1
    """The most by which a stage may raise the log loss of a known family: 0.1 is about 10% of the
    loss. A stage is undone if the whole interval lies above."""
    replay: float = 0.5
    """Share of the training tasks that come from known families outside the stage."""
    tasks: int = 200
    """Held-out tasks of each family for a decision."""
    most: int = 16
    """The most vertices that a learner may have."""
    prune: bool = True
    """Remove vertices that no family needs."""
    grow: bool | None = None
    """Propose vertices; if False, all weights are trained with replay. None grows a learner whose
    vertices own the weights of the network: vertices that own templates add less than replay."""
    batch: int = 25
    """Tasks of one outer step."""
    outer: OuterOptions = field(default_factory=OuterOptions)
    """The outer optimiser."""
    seed: int = 0
    """Seeds the training tasks."""
    curve: bool = True
    """Score held-out tasks ten times in each stage."""

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
    """The families that have arrived."""
    stages: int = 0
    """Stages so far."""
    names: tuple[str, ...] = ()
    """The names of the vertices. A name is never used again."""
    made: int = 0
    """Vertices made so far, with those that were removed."""
    tasks: int = 0
    """Training tasks so far, with those of rejected candidates."""
    replayed: int = 0
    """Of these, replayed tasks of known families."""
    records: tuple[Json, ...] = ()
    """The record of each decision."""


def begun(learner: MetaLearner, known: Sequence[str] = ()) -> Growth:
    """A learner before the first stage that it grows in; `known` are the families that it knows."""
    count = own_vertices(learner) or 0
    return Growth(learner, tuple(known), names=tuple(f"V{i}" for i in range(count)), made=count)
