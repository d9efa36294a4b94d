"""MAML++: two changes that steady MAML's training. Each inner step has a learned rate of its own
for each array (`step_rates` of `maml`). And at first the query loss after every inner step counts,
not only after the last (`multi_step`), so that gradients reach the initialisation by short ways.

[1] Antoniou, Edwards and Storkey, How to Train Your MAML, ICLR 2019.
[2] The authors' code, AntreasAntoniou/HowToTrainYourMAMLPytorch.

Differences
- The weights of the steps change with every outer step; in [2] with every epoch of 500.
- A task may take more steps than in training; each further one has the rates of the last.
- Of the other parts of [1], the falling outer rate is an option of the outer optimiser here. There
  are no statistics and offsets of the normalisation for each step, and no first epochs without
  second derivatives, which its experiments did not use either.
"""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from arml.core.episodes import Examples, Task
from arml.core.inner import GradientDescent, Rule
from arml.core.learner import Adapted, Loss, MetaLearner, Network

LEAST = 0.03
"""While earlier steps count, they count for at least this share of what they do at first."""


class StepRates(Rule):
    """A learned rate for each array and step."""

    rates: Float[Array, "steps arrays"]

    @classmethod
    def initial(cls, part: PyTree, rate: float, steps: int) -> "StepRates":
        """All of them `rate`, for the arrays of `part`."""
        return cls(jnp.full((max(steps, 1), len(jax.tree.leaves(part))), rate, jnp.float32))

    def __call__(self, part: PyTree, gradient: PyTree, step: int | Array) -> PyTree:
        weights, structure = jax.tree.flatten(part)
        now = self.rates[jnp.minimum(step, len(self.rates) - 1)]
        slopes = jax.tree.leaves(gradient)
        moved = [w - r * g for w, r, g in zip(weights, now, slopes, strict=True)]
        return jax.tree.unflatten(structure, moved)


def importance(step: Int[Array, ""], until: int, steps: int) -> Float[Array, " steps"]:
    """The weights of the losses after each inner step: equal at first; those of the earlier ones
    fall along a line, and are zero from the outer step `until` on. Their sum is one."""
    left = 1 - jnp.minimum(step / until, 1)
    earlier = jnp.where(left > 0, jnp.maximum(left, LEAST), 0) / steps
    return jnp.full(steps, earlier).at[-1].set(1 - (steps - 1) * earlier)


class MultiStep(MetaLearner):
    """MAML whose outer loss is a weighted mean of the query losses after each inner step."""

    net: Network
    inner: GradientDescent
    until: int = eqx.field(static=True)
    """The outer step from which on only the last inner step counts."""
    loss: Loss = eqx.field(static=True)
    weights: Float[Array, " steps"] | None = None
    """Of each inner step; outside of training None: the last one counts."""

    def scheduled(self, step: Int[Array, ""]) -> "MultiStep":
        return replace(self, weights=importance(step, self.until, self.inner.steps))

    def adapt(self, support: Examples, *, key: PRNGKeyArray) -> Adapted:
        adapted = self.inner(lambda net: self.loss(net(support.x), support.y), self.net)
        return Adapted(adapted.given(support.x), net=adapted)

    def meta_loss(self, task: Task, *, key: PRNGKeyArray) -> Float[Array, ""]:
        """The query losses after each inner step, weighted."""
        if self.weights is None:
            return super().meta_loss(task, key=key)
        support, query = task.support, task.query
        nets = self.inner.path(lambda net: self.loss(net(support.x), support.y), self.net)
        losses = [self.loss(net.given(support.x)(query.x), query.y) for net in nets]
        return jnp.stack(losses) @ self.weights
