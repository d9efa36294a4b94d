"""Novelty: how far a task is from the tasks of meta-training.

A learner embeds training tasks, and the vectors are kept as a bank. The novelty of a vector is its
mean distance to the nearest of them, divided by the distance that 95% of validation tasks do not
exceed. So a task above 1 is farther than nearly all new tasks of the families that the learner
knows.

[1] Sun, Ming, Zhu and Li, Out-of-Distribution Detection with Deep Nearest Neighbors, ICML 2022:
    the distance to the k-th nearest of the training features shows whether an input is out of
    distribution, and assumes nothing about the form of the features.
[2] Bates, Candes, Lei, Romano and Sesia, Testing for Outliers with Conformal p-values, Annals of
    Statistics 2023: a threshold from held-out data of the known kind keeps its false alarms few.
[3] Lee, Barber and Willett, Distribution-free Inference with Hierarchical Data, JRSS B 2025: scores
    of one class are alike, so a threshold counts classes and not scores.

Differences: the mean over the k nearest instead of the k-th, and features are divided by their
standard deviations instead of their norms, because the norm of a task's code carries
information.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

NEAREST = 5
"""How many of the bank's vectors a distance is a mean over."""
LEVEL = 0.95
"""The share of validation tasks whose novelty is at most 1."""


class Bound(NamedTuple):
    """Support sets of one size, and two distances: `LEVEL` of these sets do not exceed the first,
    and `LEVEL` of their tasks' queries do not exceed the second."""

    classes: int
    examples: int
    """Of each class."""
    support: float
    query: float


@dataclass(frozen=True, eq=False)
class Novelty:
    """The data needed to measure novelty, saved beside the learner."""

    bank: Float[np.ndarray, "n d"]
    """Class prototypes, or codes of tasks, of meta-training."""
    support: float
    """The distance that `LEVEL` of the validation tasks' support sets do not exceed."""
    query: float | None
    """The same for single queries; None where they cannot be embedded, as they have no target."""
    sets: tuple[Bound, ...] = ()
    """The same for smaller support sets of classes. Their distances are larger and vary more,
    because a network that normalises by its support set has fewer examples for it. Empty for
    regression, and in the files of earlier versions."""

    def bounds(self, counts: Int[np.ndarray, " classes"]) -> tuple[float, float | None]:
        """The bounds of a support set with `counts` examples of its classes, and of its queries.

        They are those of the largest measured set that is no larger than this one. A smaller set
        has a higher bound, so this choice raises fewer false alarms.
        """
        n, least = len(counts), int(np.min(counts))
        smaller = [one for one in self.sets if one.classes <= n and one.examples <= least]
        if not smaller:
            # A mean over few examples varies more; over one example, it varies as a query does.
            query = self.support if self.query is None else self.query
            return self.support + max(0.0, query - self.support) / int(np.sum(counts)), self.query
        best = max(smaller, key=lambda one: (one.classes, one.examples))
        return best.support, best.query

    def scale(self) -> Float[np.ndarray, " d"]:
        """The unit of each dimension: the bank's standard deviation, plus a small number."""
        scale: Float[np.ndarray, " d"] = self.bank.astype(np.float64).std(axis=0)
        # A feature that was zero in all of meta-training counts, but does not outweigh the others.
        scale += 0.1 * np.sqrt(np.mean(scale**2)) + 1e-12
        return scale

    def distances(self, x: Float[np.ndarray, "m d"]) -> Float[np.ndarray, " m"]:
        """The mean distance of each vector to the nearest of the bank, in its units.

        It is infinite for a vector that is not finite, as of numbers so large that they overflow.
        """
        scale = self.scale()
        finite = np.isfinite(x).all(axis=1)
        x, bank = np.where(finite[:, None], x, 0) / scale, self.bank.astype(np.float64) / scale
        squares = np.sum(x**2, axis=1)[:, None] - 2 * x @ bank.T + np.sum(bank**2, axis=1)
        nearest = np.partition(squares, min(NEAREST, len(bank)) - 1, axis=1)[:, :NEAREST]
        return np.where(finite, np.sqrt(np.maximum(nearest, 0)).mean(axis=1), np.inf)


def threshold(distances: Float[np.ndarray, " n"], alike: int | None = None) -> float:
    """The distance that a new example of the same kind exceeds with a probability of at most
    1 - `LEVEL` [2]. `alike` is how many of the `distances` are independent; all if None."""
    n, m = len(distances), alike or len(distances)
    rank = min(int(np.ceil((m + 1) * LEVEL * n / m)), n) - 1
    return float(np.sort(distances)[rank])


def enough(classes: int) -> bool:
    """Whether this number of validation classes can give a threshold at `LEVEL`: 19 or more."""
    return classes / (classes + 1) >= LEVEL


def class_threshold(distances: Float[np.ndarray, " n"], classes: Int[np.ndarray, " n"]) -> float:
    """The distance that an example of a new class exceeds with probability of at most 1 - `LEVEL`.

    The distances of one class are alike, so each class has the same weight, and the new class has
    that weight at infinity [3].
    """
    found, place, counts = np.unique(classes, return_inverse=True, return_counts=True)
    assert enough(len(found))
    order = np.argsort(distances)
    shares = np.cumsum(1 / counts[place[order]]) / (len(found) + 1)
    at = min(int(np.searchsorted(shares, LEVEL - 1e-9)), len(order) - 1)
    return float(distances[order[at]])
