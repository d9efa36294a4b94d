"""A learner as a scikit-learn estimator: `fit` adapts it to a few labelled examples.

It works in a pipeline, a cross-validation or a search. scikit-learn's `check_estimator` passes,
except for checks whose data have another number of features than the learner was trained on, and
checks of sample weights for learners that cannot use them.
"""

from collections.abc import Sequence
from math import prod
from typing import Any, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d, validate_data

from arml.predict.base import Predictor, TaskLearner
from arml.predict.encoded import EncodedPredictor
from arml.predict.files import shipped
from arml.predict.inputs import PRIOR_OF_EXAMPLES
from arml.predict.kinds import inputs_of
from arml.predict.loading import load
from arml.predict.reliability import NumberReliability, Reliability

Model = TypeVar("Model", bound="FewShot")


class FewShot(BaseEstimator):
    """The base of both estimators; `predictor_` is the predictor that `fit` made."""

    _kind: str
    learner: object
    uses: object = "auto"
    predictor_: Predictor

    def fit(
        self: Model,
        X: object,
        y: object,
        sample_weight: object = None,
        groups: object = None,
        keep: Sequence[str] = (),
    ) -> Model:
        """Adapt the learner to the support set.

        **Arguments**

        - `X`: `[n, n_features]`; images as `[n, size, size, 3]`, or the same as flat rows.
        - `y`: `n` labels of any kind, or targets.
        - `sample_weight`: how much each example counts `[n]`. With 2 it counts as if it came
          twice, and with 0 it is left out. Learners of photographs and the models `logistic` and
          `edges` use weights; learners of tables use whole numbers.
        - `groups`: a value for each example. Wherever examples are left out, those with the same
          value are left out together, as in the group folds of scikit-learn.
        - `keep`: columns of a table that are used although a rule would leave them out.

        **Raises** `ValueError` for data that the learner cannot read, and for sample weights that
        it cannot use; `RunError` if there is no learner of that name.
        """
        learner = "photos" if self.learner is None else self.learner
        # The package may ship a learner of this name for regression.
        numbers = f"{learner}-regression"
        named = numbers if self._kind == "regression" and numbers in shipped() else learner
        loaded = load(named, x=X)
        problem = loaded.problem
        if problem.kind != self._kind:
            raise ValueError(
                f"expected a learner of {self._kind} tasks for {type(self).__name__}, got one of "
                f"{problem.kind}: use the other estimator, or another learner"
            )
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        checks = {"y_numeric": True, "multi_output": problem.outputs > 1}
        inputs, y = self._read(X, loaded, y, **(checks if problem.kind == "regression" else {}))
        labels = self._targets(y)
        options = {"keep": keep} if len(keep) else {}
        predictor = loaded.adapt(inputs, labels, sample_weight, groups=groups, **options)
        if self.learner is None and sample_weight is None and getattr(X, "ndim", 0) != 2:
            predictor = inputs_of(loaded).better(predictor, X, labels)[0] or predictor
        self.predictor_ = predictor.using(
            predictor.models[-1] if self.uses == "auto" else str(self.uses)
        )
        encoded = isinstance(predictor, EncodedPredictor) and loaded.estimator is None
        if encoded and getattr(self, "class_weight", None) is not None:
            # The weights replace the equal frequencies that some learners assume.
            self.predictor_ = predictor.with_prior(PRIOR_OF_EXAMPLES)
        return self

    def predict(self, X: object) -> np.ndarray:
        """The label or the target of each input, independent of the other inputs.

        **Raises** `ValueError` for inputs of another shape, or that are not finite.
        """
        queries = self._queries(X)  # first, because it checks that `fit` was called
        return np.asarray(self.predictor_.predict(queries))

    def reliability(self) -> Reliability | NumberReliability:
        """How far the fitted model can be trusted: `arml.Predictor.reliability`."""
        check_is_fitted(self)
        return self.predictor_.reliability()

    def _targets(self, y: object) -> np.ndarray:
        targets = np.asarray(y)
        return column_or_1d(targets, warn=True) if targets.shape[1:] == (1,) else targets

    def _queries(self, X: object) -> object:
        check_is_fitted(self)
        learner = self.predictor_.learner
        if self.learner is None and learner.problem.spatial:
            return learner.read(inputs_of(learner).items(X))  # by starter, which `fit` chose
        return self._read(X, learner, reset=False)[0]

    def _read(
        self, X: object, learner: TaskLearner, y: object = "no_validation", **checks: Any
    ) -> tuple[object, object]:
        """The inputs as the learner takes them, and `y`, after scikit-learn's checks."""
        features = learner.problem.features
        if not learner.problem.form.plain:  # of any columns: numbers, texts, missing cells
            if not (hasattr(X, "columns") or hasattr(X, "column_names")):
                X = check_array(X, dtype=None, ensure_all_finite=False)
            validate_data(self, X, skip_check_array=True, **checks)
            return X, y
        if inputs_of(learner).cells and getattr(X, "ndim", 0) != 2:
            X = learner.read(X, "X")
            X = X.reshape(len(X), -1)  # scikit-learn checks flat rows
        found = validate_data(self, X, y, **checks)
        rows, y = found if isinstance(found, tuple) else (found, y)
        if rows.shape[1] != prod(features):
            tables = "tables-regression" if self._kind == "regression" else "tables"
            raise ValueError(
                f"X has {rows.shape[1]} feature(s), but the learner reads {prod(features)}: choose "
                f'those columns, or learn any table with {type(self).__name__}("{tables}")'
            )
        return rows.reshape(-1, *features), y


class FewShotClassifier(ClassifierMixin, FewShot):
    """Classification by a meta-trained learner.

        classifier = arml.FewShotClassifier("tables")
        classifier.fit([[0.0], [1.0], [0.1], [0.9]], ["low", "high", "low", "high"]).classes_

    **Arguments**

    - `learner`: a loaded learner, a run folder, a shared learner, or an estimator of scikit-learn,
      as `arml.load` takes them. "photos" takes photographs in any form: see
      `arml.photographs.learner.PhotoLearner`. If None, pictures are learned by "photos", or by
      "starter" if they are grey like drawings and it predicts the examples better. "tables" takes
      rows of any columns.
    - `uses`: the model that predicts, as `arml.Predictor.using` takes it. "auto" is the ensemble of
      the learner and of simple models, if these can be used; its weights are computed at the first
      prediction with at most ten folds. "learner" is only the learner, which adapts once. The
      learners of photographs and of tables have one model, and accept "auto" or "learner".
    - `class_weight`: as in scikit-learn, "balanced" or a weight for each label. The probabilities
      are multiplied by these weights, because the learner treats the classes of a task alike. The
      learners of photographs and of your own kinds then begin with the frequencies of the examples.
      `reliability` does not use the weights.

    After `fit`: `classes_`; `n_features_in_`; `feature_names_in_` for data
    frames; `predictor_`.
    """

    _kind = "classification"

    def __init__(
        self, learner: object = None, uses: object = "auto", class_weight: object = None
    ) -> None:
        self.learner = learner  # unchecked until `fit`, as scikit-learn requires
        self.uses = uses
        self.class_weight = class_weight

    def _targets(self, y: object) -> np.ndarray:
        check_classification_targets(y)
        return column_or_1d(y, warn=True)

    @property
    def classes_(self) -> np.ndarray:
        """The labels in order."""
        return self.predictor_.labels

    def predict_proba(self, X: object) -> np.ndarray:
        """The probability of each class `[n, classes]`, columns in the order of `classes_`."""
        queries = self._queries(X)
        chances = self.predictor_.predict_proba(queries)
        if self.class_weight is None:
            return chances
        labels = self.classes_[self.predictor_.y]
        chances = chances * compute_class_weight(self.class_weight, classes=self.classes_, y=labels)
        return chances / chances.sum(axis=1, keepdims=True)

    def predict(self, X: object) -> np.ndarray:
        chances = self.predict_proba(X)
        return self.classes_[chances.argmax(axis=1)]


class FewShotRegressor(RegressorMixin, FewShot):
    """Regression by a meta-trained learner.

        regressor = arml.FewShotRegressor()
        regressor.fit([[0, 1], [1, 1], [2, 1], [3, 1], [4, 1]], [0, 1, 2, 3, 4])

    **Arguments**

    - `learner`: a loaded learner, a run folder, or a shared learner, as `arml.load` takes them. The
      default takes rows of any columns; "regression2d" is a learner of functions of two inputs,
      which predicts together with a Gaussian process.

    For several targets use a learner of that many, or scikit-learn's `MultiOutputRegressor`.

    After `fit`: `n_features_in_`; `feature_names_in_` for data frames; `predictor_`.
    """

    _kind = "regression"

    def __init__(self, learner: object = "tables-regression") -> None:
        self.learner = learner

    def interval(self, X: object, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """The ends of an interval around each prediction that holds about `level` of new targets.
        **Raises** `ValueError` as `predict`, and for too few examples."""
        queries = self._queries(X)
        return self.predictor_.interval(queries, level)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # With this tag scikit-learn does not test the fit of a line in ten dimensions: a few-shot
        # regressor fits functions like those of its meta-training.
        tags.regressor_tags.poor_score = True
        return tags
