"""Novelty: how far vectors are from those of the tasks or pictures that a learner was trained on.

The novelty of a vector is its mean distance to the nearest of a bank of known vectors, divided by
the distance that 95% of new vectors of known kinds do not exceed. Above 1 it is farther than nearly
all of them.

[1] Sun, Ming, Zhu and Li, Out-of-Distribution Detection with Deep Nearest Neighbors, ICML 2022:
    the distance to the k-th nearest of the training features shows whether an input is out of
    distribution, and assumes nothing about the form of the features.
[2] Bates, Candes, Lei, Romano and Sesia, Testing for Outliers with Conformal p-values, Annals of
    Statistics 2023: a threshold from held-out data of the known kind keeps its false alarms few.

Differences: the mean over the k nearest instead of the k-th, and features are divided by their
standard deviations instead of their norms, because the norm of a task's code carries
information.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

NEAREST = 5
"""How many of the bank's vectors a distance is a mean over."""
LEVEL = 0.95
"""The share of new vectors of known kinds whose novelty is at most 1."""


@dataclass(frozen=True, eq=False)
class Novelty:
    """The data needed to measure novelty, saved beside the learner."""

    bank: Float[np.ndarray, "n d"]
    """Known vectors."""
    bound: float
    """The distance that `LEVEL` of new vectors of known kinds do not exceed."""
    auroc: float | None = None
    """How well novelty told kinds that were held out from known ones: the area under the ROC curve,
    0.5 by chance. None if this was not measured; then nobody should be told the novelty."""

    def __call__(self, x: Float[np.ndarray, "m d"]) -> Float[np.ndarray, " m"]:
        """The novelty of each vector."""
        return self.distances(x) / self.bound

    def distances(self, x: Float[np.ndarray, "m d"]) -> Float[np.ndarray, " m"]:
        """The mean distance of each vector to the nearest of the bank, in units of the bank's
        standard deviation in each dimension.

        It is infinite for a vector that is not finite, as of numbers so large that they overflow.
        """
        scale = self.bank.astype(np.float64).std(axis=0)
        # A feature that was zero in all of the bank counts, but does not outweigh the others.
        scale += 0.1 * np.sqrt(np.mean(scale**2)) + 1e-12
        finite = np.isfinite(x).all(axis=1)
        x, bank = np.where(finite[:, None], x, 0) / scale, self.bank.astype(np.float64) / scale
        squares = np.sum(x**2, axis=1)[:, None] - 2 * x @ bank.T + np.sum(bank**2, axis=1)
        nearest = np.partition(squares, min(NEAREST, len(bank)) - 1, axis=1)[:, :NEAREST]
        return np.where(finite, np.sqrt(np.maximum(nearest, 0)).mean(axis=1), np.inf)


def threshold(distances: Float[np.ndarray, " n"]) -> float:
    """The distance that a new example of the same kind exceeds with a probability of at most
    1 - `LEVEL` [2]."""
    rank = min(int(np.ceil((len(distances) + 1) * LEVEL)), len(distances)) - 1
    return float(np.sort(distances)[rank])
