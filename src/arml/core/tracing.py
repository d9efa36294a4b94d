"""How a learner learns one task: the network after each inner step."""

from typing import NamedTuple

import jax
from jaxtyping import Array, Float, PRNGKeyArray

from arml.core.compilation import short
from arml.core.episodes import Examples
from arml.core.inner import steps_of, with_steps
from arml.core.learner import MetaLearner, Network


class InnerStep(NamedTuple):
    """A network on its way to a task."""

    loss: float
    """Its loss on the support set."""
    net: Network
    """The network: `net(x)` predicts, and its arrays are its parameters."""


def trace(
    learner: MetaLearner, support: Examples, *, key: PRNGKeyArray | None = None
) -> list[InnerStep]:
    """The losses and networks of one task: at the start, then after each inner step.

        task = tasks.sample(jax.random.key(0))
        [step.loss for step in arml.trace(learner, task.support)]

    **Arguments**

    - `support`: the support set of the task.
    - `key`: of the adaptation, for a method that draws something (MT-Net).

    **Raises** `ValueError` for a method that adapts no network (ProtoNet).
    """
    key = jax.random.key(0) if key is None else key
    found = []
    # Each number of steps adapts from the start, so that every step is the method's own adaptation.
    for steps in range(steps_of(learner) + 1):
        loss, net = _learned(with_steps(learner, steps), support, key)
        if net is None:
            raise ValueError(
                "expected a learner that adapts a network, such as MAML or ARML, got "
                f"{type(learner).__name__}, which has none to show"
            )
        found.append(InnerStep(float(loss), net))
    return found


@short
def _learned(
    learner: MetaLearner, support: Examples, key: PRNGKeyArray
) -> tuple[Float[Array, ""] | float, Network | None]:
    net = learner.adapt(support, key=key).net
    return (0.0 if net is None else learner.loss(net(support.x), support.y)), net
