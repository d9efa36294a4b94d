"""Vertices of ARML's graph are added to a trained learner, each with its own modulation.

A new vertex starts with the modulation that fits fresh tasks best, and then learns alone: the
learner is cut down to this vertex, all tasks read it, and only its modulation is trained. So a new
vertex cannot change the others. A task reads an added vertex if the network of this vertex fits
the task's support set best after adaptation (`algorithms.arml_extensions.BestFit`).

The parts of a learner, which learn alone, are: all vertices that it was built with, as one part,
because a task reads them by their places; and each vertex that was added.
"""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from arml.algorithms.arml_extensions import (
    BestFit,
    Evidence,
    ExtendedARML,
    Templates,
)
from arml.core.episodes import Examples, Task
from arml.core.learner import Adapted, Loss, MetaLearner


def own_vertices(learner: MetaLearner) -> int | None:
    """How many vertices own a modulation; None for a learner without such vertices, and for one
    that reads by evidence: such a learner does not grow."""
    if not isinstance(learner, ExtendedARML) or isinstance(learner.choose, Evidence):
        return None
    owned = isinstance(learner.modulate, Templates)
    return len(_graph(learner).vertices) if owned else None


def owns_weights(learner: MetaLearner) -> bool:
    """Whether each vertex owns an offset of every weight of the network."""
    modulate = learner.modulate if isinstance(learner, ExtendedARML) else None
    return isinstance(modulate, Templates) and modulate.offsets is not None


def parts(learner: ExtendedARML) -> list[slice]:
    """The vertices of each part."""
    count, grown = len(_graph(learner).vertices), grown_vertices(learner)
    old = [slice(0, count - grown)] if count > grown else []
    return old + [slice(v, v + 1) for v in range(count - grown, count)]


def grown_vertices(learner: MetaLearner) -> int:
    """How many of its vertices were grown."""
    if not isinstance(learner, ExtendedARML):
        return 0
    return learner.choose.grown if isinstance(learner.choose, BestFit) else 0


def _graph(learner: Any) -> Any:
    return learner.encode.graph


def signature(
    learner: ExtendedARML, task: Task, key: PRNGKeyArray
) -> tuple[Float[Array, " d"], Float[Array, " vertices"]]:
    """The mean prototype of ONE task, and how much it reads each vertex."""
    trace = learner.reading()(task.support)
    return jnp.mean(trace.prototypes, axis=0), trace.weights


def with_vertex(
    learner: ExtendedARML, place: Float[np.ndarray, " d"], reading: Float[np.ndarray, " vertices"]
) -> ExtendedARML:
    """The learner with one vertex more, at `place`, which owns the blend by `reading`."""
    weights = jnp.asarray(reading / reading.sum(), jnp.float32)
    vertex = jnp.asarray(place, jnp.float32)[None]

    def grown(rows: Array) -> Array:
        return jnp.concatenate([rows, jnp.tensordot(weights, rows, 1)[None]])

    more = eqx.tree_at(
        lambda m: (_graph(m).vertices, m.modulate),
        learner,
        (
            jnp.concatenate([_graph(learner).vertices, vertex]),
            jax.tree.map(grown, learner.modulate),
        ),
    )
    before = learner.choose.handicaps if isinstance(learner.choose, BestFit) else jnp.zeros(0)
    return replace(more, choose=BestFit(jnp.append(before, 0.0)))


def handicapped(learner: ExtendedARML, handicap: float) -> ExtendedARML:
    """The learner with this handicap for its newest vertex."""
    assert isinstance(learner.choose, BestFit)
    handicaps = learner.choose.handicaps.at[-1].set(handicap)
    return replace(learner, choose=BestFit(handicaps))


def choices(
    learner: ExtendedARML, task: Task, key: PRNGKeyArray
) -> tuple[Float[Array, " choices"], Float[Array, " choices"]]:
    """The misfit of each choice of ONE task, and the query loss after it."""
    assert isinstance(learner.choose, BestFit)
    support = task.support
    code = learner.encode(learner.look(support))[0]
    readings, misfits = learner.choose.misfits(learner, support, code)
    own = code[readings.shape[1] :]

    def loss(reading: Float[Array, " vertices"]) -> Float[Array, ""]:
        adapted = learner.adapt_from(jnp.concatenate([reading, own]), 0.0, support)
        return learner.loss(adapted.predict(task.query.x), task.query.y)

    return misfits, jax.vmap(loss)(readings)


class Alone(MetaLearner):
    """One part of a learner. Only the modulation that its vertices own is trained."""

    learner: ExtendedARML
    loss: Loss = eqx.field(static=True)

    def adapt(self, support: Examples, *, key: PRNGKeyArray) -> Adapted:
        still: ExtendedARML = jax.tree.map(
            lambda a: jax.lax.stop_gradient(a) if eqx.is_inexact_array(a) else a, self.learner
        )
        return replace(still, modulate=self.learner.modulate).adapt(support, key=key)


def alone(learner: ExtendedARML, part: slice) -> Alone:
    """The learner with the vertices of one part only."""
    rows = (_graph(learner).vertices, learner.modulate)
    cut: ExtendedARML = eqx.tree_at(
        lambda m: (_graph(m).vertices, m.modulate),
        replace(learner, choose=None),
        jax.tree.map(lambda a: a[part], rows),
    )
    return Alone(learner=cut, loss=learner.loss)


def with_owned(learner: ExtendedARML, part: slice, trained: MetaLearner) -> ExtendedARML:
    """The learner with the modulation that the vertices of a part have in `trained`."""
    assert isinstance(trained, Alone)
    owned = jax.tree.map(
        lambda rows, own: rows.at[part].set(own), learner.modulate, trained.learner.modulate
    )
    return replace(learner, modulate=owned)
