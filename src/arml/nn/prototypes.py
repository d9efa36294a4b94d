"""Prototypes: the vertices of a task's own graph, made of the embeddings of its support set.

Each structure maps two embeddings of the samples, E and F, both `[n, d]`, and their labels to
prototypes `[K, d]`. Only the soft clusters tell E and F apart; elsewhere the two are the same.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from arml.nn.networks import Linear

Structure = Callable[
    [Float[Array, "n d"], Float[Array, "n d"], Shaped[Array, "n *targets"]],
    Float[Array, "prototypes d"],
]


class ClassMeans(eqx.Module):
    """The mean embedding E of each class, in class order. Eq. (2)."""

    ways: int = eqx.field(static=True)

    def __call__(
        self, e: Float[Array, "n d"], f: Float[Array, "n d"], y: Int[Array, " n"]
    ) -> Float[Array, "ways d"]:
        member = jax.nn.one_hot(y, self.ways, axis=0, dtype=e.dtype)
        return member @ e / jnp.sum(member, axis=1, keepdims=True)  # Eq. (2)


class SoftClusters(eqx.Module):
    """Sums of the embeddings F, weighted by an assignment that is learned from E. Eq. (3).

    Weighted sums, not means: the prototypes grow with the number of shots, as in the paper's
    formula and in the authors' code.
    """

    assign: Linear

    def assignment(self, e: Float[Array, "n d"]) -> Float[Array, "n prototypes"]:
        """Each sample's weights over the clusters; rows sum to one."""
        return jax.nn.softmax(self.assign(e), axis=-1)  # Eq. (3): P, transposed

    def __call__(
        self, e: Float[Array, "n d"], f: Float[Array, "n d"], y: Shaped[Array, "n *targets"]
    ) -> Float[Array, "prototypes d"]:
        return self.assignment(e).T @ f  # Eq. (3)


def sample_mean(
    e: Float[Array, "n d"], f: Float[Array, "n d"], y: Shaped[Array, "n *targets"]
) -> Float[Array, "1 d"]:
    """One prototype, the mean of all samples (ablation I)."""
    return jnp.mean(f, axis=0, keepdims=True)


def each_sample(
    e: Float[Array, "n d"], f: Float[Array, "n d"], y: Shaped[Array, "n *targets"]
) -> Float[Array, "n d"]:
    """Every sample is a vertex of the task's graph (ablation II)."""
    return f
