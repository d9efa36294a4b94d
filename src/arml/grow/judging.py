"""The measurements that decide how a learner grows: losses after adaptation against a reference,
the novelty of support sets, and the families that the removal of a vertex hurts.

Squared errors have heavy tails, so losses are compared as logarithms, task by task.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from arml.algorithms.arml_extensions import ExtendedARML
from arml.core.episodes import Task, TaskDistribution
from arml.core.learner import MetaLearner
from arml.core.novelty import Novelty, threshold
from arml.explain.interventions import interventions
from arml.grow.streams import Mixture, uniform
from arml.grow.vertices import choices, own_vertices, signature
from arml.report.statistics import LEVEL
from arml.results.files import Json
from arml.results.intervals import Score, paired
from arml.training.evaluate import at_once_by_default, looks

LEAST = 1e-8
"""Losses below this bound are raised to it before the logarithm."""


class Band(NamedTuple):
    """The median of log losses, with its 95% interval by order statistics."""

    low: float
    median: float
    high: float


def band(log_losses: Float[np.ndarray, " n"]) -> Band:
    """The interval has the ranks n / 2 -+ 1.96 sqrt(n) / 2 of the sorted values."""
    ordered, n = np.sort(log_losses), len(log_losses)
    reach = 0.98 * math.sqrt(n)
    low, high = math.floor(n / 2 - reach), math.ceil(n / 2 + reach)
    ends = ordered[max(0, low)], ordered[min(n - 1, high)]
    return Band(float(ends[0]), float(np.median(ordered)), float(ends[1]))


def _query_loss(learner: MetaLearner, task: Task, key: Array) -> Float[Array, ""]:
    predicted = learner.adapt(task.support, key=key).predict(task.query.x)
    return jnp.log(jnp.maximum(learner.loss(predicted, task.query.y), LEAST))


def log_losses(
    learner: MetaLearner, tasks: TaskDistribution, *, split: str, n: int
) -> Float[np.ndarray, " n"]:
    """The logarithm of the query loss after adaptation, of the first `n` tasks of a split; a loss
    that is not a number counts as infinite."""
    chunk = min(n, at_once_by_default(tasks.problem))
    found = np.concatenate(list(looks(_query_loss, learner, tasks, split=split, n=n, chunk=chunk)))
    return np.where(np.isnan(found), np.inf, found.astype(np.float64))


def gained(before: Float[np.ndarray, " n"], after: Float[np.ndarray, " n"]) -> Score:
    """The mean fall of the log loss over the same tasks, with its interval: above zero is better.
    It has no mean where a loss is not finite."""
    return paired(before, after)


def excludes_zero(score: Score) -> bool:
    """Whether the interval lies above zero."""
    mean, half = score["mean"], score["ci95"]
    return mean is not None and half is not None and mean > half


def safe(lost: Score, bound: float) -> bool:
    """Whether the interval of a loss reaches down to the bound or below it."""
    mean, half = lost["mean"], lost["ci95"]
    return mean is not None and half is not None and mean - half <= bound


HANDICAPS = np.linspace(0, 3, 13)


def handicap(learner: ExtendedARML, tasks: Sequence[TaskDistribution], *, n: int) -> float:
    """The handicap of the newest vertex that lowers the product over families of their mean losses
    most, so that each family's relative change counts the same. `tasks` are training tasks of each
    family. The newest vertex of the learner has no handicap yet."""
    totals = np.zeros(len(HANDICAPS))
    for family in tasks:
        chunk = min(n, at_once_by_default(family.problem))
        found = list(looks(choices, learner, family, split="train", n=n, chunk=chunk))
        misfits, losses = (np.concatenate(part) for part in zip(*found, strict=True))
        others = misfits[:, :-1].min(axis=1)
        other = losses[np.arange(n), misfits[:, :-1].argmin(axis=1)]
        for i, more in enumerate(HANDICAPS):
            chosen = np.where(misfits[:, -1] + more < others, losses[:, -1], other)
            totals[i] += np.log(max(float(np.mean(chosen, dtype=np.float64)), LEAST))
    return float(HANDICAPS[np.argmin(np.nan_to_num(totals, nan=np.inf))])


def signatures(
    learner: ExtendedARML, tasks: TaskDistribution, *, split: str, n: int
) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "n vertices"]]:
    """The mean prototype of each task, and how much it reads each vertex."""
    chunk = min(n, at_once_by_default(tasks.problem))
    found = list(looks(signature, learner, tasks, split=split, n=n, chunk=chunk))
    prototypes, readings = (np.concatenate(part) for part in zip(*found, strict=True))
    return prototypes.astype(np.float64), readings.astype(np.float64)


def novelty(
    learner: ExtendedARML, known: TaskDistribution, fresh: Float[np.ndarray, "m d"], *, n: int
) -> float:
    """The median distance of fresh tasks to known ones, over the distance that 95% of held-out
    known tasks do not exceed: above 1 the support sets are novel."""
    bank = signatures(learner, known, split="train", n=n)[0]
    seen = Novelty(bank.astype(np.float32), 1.0, None)
    held = signatures(learner, known, split="validation", n=n)[0]
    return float(np.median(seen.distances(fresh)) / threshold(seen.distances(held)))


def unneeded(
    learner: ExtendedARML, tasks: Mixture, known: tuple[str, ...], *, n: int
) -> tuple[int | None, list[Json]]:
    """The vertex whose removal hurts no known family (the least read one if there are several), and
    for each vertex the effect of its removal on each family, as `interventions` returns it.

    A family is hurt if the mean or the median of its tasks' scores is worse, after Holm's
    correction for all vertices and families.
    """
    if (own_vertices(learner) or 0) < 2:
        return None, []
    equal = tasks.of(uniform(known))
    chunk = min(n, at_once_by_default(tasks.problem))
    found = interventions(
        learner, equal, n=n * len(known), chunk=chunk, split="validation", readings=False
    )["vertices"]
    effects = [{name: row[name] for name in known} for row in found]
    free = [v for v, row in enumerate(effects) if not any(map(_hurt, row.values()))]
    if not free:
        return None, effects
    reads = signatures(learner, equal, split="validation", n=n)[1].mean(axis=0)
    return min(free, key=lambda v: float(reads[v])), effects


def _hurt(entry: Json) -> bool:
    by_mean = entry["mean"] is None or (
        entry["mean"] > 0 and entry["adjusted"] is not None and entry["adjusted"] < LEVEL
    )
    by_sign = entry["worse"] is not None and entry["worse"] > 0.5 and entry["adjusted_sign"] < LEVEL
    return bool(by_mean or by_sign)
