"""Models that learn a task from its examples alone, and their ensemble with the learner.

They have seen no other task: logistic regression (scikit-learn's) on the inputs or on the edges of
pictures; a Gaussian process (scikit-learn's) for functions. Where a task is unlike those of a
learner's meta-training, one of them may predict better.

The ensemble is a weighted mean of probabilities. Its weights come from examples that were left out:
the weights w (stacking [1]) maximise

    sum_i log sum_k w_k p_ik  +  PRIOR sum_k b_k log w_k

with p_ik the probability that model k gives to the label of example i. The second term is the log
of a Dirichlet density: b is one half for the first model, the learner, and the others divide the
rest. So the weights are b if no example can be left out. The sum is concave, and EM climbs it.

[1] Yao, Vehtari, Simpson and Gelman, Using Stacking to Average Bayesian Predictive Distributions,
    Bayesian Analysis 2018, Eq. (4), with the logarithmic score. Difference: the prior.
"""

import math
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.linear_model import LogisticRegression

from arml.core.episodes import Problem
from arml.nn.edges import histograms
from arml.predict.base import LEARNER
from arml.predict.inputs import floats
from arml.results.machine import one_blas_thread

PROCESS, ENSEMBLE = "process", "ensemble"
WEIGHTED = ("logistic", "edges")
"""The models that can use sample weights."""
_PENALTY = 0.001
"""Weight of half the squared weights beside the mean loss, for inputs of mean square 1."""
PRIOR = 4.0
"""How many examples the prior of the weights counts as much as."""
ROUNDS = 200
"""Of EM, which has converged by then to three digits."""
PROCESSED = 300
"""Examples up to which a Gaussian process is fitted: its time grows with their cube."""
SCALES = 4
"""Inputs up to which a Gaussian process has a scale for each."""
_LEAST = 1e-9
"""The least probability: a model that is sure and wrong does not lose its whole weight."""

Function = Callable[[Any], Any]
"""From inputs `[n, *features]` to log-odds `[n, classes]` or numbers `[n, targets]`."""


def models_of(problem: Problem, n: int = 0) -> tuple[str, ...]:
    """The models that a predictor of such a problem can use with `n` examples; the learner comes
    first, and the ensemble last, if there are several."""
    if problem.kind == "regression" or problem.inputs == "tables":
        function = problem.inputs == "vectors" and problem.outputs == 1 and n <= PROCESSED
        return (LEARNER, PROCESS, ENSEMBLE) if function else (LEARNER,)
    pictures = problem.inputs == "pictures" and min(problem.features[:2]) >= 16
    return (LEARNER, "logistic", *(("edges",) if pictures else ()), ENSEMBLE)


def fitted(
    model: str,
    x: np.ndarray,
    y: np.ndarray,
    xp: ModuleType = np,
    sample_weight: np.ndarray | None = None,
) -> Function:
    """Logistic regression on the inputs (`logistic`) or their `edges`: the log-odds of the classes
    `y` `[n]`, of which none is empty. With `jax.numpy` as `xp` it can be traced.

    The inputs are centred, and divided by the root of their mean squared length; they are then
    turned to their principal axes, of which there are no more than examples and which change no
    fit."""

    def read(x: Any, xp: ModuleType) -> Any:
        exact = np.asarray(floats(x), np.float64) if xp is np else x
        if model == "edges":
            return histograms(exact, xp)
        return exact.reshape(x.shape[0], math.prod(x.shape[1:]))

    rows, weight = read(x, np), np.ones(len(x)) if sample_weight is None else sample_weight
    with one_blas_thread():
        middle = np.average(rows, axis=0, weights=weight)
        squared = np.average(np.sum(np.square(rows - middle), axis=1), weights=weight)
        scale = np.sqrt(squared) + 1e-12
        left, sizes, axes = np.linalg.svd((rows - middle) / scale, full_matrices=False)
        logistic = LogisticRegression(C=1 / (_PENALTY * weight.sum()), max_iter=1000)
        logistic.fit(left * sizes, y, weight)
    coefficients, offset = logistic.coef_ @ axes / scale, logistic.intercept_
    if len(coefficients) == 1:  # of two classes it states the log-odds of the second
        coefficients, offset = (np.stack([-a[0], a[0]]) / 2 for a in (coefficients, offset))
    weights, offset = coefficients.T, offset - coefficients @ middle

    def predict(inputs: Any) -> Any:
        found = read(inputs, xp)
        return found @ weights.astype(found.dtype) + offset.astype(found.dtype)

    return predict


def process(
    x: Float[np.ndarray, "n d"], y: Float[np.ndarray, "n 1"], xp: ModuleType = np
) -> Function:
    """The mean of a Gaussian process with a squared exponential kernel, one scale for all inputs if
    they are many, and noise, chosen by the likelihood of the targets. With `jax.numpy` as `xp` it
    can be traced."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    middle, unit = x.mean(axis=0), x.std(axis=0)
    unit[unit == 0] = 1.0
    scales = np.ones(x.shape[1] if x.shape[1] <= SCALES else 1)
    kernel = ConstantKernel() * RBF(scales, (0.05, 50.0)) + WhiteKernel(0.1, (1e-3, 10.0))
    with one_blas_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a scale at its bound
        known = (x - middle) / unit
        found = GaussianProcessRegressor(kernel, normalize_y=True).fit(known, y[:, 0])
    height, length = found.kernel_.k1.k1.constant_value, found.kernel_.k1.k2.length_scale
    known, unit = known / length, unit * length
    alpha = height * found.alpha_ * (float(y.std()) or 1.0)
    squares, offset = np.sum(known**2, axis=1), float(y.mean())

    def predict(inputs: Any) -> Any:
        z = (xp.asarray(inputs) - middle.astype(inputs.dtype)) / unit.astype(inputs.dtype)
        own = xp.sum(z * z, axis=1, keepdims=True)
        away = own + squares.astype(z.dtype) - 2 * z @ known.T.astype(z.dtype)
        return xp.exp(-away / 2) @ alpha[:, None].astype(z.dtype) + np.float32(offset)

    return predict


def class_weights(own: Float[np.ndarray, "n k"]) -> Float[np.ndarray, " k"]:
    """The weight of each of `k` classifiers, two or more; they sum to one.

    **Arguments**

    - `own`: the probability that each gives to the label of an example that it did not learn from.
    """
    n, k = own.shape
    prior = np.array([0.5, *[0.5 / (k - 1)] * (k - 1)])
    chances, weights = np.maximum(own, _LEAST), prior
    for _ in range(ROUNDS):
        # The expected number of examples that each classifier explains.
        explained = (1 / (chances @ weights)) @ chances * weights
        weights = (explained + PRIOR * prior) / (n + PRIOR)
    return weights
