"""Inside the methods that ARML is compared with: HSML's tree of clusters, MUMOMAML's task codes and
MT-Net's masks; and the means by family of a value for each task."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from arml.algorithms.conditioned import Conditioned
from arml.algorithms.hsml import TreeEncoder
from arml.algorithms.mt_net import MTNet
from arml.core.episodes import Task, TaskDistribution
from arml.results.files import Json, RunError
from arml.training.evaluate import concatenated, looks

IMAGES_AT_ONCE = 8
"""Tasks of images at once. Convolutions are unrolled over tasks on a CPU: more would compile for
minutes."""


def by_family(values: np.ndarray, families: np.ndarray, names: Sequence[str]) -> Json:
    """The first task's values `[tasks, ...]`, and their mean and standard deviation over tasks, for
    each family.

    The deviation has n - 1 in its denominator; it is 0 for one task.

    **Raises** `RunError` for a family without a task.
    """
    example, average, counts = {}, {}, {}
    for index, name in enumerate(names):
        own = np.asarray(values, np.float64)[np.asarray(families) == index]
        if not len(own):
            raise RunError(
                f"expected a task of each of the {len(names)} families, got none of {name!r} "
                f"among {len(families)} tasks; raise --tasks"
            )
        example[name] = own[0].tolist()
        deviation = own.std(0, ddof=1) if len(own) > 1 else np.zeros(own.shape[1:])
        average[name] = {"mean": own.mean(0).tolist(), "sd": deviation.tolist()}
        counts[name] = len(own)
    return {"example": example, "average": average, "tasks_by_family": counts}


def finite(what: str, *arrays: np.ndarray) -> None:
    """Raise `RunError` for a learner that has diverged."""
    if not all(np.isfinite(array).all() for array in arrays):
        raise RunError(
            f"expected finite {what}, got some that are not; the run has diverged: train it again "
            "with a lower --outer-rate in a new folder"
        )


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
    leaves, flows, families = concatenated(found)
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
    values, scales, families = concatenated(found)
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
