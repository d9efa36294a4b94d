"""Regression by a Gaussian process, which learns a function from its examples alone [1].

Its kernel is s^2 exp(-sum_k ((x_k - x'_k) / l_k)^2 / 2), with noise of variance v^2. Inputs and
targets are standardised first. The logarithms of l, s and v maximise the marginal likelihood of the
targets times a normal density of each, because a few examples alone can fit a wrong scale well. All
targets share them.

[1] Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006: Algorithm 2.1 for the
    prediction, Eq. (5.8) and (5.9) for the likelihood and its gradient.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Float

LENGTH, SIGNAL, NOISE = 1.0, 1.0, -1.2
"""The middle of the normal density of log l, log s and log v; its deviation is one."""
WIDEST = 4.0
"""The farthest of them from the middle, so that the kernel's matrix can be factored, and that an
ONNX file in single precision is as exact."""
MOST, MOST_USED = 100, 2000
"""Examples that the scales are found from, and that predict, at most: the time grows with the cube.
Of more, some are drawn."""


def fitted_process(
    x: Float[np.ndarray, "n inputs"], y: Float[np.ndarray, "n targets"]
) -> Float[np.ndarray, " scales"]:
    """The logarithms of the length of each input, of the signal and of the noise."""
    # Here, because SciPy takes most of a second to load.
    from scipy.optimize import minimize

    x, y = _some(x, y, MOST)
    rows, targets = (_standard(values)[0] for values in (x, y))
    middle = np.array([*[LENGTH] * rows.shape[1], SIGNAL, NOISE])
    bounds = np.stack([middle - WIDEST, middle + WIDEST], axis=1)

    def objective(logs: np.ndarray) -> tuple[float, np.ndarray]:
        loss, slope = unlikely(logs, rows, targets)
        return loss + np.sum(np.square(logs - middle)) / 2, slope + logs - middle

    # The likelihood often has two maxima: smooth with noise, and rough without.
    starts = middle, middle - np.array([*[1.0] * rows.shape[1], 0, 0])
    found = [minimize(objective, s, jac=True, method="L-BFGS-B", bounds=bounds) for s in starts]
    return min(found, key=lambda each: each.fun).x


def unlikely(
    logs: Float[np.ndarray, " scales"],
    x: Float[np.ndarray, "n inputs"],
    y: Float[np.ndarray, "n targets"],
) -> tuple[float, Float[np.ndarray, " scales"]]:
    """The negative log marginal likelihood without its constant, and its gradient."""
    rows, variance, noise = _scaled(x, logs), np.exp(2 * logs[-2]), np.exp(2 * logs[-1])
    kernel = variance * _alike(rows, rows)
    factor = np.linalg.cholesky(kernel + noise * np.eye(len(x)))
    inverse = np.linalg.inv(factor)
    inverse = inverse.T @ inverse
    weights = inverse @ y
    loss = np.sum(y * weights) / 2 + y.shape[1] * np.sum(np.log(np.diag(factor)))
    # The derivative by each entry of the matrix.
    by = (y.shape[1] * inverse - weights @ weights.T) / 2
    pull = by * kernel
    lengths = 2 * (pull.sum(axis=1) @ np.square(rows) - np.sum(rows * (pull @ rows), axis=0))
    return loss, np.array([*lengths, 2 * pull.sum(), 2 * noise * np.trace(by)])


def process_function(
    x: Float[np.ndarray, "n inputs"],
    y: Float[np.ndarray, "n targets"],
    logs: Float[np.ndarray, " scales"],
    xp: ModuleType = np,
) -> Callable[[Any], Any]:
    """The predictions `[m, targets]` of new inputs, from the examples and their scales. With
    `jax.numpy` as `xp` the function of new inputs can be traced."""
    x, y = _some(x, y, MOST_USED)
    (inputs, middle, scale), (targets, level, size) = _standard(x), _standard(y)
    rows, variance, noise = _scaled(inputs, logs), np.exp(2 * logs[-2]), np.exp(2 * logs[-1])
    matrix = variance * _alike(rows, rows) + noise * np.eye(len(x))
    weights = variance * size * np.linalg.solve(matrix, targets)
    scale = scale * np.exp(logs[:-2])

    def predict(new: Any) -> Any:
        like = np.float64 if xp is np else new.dtype
        given = (xp.asarray(new, like) - middle.astype(like)) / scale.astype(like)
        return _alike(given, rows.astype(like), xp) @ weights.astype(like) + level.astype(like)

    return predict


def _scaled(x: np.ndarray, logs: np.ndarray) -> np.ndarray:
    return x / np.exp(logs[:-2])


def _alike(a: Any, b: np.ndarray, xp: ModuleType = np) -> Any:
    """The kernel of inputs in units of their lengths, with a signal of one."""
    # Column by column: all differences at once need much memory.
    squared = sum(xp.square(a[:, k, None] - b[:, k]) for k in range(b.shape[1]))
    return xp.exp(-squared / 2)


def _some(x: np.ndarray, y: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    if len(x) <= most:
        return x, y
    places = np.sort(np.random.default_rng(0).choice(len(x), most, replace=False))
    return x[places], y[places]


def _standard(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The columns with mean zero and deviation one; their means and deviations. A column of one
    value has deviation one."""
    values = np.asarray(x, np.float64)
    middle, scale = values.mean(axis=0), values.std(axis=0)
    scale = np.where(scale > 1e-9 * np.abs(middle), scale, 1)
    return (values - middle) / scale, middle, scale
