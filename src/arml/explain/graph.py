"""Inside ARML: which vertices of its meta-knowledge graph the tasks of each family read, and how
the vertices are linked.

[1] Yao, Wu, Tao, Li, Ding, Li and Li, Automated Relational Meta-learning, ICLR 2020, section 4.2:
    the heat maps between prototypes and vertices (A_S, Eq. 6), and the graph of the vertices
    (A_G, Eq. 5) without the links under a threshold.

Differences: the paper shows one task of each family and does not state its threshold. Here are also
the mean and the standard deviation over many tasks. The threshold is the median link, so half of
the links are drawn, whatever their scale. `vertex_links_reach_tasks` says whether the drawn links
can change the reading of a task at all: in the authors' wiring they cannot.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from arml.core.episodes import Task, TaskDistribution
from arml.explain.tasks import by_family, finite
from arml.nn.prototypes import prototype_names
from arml.nn.relational import Relational
from arml.results.files import Json
from arml.training.evaluate import looks, together


class Read(NamedTuple):
    """The reading of one task from the meta-knowledge graph."""

    links: Float[Array, "prototypes vertices"]
    """A_S; rows sum to one."""
    family: Int[Array, ""]
    effect: Float[Array, ""]
    """How far the prototypes move when the links between vertices are removed, relative to their
    norm."""
    reached: Bool[Array, ""]
    """Whether the prototypes depend on the links between vertices at all."""


def read(learner: PyTree, task: Task, key: Array) -> Read:
    """The learner's reading of ONE task."""
    trace = learner.reading()(task.support)
    graph, reading = learner.encode.graph, trace.reading
    prototypes, enriched = trace.prototypes, reading.prototypes

    def propagated(edges: Float[Array, "vertices vertices"]) -> Float[Array, "prototypes d"]:
        given = eqx.tree_at(lambda g: g.connect, graph, lambda nodes: edges)
        return given(prototypes).prototypes

    edges = graph.connect(graph.vertices)
    moved = propagated(jnp.zeros_like(edges)) - enriched
    effect = jnp.linalg.norm(moved) / jnp.maximum(jnp.linalg.norm(enriched), 1e-12)
    # Without a path the derivative is exactly zero; a difference would only be small.
    slopes = jax.vjp(propagated, edges)[1](jnp.cos(jnp.arange(enriched.size)).reshape(moved.shape))
    between = slopes[0] * (1 - jnp.eye(len(edges)))
    return Read(reading.links, task.family, effect, jnp.any(between != 0))


def read_tasks(learner: PyTree, tasks: TaskDistribution, *, n: int, chunk: int) -> Read:
    """The readings of the first `n` test tasks, with a leading axis of tasks, as NumPy arrays."""
    return Read(*together(looks(read, learner, tasks, split="test", n=n, chunk=chunk)))


def default_threshold(links: np.ndarray) -> float:
    """The median link between two different vertices, so that half of the links are drawn; 0.5 for
    a single vertex. `links` is `[vertices, vertices]`."""
    between = links[np.triu_indices(len(links), 1)]
    return float(np.median(between)) if len(between) else 0.5


def found_in(learner: PyTree, tasks: TaskDistribution, *, n: int, chunk: int) -> Json:
    """The readings of `n` test tasks by family, and the links between vertices.

    **Raises** `RunError` for links that are not finite, or a family without a task.
    """
    encoder: Relational = learner.encode
    graph = encoder.graph
    assert graph is not None
    reads = read_tasks(learner, tasks, n=n, chunk=chunk)
    links = np.asarray(graph.connect(graph.vertices), np.float64)
    read_links, families = np.asarray(reads.links), np.asarray(reads.family)
    finite("links", read_links, links)
    return {
        "kind": "graph",
        "vertices": len(links),
        "prototype_names": prototype_names(encoder.structure, reads.links.shape[1]),
        **by_family(read_links, families, tasks.families),
        "vertex_links": links.tolist(),
        "threshold": default_threshold(links),
        "vertex_links_reach_tasks": bool(np.any(reads.reached)),
        "vertex_links_effect": float(np.mean(reads.effect)),
    }
