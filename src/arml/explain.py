"""Look inside a trained ARML: which vertices of its meta-knowledge graph the tasks of each family
read, and how the vertices are linked.

[1] Yao, Wu, Tao, Li, Ding, Li and Li, Automated Relational Meta-learning, ICLR 2020, section 4.2:
    the heat maps between prototypes and vertices (A_S, Eq. 6), and the graph of the vertices
    (A_G, Eq. 5) without the links under a threshold.

Differences: the paper shows one task of each family and does not give its threshold; here are also
the mean and the standard deviation over many tasks, and the threshold is the median link, so that
half of the links are drawn whatever their scale. Whether the drawn links can reach a task at all
is worked out and written down: in the authors' wiring they cannot.
"""

from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from arml.compilation import short
from arml.episodes import TaskDistribution
from arml.evaluate import SEEDS
from arml.experiment import load
from arml.learner import Conditioned, MetaLearner
from arml.nn.graphs import MetaKnowledgeGraph
from arml.nn.prototypes import ClassMeans, SoftClusters, sample_mean
from arml.nn.relational import Relational
from arml.report.figures import average_heat_maps, heat_maps, knowledge_graph
from arml.report.style import save
from arml.results import FORMAT, RunError, write_json

IMAGES_AT_ONCE = 8
"""Convolutions are unrolled over tasks on a CPU: more at once would compile for minutes."""


class Read(NamedTuple):
    """What one task read from the meta-knowledge graph."""

    links: Float[Array, "prototypes vertices"]
    """A_S; rows sum to one."""
    family: Int[Array, ""]
    effect: Float[Array, ""]
    """How far the prototypes move when the links between vertices are removed, relative."""
    reached: Bool[Array, ""]
    """Whether the prototypes depend on the links between vertices at all."""


def read(encoder: Relational, tasks: TaskDistribution, *, key: Array) -> Read:
    """What the encoder reads on ONE task, the one that evaluation draws with the same key."""
    task = tasks.sample(jax.random.split(key)[0])
    trace = encoder.trace(task.support)
    graph, reading = encoder.graph, trace.reading
    assert graph is not None
    assert reading is not None
    prototypes, enriched = trace.prototypes, reading.prototypes

    def propagated(edges: Float[Array, "vertices vertices"]) -> Float[Array, "prototypes d"]:
        given = eqx.tree_at(lambda g: g.connect, graph, lambda nodes: edges)
        return given(prototypes).prototypes

    edges = graph.connect(graph.vertices)
    moved = propagated(jnp.zeros_like(edges)) - enriched
    effect = jnp.linalg.norm(moved) / jnp.maximum(jnp.linalg.norm(enriched), 1e-12)
    # A derivative is exactly zero where there is no path; a difference would only be small.
    slopes = jax.vjp(propagated, edges)[1](jnp.cos(jnp.arange(enriched.size)).reshape(moved.shape))
    between = slopes[0] * (1 - jnp.eye(len(edges)))
    return Read(reading.links, task.family, effect, jnp.any(between != 0))


@short
def _read_chunk(encoder: Relational, tasks: TaskDistribution, keys: Array) -> Read:
    return jax.vmap(lambda key: read(encoder, tasks, key=key))(keys)


def read_tasks(encoder: Relational, tasks: TaskDistribution, *, n: int, chunk: int) -> Read:
    """What the first `n` test tasks read, with a leading axis of tasks, as NumPy arrays."""
    key = jax.random.key(SEEDS["test"])
    parts = []
    for first in range(0, n, chunk):
        # The last chunk is filled up, so that one compiled program serves all.
        keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(first, first + chunk))
        parts.append(jax.tree.map(np.asarray, _read_chunk(encoder, tasks, keys)))
    whole: Read = jax.tree.map(lambda *arrays: np.concatenate(arrays)[:n], *parts)
    return whole


def encoder_of(learner: MetaLearner, recipe: str) -> tuple[Relational, MetaKnowledgeGraph]:
    """The learner's encoder and its meta-knowledge graph.

    **Raises** `RunError` for a learner that has none.
    """
    if not isinstance(learner, Conditioned) or not isinstance(learner.encode, Relational):
        raise RunError(
            f"expected a learner with a meta-knowledge graph, got {recipe}, which has none; "
            "name a run of ARML, such as one of regression2d/arml or folders/arml"
        )
    if learner.encode.graph is None:
        raise RunError(
            f"expected a meta-knowledge graph of one or more vertices, got {recipe} with "
            "vertices 0; name a run of ARML that was trained with vertices"
        )
    return learner.encode, learner.encode.graph


def prototype_names(structure: Any, count: int) -> list[str]:
    """What each prototype stands for. Classes and samples are numbered within their task."""
    if structure is sample_mean:
        return ["all samples"]
    kinds: dict[type, str] = {ClassMeans: "class", SoftClusters: "cluster"}
    kind = kinds.get(type(structure), "sample")
    return [f"{kind} {i}" for i in range(count)]


def default_threshold(links: np.ndarray) -> float:
    """The median link between two different vertices, so that half of the links are drawn; 0.5 for
    a single vertex. `links` is `[vertices, vertices]`."""
    between = links[np.triu_indices(len(links), 1)]
    return float(np.median(between)) if len(between) else 0.5


def by_family(reads: Read, names: tuple[str, ...]) -> dict[str, Any]:
    """The first task's links, and their mean and standard deviation over tasks, for each family.

    The deviation has n - 1 in its denominator; it is 0 for one task.

    **Raises** `RunError` for a family without a task.
    """
    example, average, counts = {}, {}, {}
    for index, name in enumerate(names):
        links = np.asarray(reads.links, np.float64)[np.asarray(reads.family) == index]
        if not len(links):
            raise RunError(
                f"expected a task of each of the {len(names)} families, got none of {name!r} "
                f"among {len(reads.family)} tasks; raise --tasks"
            )
        example[name] = links[0].tolist()
        deviation = links.std(0, ddof=1) if len(links) > 1 else np.zeros(links.shape[1:])
        average[name] = {"mean": links.mean(0).tolist(), "sd": deviation.tolist()}
        counts[name] = len(links)
    return {"example": example, "average": average, "tasks_by_family": counts}


def _check_finite(reads: Read, links: np.ndarray, folder: Path) -> None:
    if not (np.isfinite(reads.links).all() and np.isfinite(links).all()):
        raise RunError(
            f"expected finite links in {folder}, got some that are not; the run has diverged: "
            "train it again with a lower --outer-rate in a new folder"
        )


def explain(folder: Path, out: Path, *, tasks: int = 200) -> list[Path]:
    """Explain the run in `folder` on its first `tasks` test tasks; write what was found to `out`.

    Written are `explain.json` and, as PNG and SVG, `links` (the prototype-to-vertex heat map of
    one task of each family), `links-average` (mean and standard deviation over a family's tasks)
    and `knowledge-graph` (the links between vertices). The report of the run shows the figures too
    if `out` is its folder `explain`.

    `explain.json` holds `families`; `vertices`; `tasks` and `tasks_by_family`; `prototype_names`;
    `example` (each family's `[prototypes, vertices]`, rows sum to one); `average` (each family's
    `mean` and `sd`); `vertex_links` (`[vertices, vertices]`, in [0, 1], zero diagonal);
    `threshold`; `vertex_links_reach_tasks`, false where the wiring lets no task see the links
    between vertices; and `vertex_links_effect`, the mean over tasks of how far the prototypes move,
    relative to their norm, when these links are removed.

    **Returns** the files written, `explain.json` first.

    **Raises** `RunError` in one line: a folder that is no trained run, a learner without a
    meta-knowledge graph, too few tasks to have one of each family, or a folder that cannot be
    written.
    """
    if tasks < 1:
        raise RunError(f"expected one or more tasks, got {tasks}; raise --tasks")
    trained = load(folder)
    recipe = trained.experiment.recipe
    encoder, graph = encoder_of(trained.learner, recipe)
    test = trained.splits.test
    images = len(test.problem.features) == 3
    chunk = min(trained.experiment.chunk, tasks, IMAGES_AT_ONCE if images else tasks)
    reads = read_tasks(encoder, test, n=tasks, chunk=chunk)
    links = np.asarray(graph.connect(graph.vertices), np.float64)
    _check_finite(reads, links, folder)
    explained = {
        "format": FORMAT,
        "recipe": recipe,
        "step": trained.step,
        "families": list(test.families),
        "vertices": len(links),
        "prototype_names": prototype_names(encoder.structure, reads.links.shape[1]),
        "tasks": tasks,
        **by_family(reads, test.families),
        "vertex_links": links.tolist(),
        "threshold": default_threshold(links),
        "vertex_links_reach_tasks": bool(np.any(reads.reached)),
        "vertex_links_effect": float(np.mean(reads.effect)),
    }
    write_json(out / "explain.json", explained)
    files = [out / "explain.json"]
    figures = {
        "links": heat_maps,
        "links-average": average_heat_maps,
        "knowledge-graph": knowledge_graph,
    }
    for name, draw in figures.items():
        files += save(draw(explained), out / name)
    return files
