"""The base classes of learners and of predictors. A predictor is a task that was learned from a few
labelled examples.

This module does not load JAX, because photographs do not need it.
"""

import abc
import copy
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from jaxtyping import Bool, Float

from arml.core.inputs import INPUTS, Form
from arml.datasets.decode import LOG
from arml.predict.folds import MAX_FOLDS, Numbers, Places, equal_inputs, folds, units_of
from arml.predict.inputs import (
    FIRST_GROUP,
    Bad,
    Numeric,
    OnItem,
    checked_groups,
    checked_targets,
    floats,
    places_of,
)
from arml.predict.reliability import (
    Evaluation,
    NumberEvaluation,
    NumberReliability,
    Reliability,
    classification_reliability,
    conformal_rank,
    regression_reliability,
)
from arml.predict.scikit import NAMED_ESTIMATORS, estimator_of

if TYPE_CHECKING:
    from arml.core.episodes import Problem
    from arml.datasets.features import Extractor

BY_LEARNER = "learner"
CAPABILITIES = {
    "add": "learn more examples",
    "interval": "give intervals of numbers",
    "matter": "measure how much each part of an input matters",
    "novelty": "measure how far an input is from all classes",
    "learning_curve": "estimate how much more examples of each class would gain",
    "to_onnx": "be written as an ONNX file",
}
"""The methods that only some predictors have, and what each of them does, for messages."""
L = TypeVar("L", bound="TaskLearner")
P = TypeVar("P", bound="Predictor")
Read = Any
"""Inputs that a learner has read: an array, or the rows of a table."""
_LIMITS_OF_CAPABILITIES = {
    "interval": ", for numbers",
    "novelty": ", for classes",
    "learning_curve": ", for classes",
}
"""The tasks to which a capability is limited, numbers or classes, for messages."""


class TaskLearner(abc.ABC):
    """Learns a user's tasks. Its subclasses define how.

        isinstance(arml.load("regression2d"), arml.TaskLearner)

    `arml.load` returns one, and `arml.adapt` takes one.
    """

    problem: "Problem"
    """The problem that it was built for."""
    families: tuple[str, ...]
    """The names of its training data."""
    estimator: object = None
    """The estimator of scikit-learn that learns the tasks instead: see `arml.predict.scikit`."""

    @property
    @abc.abstractmethod
    def kind(self) -> Form:
        """The kind of inputs that a user gives."""

    @property
    def extractor(self) -> "Extractor | None":
        """The frozen ONNX model that turns pictures into its inputs, or None."""
        return None

    @property
    def notes(self) -> list[str]:
        """Remarks for the user."""
        return []

    def with_model(self: L, model: Path | str | None) -> L:
        """The same learner with another file of its frozen model. **Raises** `ValueError` if it
        has no frozen model."""
        if model is not None:
            raise ValueError(
                "this learner uses no frozen model: leave --model out, or name one of "
                f"{', '.join(NAMED_ESTIMATORS)}"
            )
        return self

    def with_estimator(self: L, estimator: object, kind: str = "") -> L:
        """A copy of this learner; an estimator learns its tasks of this kind. **Raises**
        `ValueError` if it has no such tasks, or if the estimator is for other tasks."""
        if not kind:
            raise ValueError("estimators learn only tables and inputs that become vectors")
        other: L = object.__new__(type(self))
        vars(other).update(vars(self), estimator=estimator_of(estimator, kind))
        return other

    def __reduce_ex__(self, protocol: Any) -> "str | tuple[object, ...]":
        found = super().__reduce_ex__(protocol)
        plain = self.estimator is None or len(found) > 2
        return found if plain else (*found, {"estimator": self.estimator})

    def __deepcopy__(self: L, memo: object) -> L:
        return self  # it never changes, and scikit-learn copies parameters often

    @abc.abstractmethod
    def adapt(
        self, x: object, y: object, sample_weight: object = None, **options: object
    ) -> "Predictor":
        """Learn a task from its support set. **Raises** `ValueError` for examples that cannot be
        learned."""

    @abc.abstractmethod
    def read(
        self,
        x: object,
        what: str = "queries",
        progress: OnItem | None = None,
        bad: Bad | None = None,
    ) -> np.ndarray:
        """Check inputs and return them as arrays. `what` is their name in errors. `bad`, if given,
        gets the problems of inputs that cannot be read, by index. **Raises** `ValueError` for
        inputs that cannot be read."""


class Predictor(abc.ABC):
    """A learned task of any kind of inputs.

        predictor = arml.adapt("regression2d", [[0, 1], [1, 1], [2, 1]], [0.0, 1.0, 2.0])
        predictor.predict([[1.5, 1]]), predictor.can("interval"), predictor.can("novelty")

    Every predictor has `classes`, `predict`, `predict_proba`, `reliability`, `evaluate` and `save`.
    Only some have `add`, `interval`, `matter`, `novelty`, `learning_curve` or `to_onnx`: `can` says
    whether this one does.
    """

    learner: TaskLearner
    """The learner that learned it."""
    classes: np.ndarray | None
    """Its labels in order; None for regression."""
    x: np.ndarray
    """The inputs of the examples `[n, *features]`: numbers, pixels, or vectors of photographs or
    texts; a table has `values` instead."""
    y: np.ndarray
    """The indices of their labels among `classes` `[n]`, or their targets `[n, targets]`."""
    groups: Numbers | None = None
    """Examples that belong together have the same number; None without groups."""
    schema: object = ""
    """How each column of a table is read. As a text it has a line for each column."""
    model: str = BY_LEARNER
    """The model that predicts."""
    models: tuple[str, ...] = (BY_LEARNER,)
    """The models that can predict."""
    columns: tuple[str, ...] | None = None
    """The names of the input columns of a table."""
    target: str | None = None
    """The name of the column of a table that it predicts."""
    most = MAX_FOLDS
    """The largest number of folds in its check."""
    flat = False
    """Whether the targets came as `[n]` instead of `[n, 1]`."""
    prior_in_words = ""
    """The class frequencies that its probabilities assume, in words; empty without a prior."""

    def __init__(
        self,
        learner: TaskLearner,
        x: np.ndarray,
        y: np.ndarray,
        classes: np.ndarray | None = None,
        sample_weight: Float[np.ndarray, " n"] | None = None,
        groups: Numbers | None = None,
        *,
        flat: bool = False,
    ) -> None:
        self.learner, self.x, self.y, self.classes = learner, x, y, classes
        self.sample_weight, self.groups, self.flat = sample_weight, groups, flat
        if learner.estimator is not None:
            self.model = type(learner.estimator).__name__
            self.models = (self.model,)

    @property
    def support(self) -> dict[str, np.ndarray]:
        """The examples as `save` writes them, by the names of the constructor's arguments."""
        every = {"x": self.x, "y": self.y}
        more = {"sample_weight": self.sample_weight, "groups": self.groups}
        return every | {name: array for name, array in more.items() if array is not None}

    @property
    def problem(self) -> "Problem":
        """The problem that the learner was built for."""
        return self.learner.problem

    @property
    def weights(self) -> Mapping[str, float]:
        """The weight of each model in a mean of several; empty if one predicts alone."""
        return {}

    @property
    def labels(self) -> np.ndarray:
        """Its `classes`. **Raises** `ValueError` for a regression."""
        if self.classes is None:
            raise ValueError("a regression has no classes and no probabilities: use predict")
        return self.classes

    def can(self, what: str) -> bool:
        """Whether it has the capability of this name: see `CAPABILITIES`.

        **Raises** `ValueError` for another name."""
        if what not in CAPABILITIES:
            raise ValueError(f"unknown capability {what!r}: expected {' or '.join(CAPABILITIES)}")
        numbers = {"interval": True, "novelty": False, "learning_curve": False}
        suits = numbers.get(what, self.classes is None) == (self.classes is None)
        fixed = what == "to_onnx" and self.learner.estimator is not None
        return suits and not fixed and what in self.learner.kind.can

    def need(self, what: str) -> None:
        """Raise `ValueError` without this capability; the message lists the kinds that have it."""
        if not self.can(what):
            raise self._lacking(what)

    def _lacking(self, what: str) -> ValueError:
        kind, estimator = self.learner.kind, self.learner.estimator
        have = sorted(name for name, other in INPUTS.items() if what in other.can)
        of = "numbers" if self.classes is None else "classes"
        if estimator is not None:
            of += f" by {type(estimator).__name__}"
        remedy = "; use predict_proba" if what == "interval" and self.classes is not None else ""
        return ValueError(
            f"a predictor of {of} from {kind.name} cannot {CAPABILITIES[what]} ({what}); "
            f"those of {', '.join(have)} can{_LIMITS_OF_CAPABILITIES.get(what, '')}{remedy}"
        )

    @abc.abstractmethod
    def save(self, folder: Path | str) -> None:
        """Write it as a folder, which `arml.load_predictor` reads. **Raises** `RunError` if it
        cannot be written, or if the folder holds something else."""

    def add(self, x: object, y: object, groups: object = None) -> "Predictor":
        """A predictor that has also learned from these examples, which may be of new classes. Each
        of them has the weight 1. Nothing is trained again: the learner adapts to all examples, as
        in `adapt`. This predictor does not change.

        `groups` are those of the new examples. One that was also given to `adapt` is the same
        group. They are needed if there are groups already. **Raises** as `adapt`."""
        more, weight = self.learner.read(x, "support inputs"), self.sample_weight
        labels, groups = self._joined(y, len(more), groups)
        # Bytes of pixels become floats where the others are floats.
        both = [self.x, more] if self.x.dtype == more.dtype else [floats(self.x), floats(more)]
        if weight is not None:
            weight = np.append(weight, np.ones(len(more)))
        added = self.learner.adapt(np.concatenate(both), labels, weight, groups=groups)
        added.columns, added.target = self.columns, self.target
        # With more examples some models may be unavailable.
        added.model = self.model if self.model in added.models else BY_LEARNER
        return added

    def interval(self, x: object, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """The ends of an interval around each predicted number. About `level` of new targets lie
        within, if they come from the same source as the examples. **Raises** `ValueError` as
        `predict`, and if there are too few examples for the level."""
        raise self._lacking("interval")

    def matter(self) -> dict[str, float]:
        """How much each part of the inputs, such as a column, matters: the fall of the mean
        log-probability of the correct answers without that part. The largest comes first."""
        raise self._lacking("matter")

    def to_onnx(self, path: Path | str) -> None:
        """Write it as one ONNX file, which runs without this package (extra `onnx`): see
        `arml.predict.onnx`. It includes a frozen network and reads pictures of any size. **Raises**
        `ValueError` if ONNX lacks an operation; `RunError` if it cannot be written."""
        self.need("to_onnx")
        from arml.predict.onnx import write_predictor  # it loads JAX

        extractor = self.learner.extractor
        write_predictor(Path(path), self._traced(), self.problem, self.classes, extractor)

    def _traced(self) -> Callable[[Numeric], Numeric]:
        """The function from inputs to log-odds (for photographs also the novelty) or to targets,
        written with `jax.numpy`."""
        raise self._lacking("to_onnx")

    def novelty(self, x: object, errors: str = "raise") -> Float[np.ndarray, " n"]:
        """How far each input is from all classes. Above 1, the input may lie outside of them all.
        `errors` is as in `predict`. Kinds whose probabilities show this as well lack it."""
        raise self._lacking("novelty")

    def read(self, x: object, bad: Bad | None = None) -> Read:
        """Check and convert inputs. Every method also accepts the result. `bad` is as in
        `TaskLearner.read`."""
        return self.learner.read(x, bad=bad)

    def _reading(self, x: object, errors: str) -> tuple[Read, list[int]]:
        """The inputs, and the indices of those that could not be read: see `predict`."""
        if errors not in ("raise", "skip"):
            raise ValueError(f"errors must be 'raise' or 'skip', got {errors!r}")
        if errors == "raise":
            return self.read(x), []
        bad: Bad = {}
        inputs = self.read(x, bad)
        for i, problem in bad.items():
            item = x[i] if isinstance(x, list | tuple) else x if len(inputs) == 1 else None
            number = f"{self.learner.kind.one} {i + 1}"
            named = item if isinstance(item, str | Path) else number
            if problem.startswith(number):  # a string is an input itself
                LOG.warning(problem)
            else:
                LOG.warning("%s cannot be read: %s", named, problem)
        return inputs, [*bad]

    @abc.abstractmethod
    def _outputs(self, inputs: Read) -> Float[np.ndarray, "n outputs"]:
        """The log-odds `[n, classes]` or the targets `[n, targets]` of the results of `read`."""

    @abc.abstractmethod
    def _refit(self, train: Places, test: Places) -> dict[str, np.ndarray]:
        """Learn from the examples `train` only, and predict the examples `test`: the probabilities
        or the targets, by model."""

    def __getstate__(self) -> dict[str, object]:
        # Compiled functions cannot be pickled, and cached values can be computed again.
        every = [item for base in type(self).__mro__ for item in vars(base).items()]
        cached = {name for name, value in every if isinstance(value, cached_property)}
        return {k: v for k, v in vars(self).items() if k not in cached - {"weights"}}

    def predict(self, x: object, none: str | None = None, errors: str = "raise") -> np.ndarray:
        """The label of each input `[n]`, or its targets `[n, targets]`; `[n]` if `y` was `[n]`.

        **Arguments**

        - `none`: the label of queries that may lie outside of all classes: photographs whose
          `novelty` is above 1, and other inputs if their class is less probable than the predicted
          classes of 95% of the examples, when these are left out.
        - `errors`: with "skip", an input that cannot be read gets the label None, or NaN for
          numbers and probabilities, and the logger "arml" gets the reason.

        **Raises** `ValueError` for inputs that cannot be read."""
        if self.classes is None and none is not None:
            raise ValueError("a regression has no classes: leave out the argument `none`")
        inputs, bad = self._reading(x, errors)
        outputs = self._outputs(inputs)
        if self.classes is None:
            if bad:
                outputs = np.array(outputs)
                outputs[bad] = np.nan
            return outputs[:, 0] if self.flat else outputs
        labels = self.classes[outputs.argmax(axis=1)]
        if none is not None:
            outside = self.outside(inputs, softmax(outputs.astype(np.float64)))
            labels = np.where(outside, none, labels.astype(object))
        if bad:
            labels = labels.astype(object)
            labels[bad] = None
        return labels

    def outside(self, x: object, chances: Float[np.ndarray, "n classes"]) -> Bool[np.ndarray, " n"]:
        """Whether each input with these probabilities may lie outside of all classes: see
        `predict`."""
        found = self.reliability()
        assert isinstance(found, Reliability)
        return np.asarray(chances.max(axis=1) < found.threshold())

    def predict_proba(self, x: object, errors: str = "raise") -> Float[np.ndarray, "n classes"]:
        """The probability of each class, columns in the order of `classes`; `errors` as in
        `predict`. **Raises** `ValueError` as `predict`, and for regression."""
        _ = self.labels  # it raises for a regression
        inputs, bad = self._reading(x, errors)
        chances: np.ndarray = softmax(self._outputs(inputs).astype(np.float64))
        chances[bad] = np.nan
        return chances

    def using(self: P, model: str) -> P:
        """The same predictor with another of its `models`. **Raises** `ValueError` for an unknown
        name."""
        if model not in self.models:
            raise ValueError(
                f"model {model!r} cannot predict this task: choose {' or '.join(self.models)}"
            )
        return self

    def with_prior(self, prior: object) -> "Predictor":
        """The same predictor for other class frequencies. **Raises** `ValueError` for a prior that
        it cannot use."""
        raise ValueError("this predictor has no prior: use a learner such as photos")

    def evaluate(self, x: object, y: Any) -> Evaluation | NumberEvaluation:
        """Compare predictions with the known answers `y`: the accuracy of each class, the confusion
        matrix and the worst mistakes, or the error of numbers. **Raises** `ValueError` as
        `predict`, unless there is one answer for each input, and for a label that is not among
        `classes`."""
        inputs, answers = self.read(x), np.asarray(y if hasattr(y, "shape") else [*y], object)
        if answers.shape in ((len(inputs), 1), (len(inputs),)) and self.classes is not None:
            answers = answers.ravel()
        if len(answers) != len(inputs) or (answers.ndim > 1 and self.classes is not None):
            raise ValueError(
                f"expected one answer for each of the {len(inputs)} inputs, got answers of shape "
                f"{list(answers.shape)}"
            )
        if self.classes is not None:
            places = places_of(answers, self.classes)
            return Evaluation(self.classes, places, self.predict_proba(inputs))
        targets, _ = checked_targets(answers, self.problem, len(inputs))
        return NumberEvaluation(targets, self.predict(inputs).reshape(targets.shape))

    def learning_curve(self, sizes: Iterable[int] = (2, 3, 5)) -> dict[int, float]:
        """The accuracy on left-out examples, by the number of examples of each class from which it
        learns. The curve shows what more examples would gain. The last point uses all examples. It
        is empty if no class has three examples."""
        self.need("learning_curve")
        sizes = [*sizes]
        if not all(isinstance(size, int | np.integer) and size > 0 for size in sizes):
            raise ValueError(f"expected numbers of examples, 1 or more, got {sizes}")
        most = int(np.bincount(self.y).max())
        if most < 3:
            return {}

        def refit(size: int, train: np.ndarray, test: np.ndarray) -> dict[str, np.ndarray]:
            train = train[np.argsort(self._same[train], kind="stable")]
            train = np.random.default_rng(size).permutation(train)
            first = [train[self.y[train] == k][:size] for k in range(len(self.labels))]
            return self._refit(np.sort(np.concatenate(first)), test)

        given = self.y, self.labels, self._same, self.groups, self.model
        curve = {
            size: classification_reliability(partial(refit, size), *given, repeats=1).accuracy
            for size in sizes
            if size <= most * 0.8
        }
        found = self.reliability()
        assert isinstance(found, Reliability)
        return {**curve, most: found.accuracy}

    def reliability(self, groups: object = None) -> Reliability | NumberReliability:
        """How far it can be trusted: the accuracy or error of all its models on left-out examples,
        and which examples look mislabelled. Each fold learns from the beginning, and keeps nothing
        that another fold learned from labels. The result is cached.

        **Arguments**

        - `groups`: a value for each example, such as a person's name. Examples with the same value
          are left out together. By default the groups of `adapt` are used.

        **Raises** `ValueError` unless there is one group for each example."""
        if groups is None:
            return self._reliability
        other = copy.copy(self)
        vars(other).pop("weights", None)  # they come from folds without these groups
        other.groups = checked_groups(groups, len(self.y))
        return other._reliability

    def _joined(
        self, y: object, n: int, groups: object = None
    ) -> tuple[list[object], Numbers | None]:
        """The answers and groups of all examples, with `n` new ones that have the answers `y`.
        **Raises** `ValueError` unless `y` has `n` answers, and if only the new ones have no
        groups."""
        known, others = self.y if self.classes is None else self.classes[self.y], np.asarray(y)
        if others.shape[:1] != (n,):
            got = f"{len(others)} of them" if others.ndim else f"{y!r}"
            raise ValueError(f"expected a list with a label for each of {n} inputs, got {got}")
        known = known[:, 0] if self.flat and known.ndim == 2 else known
        if (new := checked_groups(groups, n)) is not None:
            before = FIRST_GROUP + np.arange(len(self.y)) if self.groups is None else self.groups
            new = np.append(before, new)
        elif self.groups is not None:
            raise ValueError(
                f"the examples have groups: give groups=, a value for each of the {n} new inputs; "
                "those of a known group have the value that it had"
            )
        return [*known.tolist(), *others.tolist()], new

    def equal_examples(self, x: object) -> int:
        """The number of inputs that are equal to an example."""
        return equal_rows_of(self.read(x), self.x)

    @cached_property
    def _reliability(self) -> Reliability | NumberReliability:
        given = self._same, self.groups, self.model
        if self.classes is None:
            return regression_reliability(self._refit, self.y, *given, most=self.most)
        return classification_reliability(self._refit, self.y, self.classes, *given, most=self.most)

    @cached_property
    def _parts(self) -> list[tuple[Places, Places]]:
        """The folds that determine the weights of the models."""
        classes = self.classes is not None
        return [*folds(self.y, self._same, self.groups, classes=classes, most=self.most)]

    @property
    def _independent(self) -> int:
        """The number of units (examples, sets of copies, or groups) that can be left out."""
        return len(np.unique(units_of(self.y, self._same, self.groups)))

    def is_enough(self, level: float) -> bool:
        """Whether there are enough examples for intervals that contain `level` of new numbers."""
        return conformal_rank(level, self._independent) is not None

    @cached_property
    def _same(self) -> Numbers:
        """A number for each example; equal examples have the same number."""
        return equal_inputs(self.x, self.learner.kind.near)

    def embedding(self, x: object) -> Float[np.ndarray, "n d"] | None:
        """The vectors by which the learner compares inputs with the classes; None for a learner
        that adapts all of its weights."""
        return None

    def reading(self) -> Float[np.ndarray, "prototypes vertices"] | None:
        """How much each prototype of the task reads each vertex of the meta-knowledge graph; each
        row sums to one. A class prototype is a class. None for a learner without a graph."""
        return None


def equal_rows_of(rows: np.ndarray, examples: np.ndarray) -> int:
    """The number of rows that are equal to an example."""
    known = {row.tobytes() for row in np.ascontiguousarray(examples)}
    return sum(row.tobytes() in known for row in np.ascontiguousarray(rows, examples.dtype))


def softmax(logits: Numeric, xp: ModuleType = np) -> Numeric:
    """The probabilities of log-odds `[n, classes]`; with `jax.numpy` as `xp` JAX can trace it."""
    chances = xp.exp(logits - logits.max(axis=1, keepdims=True, initial=-np.inf))
    return chances / chances.sum(axis=1, keepdims=True)
