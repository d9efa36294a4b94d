"""Conditioned learners: encode the support set, tailor the shared initialisation to the code,
descend. MUMOMAML, HSML and ARML are conditioned; each has its own encoder and modulation."""

import abc
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from arml.core.episodes import Examples
from arml.core.inner import GradientDescent
from arml.core.learner import Adapted, Code, Embedding, Learner, Penalty, parameters

Modulate = Callable[[PyTree, Code], PyTree]
"""Tailors a network to a code."""
Head = Callable[[PyTree, Examples], PyTree]
"""Gives a network the head that a task starts from."""


def the_learned_head(net: PyTree, support: Examples) -> PyTree:
    """The network's own head, which all tasks share."""
    return net


class Encoder(eqx.Module):
    """Encodes a support set: ``[n] examples -> ([code], penalty)``."""

    @abc.abstractmethod
    def __call__(self, support: Examples) -> tuple[Code, Penalty]:
        """The code, and the penalty that is added to the outer loss."""

    def embedding(self) -> Embedding | None:
        """Its embedding of single inputs in classification; None if it has none."""
        return None


class Embedder(Encoder):
    """An encoder that embeds examples; in classification it reads x alone."""

    embed: eqx.AbstractVar[Callable[[Examples], Float[Array, "n d"]]]

    def embedding(self) -> Embedding:
        """The embedding with labels of zero, because `embed` does not read labels."""
        return lambda x: self.embed(Examples(x, jnp.zeros(len(x), jnp.int32)))


class Conditioned(Learner):
    """Encode, tailor, descend. The extended ARML has its own `coded`."""

    net: PyTree
    """The shared initialisation theta_0."""
    encode: Encoder
    modulate: Modulate
    inner: GradientDescent
    head: Head = the_learned_head
    """Gives the tailored network the learned head, or one made from the task's examples."""

    def coded(self, support: Examples) -> tuple[Code, Penalty]:
        """The code of ONE task, and the penalty of the encoder."""
        return self.encode(support)

    def tailored(self, code: Code, support: Examples) -> PyTree:
        return self.head(self.modulate(self.net, code), support)  # Eq. (10) of ARML's paper

    def adapt_from(self, code: Code, penalty: Penalty, support: Examples) -> Adapted:
        """Learn ONE task from its support set, from this code on."""
        start = self.tailored(code, support)
        adapted = self.inner(lambda net: self.loss(net(support.x), support.y), start)  # Eq. (1)
        return Adapted(adapted.given(support.x), penalty, adapted)

    def adapt(self, support: Examples, *, key: PRNGKeyArray) -> Adapted:
        return self.adapt_from(*self.coded(support), support)

    def embedding(self) -> Callable[[Array], Embedding] | None:
        """The encoder's, which does not depend on the support set."""
        embed = self.encode.embedding()
        return None if embed is None else lambda support_x: embed

    def __repr__(self) -> str:
        parts = ", ".join(type(part).__name__ for part in (self.encode, self.modulate))
        return f"{type(self).__name__}({parts}, {parameters(self):,} parameters)"
