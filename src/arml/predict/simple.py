"""Simple models, which learn a task from its examples alone: logistic regression on the inputs as
they are, or on the edges of pictures; for numbers a Gaussian process (`arml.predict.process`).

They have seen no other task. Where a task is unlike those of a learner's meta-training, one of them
may predict better; leave-one-out shows it (`arml.predict.trust` and `errors`), and decides how much
each counts where all predict together (`arml.predict.together`).
"""

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int

from arml.core.problem import Problem
from arml.nn.edges import histograms
from arml.predict.inputs import floats
from arml.predict.process import fitted_process, process_function
from arml.results.machine import one_blas_thread

Uses = Literal["learner", "inputs", "edges", "process", "together"]
"""The means by which a predictor predicts."""
TOGETHER: Uses = "together"
WORDS: dict[Uses, str] = {
    "learner": "the learner",
    "inputs": "logistic regression on the inputs",
    "edges": "logistic regression on the edges",
    "process": "a Gaussian process",
    "together": "the learner and simple models together",
}
PENALTY = 0.001
"""Weight of half the squared weights beside the mean loss, for inputs of mean square 1."""
CHUNK = 256
"""Inputs predicted at once: the edges, or the kernel, of more need much memory."""


def choices(problem: Problem) -> tuple[Uses, ...]:
    """The means that a predictor of such a problem can use; `together`, if there are several, comes
    last."""
    if len(problem.features) == 2:
        return ("learner",)
    if problem.kind == "regression":
        return ("learner", "process", TOGETHER) if len(problem.features) == 1 else ("learner",)
    pictures = len(problem.features) == 3 and min(problem.features[:2]) >= 16
    return ("learner", "inputs", *(("edges",) if pictures else ()), TOGETHER)


def check_uses(uses: str, allowed: tuple[Uses, ...]) -> None:
    """Raise `ValueError` in one line for a word that is not allowed."""
    if allowed == ("learner",) and uses != "learner":
        raise ValueError(
            f"expected learner, the only means for such tasks, got {uses!r}: leave it out"
        )
    if uses not in allowed:
        raise ValueError(
            f"expected one of {', '.join(allowed)} to predict with, got {uses!r}: choose another"
        )


def fitted(x: np.ndarray, y: np.ndarray, uses: Uses) -> np.ndarray:
    """The fit to examples of classes `y [n]`, of which none is empty, or targets `[n, targets]`:
    see `logistic` and `fitted_process`."""
    with one_blas_thread():
        if uses == "process":
            return fitted_process(x, y)
        return logistic(_reader(uses)(x), y, int(y.max()) + 1)


def simple_function(
    x: np.ndarray, y: np.ndarray, uses: Uses, fit: np.ndarray, xp: ModuleType = np
) -> Callable[[Any], Any]:
    """The log-odds `[m, ways]` or targets `[m, targets]` of new inputs, from the examples and their
    fit. With `jax.numpy` as `xp` the function of new inputs can be traced."""
    if uses == "process":
        predict = process_function(x, y, fit, xp)
    else:
        predict = _logistic_function(_reader(uses), x, fit, xp)

    def by_chunks(inputs: np.ndarray) -> np.ndarray:
        parts = [predict(inputs[i : i + CHUNK]) for i in range(0, max(len(inputs), 1), CHUNK)]
        return np.concatenate(parts)

    return by_chunks if xp is np else predict


def _logistic_function(
    read: Callable[..., Any], x: np.ndarray, fit: np.ndarray, xp: ModuleType
) -> Callable[[Any], Any]:
    weights, offset = weights_of(read(x), fit)

    def predict(inputs: Any) -> Any:
        rows = read(inputs, xp)
        return rows @ weights.astype(rows.dtype) + offset.astype(rows.dtype)

    return predict


def _reader(uses: Uses) -> Callable[..., Any]:
    return edges if uses == "edges" else flat


def _exact(x: Any, xp: ModuleType) -> Any:
    """Floats: in double precision, unless they are traced."""
    return np.asarray(floats(x), np.float64) if xp is np else x


def flat(x: Any, xp: ModuleType = np) -> Any:
    """Each input as one row `[n, inputs]`."""
    return _exact(x, xp).reshape(len(x), math.prod(x.shape[1:]))


def edges(x: Any, xp: ModuleType = np) -> Any:
    """The histograms of the directions of edges of each input, `[n, inputs]`."""
    return histograms(_exact(x, xp), xp)


def logistic(
    x: Float[np.ndarray, "n inputs"], y: Int[np.ndarray, " n"], ways: int
) -> Float[np.ndarray, "n ways"]:
    """The fit of logistic regression: how much each example counts in the weights of each class.

    It minimises the mean loss, and `PENALTY` times half the squared weights. L-BFGS searches in the
    coordinates of the inputs' principal axes, of which there are no more than examples.
    """
    # Here, because SciPy takes most of a second to load.
    from scipy.optimize import minimize

    (inputs, _, _), n = _standard(x), len(x)
    values, axes = np.linalg.eigh(inputs @ inputs.T + 1)  # the bias is a weight of an input of 1
    some = values > 1e-10 * values[-1]
    roots, axes = np.sqrt(values[some]), axes[:, some]
    rows, target = axes * roots, np.eye(ways)[y]

    def objective(w: np.ndarray) -> tuple[float, np.ndarray]:
        w = w.reshape(-1, ways)
        logits = rows @ w
        top = logits.max(axis=1, keepdims=True)
        each = np.exp(logits - top)
        total = each.sum(axis=1, keepdims=True)
        loss = np.mean(np.log(total) + top) - np.sum(target * logits) / n
        slope = rows.T @ (each / total - target) / n + PENALTY * w
        return loss + PENALTY / 2 * np.sum(np.square(w)), slope.ravel()

    start = np.zeros(len(roots) * ways)
    w = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 200}).x
    return axes @ (w.reshape(-1, ways) / roots[:, None])


def weights_of(
    x: Float[np.ndarray, "n inputs"], fit: Float[np.ndarray, "n ways"]
) -> tuple[Float[np.ndarray, "inputs ways"], Float[np.ndarray, " ways"]]:
    """The weights and the offsets for inputs as they are, of a fit to the examples `x`."""
    inputs, middle, scale = _standard(x)
    weights = inputs.T @ fit / scale
    return weights, fit.sum(axis=0) - middle @ weights


def _standard(x: Float[np.ndarray, "n inputs"]) -> tuple[np.ndarray, np.ndarray, float]:
    """The inputs, centred and divided by the root of their mean squared length; both of these."""
    middle = x.mean(axis=0)
    scale = float(np.sqrt(np.mean(np.sum(np.square(x - middle), axis=1)))) + 1e-12
    return (x - middle) / scale, middle, scale


def softmax(logits: Float[np.ndarray, "n classes"]) -> Float[np.ndarray, "n classes"]:
    """The probabilities of log-odds."""
    chances = np.exp(logits - logits.max(axis=1, keepdims=True, initial=-np.inf))
    return chances / chances.sum(axis=1, keepdims=True)
