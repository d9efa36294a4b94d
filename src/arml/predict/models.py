"""Models that learn a task from its examples alone, and their ensemble with the learner.

They have seen no other task: logistic regression on the inputs or on the edges of pictures, and for
numbers a Gaussian process, all of scikit-learn. Where a task is unlike those of a learner's
meta-training, one of them may predict better.

The ensemble is a weighted mean of probabilities or of numbers. Its weights come from examples that
were left out. The weights w of classifiers (stacking [1]) maximise

    sum_i log sum_k w_k p_ik  +  PRIOR sum_k b_k log w_k

with p_ik the probability that model k gives to the label of example i. The second term is the log
of a Dirichlet density: b is one half for the first model, the learner, and the others divide the
rest. So the weights are b if no example can be left out. The sum is concave, and EM climbs it. The
weights of regressions are in proportion to 1 / e_k^2, with e_k the mean squared error [2].

[1] Yao, Vehtari, Simpson and Gelman, Using Stacking to Average Bayesian Predictive Distributions,
    Bayesian Analysis 2018, Eq. (4), with the logarithmic score. Difference: the prior.
[2] Bates and Granger, The Combination of Forecasts, Operational Research Quarterly 1969, with
    1 / e_k. Difference: the square, because a worse fit is seldom worth its weight.
"""

import math
import warnings
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import LogisticRegression

from arml.core.episodes import Problem
from arml.nn.edges import histograms
from arml.predict.inputs import floats
from arml.results.files import one_blas_thread

LEARNER, ENSEMBLE = "learner", "ensemble"
WORDS = {
    LEARNER: "the learner",
    "logistic": "logistic regression",
    "edges": "logistic regression on edges",
    "process": "a Gaussian process",
    ENSEMBLE: "all of them, weighted",
}
"""The models that a predictor can use."""
PENALTY = 0.001
"""Weight of half the squared weights beside the mean loss, for inputs of mean square 1."""
MOST = 500
"""Examples of a Gaussian process at most: its time grows with their cube. Of more, some are
drawn."""
PRIOR = 4.0
"""How many examples the prior of the weights counts as much as."""
ROUNDS = 200
"""Of EM, which has converged by then to three digits."""
LEAST = 1e-9
"""The least probability: a model that is sure and wrong does not lose its whole weight."""

Function = Callable[[Any], Any]
"""From inputs `[n, *features]` to log-odds `[n, classes]` or numbers `[n, targets]`."""


def models_of(problem: Problem) -> tuple[str, ...]:
    """The models that a predictor of such a problem can use; the learner comes first, and the
    ensemble last, if there are several."""
    if len(problem.features) == 2:
        return (LEARNER,)
    if problem.kind == "regression":
        return (LEARNER, "process", ENSEMBLE) if len(problem.features) == 1 else (LEARNER,)
    pictures = len(problem.features) == 3 and min(problem.features[:2]) >= 16
    return (LEARNER, "logistic", *(("edges",) if pictures else ()), ENSEMBLE)


def check_model(name: str, problem: Problem) -> None:
    """Raise `ValueError` in one line for a model that such a problem does not have."""
    allowed = models_of(problem)
    if name not in allowed:
        raise ValueError(
            f"no model {name!r} predicts such tasks: choose {' or '.join(allowed)}"
            if len(allowed) > 1
            else f"no model {name!r} predicts such tasks, only the learner: leave it out"
        )


def fitted(model: str, x: np.ndarray, y: np.ndarray, xp: ModuleType = np) -> Function:
    """The function of a model that learned from the examples: `y` are classes `[n]`, of which none
    is empty, or targets `[n, targets]`. With `jax.numpy` as `xp` it can be traced."""
    with one_blas_thread():
        if model == "process":
            return _process(x, y, xp)
        return _logistic(_edges if model == "edges" else _flat, x, y, xp)


def _exact(x: Any, xp: ModuleType) -> Any:
    """Floats: in double precision, unless they are traced."""
    return np.asarray(floats(x), np.float64) if xp is np else x


def _flat(x: Any, xp: ModuleType) -> Any:
    return _exact(x, xp).reshape(x.shape[0], math.prod(x.shape[1:]))


def _edges(x: Any, xp: ModuleType) -> Any:
    return histograms(_exact(x, xp), xp)


def _logistic(read: Callable[..., Any], x: np.ndarray, y: np.ndarray, xp: ModuleType) -> Function:
    """Logistic regression. The inputs are centred, and divided by the root of their mean squared
    length; they are then turned to their principal axes, of which there are no more than examples
    and which change no fit."""
    rows = read(x, np)
    middle = rows.mean(axis=0)
    scale = np.sqrt(np.mean(np.sum(np.square(rows - middle), axis=1))) + 1e-12
    left, sizes, axes = np.linalg.svd((rows - middle) / scale, full_matrices=False)
    model = LogisticRegression(C=1 / (PENALTY * len(x)), max_iter=1000).fit(left * sizes, y)
    coefficients, offset = model.coef_ @ axes / scale, model.intercept_
    if len(coefficients) == 1:  # of two classes it states the log-odds of the second
        coefficients, offset = (np.stack([-a[0], a[0]]) / 2 for a in (coefficients, offset))
    weights, offset = coefficients.T, offset - coefficients @ middle

    def predict(inputs: Any) -> Any:
        found = read(inputs, xp)
        return found @ weights.astype(found.dtype) + offset.astype(found.dtype)

    return predict


def _process(x: np.ndarray, y: np.ndarray, xp: ModuleType) -> Function:
    """The mean of a Gaussian process with a length for each input. Inputs are standardised."""
    if len(x) > MOST:
        places = np.random.default_rng(0).choice(len(x), MOST, replace=False)
        x, y = x[places], y[places]
    rows = np.asarray(x, np.float64)
    middle, scale = rows.mean(axis=0), rows.std(axis=0)
    scale = np.where(scale > 1e-9 * np.abs(middle), scale, 1)
    lengths = RBF(np.full(rows.shape[1], 2.0), (0.1, 100))
    kernel = ConstantKernel(4.0, (0.1, 1000)) * lengths + WhiteKernel(0.1, (1e-4, 1))
    model = GaussianProcessRegressor(kernel, normalize_y=True)
    with warnings.catch_warnings():  # a scale at its bound is no fault
        warnings.simplefilter("ignore")
        model.fit((rows - middle) / scale, y)
    signal = model.kernel_.k1.k1.constant_value
    unit = scale * model.kernel_.k1.k2.length_scale
    known, weights = rows / unit, signal * model.alpha_.reshape(len(x), -1) * model._y_train_std
    level = np.broadcast_to(model._y_train_mean, weights.shape[1:])

    def predict(new: Any) -> Any:
        kind = np.float64 if xp is np else new.dtype
        given = (xp.asarray(new, kind) - middle.astype(kind)) / unit.astype(kind)
        away = ((rows - middle) / unit).astype(kind)
        # Column by column: all differences at once need much memory.
        squared = sum(xp.square(given[:, k, None] - away[:, k]) for k in range(known.shape[1]))
        return xp.exp(-squared / 2) @ weights.astype(kind) + level.astype(kind)

    return predict


def class_weights(own: Float[np.ndarray, "n k"]) -> Float[np.ndarray, " k"]:
    """The weight of each of `k` classifiers, two or more; they sum to one.

    **Arguments**

    - `own`: the probability that each gives to the label of an example that it did not learn from.
    """
    n, k = own.shape
    prior = np.array([0.5, *[0.5 / (k - 1)] * (k - 1)])
    chances, weights = np.maximum(own, LEAST), prior
    for _ in range(ROUNDS):
        # The expected number of examples that each classifier explains.
        explained = (1 / (chances @ weights)) @ chances * weights
        weights = (explained + PRIOR * prior) / (n + PRIOR)
    return weights


def number_weights(squared: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
    """The weight of each of `k` regressions by its mean squared error, which is infinite or NaN for
    one that could not predict; equal weights if none could."""
    inverse = np.where(np.isfinite(squared), 1 / (np.square(squared) + LEAST**2), 0)
    total = inverse.sum()
    return inverse / total if total else np.full(len(squared), 1 / len(squared))


def mixed(
    parts: Mapping[str, Function], weights: Mapping[str, float], classes: bool, xp: ModuleType = np
) -> Function:
    """The ensemble: the log of the weighted mean of probabilities, or the mean of numbers."""

    def predict(inputs: Any) -> Any:
        mean: Any = 0.0
        for name, function in parts.items():
            if weights[name]:
                found = function(inputs)
                mean = mean + weights[name] * (softmax(found, xp) if classes else found)
        return xp.log(xp.maximum(mean, LEAST)) if classes else mean

    return predict


def softmax(logits: Any, xp: ModuleType = np) -> Any:
    """The probabilities of log-odds `[n, classes]`."""
    chances = xp.exp(logits - logits.max(axis=1, keepdims=True, initial=-np.inf))
    return chances / chances.sum(axis=1, keepdims=True)
