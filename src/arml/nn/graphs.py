"""Message passing on weighted graphs."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from arml.nn.networks import Linear

Nodes = Float[Array, "n d"]
Edges = Float[Array, "n n"]


def by_row(adjacency: Edges) -> Edges:
    """D^-1 A: the mean over neighbours. A message does not depend on the other edges of its sender,
    so after one layer the prototypes cannot see how the vertices are linked."""
    return adjacency / jnp.sum(adjacency, axis=1, keepdims=True)


def symmetric(adjacency: Edges) -> Edges:
    """D^-1/2 A D^-1/2 [Kipf and Welling, 2017]: a message depends on its sender's degree, and so on
    the edges of the meta-knowledge graph."""
    scale = jax.lax.rsqrt(jnp.sum(adjacency, axis=1))
    return scale[:, None] * adjacency * scale[None]


class GCN(eqx.Module):
    """H <- tanh(N(A + I) H W + b), where N is `by_row` or `symmetric`. Eq. (7)."""

    dense: Linear
    normalise: Callable[[Array], Array] = eqx.field(static=True, default=symmetric)

    def __call__(self, adjacency: Edges, nodes: Nodes) -> Nodes:
        loops = self.normalise(adjacency + jnp.eye(len(nodes), dtype=nodes.dtype))
        return jnp.tanh(loops @ (nodes @ self.dense.weight) + self.dense.bias)  # Eq. (7)
