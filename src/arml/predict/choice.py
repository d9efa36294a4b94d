"""The models of a larger table, and how much each counts: their weighted mean predicts.

With few rows the meta-trained learner predicts alone. With more, logistic (or ridge) regression, a
random forest and gradient boosting join it. Their weights are those of `arml.predict.models`: they
maximise the probability of the labels of rows that were left out, with a prior towards the learner.
A check that leaves rows out chooses the weights anew from the rows that stay.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from arml.predict.base import softmax
from arml.predict.folds import Places
from arml.predict.models import class_weights, fitted
from arml.results.machine import one_blas_thread

THE_LEARNER, FOREST, BOOSTING = "the learner", "random forest", "gradient boosting"
LINEAR = {"classification": "logistic regression", "regression": "ridge regression"}
_LEAST = 0.02
"""A model whose weight is smaller is left out."""

Outputs = Float[np.ndarray, "n outputs"]
"""Log-odds of classes, or the centre and the scale of each number."""
Predict = Callable[[np.ndarray], Outputs]
"""From rows to their outputs."""


class Choice:
    """The weights of several models, learned from any of the rows.

    **Arguments**

    - `fit`: the function that a model learns from the rows in these places.
    - `rows`: all rows `[n, ...]`.
    - `y`: the places of their labels among the classes; for numbers their targets, as floats.
    - `parts`: the places of the rows that are left out together, for each fold.
    """

    def __init__(
        self,
        models: Sequence[str],
        fit: Callable[[Places, str], Predict],
        rows: np.ndarray,
        y: np.ndarray,
        parts: Sequence[Places],
    ) -> None:
        self.models, self.fit, self.rows, self.y, self.parts = models, fit, rows, y, parts
        self._known: dict[bytes, dict[str, Outputs]] = {}

    def others(self, kept: Places) -> dict[str, Outputs]:
        """By each model that learned from the rows `kept` alone, the outputs of all others; zero
        for these rows. They are stored, because a check needs most of them twice: whichever of two
        folds it leaves out first, the same rows stay."""
        if (key := kept.tobytes()) not in self._known:
            there = np.ones(len(self.rows), bool)
            there[kept] = False
            found = {}
            for name in self.models:
                some = self.fit(kept, name)(self.rows[there])
                found[name] = np.zeros((len(self.rows), some.shape[1]))
                found[name][there] = some
            self._known[key] = found
        return self._known[key]

    def weights(self, kept: Places) -> dict[str, float]:
        """The weight of each model that counts, from folds among the rows `kept`. The likelihood of
        a number is Student's t with four degrees of freedom, whose deviation is the model's error.
        """
        parts = [np.intersect1d(part, kept) for part in self.parts]
        parts = [some for some in parts if 0 < len(some) < len(kept)]
        if len(self.models) == 1 or not parts:
            return {self.models[0]: 1.0}
        each = [(self.others(np.setdiff1d(kept, some)), some) for some in parts]
        left = [np.concatenate([found[k][some] for found, some in each]) for k in self.models]
        y = self.y[np.concatenate(parts)]
        if y.dtype.kind == "f":
            squared = np.stack([(outputs[:, 0] - y) ** 2 for outputs in left], axis=1)
            mean = squared.mean(axis=0) + 1e-300
            own = (1 + squared / (2 * mean)) ** -2.5 * np.sqrt(mean.min() / mean)
        else:
            own = np.stack([softmax(outputs)[np.arange(len(y)), y] for outputs in left], axis=1)
        found = class_weights(own)
        found = np.where(found < _LEAST, 0.0, found) / found[found >= _LEAST].sum()
        return {k: float(w) for k, w in zip(self.models, found, strict=True) if w}


def mean_of(
    each: Mapping[str, Any], weights: Mapping[str, float], classes: bool, xp: Any = np
) -> Any:
    """The outputs of the weighted mean of models: of numbers, or of probabilities, whose logs they
    are. With `jax.numpy` as `xp` it can be traced."""
    if len(weights) == 1:
        return each[next(iter(weights))]
    if not classes:
        return sum(w * each[name] for name, w in weights.items())
    return xp.log(sum(w * softmax(each[name], xp) for name, w in weights.items()) + 1e-12)


def by_scikit(
    model: str, classes: np.ndarray | None, x: Float[np.ndarray, "n columns 3"], y: np.ndarray
) -> Predict:
    """A model that has no meta-training, of columns in which a gap is at the mean. The scale of a
    number is that of all targets."""
    from sklearn import ensemble
    from sklearn.linear_model import Ridge
    from sklearn.preprocessing import StandardScaler
    from threadpoolctl import threadpool_limits

    gaps = np.nan if model == BOOSTING else 0.0
    kinds, labels = (None, y) if classes is None else np.unique(y.astype(int), return_inverse=True)
    scale = StandardScaler().fit(np.where(x[..., 1] > 0, x[..., 0], 0.0).astype(np.float64))
    function: Callable[[np.ndarray], np.ndarray]

    def columns(x: Float[np.ndarray, "n columns 3"]) -> np.ndarray:
        rows = np.where(x[..., 1] > 0, x[..., 0], gaps).astype(np.float64)
        return np.asarray(scale.transform(rows)) if model in LINEAR.values() else rows

    # One thread: several wait for each other busily, and take 40 times as long on a busy machine.
    with threadpool_limits(1), one_blas_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = columns(x)
        if kinds is not None and len(kinds) == 1:
            function = lambda x: np.ones((len(x), 1))  # noqa: E731
        elif model == LINEAR["classification"]:
            function = fitted("logistic", rows, labels)
        else:
            name = {FOREST: "RandomForest", BOOSTING: "HistGradientBoosting"}.get(model)
            kind = "Regressor" if kinds is None else "Classifier"
            made: Any = Ridge() if name is None else getattr(ensemble, name + kind)(random_state=0)
            made.fit(rows, labels)
            function = made.predict if kinds is None else made.predict_proba

    def predict(new: np.ndarray) -> Outputs:
        with threadpool_limits(1), one_blas_thread():
            found = function(columns(new))
        if classes is None:
            return np.stack([found, np.ones(len(found))], axis=1)
        odds = np.full((len(new), len(classes)), -50.0)
        chances = model in (FOREST, BOOSTING)
        odds[:, kinds] = np.log(np.maximum(found, 1e-12)) if chances else found
        return odds

    return predict
