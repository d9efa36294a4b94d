"""The one inner loop: gradient descent on a task's support loss, differentiable through.

theta <- theta - rate * grad L_support(theta), repeated. A rate that is a float is a constant; a
rate that is an array, or a pytree of arrays with the shape of the adapted parameters, is
meta-learned (Meta-SGD).
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float


class Shared(eqx.Module):
    """Marks an array of a network that is meta-learned, but neither adapted nor modulated: it has
    one value for all tasks (Conv-4's batch-normalisation offsets, MT-Net's warps)."""

    value: Array


def _is_shared(node: Any) -> bool:
    return isinstance(node, Shared)


def adaptable(net: Any) -> Any:
    """The part of `net` that a task may change, as a pytree of the same structure with None
    elsewhere: every inexact array that is not `Shared`."""
    return eqx.partition(net, eqx.is_inexact_array, is_leaf=_is_shared)[0]


def split(net: Any) -> tuple[Any, Any]:
    """`(adaptable part, the rest)`; `eqx.combine` with `is_leaf=is_none`-style defaults joins."""
    return eqx.partition(net, eqx.is_inexact_array, is_leaf=_is_shared)


def join(part: Any, rest: Any) -> Any:
    """The inverse of `split`."""
    return eqx.combine(part, rest, is_leaf=_is_shared)


class GradientDescent(eqx.Module):
    """`steps` plain gradient steps. [`first_order` stops the gradient at each step's gradient.]

    **Arguments**

    - `rate`: the step size on the *mean* loss: a float (constant), a scalar array (learned), or a
      pytree of arrays with the structure of `adaptable(net)` (learned, one for each parameter).
    - `steps`: the number of steps; `with_steps` changes it for the adaptation at test.
    - `first_order`: drop the second derivatives (first-order MAML).
    - `remat`: recompute each step in the backward pass instead of storing it: memory of one step
      instead of all, for about one more forward pass.
    """

    rate: Any
    steps: int = eqx.field(static=True, default=5)
    first_order: bool = eqx.field(static=True, default=False)
    remat: bool = eqx.field(static=True, default=False)

    def __call__(self, loss: Callable[[Any], Float[Array, ""]], start: Any) -> Any:
        """Descend on `loss(net)` from the network `start`; returns the adapted network."""
        part, rest = split(start)

        def step(part: Any, rate: Any) -> Any:
            gradient = jax.grad(lambda p: loss(join(p, rest)))(part)
            if self.first_order:
                gradient = jax.lax.stop_gradient(gradient)
            if jax.tree.structure(rate) == jax.tree.structure(part):
                return jax.tree.map(lambda p, r, g: p - r * g, part, rate, gradient)
            return jax.tree.map(lambda p, g: p - rate * g, part, gradient)

        if self.remat:
            step = jax.checkpoint(step)
        # Unrolled on purpose: XLA's CPU backend leaves its fast convolution inside a while loop.
        for _ in range(self.steps):
            part = step(part, self.rate)
        return join(part, rest)


def with_steps(learner: Any, steps: int) -> Any:
    """The same learner with `steps` inner steps in each of its inner loops."""

    def is_inner(node: Any) -> bool:
        return isinstance(node, GradientDescent)

    def change(node: Any) -> Any:
        if not is_inner(node):
            return node
        return GradientDescent(node.rate, steps, node.first_order, node.remat)

    return jax.tree.map(change, learner, is_leaf=is_inner)
