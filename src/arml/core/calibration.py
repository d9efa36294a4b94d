"""Calibration: a probability of 80% is right in 80% of the cases.

[1] Guo, Pleiss, Sun and Weinberger, On Calibration of Modern Neural Networks, ICML 2017.
[2] Platt, Probabilistic Outputs for Support Vector Machines, 1999: smoothed targets.
"""

import numpy as np
from jaxtyping import Bool, Float, Int

BINS = 15
"""Bins of the calibration error, as in [1]."""
LACKING = 1e6
"""A logit that lies further below the largest belongs to a class that the task lacks."""


def calibration_error(
    confidence: Float[np.ndarray, " n"], correct: Bool[np.ndarray, " n"]
) -> float:
    """The expected calibration error, in [0, 1]: the mean over predictions of |accuracy -
    confidence| of their bin, of `BINS` equal widths."""
    place = np.clip((confidence * BINS).astype(int), 0, BINS - 1)
    gaps = np.bincount(place, correct - confidence.astype(np.float64), BINS)
    return float(np.sum(np.abs(gaps)) / len(confidence))


def expected_error(
    logits: Float[np.ndarray, "n ways"], y: Int[np.ndarray, " n"], temperature: float = 1.0
) -> float:
    """The calibration error of the likeliest classes of softmax(logits / temperature); NaN if a
    logit is not finite."""
    z = logits.astype(np.float64) / temperature
    if not np.all(np.isfinite(z)):
        return float("nan")
    z -= z.max(axis=1, keepdims=True)
    confidence = 1 / np.exp(z).sum(axis=1)  # of the likeliest, whose z is 0
    return calibration_error(confidence, z.argmax(axis=1) == y)


def temperature(logits: Float[np.ndarray, "n ways"], y: Int[np.ndarray, " n"]) -> float:
    """The T for which softmax(logits / T) has the least mean cross-entropy, from 0.05 to 20.

    The targets are smoothed, as in [2]: that of the right class is (n + 1) / (n + ways), that of
    each other 1 / (n + ways), for n predictions. If all are right, the next one is still not
    certain. The cross-entropy is convex in 1/T, so a bounded search over log T finds it.
    """
    from scipy.optimize import minimize_scalar  # a slow import, which only this function needs

    logits = logits.astype(np.float64)
    n = len(y)
    # A class that a task lacks has a logit of about -1e9, and is no class of this task.
    there = ~(logits < logits.max(axis=1, keepdims=True) - LACKING)
    sure = n / (n + there.sum(axis=1))

    def cross_entropy(log_t: float) -> float:
        z = logits / np.exp(log_t)
        z = z - z.max(axis=1, keepdims=True)
        expected = sure * z[np.arange(n), y] + (1 - sure) * z.mean(axis=1, where=there)
        return float(np.mean(np.log(np.exp(z).sum(axis=1)) - expected))

    bounds = (np.log(0.05), np.log(20.0))
    found = minimize_scalar(cross_entropy, bounds=bounds, options={"xatol": 1e-5})
    return float(np.exp(found.x))


def calibrated(logits: Float[np.ndarray, "n ways"], y: Int[np.ndarray, " n"]) -> float:
    """The temperature, or 1 if it does not help: the one of the first half of the predictions must
    lower the mean cross-entropy of the second half."""
    half = len(y) // 2
    held = logits[half:], y[half:]
    if half and cross_entropy(*held, temperature(logits[:half], y[:half])) < cross_entropy(*held):
        return temperature(logits, y)
    return 1.0


def cross_entropy(
    logits: Float[np.ndarray, "n ways"], y: Int[np.ndarray, " n"], temperature: float = 1.0
) -> float:
    """The mean cross-entropy of softmax(logits / temperature)."""
    z = logits.astype(np.float64) / temperature
    z = z - z.max(axis=1, keepdims=True)
    return float(np.mean(np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(y)), y]))
