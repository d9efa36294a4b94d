"""Options of every conditioned method: the inner loop, and the head that a task starts from."""

from dataclasses import dataclass, replace
from typing import Literal

from jaxtyping import PyTree

from arml.core.checks import at_least, classes_only
from arml.core.episodes import Problem
from arml.core.inner import GradientDescent, InnerOptions
from arml.core.learner import Head, Network, the_learned_head
from arml.nn.heads import headless, prototype_head
from arml.nn.parts import with_body


@dataclass(frozen=True, kw_only=True)
class ConditionedOptions(InnerOptions):
    """The inner loop and the head of a conditioned method."""

    head: Literal["learned", "prototypes"] = "learned"
    """Head that a task starts from: one that all tasks share, or the task's own prototypes."""
    head_scale: float = 0.05
    """Scale of the distances to prototypes, from which it is learned on."""

    def check(self) -> None:
        """Raise `ValueError` if an option is out of range."""
        super().check()
        at_least(self, ("head_scale",), 0, strict=True)

    def headed(self, net: Network, problem: Problem) -> tuple[Network, Head]:
        """The network as it is learned, and what gives it the head that a task starts from."""
        if self.head == "learned":
            return net, the_learned_head
        classes_only("a head of prototypes", problem)
        return headless(with_body(net, "a head of prototypes")), prototype_head(
            self.head_scale, problem.outputs
        )

    def inner(self, net: PyTree, modulated: PyTree) -> GradientDescent:
        """The inner loop for a network like `net` once it is modulated."""
        # Learned rates have the structure of what descends: the modulated body, and a head.
        if self.head == "learned":
            return self.descent(modulated)
        return self.descent(replace(modulated, head=net.head))
