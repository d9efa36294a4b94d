"""Interventions on ARML's meta-knowledge graph and on the code of a task. A heat map shows what a
task reads; only an intervention shows whether the learner uses it.

Does the learner *need* a part? A vertex is removed, or the links between vertices are cut if there
are any. Does it *use* the reading? All vertices are moved to their mean, so that their places carry
no information (a reading by evidence still distinguishes tasks). Or the whole code of the task is
replaced: by the mean code of all tasks, by that of the next task of the same family, or by that of
the next task of another family. A code is not used if the loss stays the same without it.

The learner is not trained again, so the loss is that of a learner which relied on the missing part.
Another learner might not need it. Squared errors have heavy tails, and a few tasks may decide a
mean: an entry also has the median.
"""

from collections.abc import Callable, Sequence
from functools import partial

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from arml.algorithms.arml import MetaKnowledgeGraph, Relations
from arml.algorithms.arml_extensions import ExtendedARML, without_vertex
from arml.algorithms.conditioned import Conditioned
from arml.core.episodes import Task, TaskDistribution
from arml.core.losses import score_of
from arml.nn.networks import Linear
from arml.results.comparisons import difference_of, holm
from arml.results.files import Json, plain
from arml.training.evaluate import concatenated, looks

_Score = Callable[[Array, Array], Float[Array, ""]]


def without(graph: MetaKnowledgeGraph, kept: Int[Array, " kept"]) -> MetaKnowledgeGraph:
    """The graph with only these vertices. `kept` may be traced: one program serves all removals."""
    return eqx.tree_at(lambda g: g.vertices, graph, graph.vertices[kept])


def equal(graph: MetaKnowledgeGraph) -> MetaKnowledgeGraph:
    """The graph with each vertex replaced by the mean of all."""
    mean = jnp.broadcast_to(graph.vertices.mean(0), graph.vertices.shape)
    return eqx.tree_at(lambda g: g.vertices, graph, mean)


def silenced(graph: MetaKnowledgeGraph) -> MetaKnowledgeGraph:
    """The graph without the links between its vertices. It has the same structure, so that one
    compiled program serves both graphs."""
    if not isinstance(graph.connect, Relations):
        return graph
    dense = graph.connect.dense
    silent = Linear(jnp.zeros_like(dense.weight), jnp.full_like(dense.bias, -1e9))
    return eqx.tree_at(lambda graph: graph.connect.dense, graph, silent)


def code_of(
    learner: Conditioned, task: Task, key: Array
) -> tuple[Float[Array, " code"], Int[Array, ""]]:
    """The code of ONE task, and its family."""
    return learner.coded(task.support)[0], task.family


def score_with(
    learner: Conditioned, task: Task, key: Array, code: Float[Array, " code"], score: _Score
) -> Float[Array, ""]:
    """The score of the learner on ONE task with this code."""
    adapted = learner.adapt_from(code, 0.0, task.support)
    return score(adapted.predict(task.query.x), task.query.y)


def interventions(learner: Conditioned, tasks: TaskDistribution, *, n: int, chunk: int) -> Json:
    """The change of each task's score by every intervention, as a loss: above zero is worse.
    **Returns** `tasks`, `metric`, `links` (the entry with the links cut), `vertices` (an entry for
    each vertex removed) and `use` (`equal_vertices`, and an entry for each of `other_codes`). An
    entry has, for `all` tasks and for each family: `mean`, `ci95` (over tasks), `n`, `p`,
    `adjusted` (by Holm's correction for all entries), and `median`."""
    metric, score = score_of(tasks.problem)
    look = partial(looks, tasks=tasks, n=n, chunk=chunk, split="test")
    scoring = partial(score_with, score=score)
    encoder: PyTree = learner.encode
    graph: MetaKnowledgeGraph = encoder.graph

    def coded(changed: MetaKnowledgeGraph, removed: int = -1) -> np.ndarray:
        given = eqx.tree_at(lambda m: m.encode.graph, learner, changed)
        if removed >= 0 and isinstance(learner, ExtendedARML) and learner.choose is not None:
            given = without_vertex(learner, removed)
        found = concatenated(look(code_of, given))[0]
        if removed >= 0 and isinstance(learner, ExtendedARML):
            # The code begins with the weights of the vertices, which weigh their templates.
            found = np.insert(found, removed, 0.0, axis=1)
        return found

    codes, families = concatenated(look(code_of, learner))
    count = len(graph.vertices)
    removals = [[j for j in range(count) if j != i] for i in range(count if count > 1 else 0)]
    use = {"equal_vertices": coded(equal(graph)), **other_codes(codes, families)}
    linked = isinstance(graph.connect, Relations)
    replaced = {"links": coded(silenced(graph)), **use} if linked else {**use}
    replaced |= {f"V{i}": coded(without(graph, jnp.asarray(r)), i) for i, r in enumerate(removals)}

    def scored(given: np.ndarray) -> np.ndarray:
        return np.asarray(concatenated(look(scoring, learner, entries=given)), np.float64)

    whole, sign = scored(codes), 1 if metric == "mse" else -1
    losses = {name: sign * (scored(given) - whole) for name, given in replaced.items()}
    # A score that is not a number is worse than any other.
    losses = {name: np.where(np.isnan(loss), np.inf, loss) for name, loss in losses.items()}
    groups = {"all": np.ones(n, bool)}
    groups |= {name: families == i for i, name in enumerate(tasks.families)}
    entries = iter(_entries([loss[own] for loss in losses.values() for own in groups.values()]))
    rows = {name: {group: next(entries) for group in groups} for name in losses}
    return {
        "tasks": n,
        "metric": metric,
        **({"links": rows["links"]} if linked else {}),
        "vertices": [rows[f"V{i}"] for i in range(len(removals))],
        "use": {name: rows[name] for name in use},
    }


def other_codes(codes: np.ndarray, families: np.ndarray) -> dict[str, np.ndarray]:
    """The replacements of the codes `[tasks, d]`: `mean`, `own_family` and `other_family`. The last
    is missing if there is only one family, and `own_family` if a family has only one task."""
    n = len(codes)
    found = {"mean": np.broadcast_to(codes.mean(0), codes.shape)}
    after = [(i + np.arange(1, n)) % n for i in range(n)]
    for name, own in (("own_family", True), ("other_family", False)):
        fitting = [after[i][(families[after[i]] == families[i]) == own] for i in range(n)]
        if all(map(len, fitting)):
            found[name] = codes[[some[0] for some in fitting]]
    return found


def _entries(losses: Sequence[np.ndarray]) -> list[Json]:
    """The mean and the median of each, with tests of the means that are corrected for their
    number."""
    return [
        {
            "mean": mean.mean,
            "ci95": mean.ci95,
            "n": mean.tasks,
            "p": mean.p,
            "adjusted": mean.adjusted,
            "median": plain(float(np.median(loss))) if len(loss) else None,
        }
        for mean, loss in zip(holm([difference_of(loss) for loss in losses]), losses, strict=True)
    ]
