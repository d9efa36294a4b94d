"""Options of every conditioned method: the inner loop, and the head that a task starts from."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax.numpy as jnp
from jaxtyping import PyTree

from arml.core.checks import at_least, classes_only, regression_only
from arml.core.episodes import Problem
from arml.core.inner import InnerOptions
from arml.core.learner import Conditioned, Head, Modulate, Network, the_learned_head
from arml.core.losses import loss_of
from arml.nn.heads import headless, mahalanobis_head, prototype_head, ridge_head
from arml.nn.networks import with_body


@dataclass(frozen=True, kw_only=True)
class ConditionedOptions(InnerOptions):
    """The inner loop and the head of a conditioned method."""

    head: Literal["learned", "prototypes", "mahalanobis", "ridge"] = "learned"
    """Head that a task starts from: one that all tasks share, one made from the task's prototypes,
    or one with Mahalanobis distances to them (needs inner_steps=0; at one shot they are squared
    distances). In regression also ridge: the solution of ridge regression on the features."""
    head_scale: float = 0.05
    """Initial scale of the distances to prototypes, or initial variance of the weights of a ridge
    head, in units of the noise's. It is learned."""

    def check(self) -> None:
        """Raise `ValueError` if an option is out of range."""
        super().check()
        at_least(self, ("head_scale",), 0, strict=True)
        if self.head == "mahalanobis" and self.inner_steps:
            raise ValueError(
                f"the head mahalanobis needs inner_steps=0, got {self.inner_steps}: it is made "
                "from the support set, and takes no gradient steps"
            )
        if self.head == "mahalanobis" and self.learn_rates:
            raise ValueError(
                "the head mahalanobis needs learn_rates=False, got True: without inner steps there "
                "are no rates; give --no-learn-rates"
            )

    def conditioned(
        self,
        net: Network,
        problem: Problem,
        *,
        modulate: Callable[[Network], Modulate],
        code: int,
        **parts: Any,
    ) -> Conditioned:
        """The learner for the base network `net`. `modulate` makes the modulation, which reads
        `code` numbers, for the network that is learned; `parts` are the other fields."""
        learned: Network = net
        head: Head = the_learned_head
        if self.head == "ridge":
            regression_only("the head ridge", problem, instead="take the head prototypes")
            head = ridge_head(with_body(net, "a ridge head"), self.head_scale)
        elif self.head != "learned":
            classes_only("a head of prototypes", problem)
            body = with_body(net, "a head of prototypes")
            made = prototype_head if self.head == "prototypes" else mahalanobis_head
            learned, head = headless(body), made(self.head_scale, problem.outputs)
        modulation = modulate(learned)
        # Learned rates have the structure of the network that descends: modulated, and with a head.
        start: PyTree = modulation(learned, jnp.zeros(code, jnp.float32))
        if learned is not net:
            start = replace(start, head=body.head)
        return Conditioned(
            net=learned,
            modulate=modulation,
            inner=self.descent(start),
            loss=loss_of(problem),
            head=head,
            **parts,
        )
