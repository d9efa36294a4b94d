"""Explain the learner of a run folder, and write the figures and numbers.

For ARML: which vertices of its meta-knowledge graph the tasks of each family read, how the vertices
are linked, and by intervention how the loss of each family changes without a part of the graph.

[1] Yao, Wu, Tao, Li, Ding, Li and Li, Automated Relational Meta-learning, ICLR 2020, section 4.2:
    the heat maps between prototypes and vertices (A_S, Eq. 6), and the graph of the vertices
    (A_G, Eq. 5) without the links under a threshold.

Differences: the paper shows one task of each family and does not state its threshold. Here are also
the mean and the standard deviation over many tasks. The threshold is the median link, so half of
the links are drawn, whatever their scale. `vertex_links_reach_tasks` shows whether the drawn links
can change the reading of a task: with the authors' wiring they cannot.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from arml.algorithms import ALGORITHMS
from arml.algorithms.arml import ClassMeans, SoftClusters, Structure, sample_mean
from arml.algorithms.arml_extensions import Spread
from arml.core.checks import Options
from arml.core.episodes import Task, TaskDistribution
from arml.core.learner import MetaLearner
from arml.experiment.running import Run
from arml.explain.interventions import interventions
from arml.report.curves import save_figure
from arml.report.graphs import captioned
from arml.results.files import Json, RunError, plain, write_json
from arml.training.evaluate import concatenated, looks


def explain(folder: Path, out: Path, *, tasks: int = 200) -> list[Path]:
    """Explain the run in `folder` on its first `tasks` test tasks; write the findings to `out`. The
    files are `explain.json`, which has what `inside` returns, and for ARML figures as PNG and SVG:
    how much each family reads each vertex, in all and by prototype, and the effects of
    interventions. The report of the run shows them too if `out` is the folder `explain` in it.
    **Returns** the files written, `explain.json` first. **Raises** `RunError` in one line for a
    folder that is not a trained run, a learner without anything to show, too few tasks to have
    one of each family, and a folder that cannot be written."""
    if tasks < 1:
        raise RunError(f"expected one or more tasks, got {tasks}; raise --tasks")
    run = Run(folder)
    recipe, test = run.experiment.recipe, run.splits.test
    chunk = min(run.experiment.chunk, tasks)
    found = inside(run.experiment.algorithm, recipe, run.learner, test, n=tasks, chunk=chunk)
    facts = {"recipe": recipe, "step": run.step, "families": list(test.families), "tasks": tasks}
    explained = {**facts, **found}
    files = [out / "explain.json"]
    for name, figure, _, _ in captioned(explained):
        files += save_figure(figure, out / name)
    # Last: if it is there, the other files are.
    write_json(files[0], explained)
    return files


def inside(
    options: Options,
    recipe: str,
    learner: MetaLearner,
    tasks: TaskDistribution,
    *,
    n: int,
    chunk: int,
) -> Json:
    """The inside of a learner with these options of its method, on its first `n` test tasks.
    **Raises** `RunError` in one line for a method without an explanation."""
    method = ALGORITHMS.of(options)
    if method.inside == "graph":
        return graph(learner, tasks, n=n, chunk=chunk)
    if not callable(method.inside):
        others = ", ".join(m.name for m in ALGORITHMS.values() if m.inside)
        more = "" if method.source is None else ", or give arml.register a function as `inside`"
        raise RunError(f"{recipe} has no explanation to show; name a run of {others}{more}")
    return {"kind": "own", **plain(method.inside(learner, tasks, n=n, chunk=chunk))}


class _Read(NamedTuple):
    """The reading of one task from the meta-knowledge graph."""

    links: Float[Array, "prototypes vertices"]
    """A_S; rows sum to one."""
    family: Int[Array, ""]
    effect: Float[Array, ""]
    """How far the prototypes move when the links between vertices are removed, relative to their
    norm."""
    reached: Bool[Array, ""]
    """Whether the prototypes depend on the links between vertices at all."""


def read_task(learner: PyTree, task: Task, key: Array) -> _Read:
    """The learner's reading of ONE task."""
    trace = learner.reading()(task.support)
    graph, reading = learner.encode.graph, trace.reading
    prototypes, enriched = trace.prototypes, reading.prototypes

    def propagated(edges: Float[Array, "vertices vertices"]) -> Float[Array, "prototypes d"]:
        changed = eqx.tree_at(lambda g: g.connect, graph, lambda nodes: edges)
        return changed(prototypes).prototypes

    edges = graph.connect(graph.vertices)
    moved = propagated(jnp.zeros_like(edges)) - enriched
    effect = jnp.linalg.norm(moved) / jnp.maximum(jnp.linalg.norm(enriched), 1e-12)
    # Without a path the derivative is exactly zero; a difference would only be small.
    slopes = jax.vjp(propagated, edges)[1](jnp.cos(jnp.arange(enriched.size)).reshape(moved.shape))
    between = slopes[0] * (1 - jnp.eye(len(edges)))
    return _Read(reading.links, task.family, effect, jnp.any(between != 0))


def graph(learner: PyTree, tasks: TaskDistribution, *, n: int, chunk: int) -> Json:
    """ARML's meta-knowledge graph, on `n` test tasks. **Returns** `vertices`, their number;
    `prototype_names`; `average` (each family's `mean` and `sd` of its links `[prototypes,
    vertices]`, rows sum to one); `tasks_by_family`; `vertex_links` (`[vertices, vertices]`, in [0,
    1], zero diagonal); `threshold`; `vertex_links_reach_tasks`, false if the links between vertices
    cannot change the reading of any task; `vertex_links_effect`, the mean over tasks of how far the
    prototypes move, relative to their norm, when these links are removed; and `interventions`.
    **Raises** `RunError` for a learner without vertices, links that are not finite, or a family
    without a task."""
    encoder = learner.encode
    if encoder.graph is None:
        raise RunError(
            "a run with vertices 0 has no meta-knowledge graph; name a run of ARML that was "
            "trained with vertices"
        )
    found = concatenated(looks(read_task, learner, tasks, split="test", n=n, chunk=chunk))
    reads = _Read(*found)
    links = np.asarray(encoder.graph.connect(encoder.graph.vertices), np.float64)
    if not (np.isfinite(reads.links).all() and np.isfinite(links).all()):
        raise RunError(
            "some links are not finite; the run has diverged: train it again with a lower "
            "--outer-rate in a new folder"
        )
    return {
        "kind": "graph",
        "vertices": len(links),
        "prototype_names": prototype_names(encoder.structure, reads.links.shape[1]),
        **by_family(np.asarray(reads.links), np.asarray(reads.family), tasks.families),
        "vertex_links": links.tolist(),
        "threshold": default_threshold(links),
        "vertex_links_reach_tasks": bool(np.any(reads.reached)),
        "vertex_links_effect": float(np.mean(reads.effect)),
        "interventions": interventions(learner, tasks, n=n, chunk=chunk),
    }


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


def by_family(values: np.ndarray, families: np.ndarray, names: Sequence[str]) -> Json:
    """The mean and the standard deviation over tasks of `[tasks, ...]` values, for each family. The
    deviation has n - 1 in its denominator; it is 0 for one task. **Raises** `RunError` for a family
    without a task."""
    average, counts = {}, {}
    for index, name in enumerate(names):
        own = np.asarray(values, np.float64)[families == index]
        if not len(own):
            raise RunError(
                f"none of {len(families)} tasks is of the family {name!r}; raise --tasks"
            )
        deviation = own.std(0, ddof=1) if len(own) > 1 else np.zeros(own.shape[1:])
        average[name] = {"mean": own.mean(0).tolist(), "sd": deviation.tolist()}
        counts[name] = len(own)
    return {"average": average, "tasks_by_family": counts}
