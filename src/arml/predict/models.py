"""Models that learn a task only from its examples, and their weighted mean with the learner.

They are logistic regression on the inputs or on the edges of pictures; a Gaussian process for
functions; for tables, logistic or ridge regression, and for larger tables a random forest and
gradient boosting. If a task is unlike those of the meta-training, one of them may predict better.

The weights w of the mean are learned from left-out examples: they maximise (stacking [1])

    sum_i log sum_k w_k p_ik  +  PRIOR_EXAMPLES sum_k b_k log w_k

with p_ik the probability that model k gives to the label of example i. The second term is the log
of a Dirichlet density: b is one half for the first model, the learner, and the others share the
other half. The sum is concave, and EM maximises it. A check learns the weights again in each fold.

[1] Yao, Vehtari, Simpson and Gelman, Using Stacking to Average Bayesian Predictive Distributions,
    Bayesian Analysis 2018, Eq. (4), with the logarithmic score. Difference: the prior.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType

import numpy as np
from jaxtyping import Float

from arml.core.episodes import Problem
from arml.nn.edges import histograms
from arml.predict.base import BY_LEARNER, softmax
from arml.predict.folds import Places
from arml.predict.inputs import Numeric, floats
from arml.predict.scikit import estimator_of, learned_by, logistic
from arml.results.machine import one_blas_thread

GAUSSIAN_PROCESS, MEAN_OF_MODELS = "process", "ensemble"
WEIGHTED_MODELS = ("logistic", "edges")
"""The models that can use sample weights."""
RANDOM_FOREST, GRADIENT_BOOSTING = "random forest", "gradient boosting"
LINEAR_MODEL_NAMES = {"classification": "logistic regression", "regression": "ridge regression"}
PRIOR_EXAMPLES = 4.0
"""The number of examples to which the prior of the weights is equivalent."""
WEIGHT_ROUNDS = 200
"""The number of EM iterations, after which three digits have converged."""
MAX_PROCESS_EXAMPLES = 300
"""The most examples for a Gaussian process, because its time grows with their cube."""
MAX_KERNEL_SCALES = 4
"""The most inputs for which a Gaussian process has a scale for each input."""
_MIN_PROBABILITY = 1e-9
"""The least probability, so that a model that is sure and wrong keeps some weight."""
_MIN_MODEL_WEIGHT = 0.02
"""A model whose weight is smaller is left out."""

Outputs = Float[np.ndarray, "n outputs"]
"""Log-odds of classes, or numbers `[n, targets]`; for tables the centre and scale of a number."""
Function = Callable[[Numeric], Numeric]
"""From inputs `[n, *features]` to their `Outputs`."""


def models_of(problem: Problem, n: int = 0) -> tuple[str, ...]:
    """The models that a predictor of this problem can use with `n` examples; the learner comes
    first, and the ensemble last, if there are several."""
    if problem.kind == "regression" or not problem.form.plain:
        numbers = problem.form.plain and not problem.spatial
        function = numbers and problem.outputs == 1 and n <= MAX_PROCESS_EXAMPLES
        return (BY_LEARNER, GAUSSIAN_PROCESS, MEAN_OF_MODELS) if function else (BY_LEARNER,)
    pictures = problem.spatial and min(problem.features[:2]) >= 16
    return (BY_LEARNER, "logistic", *(("edges",) if pictures else ()), MEAN_OF_MODELS)


@dataclass(frozen=True, eq=False)
class Choice:
    """Several models, and their weights from any subset of the examples."""

    models: Sequence[str]
    fit: Callable[[Places, str], Function]
    """The function that a model learns from the examples with these indices."""
    x: np.ndarray
    """All inputs `[n, ...]`."""
    y: np.ndarray
    """The indices of their labels among the classes; for numbers their targets, as floats."""
    parts: Sequence[Places]
    """The indices of the examples that are left out together, for each fold."""
    known: dict[bytes, dict[str, Outputs]] = field(default_factory=dict)
    """The cached results of `others`."""

    @property
    def classes(self) -> bool:
        """Whether the models predict labels, not numbers."""
        return self.y.dtype.kind != "f"

    def others(self, kept: Places) -> dict[str, Outputs]:
        """The outputs of each model for all other examples, after it learned from the examples
        `kept` only; the outputs for these are zero. The results are stored, because a check needs
        most of them twice: leaving out two folds in either order keeps the same examples."""
        key = kept.tobytes()
        if key not in self.known:
            there = np.ones(len(self.x), bool)
            there[kept] = False
            found = {}
            for name in self.models:
                some = self.fit(kept, name)(self.x[there])
                found[name] = np.zeros((len(self.x), some.shape[1]))
                found[name][there] = some
            self.known[key] = found
        return self.known[key]

    def weights(self, kept: Places) -> dict[str, float]:
        """The weights of the models, without zeros, from folds among the examples `kept`. The
        likelihood of a number is Student's t with four degrees of freedom; its scale is the error
        of the model."""
        if len(self.models) == 1:
            return {self.models[0]: 1.0}
        parts = [np.intersect1d(part, kept) for part in self.parts]
        parts = [some for some in parts if 0 < len(some) < len(kept)]
        own = np.zeros((0, len(self.models)))
        if parts:
            each = [(self.others(np.setdiff1d(kept, some)), some) for some in parts]
            left = [np.concatenate([found[k][some] for found, some in each]) for k in self.models]
            y = self.y[np.concatenate(parts)]
            if self.classes:
                own = np.stack([softmax(odds)[np.arange(len(y)), y] for odds in left], axis=1)
            else:
                squared = np.stack([(outputs[:, 0] - y) ** 2 for outputs in left], axis=1)
                mean = squared.mean(axis=0) + 1e-300
                own = (1 + squared / (2 * mean)) ** -2.5 * np.sqrt(mean.min() / mean)
        found = model_weights(own)
        found = np.where(found < _MIN_MODEL_WEIGHT, 0.0, found)
        found /= found.sum()
        return {k: float(w) for k, w in zip(self.models, found, strict=True) if w}

    def mean(self, kept: Places) -> Outputs:
        """As `others`, for the weighted mean of the models."""
        return mean_of(self.others(kept), self.weights(kept), self.classes)


def mean_of(
    each: Mapping[str, Numeric],
    weights: Mapping[str, float],
    classes: bool,
    xp: ModuleType = np,
) -> Numeric:
    """The outputs of the weighted mean of models: the mean of numbers, or the log of the mean of
    probabilities. With `jax.numpy` as `xp` JAX can trace it."""
    if len(weights) == 1:
        return each[next(iter(weights))]
    if not classes:
        return sum(w * each[name] for name, w in weights.items())
    return xp.log(sum(w * softmax(each[name], xp) for name, w in weights.items()) + 1e-12)


def model_weights(own: Float[np.ndarray, "n k"]) -> Float[np.ndarray, " k"]:
    """The weight of each of `k` models, two or more; they sum to one.

    **Arguments**

    - `own`: the probability, or a multiple of the density, that each model gives to the label or
      the target of an example that it did not learn from.
    """
    n, k = own.shape
    prior = np.array([0.5, *[0.5 / (k - 1)] * (k - 1)])
    chances, weights = np.maximum(own, _MIN_PROBABILITY), prior
    for _ in range(WEIGHT_ROUNDS):
        # The expected number of examples that each model explains.
        explained = (1 / (chances @ weights)) @ chances * weights
        weights = (explained + PRIOR_EXAMPLES * prior) / (n + PRIOR_EXAMPLES)
    return weights


def fitted(
    model: str,
    x: np.ndarray,
    y: np.ndarray,
    ways: int,
    xp: ModuleType = np,
    sample_weight: np.ndarray | None = None,
) -> Function:
    """Logistic regression on the inputs (`logistic`) or their `edges`: the log-odds of `ways`
    classes, from the indices `y` `[n]`. With `jax.numpy` as `xp` JAX can trace it.

    The inputs are centred, divided by the root of their mean squared length, and rotated to their
    principal axes. There are no more axes than examples, and the rotation does not change the
    fit."""

    def read(x: Numeric, xp: ModuleType) -> Numeric:
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
        weights, offsets = logistic(left * sizes, y, ways, weight)
        weights = weights @ axes / scale
        offsets -= weights @ middle

    def predict(inputs: Numeric) -> Numeric:
        found = read(inputs, xp)
        return found @ weights.T.astype(found.dtype) + offsets.astype(found.dtype)

    return predict


def process(
    x: Float[np.ndarray, "n d"], y: Float[np.ndarray, "n 1"], xp: ModuleType = np
) -> Function:
    """The mean of a Gaussian process with a squared exponential kernel and noise. Many inputs share
    one scale. The parameters maximise the likelihood of the targets. With `jax.numpy` as `xp` JAX
    can trace it."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    middle, unit = x.mean(axis=0), x.std(axis=0)
    unit[unit == 0] = 1.0
    scales = np.ones(x.shape[1] if x.shape[1] <= MAX_KERNEL_SCALES else 1)
    kernel = ConstantKernel() * RBF(scales, (0.05, 50.0)) + WhiteKernel(0.1, (1e-3, 10.0))
    with one_blas_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about a scale at its bound
        known = (x - middle) / unit
        found = GaussianProcessRegressor(kernel, normalize_y=True).fit(known, y[:, 0])
    height, length = found.kernel_.k1.k1.constant_value, found.kernel_.k1.k2.length_scale
    known, unit = known / length, unit * length
    alpha = height * found.alpha_ * (float(y.std()) or 1.0)
    squares, offset = np.sum(known**2, axis=1), float(y.mean())

    def predict(inputs: Numeric) -> Numeric:
        z = (xp.asarray(inputs) - middle.astype(inputs.dtype)) / unit.astype(inputs.dtype)
        own = xp.sum(z * z, axis=1, keepdims=True)
        away = own + squares.astype(z.dtype) - 2 * z @ known.T.astype(z.dtype)
        return xp.exp(-away / 2) @ alpha[:, None].astype(z.dtype) + np.float32(offset)

    return predict


def by_scikit(
    model: object, classes: np.ndarray | None, x: Float[np.ndarray, "n columns 3"], y: np.ndarray
) -> Function:
    """Fit a model of tables by its name, or an estimator. A missing cell becomes the mean of its
    column, or NaN for models that accept it. The scale of a number is that of all targets."""
    linear = model in LINEAR_MODEL_NAMES.values()
    gaps = 0.0 if linear or model == RANDOM_FOREST else np.nan

    def columns(x: Float[np.ndarray, "n columns 3"]) -> np.ndarray:
        return np.where(x[..., 1] > 0, x[..., 0], gaps).astype(np.float64)

    rows = columns(x)
    with one_blas_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if linear:
            return _linear(classes, columns, rows, y)
        kind = "regression" if classes is None else "classification"
        made = estimator_of(model.replace(" ", "-"), kind) if isinstance(model, str) else model
        learned = learned_by(made, 0 if classes is None else len(classes), rows, y)
    return lambda new: learned(columns(new))


def _linear(
    classes: np.ndarray | None, columns: Function, rows: Float[np.ndarray, "n d"], y: np.ndarray
) -> Function:
    """Logistic regression, or ridge regression with a penalty of 1, on standardised columns."""
    middle, unit = rows.mean(axis=0), rows.std(axis=0)
    unit[unit <= 1e-12 * np.abs(rows).max(axis=0)] = 1.0
    z = (rows - middle) / unit
    if classes is not None:
        found = fitted("logistic", z, y.astype(int), len(classes))
        return lambda new: found((columns(new) - middle) / unit)
    mean, scale = y.mean(), float(np.std(y)) or 1.0
    weights = np.linalg.solve(z.T @ z + np.eye(z.shape[1]), z.T @ (y - mean)) / unit

    def predict(new: np.ndarray) -> Outputs:
        centre = mean + (columns(new) - middle) @ weights
        return np.stack([centre, np.full(len(new), scale)], axis=1)

    return predict
