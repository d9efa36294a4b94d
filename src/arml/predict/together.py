"""Several means of a task together: of classifiers the mean of their probabilities, of regressions
the mean of their predictions, each with a share.

The shares s of classifiers are learned from examples i that were left out (stacking [1]). They
maximise

    sum_i log sum_k s_k p_ik  +  PRIOR sum_k b_k log s_k

with p_ik the probability that classifier k gives to the label of i. The second term is the log of a
Dirichlet density: b is one half for the first classifier, the learner, and the others share the
rest. So the shares are b if no example can be left out. The sum is concave, and EM climbs it.

The shares of regressions are in proportion to 1 / e_k^2, with e_k the mean squared error for
examples that were left out [2].

[1] Yao, Vehtari, Simpson and Gelman, Using Stacking to Average Bayesian Predictive Distributions,
    Bayesian Analysis 2018, Eq. (4), with the logarithmic score. Difference: the prior.
[2] Bates and Granger, The Combination of Forecasts, Operational Research Quarterly 1969, with
    1 / e_k. Difference: the square, because a worse fit is seldom worth its share.
"""

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

PRIOR = 4.0
"""How many examples the prior counts as much as."""
ROUNDS = 200
"""Of EM, which has converged by then to three digits."""
LEAST = 1e-9
"""The least probability: a classifier that is sure and wrong does not lose its whole share."""


def shares(
    own: Float[np.ndarray, "n k"], counted: Bool[np.ndarray, "*parts n"] | None = None
) -> Float[np.ndarray, "*parts k"]:
    """The share of each of `k` classifiers, two or more; they sum to one.

    **Arguments**

    - `own`: the probability that each classifier gives to the label of an example, which it did
      not learn from.
    - `counted`: the examples that count; in several rows, shares are found for each row.
    """
    n, k = own.shape
    some = np.ones(n) if counted is None else counted.astype(float)
    prior = np.array([0.5, *[0.5 / (k - 1)] * (k - 1)])
    total = some.sum(axis=-1, keepdims=True) + PRIOR
    chances = np.maximum(own, LEAST)
    found = np.broadcast_to(prior, (*some.shape[:-1], k))
    for _ in range(ROUNDS):
        # The expected number of examples that each classifier explains.
        explained = some / (found @ chances.T) @ chances * found
        found = (explained + PRIOR * prior) / total
    return found


def left_out(
    chances: Sequence[Float[np.ndarray, "n classes"]],
    y: Int[np.ndarray, " n"],
    parts: Sequence[np.ndarray],
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, "n classes"]]:
    """The shares of classifiers, and the mean of their `chances` for examples that each did not
    learn from. The shares in the mean of one of the `parts`, which hold places of examples, are
    found without that part."""
    own = np.stack([each[np.arange(len(y)), y] for each in chances], axis=1)
    kept = np.ones((len(parts), len(y)), bool)
    for row, part in zip(kept, parts, strict=True):
        row[part] = False
    mean = np.zeros_like(chances[0])
    for part, found in zip(parts, shares(own, kept), strict=True):
        mean[part] = sum(s * each[part] for s, each in zip(found, chances, strict=True))
    return shares(own), mean


def error_shares(
    squared: Float[np.ndarray, "n k"], counted: Bool[np.ndarray, "*parts n"] | None = None
) -> Float[np.ndarray, "*parts k"]:
    """The share of each of `k` regressions; they sum to one, and are alike without examples.

    **Arguments**

    - `squared`: the squared error of each for an example that it did not learn from; infinite for
      one that could not predict it.
    - `counted`: the examples that count; in several rows, shares are found for each row.
    """
    some = np.ones(len(squared)) if counted is None else counted.astype(float)
    lost = some @ np.isinf(squared) > 0
    total = np.maximum(some.sum(axis=-1, keepdims=True), 1)
    mean = some @ np.where(np.isinf(squared), 0, squared) / total + LEAST
    least = np.where(lost, np.inf, mean).min(axis=-1, keepdims=True)
    ratio = np.where(np.isinf(least), 1, np.where(lost, 0, np.square(least / mean)))
    return ratio / ratio.sum(axis=-1, keepdims=True)


def weighted(parts: Sequence[tuple[float, Callable[[Any], Any]]]) -> Callable[[Any], Any]:
    """The mean of functions that predict numbers, from shares and functions. One without a share is
    not asked."""
    return lambda inputs: sum(share * function(inputs) for share, function in parts if share)


def mixed(
    parts: Sequence[tuple[float, Callable[[Any], Any]]], xp: ModuleType = np
) -> Callable[[Any], Any]:
    """The log probabilities `[n, classes]` of new inputs, from shares and functions that give
    log-odds. With `jax.numpy` as `xp` it can be traced."""

    def predict(inputs: Any) -> Any:
        mean: Any = 0.0
        for share, function in parts:
            odds = function(inputs)
            chances = xp.exp(odds - odds.max(axis=1, keepdims=True))
            mean = mean + share * chances / chances.sum(axis=1, keepdims=True)
        return xp.log(xp.maximum(mean, LEAST))

    return predict
