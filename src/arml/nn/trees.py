"""Trees of clusters: a task's code climbs from soft clusters to coarser ones and to one root. The
root's features describe the kinds of tasks that this task belongs to."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from arml.nn.networks import Initialiser, Linear, glorot
from arml.nn.prototypes import squared_distances

Lower = Float[Array, "lower d"]
Assignment = Callable[[Lower], Float[Array, "lower upper"]]
"""How much of each lower node goes to each upper one; rows sum to one."""


class Distances(eqx.Module):
    """p_k = softmax_k(-||h - c_k||^2 / (2 spread)), where c_k is the centre of cluster k."""

    centres: Float[Array, "upper d"]
    spread: float

    def __call__(self, lower: Lower) -> Float[Array, "lower upper"]:
        squares = squared_distances(lower, self.centres)
        return jax.nn.softmax(-squares / (2 * self.spread), axis=-1)


class Scores(eqx.Module):
    """p_k = softmax_k(w_k h + b_k)."""

    dense: Linear

    def __call__(self, lower: Lower) -> Float[Array, "lower upper"]:
        return jax.nn.softmax(self.dense(lower), axis=-1)


def all_of_it(lower: Lower) -> Float[Array, "lower 1"]:
    """Everything goes to the root."""
    return jnp.ones((len(lower), 1), lower.dtype)


class Level(eqx.Module):
    """Upper node k is the sum of p_k tanh(W_k h + b_k) over the lower nodes h."""

    assign: Assignment
    weight: Float[Array, "upper d e"]
    bias: Float[Array, "upper e"]

    def __call__(self, lower: Lower) -> tuple[Float[Array, "upper e"], Float[Array, "lower upper"]]:
        """The upper nodes and the assignment to them."""
        assignment = self.assign(lower)
        messages = jnp.tanh(jnp.einsum("ld,ude->lue", lower, self.weight) + self.bias)
        return jnp.einsum("lu,lue->ue", assignment, messages), assignment


class Climb(NamedTuple):
    """The nodes of each level that a code climbs through, the root last."""

    assignments: tuple[Float[Array, "_ _"], ...]
    """Rows sum to one; the first has one row, the code's own."""
    nodes: tuple[Float[Array, "_ _"], ...]


class ClusterTree(eqx.Module):
    """Soft hierarchical clustering, level by level from the leaves to the root."""

    levels: tuple[Level, ...]

    def climb(self, code: Float[Array, " d"]) -> Climb:
        """How one task's code climbs the tree, step by step."""
        nodes, climbed = code[None], []
        for level in self.levels:
            nodes, assignment = level(nodes)
            climbed.append((assignment, nodes))
        assignments, reached = zip(*climbed, strict=True)
        return Climb(assignments, reached)

    def __call__(self, code: Float[Array, " d"]) -> Float[Array, " e"]:
        """The root."""
        return self.climb(code).nodes[-1][0]


def cluster_tree(
    width: int, clusters: tuple[int, ...], *, spread: float, key: PRNGKeyArray
) -> ClusterTree:
    """A tree over codes of `width` numbers, with `clusters` nodes in each level, leaves first, and
    one root.

    A code goes to the leaves by distance, and to every level above by a linear score. All weights
    are Glorot-uniform, centres and biases as single rows, as in HSML's code.
    """
    key_centres, *keys = jax.random.split(key, len(clusters) + 2)
    centres = _each(glorot, clusters[0], (1, width), key_centres)[:, 0]
    levels = []
    for i, (count, level_key) in enumerate(zip((*clusters, 1), keys, strict=True)):
        key_scores, key_score_bias, key_weight, key_bias = jax.random.split(level_key, 4)
        assign: Assignment = all_of_it
        if i == 0:
            assign = Distances(centres, spread)
        elif i < len(clusters):
            weight = _each(glorot, count, (width, 1), key_scores)[..., 0].T
            assign = Scores(Linear(weight, _each(glorot, count, (1, 1), key_score_bias)[:, 0, 0]))
        levels.append(
            Level(
                assign,
                _each(glorot, count, (width, width), key_weight),
                _each(glorot, count, (1, width), key_bias)[:, 0],
            )
        )
    return ClusterTree(tuple(levels))


def _each(init: Initialiser, count: int, shape: tuple[int, ...], key: PRNGKeyArray) -> Array:
    """`count` arrays of one shape, each drawn with its own fans."""
    return jnp.stack([init(k, shape, jnp.float32) for k in jax.random.split(key, count)])
