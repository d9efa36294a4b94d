"""The support images with the strongest links to each vertex of ARML's graph."""

import cv2
import numpy as np
from jaxtyping import Array

from arml.core.episodes import Task, TaskDistribution
from arml.nn.relational import Relational
from arml.results.files import Json
from arml.training.evaluate import looks

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
