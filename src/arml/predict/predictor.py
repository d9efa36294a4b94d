"""A task that a meta-trained learner has learned from a few labelled examples.

A prediction depends on the support set and on its own input, not on the other queries: networks
that normalise by their batch take the statistics of the support set instead.

A task may have more classes than the learner was meta-trained on, if no weight of the learner
depends on their number, as with class prototypes.
"""

import copy
import os
import warnings
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from arml.algorithms.arml import Trace
from arml.algorithms.arml_extensions import VertexTrace
from arml.core.compilation import short
from arml.core.episodes import Examples
from arml.core.learner import MetaLearner
from arml.predict.base import LEARNER, PredictorBase, softmax
from arml.predict.choice import Choice, mean_of
from arml.predict.folds import Places, folds
from arml.predict.inputs import (
    checked_labels,
    checked_targets,
    floats,
    joined_groups,
    joined_inputs,
    joined_labels,
    weighted,
)
from arml.predict.models import (
    ENSEMBLE,
    PROCESS,
    WEIGHTED,
    Function,
    class_weights,
    fitted,
    models_of,
    process,
)
from arml.predict.onnx import QUERIES, write_predictor
from arml.predict.reliability import WORDS, left_out
from arml.predict.trained import LearnedTask, TrainedLearner, write_learner

_CHUNK = 64
"""Queries predicted at once; fewer are filled up, so that one compiled program serves all."""
P = TypeVar("P", bound="Predictor")


class Predictor(PredictorBase):
    """A learned task. `classes` are its labels in order; None for regression.

        predictor = learner.adapt([[0, 1], [1, 1], [2, 1], [3, 1], [4, 1]], [0, 1, 2, 3, 4])
        predictor.predict([[1.5, 1]])

    Its methods raise `ValueError` in one line for inputs of another shape.
    """

    def __init__(
        self,
        learner: TrainedLearner,
        x: np.ndarray,
        y: np.ndarray,
        classes: np.ndarray | None = None,
        flat: bool = False,
        sample_weight: np.ndarray | None = None,
        groups: np.ndarray | None = None,
    ) -> None:
        self.learner, self.x, self.y, self.classes = learner, x, y, classes
        self.flat, self.sample_weight, self.groups = flat, sample_weight, groups
        self.models = models_of(learner.problem, len(x))

    @classmethod
    def learned(
        cls: type[P],
        learner: TrainedLearner,
        x: Any,
        y: Any,
        sample_weight: Any = None,
        groups: Any = None,
        **options: Any,
    ) -> P:
        """The task of a support set, learned. **Raises** `ValueError` for other examples."""
        if options:
            raise ValueError(f"{', '.join(options)}: only learners of tables have these options")
        inputs = learner.read(x, "support inputs")
        if not len(inputs):
            raise ValueError("no examples: give some")
        inputs, y, *more = weighted(inputs, y, sample_weight, groups)
        if learner.problem.kind == "regression":
            targets, flat = checked_targets(y, learner.problem, len(inputs))
            _check_range(learner, inputs, targets)
            return cls(learner, inputs, targets.astype(np.float32), None, flat, *more)
        classes, places = checked_labels(y, len(inputs))
        learner.of_classes(len(classes))  # may refuse so many
        return cls(learner, inputs, places, classes, False, *more)

    @classmethod
    def restored(
        cls: type[P], learner: TrainedLearner, arrays: Mapping[str, np.ndarray], task: LearnedTask
    ) -> P:
        """A predictor from the arrays and the facts that `save` wrote. **Raises** `ValueError` for
        models of another version."""
        classes = None if task.classes is None else np.asarray(task.classes)
        predictor = cls(learner, classes=classes, flat=task.flat, **arrays)
        if task.weights and {*task.weights} != {*predictor.models[:-1]}:
            raise ValueError("its models are not those of this version")
        predictor.columns = tuple(task.columns) if task.columns else None
        predictor.target = task.target
        if task.weights:
            vars(predictor)["weights"] = task.weights
        return predictor.using(task.model)

    @cached_property
    def _learner(self) -> MetaLearner:
        return self.learner.of_classes(0 if self.classes is None else len(self.classes))

    def using(self: P, model: str) -> P:
        """The same, predicting with another of its `models`: the `learner`, `logistic` regression
        on the inputs or on the `edges` of pictures, a Gaussian `process` of a function, or the
        `ensemble` of all, with weights from examples that are left out. **Raises** `ValueError` for
        another."""
        super().using(model)
        self._check_weights(model)
        other = copy.copy(self)
        other.model = model
        return other

    def interval(self, x: Any, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """The ends of an interval around each prediction, for regression: about `level` of new
        targets lie within, if they are drawn as the examples were. **Raises** `ValueError` as
        `predict`, for classes, and for too few examples: 0.9 needs nine."""
        if self.classes is not None:
            raise ValueError("classes have no interval: use predict_proba")
        outputs, found = self._outputs(self.read(x)), self.reliability()
        half = found.half_width(level)  # type: ignore[union-attr]
        low, high = outputs - half, outputs + half
        return (low[:, 0], high[:, 0]) if self.flat else (low, high)

    def embedding(self, x: Any) -> Float[np.ndarray, "n d"] | None:
        """The vectors of inputs, in which the learner compares them with the classes; None for a
        learner that adapts all of its weights."""
        inputs = self.read(x)
        if self._learner.embedding() is None or self.classes is None:
            return None
        return by_chunks(partial(_embedded, self._learner, self._support()), inputs)

    def reading(self) -> Float[np.ndarray, "prototypes vertices"] | None:
        """How much each prototype of the task reads each vertex of the meta-knowledge graph, rows
        with sum one; for class prototypes a row is a class. None for a learner without a graph."""
        reading = trace.reading if (trace := self.trace()) else None
        rows = len(self.classes) if self.classes is not None else None
        return None if reading is None else np.asarray(reading.links)[:rows]

    def trace(self) -> Trace | VertexTrace | None:
        """All steps of the encoding of the support set; None for a learner without a graph."""
        if self._learner.reading() is None:
            return None
        return _trace(self._learner, self._support())

    def add(self, x: Any, y: Any) -> "Predictor":
        """A predictor that has learned from these examples, too; they may be of new classes.

        Nothing is trained again: the learner adapts to all examples, as `adapt` does. This
        predictor stays as it is.

        **Raises** `ValueError` as `adapt`, and for labels that do not sort with those before.
        """
        more = self.learner.read(x, "support inputs")
        known = self.y if self.classes is None else self.classes[self.y]
        both = joined_labels(known[:, 0] if self.flat else known, y, len(more))
        weight = None
        if self.sample_weight is not None:
            weight = np.concatenate([self.sample_weight, np.ones(len(more))])
        groups = joined_groups(self.groups, len(more))
        added = self.learned(self.learner, joined_inputs(self.x, more), both, weight, groups)
        added.columns, added.target = self.columns, self.target
        added.model = self.model if self.model in added.models else LEARNER  # they may be too many
        return added

    def to_onnx(self, path: Path | str) -> None:
        """Write it as an ONNX file, which runs without JAX (extra `onnx`): see `arml.predict.onnx`.

        **Raises** `ValueError` if ONNX lacks an operation; `RunError` if it cannot write."""
        function = self._by(self.model, jnp)
        write_predictor(Path(path), function, self.problem, self.classes, self.learner.extractor)

    def save(self, folder: Path | str) -> None:
        """Write it as a folder: the learner's, and `support.safetensors`. **Raises** `RunError` if
        it cannot be written."""
        task = {
            "classes": None if self.classes is None else self.classes.tolist(),
            "flat": self.flat,
            "columns": self.columns,
            "target": self.target,
            "model": self.model,
            "weights": self.weights if self.model == ENSEMBLE else None,
        }
        support = {"x": self.x, "y": self.y}
        more = {"sample_weight": self.sample_weight, "groups": self.groups}
        support |= {name: array for name, array in more.items() if array is not None}
        write_learner(self.learner, folder, support=support, task=task)

    def __repr__(self) -> str:
        kinds = "" if self.classes is None else f"{len(self.classes)} classes, "
        return f"{type(self).__name__}({kinds}{len(self.x)} examples; {self.learner.about})"

    def _outputs(self, inputs: Any) -> Float[np.ndarray, "n outputs"]:
        _check_process()
        return np.asarray(self._function(inputs))

    # The models.

    @cached_property
    def weights(self) -> dict[str, float]:
        """The weight of each model in the ensemble, from examples that are left out."""
        if self.classes is None:
            some = self._choice.weights(np.arange(len(self.y)))
            return {name: some.get(name, 0.0) for name in self.models[:-1]}

        def refit(train: Places, test: Places) -> dict[str, np.ndarray]:
            return self._without(train)._each(self.x[test])

        names = self.models[:-1]
        checked, found = left_out(refit, folds(self.y, self._same, self.groups), len(self.y))
        own = [found[k][np.arange(len(checked)), self.y[checked]] for k in names if found]
        weights = class_weights(np.stack(own, axis=1) if own else np.zeros((0, len(names))))
        return dict(zip(names, weights.tolist(), strict=True))

    @cached_property
    def _choice(self) -> Choice:
        """How much each model of a regression counts."""
        given = folds(self.y, self._same, self.groups, classes=False, most=self.most)
        parts, y = [test for _, test in given], self.y[:, 0].astype(np.float64)

        def fit(kept: Places, model: str) -> Function:
            return self._without(kept)._by(model)

        return Choice(self.models[:-1], fit, self.x, y, parts)

    def _refit(self, train: Places, test: Places) -> dict[str, np.ndarray]:
        if ENSEMBLE in self.models and self.classes is None and self.sample_weight is None:
            found = {name: each[test] for name, each in self._choice.others(train).items()}
            return {**found, ENSEMBLE: mean_of(found, self._choice.weights(train), False)}
        part = self._without(train)
        found = part._each(self.x[test])
        if ENSEMBLE in self.models and self.sample_weight is None:
            weighted = [w * found[name] for name, w in part.weights.items() if w]
            found[ENSEMBLE] = np.sum(weighted, axis=0)
        return found

    def _without(self, kept: Places) -> "Predictor":
        """The predictor of the examples in these places alone: everything that was chosen by labels
        is chosen again."""
        more = [a if a is None else a[kept] for a in (self.sample_weight, self.groups)]
        given = self.x[kept], self.y[kept], self.classes, self.flat
        other = Predictor(self.learner, *given, *more)
        vars(other)["_same"] = self._same[kept]
        return other

    def _each(self, inputs: np.ndarray) -> dict[str, np.ndarray]:
        """The probabilities or the numbers of inputs, by each model but the ensemble."""
        found = {}
        for name in self.models:
            if name != ENSEMBLE and (self.sample_weight is None or name in WEIGHTED):
                outputs = self._by(name)(inputs).astype(np.float64)
                found[name] = outputs if self.classes is None else softmax(outputs)
        return found

    @cached_property
    def _function(self) -> Function:
        return self._by(self.model)

    def _by(self, model: str, xp: ModuleType = np) -> Function:
        """The function from inputs `[n, *features]` to log-odds or targets; with `jax.numpy` as
        `xp` it can be traced."""
        self._check_weights(model)
        if model == ENSEMBLE:
            weights = {name: w for name, w in self.weights.items() if w}
            parts = {name: self._by(name, xp) for name in weights}

            def mean(inputs: Any) -> Any:
                each = {name: part(inputs) for name, part in parts.items()}
                return mean_of(each, weights, self.classes is not None, xp)

            return mean
        if model == PROCESS:
            return process(self.x, self.y, xp)
        if model != LEARNER:
            function = fitted(model, self.x, self.y, xp, self.sample_weight)
            return function if xp is not np else partial(_in_parts, function)
        like = (_CHUNK if xp is np else QUERIES, *self.problem.features)
        shape = jax.ShapeDtypeStruct(like, jnp.float32)
        adapted = _adapted(self._learner, self._support(), shape)

        def outputs(inputs: Any) -> Any:
            if xp is not np:
                return self._cut(adapted(inputs))
            return self._cut(by_chunks(partial(called, adapted), inputs))

        return outputs

    def _check_weights(self, model: str) -> None:
        if self.sample_weight is not None and model not in WEIGHTED:
            raise ValueError(
                f"{WORDS[model]} cannot use sample weights: leave them out, or predict with the "
                f"model {' or '.join(WEIGHTED)}"
            )

    def _cut(self, outputs: Any) -> Any:
        """Log-odds of the classes from the outputs of the learner; numbers stay."""
        if self.classes is None:
            return outputs
        return outputs[:, : len(self.classes)] / self.learner.temperature

    def _support(self) -> Examples:
        y = self.y.astype(np.float32 if self.classes is None else np.int32)
        return Examples(*jax.device_put((floats(self.x), y)))  # `asarray` compiles by shape


def _check_range(learner: TrainedLearner, inputs: np.ndarray, targets: np.ndarray) -> None:
    """Raise `ValueError` for targets that are larger than any of the training, and warn of inputs
    outside of its range: descent from learned weights cannot reach them."""
    if learner.experiment is None:
        return
    tasks, said = learner.experiment.tasks, learner.experiment.recipe
    reach, (low, high) = getattr(tasks, "reach", None), getattr(tasks, "span", (-np.inf, np.inf))
    largest = float(np.abs(targets).max())
    if reach is not None and largest > reach:
        raise ValueError(
            f"expected targets of at most {reach:.3g} in size, as {said} was trained on, "
            f"got {largest:.6g}: divide them by a number, or use the learner tables-regression"
        )
    if not low <= np.min(inputs) <= np.max(inputs) <= high:
        warnings.warn(
            f"{said} was trained on inputs from {low:g} to {high:g}, got {np.min(inputs):.6g} to "
            f"{np.max(inputs):.6g}: predictions outside are guesses",
            stacklevel=4,
        )


_process: list[int] = []
"""The process in which JAX was first used for a prediction."""


def _check_process() -> None:
    """Raise `RuntimeError` in a process that was forked after JAX had started: its locks are held
    by threads that are not there, so that it would wait for ever."""
    if not _process:
        _process.append(os.getpid())
    if _process[0] != os.getpid():
        raise RuntimeError(
            "this process was forked after arml had started JAX, which cannot work in a fork: "
            'start processes by multiprocessing.get_context("spawn"), and load the predictor there'
        )


@short
def _adapted(learner: MetaLearner, support: Examples, like: jax.ShapeDtypeStruct) -> Any:
    """The prediction function. It is compiled once for all support sets of a size."""
    adapted = learner.adapt(support, key=jax.random.key(0))
    return eqx.filter_closure_convert(adapted.predict, like)


@short
def called(function: Callable[[Array], Array], x: Array) -> Array:
    """The outputs of a function that JAX has closed over its arrays."""
    return function(x)


@short
def _trace(learner: MetaLearner, support: Examples) -> Trace | VertexTrace:
    read = learner.reading()
    assert read is not None
    return read(support)


@short
def _embedded(learner: MetaLearner, support: Examples, x: Array) -> Array:
    embed = learner.embedding()
    assert embed is not None
    return embed(support.x)(x)


def _in_parts(function: Function, x: np.ndarray, size: int = 256) -> np.ndarray:
    """A function of arrays, of few inputs at once: edges and kernels need much memory."""
    return np.concatenate([function(x[i : i + size]) for i in range(0, max(len(x), 1), size)])


def by_chunks(
    function: Callable[[Array], Array], x: np.ndarray, size: int = _CHUNK
) -> Float[np.ndarray, "n width"]:
    """`[n, *features] -> [n, width]` by a function of `size` inputs.

    **Raises** `ValueError` for outputs that are not finite."""
    _check_process()
    outputs = []
    for first in range(0, max(len(x), 1), size):
        some = floats(x[first : first + size])
        full = np.zeros((size, *x.shape[1:]), np.float32)
        full[: len(some)], full[len(some) :] = some, some[:1] if len(some) else 0
        outputs.append(np.asarray(function(jax.device_put(full)))[: len(some)])
    predicted = np.concatenate(outputs)
    if not np.all(np.isfinite(predicted)):
        raise ValueError(
            "predictions are NaN or infinite: the examples are far from those that the learner was "
            "trained on; scale them to its range"
        )
    return predicted
