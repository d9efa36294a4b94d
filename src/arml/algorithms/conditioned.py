"""Conditioned learners: encode the support set, tailor the shared initialisation to the code,
descend. MUMOMAML, HSML and ARML are of this kind; they share the inner loop, and the heads that a
task may start from."""

import abc
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from arml.core.checks import at_least, classes_only, regression_only
from arml.core.episodes import Examples, Problem
from arml.core.inner import GradientDescent, InnerOptions
from arml.core.learner import (
    Adapted,
    Code,
    Embedding,
    MetaLearner,
    Network,
    Penalty,
    parameters,
)
from arml.core.losses import loss_of
from arml.nn.heads import headless, mahalanobis_head, prototype_head, ridge_head
from arml.nn.networks import with_body

Modulate = Callable[[PyTree, Code], PyTree]
"""Tailors a network to a code. The type is PyTree, because some functions need a body and a head,
which `Network` does not promise."""
Head = Callable[[PyTree, Examples], PyTree]
"""Gives a network the head that a task starts from."""


def the_learned_head(net: Network, support: Examples) -> Network:
    """The task starts from the network's own head, which all tasks share."""
    return net


class Encoder(eqx.Module):
    """Encodes a support set: ``[n] examples -> ([code], penalty)``."""

    @abc.abstractmethod
    def __call__(self, support: Examples) -> tuple[Code, Penalty]:
        """The code, and the penalty that is added to the outer loss."""

    def embedding(self) -> Embedding | None:
        """Its embedding of single inputs in classification; None if it has none."""
        return None


class Conditioned(MetaLearner):
    """Encode, tailor, descend. A subclass writes the two halves: `coded` and `adapt_from`."""

    net: eqx.AbstractVar[Network]
    encode: eqx.AbstractVar[Encoder]
    modulate: eqx.AbstractVar[Modulate]
    inner: eqx.AbstractVar[GradientDescent]
    head: eqx.AbstractVar[Head]

    @abc.abstractmethod
    def coded(self, support: Examples) -> tuple[Code, Penalty]:
        """The code of ONE task, and the penalty of the encoder."""

    @abc.abstractmethod
    def adapt_from(self, code: Code, penalty: Penalty, support: Examples) -> Adapted:
        """Learn ONE task from its support set, from this code on."""

    def adapt(self, support: Examples, *, key: PRNGKeyArray) -> Adapted:
        return self.adapt_from(*self.coded(support), support)

    def coding(self) -> Callable[[Examples], Code]:
        return lambda support: self.coded(support)[0]

    def embedding(self) -> Callable[[Array], Embedding] | None:
        """The encoder's, which does not depend on the support set."""
        embed = self.encode.embedding()
        return None if embed is None else lambda support_x: embed

    def __repr__(self) -> str:
        parts = ", ".join(type(part).__name__ for part in (self.encode, self.modulate))
        return f"{type(self).__name__}({parts}, {parameters(self):,} parameters)"


L = TypeVar("L", bound=Conditioned)


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
        kind: Callable[..., L],
        net: Network,
        problem: Problem,
        *,
        modulate: Callable[[Network], Modulate],
        code: int,
        **parts: Any,
    ) -> L:
        """The learner of class `kind` for the base network `net`. `modulate` makes the modulation,
        which reads `code` numbers, for the network that is learned; `parts` are the other
        fields."""
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
        return kind(
            net=learned,
            modulate=modulation,
            inner=self.descent(start),
            loss=loss_of(problem),
            head=head,
            **parts,
        )
