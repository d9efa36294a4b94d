"""Inside ARML: which vertices of its meta-knowledge graph the tasks of each family read, how the
vertices are linked, and which images are linked to a vertex most.

[1] Yao, Wu, Tao, Li, Ding, Li and Li, Automated Relational Meta-learning, ICLR 2020, section 4.2:
    the heat maps between prototypes and vertices (A_S, Eq. 6), and the graph of the vertices
    (A_G, Eq. 5) without the links under a threshold.

Differences: the paper shows one task of each family and does not state its threshold. Here are also
the mean and the standard deviation over many tasks. The threshold is the median link, so half of
the links are drawn, whatever their scale. `vertex_links_reach_tasks` says whether the drawn links
can change the reading of a task at all: in the authors' wiring they cannot.
"""

from typing import NamedTuple

import cv2
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from arml.algorithms.arml import (
    ClassMeans,
    Relational,
    SoftClusters,
    Structure,
    sample_mean,
)
from arml.algorithms.arml_extensions import Spread, VertexReader
from arml.core.episodes import Task, TaskDistribution
from arml.explain.looks import by_family, finite
from arml.results.files import Json
from arml.training.evaluate import concatenated, looks

Encoder = Relational | VertexReader
"""An encoder with a graph."""


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
    return Read(*concatenated(looks(read, learner, tasks, split="test", n=n, chunk=chunk)))


def prototype_names(structure: Structure, count: int) -> list[str]:
    """The name of each prototype. Classes and samples are numbered within their task."""
    if structure is sample_mean:
        return ["all samples"]
    if type(structure) is Spread:
        return ["spread"]
    kinds: dict[type, str] = {ClassMeans: "class", SoftClusters: "cluster"}
    kind = kinds.get(type(structure), "sample")
    return [f"{kind} {i}" for i in range(count)]


def default_threshold(links: np.ndarray) -> float:
    """The median link between two different vertices, so that half of the links are drawn; 0.5 for
    a single vertex. `links` is `[vertices, vertices]`."""
    between = links[np.triu_indices(len(links), 1)]
    return float(np.median(between)) if len(between) else 0.5


def found_in(learner: PyTree, tasks: TaskDistribution, *, n: int, chunk: int) -> Json:
    """The readings of `n` test tasks by family, and the links between vertices.

    **Raises** `RunError` for links that are not finite, or a family without a task.
    """
    encoder: Encoder = learner.encode
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


SHOWN = 8
"""Images of one vertex."""
LEAST = 64
"""Pixels a side to which a small image is enlarged."""


def nearest(
    encoder: Relational, tasks: TaskDistribution, *, n: int, chunk: int
) -> tuple[list[list[Json]], list[bytes]]:
    """For each vertex, the images of `n` test tasks' support sets whose own embedding is linked to
    it most (Eq. 6 of ARML's paper, on one image in place of a prototype), best first.

    **Returns** a record of each (`family`, `task`, `link` and squared `distance`), and a PNG strip
    of them for each vertex.
    """
    graph = encoder.graph
    assert graph is not None

    def look(encoder: Relational, task: Task, key: Array) -> tuple[Array, Array, Array, Array]:
        embeddings = encoder.embed(task.support)
        assert encoder.graph is not None
        difference = embeddings[:, None] - encoder.graph.vertices[None]
        distances = (difference**2).sum(-1)
        return task.support.x, encoder.graph.links(embeddings), distances, task.family

    best: list[list[tuple[float, float, int, int, np.ndarray]]] = [[] for _ in graph.vertices]
    first = 0
    for images, links, distances, families in looks(
        look, encoder, tasks, split="test", n=n, chunk=chunk
    ):
        pixels = np.round(255 * images).astype(np.uint8)
        for vertex, kept in enumerate(best):
            order = np.argsort(-links[..., vertex], axis=None)[: 4 * SHOWN]
            for flat in order:
                t, i = np.unravel_index(flat, links.shape[:2])
                found = float(links[t, i, vertex]), float(distances[t, i, vertex])
                kept.append((*found, first + int(t), int(families[t]), pixels[t, i]))
            best[vertex] = _distinct(kept)
        first += len(images)
    entries = [
        [
            {"family": tasks.families[f], "task": t, "link": link, "distance": distance}
            for link, distance, t, f, _ in kept
        ]
        for kept in best
    ]
    return entries, [_strip([image for *_, image in kept]) for kept in best]


def _distinct(
    kept: list[tuple[float, float, int, int, np.ndarray]],
) -> list[tuple[float, float, int, int, np.ndarray]]:
    """The best images, each once: tasks share images."""
    found: dict[bytes, tuple[float, float, int, int, np.ndarray]] = {}
    for one in sorted(kept, key=lambda one: (-one[0], one[1])):
        found.setdefault(one[4].tobytes(), one)
    return list(found.values())[:SHOWN]


def _strip(images: list[np.ndarray]) -> bytes:
    """Images side by side, two pixels apart, as PNG."""
    size = len(images[0])
    times = max(1, -(-LEAST // size))
    gap = np.full((size * times, 2, 3), 255, np.uint8)
    parts = []
    for image in images:
        parts += [image.repeat(times, 0).repeat(times, 1), gap]
    strip = cv2.cvtColor(np.concatenate(parts[:-1], axis=1), cv2.COLOR_RGB2BGR)
    return bytes(cv2.imencode(".png", strip)[1])
