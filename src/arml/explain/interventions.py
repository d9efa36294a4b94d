"""Interventions on ARML's meta-knowledge graph: what each family loses when a vertex is taken out,
and when the links between vertices are. A heat map says what is read; only this says what for.

Nothing is trained again: the loss is that of a learner which relied on what is missing. It says
what the trained learner uses, not what another one could do without.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from arml.core.episodes import TaskDistribution
from arml.core.learner import Conditioned
from arml.core.losses import score_of
from arml.nn.graphs import MetaKnowledgeGraph, Relations
from arml.nn.templates import Templates
from arml.report.statistics import Comparison, difference_of, holm
from arml.training.evaluate import Scores, evaluate


def without(graph: MetaKnowledgeGraph, kept: Int[Array, " kept"]) -> MetaKnowledgeGraph:
    """The graph of those vertices only. `kept` may be traced: all removals are one program."""
    return eqx.tree_at(lambda g: g.vertices, graph, graph.vertices[kept])


def unlinked(graph: MetaKnowledgeGraph) -> MetaKnowledgeGraph:
    """The graph without links between its vertices."""
    # A sigmoid of minus infinity, near enough: the same structure, so the same program.
    if not isinstance(graph.connect, Relations):
        return graph
    dense = graph.connect.dense
    silent = eqx.tree_at(
        lambda d: (d.weight, d.bias),
        dense,
        (jnp.zeros_like(dense.weight), jnp.full_like(dense.bias, -1e9)),
    )
    return eqx.tree_at(lambda g: g.connect.dense, graph, silent)


def interventions(
    learner: Conditioned, tasks: TaskDistribution, *, n: int, chunk: int
) -> dict[str, Any]:
    """The change of each test task's score by every removal, as a loss: above zero is worse.

    **Returns** `tasks`, `metric`, `vertices` (one entry a vertex) and `links`; an entry has `mean`,
    `ci95` (over tasks), `n`, `p` and `adjusted` (Holm's correction for all entries) for `all` tasks
    and for each family.
    """

    def scored(graph: MetaKnowledgeGraph, modulate: Any = learner.modulate) -> Scores:
        changed = eqx.tree_at(lambda m: (m.encode.graph, m.modulate), learner, (graph, modulate))
        return evaluate(changed, tasks, split="test", n=n, chunk=chunk)

    graph = learner.encode.graph  # type: ignore[attr-defined]
    whole = scored(graph)
    metric = score_of(tasks.problem)[0]
    sign = 1 if metric == "mse" else -1
    count = len(graph.vertices)
    removed = [scored(unlinked(graph))]
    for i in range(count if count > 1 else 0):
        kept = jnp.asarray([j for j in range(count) if j != i])
        modulate = learner.modulate
        if isinstance(modulate, Templates):  # a vertex owns a row
            modulate = jax.tree.map(lambda rows, kept=kept: rows[kept], modulate)
        removed.append(scored(without(graph, kept), modulate))
    named = {"all": np.ones(n, bool)}
    named |= {name: whole.families == i for i, name in enumerate(tasks.families)}
    found = [
        difference_of(sign * (one.values - whole.values)[own].astype(np.float64))
        for one in removed
        for own in named.values()
    ]
    entries = list(map(_entry, holm(found)))
    per = len(named)
    rows = [
        dict(zip(named, entries[i : i + per], strict=True)) for i in range(0, len(entries), per)
    ]
    return {"tasks": n, "metric": metric, "links": rows[0], "vertices": rows[1:]}


def _entry(one: Comparison) -> dict[str, Any]:
    return {
        "mean": one.mean,
        "ci95": one.ci95,
        "n": one.tasks,
        "p": one.p,
        "adjusted": one.adjusted,
    }
