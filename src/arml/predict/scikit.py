"""Any estimator of scikit-learn as the model of a predictor.

    predictor = arml.adapt(RandomForestClassifier(500), frame, frame.pop("species"))
    predictor = arml.load("photos", LogisticRegression()).adapt(files, labels)

An estimator is anything with `fit` and `predict_proba`, or `fit` and `predict` for numbers. It
learns the indices of the labels: 0, 1, ... A saved predictor holds the examples and the estimator's
class and parameters. It is fitted again when it is loaded, so nothing is pickled.
"""

from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pkgutil import resolve_name
from typing import Any

import numpy as np
from jaxtyping import Float

from arml.results.files import Json, RunError

MISSING_CLASS_LOGIT = -50.0
"""The log-odds of a class without examples."""
_RIDGE_PENALTY = 0.001
"""The factor of half the squared coefficients beside the mean loss, for inputs of mean square 1."""
NAMED_ESTIMATORS = {
    "logistic-regression": "sklearn.linear_model:LogisticRegression",
    "ridge-regression": "sklearn.linear_model:Ridge",
    "random-forest": "sklearn.ensemble:RandomForest",
    "gradient-boosting": "sklearn.ensemble:HistGradientBoosting",
    "xgboost": "xgboost:XGB",
    "lightgbm": "lightgbm:LGBM",
    "tabpfn": "tabpfn:TabPFN",
    "tabicl": "tabicl:TabICL",
}
"""The module and the class of each named estimator. `Classifier` or `Regressor` follows the name of
most classes."""


_ONLY = {"logistic-regression": "classification", "ridge-regression": "regression"}
"""The problems of the named estimators that learn only one kind."""
_CHANCES = "predict_proba"


def predicts(model: Any) -> str | None:
    """The kind of problems that an estimator learns; None for other objects. **Raises**
    `ValueError` for a class, and for a classifier without probabilities."""
    has = {name: callable(getattr(model, name, None)) for name in ("fit", "predict", _CHANCES)}
    if not (has["fit"] and (has["predict"] or has[_CHANCES])):
        return None
    from sklearn.base import BaseEstimator, is_classifier

    if isinstance(model, type):
        raise ValueError(f"expected an estimator, got a class: give {model.__name__}()")
    if has[_CHANCES]:
        return "classification"
    if isinstance(model, BaseEstimator) and is_classifier(model):
        name = type(model).__name__
        raise ValueError(f"{name} has no predict_proba: wrap it in CalibratedClassifierCV")
    return "regression"


def estimator_of(model: Any, kind: str) -> Any:
    """A copy of an estimator, or a named estimator. Each `random_state` that is None becomes 0,
    so that the same examples give the same answers. **Raises** `ValueError` for an estimator of
    other problems, and if the named one is not installed."""
    from sklearn.base import BaseEstimator, clone

    if isinstance(model, str):
        if _ONLY.get(model, kind) != kind:
            said = {"classification": "classes", "regression": "numbers"}
            (other,) = {*_ONLY} - {model}
            raise ValueError(f"{model} predicts {said[_ONLY[model]]}; for {said[kind]} use {other}")
        package, name = NAMED_ESTIMATORS[model].split(":")
        try:
            module = import_module(package)
        except ImportError:
            raise ValueError(f"{model} is not installed: pip install {package}") from None
        ending = "Classifier" if kind == "classification" else "Regressor"
        model = getattr(module, name + ending, None) or getattr(module, name)
        model = model()
    if predicts(model) != kind:
        wanted = "predict_proba" if kind == "classification" else "predictions of numbers"
        raise ValueError(f"expected an estimator with {wanted}, got {type(model).__name__}")
    model = clone(model, safe=False)
    if isinstance(model, BaseEstimator):
        unset = [name for name, value in model.get_params().items() if value is None]
        model.set_params(**{name: 0 for name in unset if name.split("__")[-1] == "random_state"})
    return model


def check_weights(estimator: object) -> None:
    """Raise `ValueError` for an estimator that cannot use sample weights."""
    from sklearn.utils.validation import has_fit_parameter

    if not has_fit_parameter(estimator, "sample_weight"):
        name = type(estimator).__name__
        raise ValueError(f"{name} cannot use sample weights: leave them out")


def learned_by(
    estimator: Any,
    classes: int,
    x: Float[np.ndarray, "n d"],
    y: np.ndarray,
    sample_weight: Float[np.ndarray, " n"] | None = None,
) -> Callable[[np.ndarray], np.ndarray]:
    """The function that a copy of the estimator learns: from inputs `[m, d]` to log-odds of
    `classes`. If `classes` is 0, it gives numbers and their scale `[m, 2]`, the scale of all
    targets. NaN becomes 0 unless the estimator accepts NaN."""
    from sklearn.base import BaseEstimator, clone
    from sklearn.utils import get_tags
    from threadpoolctl import threadpool_limits

    # One thread: several spin while they wait, and take 40 times as long on a busy machine.
    threads = 1 if type(estimator).__module__.startswith("sklearn.") else None
    made, y = clone(estimator, safe=False), y.astype(int) if classes else y
    kinds, scale = np.unique(y), float(np.std(y)) or 1.0
    gaps = isinstance(made, BaseEstimator) and get_tags(made).input_tags.allow_nan
    weight = {} if sample_weight is None else {"sample_weight": sample_weight}
    with threadpool_limits(threads):
        made.fit(x if gaps else np.nan_to_num(x), y, **weight)

    def check(found: np.ndarray, shape: tuple[int, ...], method: str) -> None:
        if found.shape != shape or not np.all(np.isfinite(found)):
            got = "NaN or infinity" if found.shape == shape else f"shape {list(found.shape)}"
            raise ValueError(
                f"expected finite numbers of shape {list(shape)} from "
                f"{type(made).__name__}.{method}, got {got}"
            )

    def outputs(new: np.ndarray) -> np.ndarray:
        found = np.full((len(new), classes or 2), MISSING_CLASS_LOGIT if classes else scale)
        new = new if gaps else np.nan_to_num(new)
        with threadpool_limits(threads):
            if classes and len(new):
                chances = np.asarray(made.predict_proba(new))
                if len(kinds) == 1 and chances.ndim == 2:  # gradient boosting gives two columns
                    chances = chances[:, :1]
                check(chances, (len(new), len(kinds)), "predict_proba")
                found[:, kinds] = np.log(np.maximum(chances, 1e-12))
            elif len(new):
                numbers = np.ravel(made.predict(new))
                check(numbers, (len(new),), "predict")
                found[:, 0] = numbers
        return found

    return outputs


def logistic(
    x: Float[np.ndarray, "n d"], y: np.ndarray, ways: int, weight: Float[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, "ways d"], Float[np.ndarray, " ways"]]:
    """The coefficients and the offsets of logistic regression on inputs of mean square 1, from the
    class indices `y`. They are those of scikit-learn, which takes longer to load than the first
    answer about a small table takes."""
    from scipy.optimize import minimize  # here, because it is slow to load
    from scipy.special import log_softmax

    weights, kinds = np.zeros((ways, x.shape[1])), np.unique(y)
    offsets = np.full(ways, MISSING_CLASS_LOGIT)
    offsets[kinds] = 0
    if len(kinds) > 1 and x.shape[1]:
        rows, member = np.column_stack([x, np.ones(len(x))]), y[:, None] == kinds
        share = weight[:, None] / weight.sum()
        # With two classes their difference is penalised. Offsets are never penalised.
        penalty = np.append(np.full(x.shape[1], _RIDGE_PENALTY * (2 if len(kinds) == 2 else 1)), 0)

        def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
            w = flat.reshape(len(kinds), -1)
            logs = log_softmax(rows @ w.T, axis=1)
            slope = (share * (np.exp(logs) - member)).T @ rows + penalty * w
            return np.sum(penalty * w**2) / 2 - np.sum((share * logs)[member]), slope.ravel()

        start, settings = np.zeros(len(kinds) * rows.shape[1]), {"maxiter": 1000, "gtol": 1e-4}
        found = minimize(loss, start, jac=True, method="L-BFGS-B", options=settings).x
        each = found.reshape(len(kinds), -1)
        weights[kinds], offsets[kinds] = each[:, :-1], each[:, -1]
    return weights, offsets


def facts_of(estimator: Any, what: str = "predictor") -> Json:
    """The class and the parameters of the estimator of a predictor or a learner. **Raises**
    `ValueError` unless the class is scikit-learn's own, with texts and numbers as parameters."""
    kind = type(estimator)
    given = estimator.get_params(deep=False) if kind.__module__.startswith("sklearn.") else {"": ()}
    if not all(isinstance(value, str | int | float | None) for value in given.values()):
        raise ValueError(
            f"a {what} by {kind.__name__} cannot be saved without pickle: only estimators of "
            "scikit-learn itself with plain parameters can; keep the examples, and adapt again"
        )
    return {"class": f"{kind.__module__}:{kind.__name__}", "given": given}


def remade(facts: Json) -> Any:
    """The estimator with these facts. **Raises** `RunError` for one that scikit-learn lacks."""
    from sklearn.base import BaseEstimator

    name, kind = str(facts["class"]), None
    with suppress(ImportError, AttributeError):
        kind = resolve_name(name) if name.startswith("sklearn.") else None
    if not (isinstance(kind, type) and issubclass(kind, BaseEstimator)):
        raise RunError(f"this scikit-learn has no estimator {name}: adapt again")
    return kind(**facts["given"])
