"""Vertices that come and go: a vertex of ARML's graph with what it owns, or a leaf of HSML's tree.

A new vertex stands where the new tasks' prototypes are, and owns the blend of what these tasks read
before: until it is trained, they are modulated as they were.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from arml.core.episodes import Task
from arml.core.learner import Conditioned, MetaLearner
from arml.nn.relational import Relational
from arml.nn.templates import OwnLayers, Templates


def own_vertices(learner: MetaLearner) -> int | None:
    """How many vertices own a modulation; None for a learner without such vertices."""
    if isinstance(learner, Conditioned) and isinstance(learner.modulate, Templates | OwnLayers):
        return len(_graph(learner).vertices)
    return None


def _graph(learner: Any) -> Any:
    return learner.encode.graph


def signature(
    learner: Conditioned, task: Task, key: PRNGKeyArray
) -> tuple[Float[Array, " d"], Float[Array, " vertices"]]:
    """The mean prototype of ONE task, and how much it reads each vertex."""
    encode: Relational = learner.encode  # type: ignore[assignment]
    trace = encode.trace(learner.look(learner.net, task.support))
    assert encode.graph is not None
    return jnp.mean(trace.prototypes, axis=0), trace.raw[: len(encode.graph.vertices)]


def with_vertex(
    learner: Conditioned, place: Float[np.ndarray, " d"], reading: Float[np.ndarray, " vertices"]
) -> Conditioned:
    """The learner with one vertex more, at `place`, which owns the blend by `reading`."""
    weights = jnp.asarray(reading / reading.sum(), jnp.float32)
    vertex = jnp.asarray(place, jnp.float32)[None]

    def grown(rows: Array) -> Array:
        return jnp.concatenate([rows, jnp.tensordot(weights, rows, 1)[None]])

    return eqx.tree_at(
        lambda m: (_graph(m).vertices, m.modulate),
        learner,
        (
            jnp.concatenate([_graph(learner).vertices, vertex]),
            jax.tree.map(grown, learner.modulate),
        ),
    )


def without_vertex(learner: Conditioned, vertex: int) -> Conditioned:
    """The learner without one vertex and what it owns."""

    def cut(rows: Array) -> Array:
        return jnp.delete(rows, vertex, axis=0)

    return eqx.tree_at(
        lambda m: (_graph(m).vertices, m.modulate),
        learner,
        (cut(_graph(learner).vertices), jax.tree.map(cut, learner.modulate)),
    )


def with_leaf(learner: Conditioned, *, key: PRNGKeyArray) -> Conditioned:
    """HSML with one leaf more, freshly drawn like the others were, as HSML-Dynamic adds it."""

    def arrays(m: Any) -> Any:
        leaves = m.encode.tree.levels[0]
        return leaves.assign.centres, leaves.weight, leaves.bias

    def drawn(rows: Array, key: PRNGKeyArray) -> Array:
        shape = (1, *rows.shape[1:]) if rows.ndim == 3 else (1, rows.shape[1])
        fans = shape[-2:]
        limit = (6 / sum(fans)) ** 0.5  # Glorot-uniform
        new = jax.random.uniform(key, shape, rows.dtype, -limit, limit)
        return jnp.concatenate([rows, new])

    old = arrays(learner)
    new = tuple(drawn(rows, k) for rows, k in zip(old, jax.random.split(key, 3), strict=True))
    return eqx.tree_at(arrays, learner, new)
