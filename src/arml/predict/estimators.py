"""A meta-trained learner as a scikit-learn estimator: `fit` adapts it to a few labelled examples.

    model = arml.FewShotClassifier("my-learner").fit(pictures, ["oak", "oak", "elm", "elm"])
    model.predict(more), model.predict_proba(more), model.score(more, labels)

It can stand in a pipeline, a cross-validation or a search.
"""

from math import prod
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d, validate_data

from arml.core.episodes import Problem
from arml.predict.files import shipped
from arml.predict.inputs import checked_inputs
from arml.predict.learner import FewShotLearner, load
from arml.predict.models import models_of
from arml.predict.photos import (
    PhotoLearner,
    PhotoPredictor,
    small_pictures,
    starter_if_better,
)
from arml.predict.reliability import NumberReliability, Reliability
from arml.results.files import Json

WEIGHTS = "class weights multiply probabilities, and do not turn predictions that are sure"
Model = TypeVar("Model", bound="FewShot")

FEATURES: dict[int, tuple[str, ...]] = {
    2: (
        "check_classifier_data_not_an_array",
        "check_classifiers_classes",
        "check_classifiers_train",
        "check_estimators_fit_returns_self",
        "check_estimators_overwrite_params",
        "check_fit_check_is_fitted",
        "check_fit_idempotent",
        "check_n_features_in",
        "check_readonly_memmap_input",
    ),
    3: (
        "check_classifiers_one_label",
        "check_dict_unchanged",
        "check_dont_overwrite_parameters",
        "check_estimators_nan_inf",
        "check_estimators_pickle",
        "check_f_contiguous_array_estimator",
        "check_fit2d_predict1d",
        "check_fit_score_takes_y",
        "check_methods_sample_order_invariance",
        "check_methods_subset_invariance",
        "check_pipeline_consistency",
        "check_supervised_y_2d",
    ),
    4: (
        "check_n_features_in_after_fitting",
        "check_positive_only_tag_during_fit",
        "check_regressors_no_decision_function",
    ),
    5: ("check_estimators_dtypes",),
    10: (
        "check_classifiers_regression_target",
        "check_dtype_object",
        "check_fit2d_1sample",
        "check_regressor_data_not_an_array",
        "check_regressors_int",
        "check_regressors_train",
    ),
}
"""The checks of scikit-learn that fit a model to data, by the number of features of these data.
Each passes with a learner of that number of features; no other learner can read the data."""


def expected_failed_checks(estimator: "FewShot") -> dict[str, str]:
    """The checks of scikit-learn's `check_estimator` that cannot pass, each with the reason.

    A learner of tables takes any number of features: all pass but those of missing cells, texts
    and single rows. Another learner passes those with its own number of features. The tag
    `poor_score` lowers the bar of one check: it frees regressors from fitting a line in ten
    dimensions, because a few-shot regressor fits functions like those of its meta-training.
    """
    problem = _loaded(estimator.learner, estimator._kind).problem
    if len(problem.features) == 2:
        one = {"check_fit2d_1sample": "the error for a single row is worded differently"}
        return {
            "check_class_weight_classifiers": WEIGHTS,
            "check_dtype_object": "its column of texts, all different, is no category",
            "check_estimators_nan_inf": "an empty cell is a missing one",
            **(one if problem.kind == "regression" else {}),
        }
    own = prod(problem.features)
    sure = {"check_class_weight_classifiers": WEIGHTS} if problem.kind == "classification" else {}
    return sure | {
        check: f"its data has {features} features, and the learner was meta-trained on {own}"
        for features, checks in FEATURES.items()
        for check in checks
        if features != own
    }


def _loaded(learner: object, kind: str) -> FewShotLearner | PhotoLearner:
    if isinstance(learner, FewShotLearner | PhotoLearner):
        return learner
    if learner is None:
        return PhotoLearner()
    if not isinstance(learner, str | Path):
        raise ValueError(f"expected a learner, or what arml.load takes, got {learner!r}: load one")
    # The package may have the same learner for numbers.
    for_numbers = f"{learner}-regression"
    return load(for_numbers if kind == "regression" and for_numbers in shipped() else learner)


class FewShot(BaseEstimator):
    """The base of both estimators; `predictor_` is the `arml.Predictor` that `fit` made."""

    _kind: str
    learner: object
    uses: object
    predictor_: Any

    def fit(self: Model, X: object, y: object) -> Model:
        """Adapt the learner to the support set.

        **Arguments**

        - `X`: `[n, n_features]`; images as `[n, size, size, 3]`, or the same as flat rows.
        - `y`: `n` labels of any kind, or targets.

        **Raises** `ValueError` for data that the learner cannot read; `RunError` if there is no
        learner of that name.
        """
        learner = _loaded(self.learner, self._kind)
        if isinstance(learner, PhotoLearner):
            return self._fit_pictures(learner, X, y)
        problem = learner.problem
        if problem.kind != self._kind:
            raise ValueError(
                f"expected a learner of {self._kind} tasks for {type(self).__name__}, got one of "
                f"{problem.kind}: use the other estimator, or another learner"
            )
        if len(problem.features) == 2:  # rows of any columns: numbers, categories, missing cells
            validate_data(self, X, y, skip_check_array=True)
            self.predictor_ = learner.adapt(_checked_rows(X), self._checked_y(_known(y)))
            return self
        checks = self._y_checks(problem.outputs)
        rows, targets = validate_data(self, self._rows(X, problem), y, **checks)
        wanted = prod(problem.features)
        if rows.shape[1] != wanted:
            raise ValueError(
                f"X has {rows.shape[1]} feature(s), but the learner was meta-trained on "
                f"{wanted}: choose those columns, or another learner"
            )
        inputs = rows.reshape(-1, *problem.features)
        adapted = learner.adapt(inputs, self._checked_y(targets))
        model = models_of(problem)[-1] if self.uses == "auto" else str(self.uses)
        self.predictor_ = adapted.using(model)
        return self

    def _fit_pictures(self: Model, learner: PhotoLearner, X: Any, y: object) -> Model:
        vectors, targets = validate_data(self, learner.embed(X), y)
        labels = self._checked_y(targets)
        predictor: Any = learner.adapt(vectors, labels)
        if self.learner is None and getattr(X, "ndim", 0) != 2:  # not vectors already
            predictor = starter_if_better(predictor, X, labels)[0] or predictor
        self.predictor_ = predictor
        return self

    def predict(self, X: object) -> np.ndarray:
        """The label or the target of each input, each by itself.

        **Raises** `ValueError` for inputs of another shape, or that are not finite.
        """
        queries = self._queries(X)
        return self.predictor_.predict(queries)

    def reliability(self) -> Reliability | NumberReliability:
        """How far the fitted model can be trusted: `arml.Predictor.reliability`."""
        check_is_fitted(self)
        found: Reliability | NumberReliability = self.predictor_.reliability()
        return found

    def _y_checks(self, outputs: int) -> Json:
        return {}

    def _checked_y(self, y: Any) -> Any:
        return y

    def _rows(self, X: Any, problem: Problem) -> Any:
        """Images as flat rows, which scikit-learn's own checks can read."""
        if len(problem.features) == 3 and len(np.shape(X)) == 4:
            images = checked_inputs(X, problem, "X")
            return images.reshape(len(images), -1)
        return X

    def _queries(self, X: object) -> Any:
        check_is_fitted(self)
        problem = self.predictor_.problem
        if isinstance(self.predictor_, PhotoPredictor):
            return validate_data(self, self.predictor_.learner.embed(X), reset=False)
        if self.learner is None:
            return small_pictures(X)
        if len(problem.features) == 2:
            validate_data(self, X, reset=False, skip_check_array=True)
            return _checked_rows(X)
        rows = validate_data(self, self._rows(X, problem), reset=False)
        return rows.reshape(-1, *problem.features)


def _checked_rows(X: Any) -> Any:
    """Frames as they are; anything else as scikit-learn checks it, with texts and missing cells."""
    if hasattr(X, "columns") or hasattr(X, "column_names"):
        return X
    return check_array(X, dtype=None, ensure_all_finite=False)


def _known(y: Any) -> Any:
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    return y


class FewShotClassifier(ClassifierMixin, FewShot):
    """Classification by a meta-trained learner.

        classifier = arml.FewShotClassifier("tables")
        classifier.fit([[0.0], [1.0], [0.1], [0.9]], ["low", "high", "low", "high"]).classes_

    **Arguments**

    - `learner`: a loaded learner, a run folder, or a shared learner, as `arml.load` takes them.
      "photos" takes photographs in any form: see `arml.predict.photos.PhotoLearner`. If None,
      pictures are learned by "photos", or by "starter" if they are grey like drawings and it
      predicts the examples better. "tables" takes rows of any columns.
    - `uses`: the model that predicts, as `arml.Predictor.using` takes it. "auto" is the ensemble of
      the learner and simple models where these can be used, whose weights are found at the first
      prediction by ten folds or fewer; "learner" is the learner alone, which adapts once.
    - `class_weight`: as in scikit-learn, "balanced" or a weight for each label. The probabilities
      are multiplied by them: the learner itself treats the classes of a task alike.

    After `fit`: `classes_`; `n_features_in_`; `feature_names_in_` for data
    frames; `predictor_`.
    """

    _kind = "classification"

    def __init__(
        self, learner: object = None, uses: object = "auto", class_weight: object = None
    ) -> None:
        self.learner = learner  # unchecked until `fit`, as scikit-learn asks
        self.uses = uses
        self.class_weight = class_weight

    def _checked_y(self, y: Any) -> Any:
        check_classification_targets(y)
        return column_or_1d(y, warn=True)

    @property
    def classes_(self) -> np.ndarray | None:
        """The labels in order."""
        return self.predictor_.classes

    def predict_proba(self, X: object) -> np.ndarray:
        """The probability of each class `[n, classes]`, columns in the order of `classes_`."""
        queries = self._queries(X)
        predictor = self.predictor_
        chances: np.ndarray = predictor.predict_proba(queries)
        if self.class_weight is None:
            return chances
        known = predictor.classes[predictor.y]
        chances = chances * compute_class_weight(
            self.class_weight, classes=predictor.classes, y=known
        )
        return chances / chances.sum(axis=1, keepdims=True)

    def predict(self, X: object) -> np.ndarray:
        """The label of each input. **Raises** `ValueError` for inputs of another shape, or that are
        not finite."""
        chances = self.predict_proba(X)
        assert self.classes_ is not None
        return self.classes_[chances.argmax(axis=1)]


class FewShotRegressor(RegressorMixin, FewShot):
    """Regression by a meta-trained learner.

        regressor = arml.FewShotRegressor()
        regressor.fit([[0, 1], [1, 1], [2, 1], [3, 1], [4, 1]], [0, 1, 2, 3, 4])

    **Arguments**

    - `learner`: a loaded learner, a run folder, or a shared learner, as `arml.load` takes them. The
      default takes rows of any columns; "regression2d" is a learner of functions of two inputs.
    - `uses`: as for `FewShotClassifier`; the simple model is a Gaussian process.

    Several targets need a learner of as many, or scikit-learn's `MultiOutputRegressor`.

    After `fit`: `n_features_in_`; `feature_names_in_` for data frames; `predictor_`.
    """

    _kind = "regression"

    def __init__(self, learner: object = "tables-regression", uses: object = "auto") -> None:
        self.learner = learner
        self.uses = uses

    def interval(self, X: object, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """The ends of an interval around each prediction that holds about `level` of new targets.
        **Raises** `ValueError` as `predict`, and for too few examples."""
        queries = self._queries(X)
        low, high = self.predictor_.interval(queries, level)
        return low, high

    def _y_checks(self, outputs: int) -> Json:
        return {"y_numeric": True, "multi_output": outputs > 1}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # see `expected_failed_checks`
        return tags
