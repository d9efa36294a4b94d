"""Inside the methods that ARML is compared with: HSML's tree of clusters, MUMOMAML's task codes and
MT-Net's masks."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from arml.algorithms.hsml import TreeEncoder
from arml.algorithms.mt_net import MTNet
from arml.core.episodes import Task, TaskDistribution
from arml.core.learner import Conditioned
from arml.explain.tasks import by_family, finite
from arml.results.files import Json
from arml.training.evaluate import looks, together

Found = tuple[Json, dict[str, bytes]]
"""Plain data, and images by the names of their files."""


def tree(learner: PyTree, tasks: TaskDistribution, *, n: int, chunk: int) -> Found:
    """HSML: the share of each family's tasks in each leaf, and the flow along each branch.

    `flows` has for each level, leaves first, the mean over all tasks of the share that goes from
    each lower node to each upper one. All entries of a level add up to one.
    """

    def look(
        encoder: TreeEncoder, task: Task, key: Array
    ) -> tuple[Array, tuple[Array, ...], Array]:
        assignments = encoder.trace(task.support).climb.assignments
        share, flows = jnp.ones(1), []
        for assignment in assignments:
            flows.append(share[:, None] * assignment)
            share = flows[-1].sum(0)
        return assignments[0][0], tuple(flows), task.family

    found = looks(look, learner.encode, tasks, split="test", n=n, chunk=chunk)
    leaves, flows, families = together(found)
    finite("assignments", leaves, *flows)
    result = {
        "kind": "tree",
        **by_family(leaves, families, tasks.families),
        "flows": [flow.mean(0).tolist() for flow in flows],
    }
    return result, {}


def codes(learner: PyTree, tasks: TaskDistribution, *, n: int, chunk: int) -> Found:
    """MUMOMAML: the codes of the tasks on their two main axes, the share of their variance that is
    between families, and by family the mean scale of the units of each block."""

    def look(learner: Conditioned, task: Task, key: Array) -> tuple[Array, Array, Array]:
        code, _ = learner.encode(task.support)
        blocks = learner.modulate(learner.net, code).body.blocks
        return code, jnp.stack([jnp.mean(b.film.scale.value) for b in blocks]), task.family

    found = looks(look, learner, tasks, split="test", n=n, chunk=chunk)
    values, scales, families = together(found)
    finite("codes", values, scales)
    centred = np.asarray(values, np.float64) - values.mean(0)
    strengths, axes = np.linalg.svd(centred, full_matrices=False)[1:]
    total = max(float((centred**2).sum()), 1e-30)
    mean = by_family(centred, families, tasks.families)
    counts = mean["tasks_by_family"]
    between = sum(
        counts[name] * float(np.square(average["mean"]).sum())
        for name, average in mean["average"].items()
    )
    points = centred @ axes[:2].T
    modulation = by_family(scales, families, tasks.families)["average"]
    result = {
        "kind": "codes",
        "tasks_by_family": counts,
        "points": [[*map(float, point), int(f)] for point, f in zip(points, families, strict=True)],
        "variance": [float(s**2 / total) for s in strengths[:2]],
        "between_families": between / total,
        "modulation": {name: average["mean"] for name, average in modulation.items()},
    }
    return result, {}


def masks(learner: MTNet, tasks: TaskDistribution, **_: object) -> Found:
    """MT-Net: the probability that each unit is adapted, by layer. It does not depend on tasks."""
    rates = [np.asarray(jax.nn.sigmoid(logits), np.float64) for logits in learner.logits]
    finite("mask rates", *rates)
    names = [*(f"block {i}" for i in range(len(rates) - 1)), "head"]
    layers = [
        {"name": name, "mean": float(rate.mean()), "rates": rate.tolist()}
        for name, rate in zip(names, rates, strict=True)
    ]
    return {"kind": "masks", "layers": layers}, {}
