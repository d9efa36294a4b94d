"""Averaged weights: in the last part of a training the learner is the mean of the weights that the
optimiser makes. Gradients are still taken at the newest weights. The mean has less of the noise of
single tasks, and fits the training tasks less closely.

[1] Izmailov, Podoprikhin, Garipov, Vetrov and Wilson, Averaging Weights Leads to Wider Optima and
    Better Generalization, UAI 2018.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree

if TYPE_CHECKING:
    import optax


class Averaged(NamedTuple):
    """The state of an optimiser whose weights are averaged."""

    newest: PyTree
    """The weights at which gradients are taken."""
    inner: "optax.OptState"
    step: Int[Array, ""]


def averaged(
    inner: "optax.GradientTransformation", first: float | Array
) -> "optax.GradientTransformation":
    """The optimiser, whose weights are the newest up to the step `first`, and then the mean of all
    that it made after this step."""
    import optax

    def init(weights: PyTree) -> Averaged:
        newest = jax.tree.map(jnp.copy, weights)  # the step reuses the memory of each
        return Averaged(newest, inner.init(weights), jnp.zeros((), jnp.int32))

    def update(gradient: PyTree, state: PyTree, weights: Any = None) -> tuple[PyTree, Averaged]:
        moves, after = inner.update(gradient, state.inner, state.newest)
        newest = optax.apply_updates(state.newest, moves)
        step = state.step + 1
        share = 1 / jnp.maximum(step - first, 1)
        change = jax.tree.map(lambda new, mean: share * (new - mean), newest, weights)
        return change, Averaged(newest, after, step)

    return optax.GradientTransformation(init, update)
