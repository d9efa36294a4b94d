"""A meta-learner: a pytree of meta-parameters that can learn one task.

Inexact arrays are learned by the outer loop; every other leaf is configuration. Nothing here has a
task axis: the axis is added once, by the training step and by the evaluation.
"""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from arml.core.episodes import Examples, Task
from arml.core.inner import GradientDescent

Network = Any
"""A base network: a pytree that maps a whole set of examples, `[n, *features] -> [n, outputs]`
(a whole set, because batch statistics couple the examples), and whose `given(support_x)` is the
function that predicts after adaptation."""

Loss = Callable[[Array, Array], Float[Array, ""]]


class Adapted(NamedTuple):
    """What a learner made of one support set.

    `predict` maps inputs `[m, *features]` to outputs `[m, outputs]`; `penalty` is added to the
    outer loss (ARML's reconstruction losses).
    """

    predict: Callable[[Float[Array, "m *features"]], Float[Array, "m outputs"]]
    penalty: Float[Array, ""] | float = 0.0


class MetaLearner(eqx.Module):
    """Learns how to learn. `adapt` cannot see the query set; `meta_loss` may."""

    loss: eqx.AbstractVar[Loss]

    @abc.abstractmethod
    def adapt(self, support: Examples, *, key: PRNGKeyArray) -> Adapted:
        """Learn ONE task from its support set."""

    def meta_loss(self, task: Task, *, key: PRNGKeyArray) -> Float[Array, ""]:
        """The outer objective on ONE task: the query loss after adaptation, plus the penalty."""
        adapted = self.adapt(task.support, key=key)
        return self.loss(adapted.predict(task.query.x), task.query.y) + adapted.penalty


class Conditioned(MetaLearner):
    """Encode the support set, modulate the shared initialisation with the code, descend.

    MUMOMAML, HSML, ARML and every ablation are this class with other components.
    """

    net: Network
    encode: Callable[[Examples], tuple[Float[Array, " code"], Float[Array, ""] | float]]
    modulate: Callable[[Network, Float[Array, " code"]], Network]
    inner: GradientDescent
    loss: Loss = eqx.field(static=True)

    def adapt(self, support: Examples, *, key: PRNGKeyArray) -> Adapted:
        code, penalty = self.encode(support)
        start = self.modulate(self.net, code)
        adapted = self.inner(lambda net: self.loss(net(support.x), support.y), start)
        return Adapted(adapted.given(support.x), penalty)
