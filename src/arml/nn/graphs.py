"""Graphs: relations between vertices, the learned meta-knowledge graph, and message passing.

One super-graph joins a task's prototypes to the meta-knowledge graph. Messages travel along its
weighted edges. The messages that arrive at the prototypes are the task's reading.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, DTypeLike, Float, PRNGKeyArray

from arml.nn.networks import Initialiser, Linear, glorot, linear

Nodes = Float[Array, "n d"]
Edges = Float[Array, "n n"]
Prototypes = Float[Array, "prototypes d"]
Links = Callable[[Nodes], Edges]
MessagePassing = Callable[[Edges, Nodes], Nodes]


class Relations(eqx.Module):
    """Edge weights sigma(W |h_j - h_m| / gamma + b), zero on the diagonal. Eq. (4), (5)."""

    dense: Linear
    gamma: float = 1.0

    def __call__(self, nodes: Nodes) -> Edges:
        distance = jnp.abs(nodes[:, None] - nodes[None]) / self.gamma
        weights = jax.nn.sigmoid(self.dense(distance)[..., 0])  # Eq. (4), (5)
        return weights * (1 - jnp.eye(len(nodes), dtype=nodes.dtype))


def unlinked(nodes: Nodes) -> Edges:
    """No edges at all (ablation III)."""
    return jnp.zeros((len(nodes), len(nodes)), nodes.dtype)


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
    """H <- act(N(A + I) H W + b), where N is `by_row` or `symmetric`. Eq. (7)."""

    dense: Linear
    normalise: Callable[[Array], Array] = eqx.field(static=True, default=symmetric)
    activation: Callable[[Array], Array] = eqx.field(static=True, default=jnp.tanh)

    def __call__(self, adjacency: Edges, nodes: Nodes) -> Nodes:
        loops = self.normalise(adjacency + jnp.eye(len(nodes), dtype=nodes.dtype))
        return self.activation(loops @ (nodes @ self.dense.weight) + self.dense.bias)  # Eq. (7)


class GraphSAGE(eqx.Module):
    """H <- act([H, D^-1 A H] W + b): a vertex's own features and the weighted mean of its
    neighbours have different weights [Hamilton et al., 2017]. Eq. (7)."""

    dense: Linear
    activation: Callable[[Array], Array] = eqx.field(static=True, default=jnp.tanh)

    def __call__(self, adjacency: Edges, nodes: Nodes) -> Nodes:
        degree = jnp.maximum(jnp.sum(adjacency, axis=1, keepdims=True), 1e-6)
        both = jnp.concatenate([nodes, adjacency @ nodes / degree], axis=1)
        return self.activation(self.dense(both))  # Eq. (7)


class GAT(eqx.Module):
    """H <- act(softmax_j(leaky(a_1 . W h_i + a_2 . W h_j) + log A_ij) W H + b)
    [Velickovic et al., 2018]. Eq. (7).

    The graphs here are complete and weighted, so the edge weights serve as a prior of the
    attention; self-loops have weight one.
    """

    dense: Linear
    source: Float[Array, " d"]
    target: Float[Array, " d"]
    activation: Callable[[Array], Array] = eqx.field(static=True, default=jnp.tanh)

    def __call__(self, adjacency: Edges, nodes: Nodes) -> Nodes:
        values = nodes @ self.dense.weight
        scores = jax.nn.leaky_relu((values @ self.target)[:, None] + (values @ self.source), 0.2)
        loops = adjacency + jnp.eye(len(nodes), dtype=nodes.dtype)
        attention = jax.nn.softmax(scores + jnp.log(loops + 1e-6), axis=1)
        return self.activation(attention @ values + self.dense.bias)  # Eq. (7)


class Reading(NamedTuple):
    """The result of reading the meta-knowledge graph, and the edges."""

    prototypes: Prototypes
    """The prototypes after propagation, C-hat."""
    links: Float[Array, "prototypes vertices"]
    """Prototype to vertex, A_S; rows sum to one. If the learner chooses a reading for the task,
    each row is this reading, and `adjacency` keeps A_S."""
    adjacency: Float[Array, "nodes nodes"]
    """The super-graph's, prototypes first, before self-loops."""


class MetaKnowledgeGraph(eqx.Module):
    """Learned vertices, their relations, and how a task's prototypes read them.

    `gamma_s` is the scale of the distances in Eq. (6), `relate` the edges between prototypes
    (Eq. 4), `connect` those between vertices (Eq. 5), `propagate` one or more layers (Eq. 7).
    """

    vertices: Float[Array, "vertices d"]
    relate: Links
    connect: Links
    propagate: tuple[MessagePassing, ...]
    gamma_s: float

    def links(self, prototypes: Prototypes) -> Float[Array, "prototypes vertices"]:
        """A_S: how much each prototype attends to each vertex. Eq. (6)."""
        return jax.nn.softmax(self._exponents(prototypes), axis=1)  # Eq. (6)

    def _exponents(self, prototypes: Prototypes) -> Float[Array, "prototypes vertices"]:
        difference = (prototypes[:, None] - self.vertices[None]) / self.gamma_s
        return -jnp.sum(jnp.square(difference), axis=-1) / 2

    def surprise(self, prototypes: Prototypes) -> Float[Array, ""]:
        """The negative log-likelihood of the prototypes under a mixture of Gaussians of standard
        deviation gamma_s around the vertices, without its constant; the mean over prototypes. Its
        gradient is that of soft k-means: a vertex moves towards the prototypes that read it."""
        mixture = jax.nn.logsumexp(self._exponents(prototypes), axis=1)
        return -jnp.mean(mixture - jnp.log(len(self.vertices)))

    def silenced(self) -> "MetaKnowledgeGraph":
        """The graph without links between its vertices. It has the same structure, so that one
        compiled program serves both graphs."""
        if not isinstance(self.connect, Relations):
            return self
        dense = self.connect.dense
        silent = Linear(jnp.zeros_like(dense.weight), jnp.full_like(dense.bias, -1e9))
        return eqx.tree_at(lambda graph: graph.connect.dense, self, silent)

    def __call__(self, prototypes: Prototypes) -> Reading:
        links = self.links(prototypes)
        adjacency = jnp.block(
            [[self.relate(prototypes), links], [links.T, self.connect(self.vertices)]]
        )
        nodes = jnp.concatenate([prototypes, self.vertices])
        for layer in self.propagate:
            nodes = layer(adjacency, nodes)  # Eq. (7)
        return Reading(nodes[: len(prototypes)], links, adjacency)


def message_passing(
    kind: Literal["gcn", "sage", "gat"],
    width: int,
    *,
    init: Initialiser,
    normalise: Callable[[Array], Array],
    key: PRNGKeyArray,
) -> MessagePassing:
    """A layer for vertices of `width` numbers; `normalise` is for a GCN."""
    key_dense, *keys = jax.random.split(key, 3)
    dense = linear(2 * width if kind == "sage" else width, width, init=init, key=key_dense)
    if kind == "gcn":
        return GCN(dense, normalise)
    if kind == "sage":
        return GraphSAGE(dense)
    source, target = (glorot(k, (1, width), jnp.float32)[0] for k in keys)
    return GAT(dense, source, target)


def near_the_middle(key: PRNGKeyArray, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """Around one half. Vertices that start close together move apart in the directions in which
    tasks differ. If they start far apart, all tasks read the nearest one."""
    return 0.5 + 0.05 * jax.random.normal(key, shape, dtype)


STARTS: dict[str, Callable[..., Array]] = {
    "glorot": glorot,
    "normal": jax.random.normal,
    "middle": near_the_middle,
}
"""Initial vertices."""
