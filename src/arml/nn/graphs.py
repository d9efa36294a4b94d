"""Message passing on weighted graphs: GCN, GraphSAGE and GAT."""

from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from arml.nn.networks import Initialiser, Linear, glorot, linear

Nodes = Float[Array, "n d"]
Edges = Float[Array, "n n"]
MessagePassing = Callable[[Edges, Nodes], Nodes]


def by_row(adjacency: Edges) -> Edges:
    """D^-1 A: the mean over neighbours. A message does not depend on the other edges of its sender,
    so after one layer the prototypes do not depend on the links between vertices."""
    return adjacency / jnp.sum(adjacency, axis=1, keepdims=True)


def symmetric(adjacency: Edges) -> Edges:
    """D^-1/2 A D^-1/2 [Kipf and Welling, 2017]: a message depends on the degree of its sender, and
    therefore on the edges of the meta-knowledge graph."""
    scale = jax.lax.rsqrt(jnp.sum(adjacency, axis=1))
    return scale[:, None] * adjacency * scale[None]


class GCN(eqx.Module):
    """H <- tanh(N(A + I) H W + b), where N is `by_row` or `symmetric`. Eq. (7)."""

    dense: Linear
    normalise: Callable[[Array], Array] = eqx.field(static=True, default=symmetric)

    def __call__(self, adjacency: Edges, nodes: Nodes) -> Nodes:
        loops = self.normalise(adjacency + jnp.eye(len(nodes), dtype=nodes.dtype))
        return jnp.tanh(loops @ (nodes @ self.dense.weight) + self.dense.bias)  # Eq. (7)


class GraphSAGE(eqx.Module):
    """H <- tanh([H, D^-1 A H] W + b): a vertex's own features and the weighted mean of its
    neighbours have different weights [Hamilton et al., 2017]. Eq. (7)."""

    dense: Linear

    def __call__(self, adjacency: Edges, nodes: Nodes) -> Nodes:
        degree = jnp.maximum(jnp.sum(adjacency, axis=1, keepdims=True), 1e-6)
        both = jnp.concatenate([nodes, adjacency @ nodes / degree], axis=1)
        return jnp.tanh(self.dense(both))  # Eq. (7)


class GAT(eqx.Module):
    """H <- tanh(softmax_j(leaky(a_1 . W h_i + a_2 . W h_j) + log A_ij) W H + b)
    [Velickovic et al., 2018]. Eq. (7).

    The graphs here are complete and weighted, so the edge weights act as a prior of the attention.
    Self-loops have weight one.
    """

    dense: Linear
    source: Float[Array, " d"]
    target: Float[Array, " d"]

    def __call__(self, adjacency: Edges, nodes: Nodes) -> Nodes:
        values = nodes @ self.dense.weight
        scores = jax.nn.leaky_relu((values @ self.target)[:, None] + (values @ self.source), 0.2)
        loops = adjacency + jnp.eye(len(nodes), dtype=nodes.dtype)
        attention = jax.nn.softmax(scores + jnp.log(loops + 1e-6), axis=1)
        return jnp.tanh(attention @ values + self.dense.bias)  # Eq. (7)


def message_passing(
    kind: Literal["gcn", "sage", "gat"],
    width: int,
    *,
    init: Initialiser,
    normalise: Callable[[Array], Array],
    key: PRNGKeyArray,
) -> MessagePassing:
    """A layer for vertices of `width` numbers. Only a GCN uses `normalise`."""
    key_dense, *keys = jax.random.split(key, 3)
    dense = linear(2 * width if kind == "sage" else width, width, init=init, key=key_dense)
    if kind == "gcn":
        return GCN(dense, normalise)
    if kind == "sage":
        return GraphSAGE(dense)
    source, target = (glorot(k, (1, width), jnp.float32)[0] for k in keys)
    return GAT(dense, source, target)
