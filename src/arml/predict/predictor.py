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

from arml.core.compilation import short
from arml.core.episodes import Examples
from arml.core.learner import MetaLearner
from arml.predict.base import LEARNER, ArrayPredictor, softmax
from arml.predict.folds import Places
from arml.predict.inputs import checked_labels, checked_targets, floats, weighted
from arml.predict.models import (
    ENSEMBLE,
    PROCESS,
    WEIGHTED,
    Choice,
    Function,
    fitted,
    mean_of,
    models_of,
    process,
)
from arml.predict.onnx import QUERIES
from arml.predict.reliability import WORDS
from arml.predict.trained import LearnedTask, TrainedLearner, write_learner

_CHUNK = 64
"""Queries that the learner predicts at once."""
P = TypeVar("P", bound="TrainedPredictor")


class TrainedPredictor(ArrayPredictor):
    """A learned task. `classes` are its labels in order; None for regression.

        predictor = learner.adapt([[0, 1], [1, 1], [2, 1], [3, 1], [4, 1]], [0, 1, 2, 3, 4])
        predictor.predict([[1.5, 1]])

    Its methods raise `ValueError` in one line for inputs of another shape.
    """

    learner: TrainedLearner

    @property
    def models(self) -> tuple[str, ...]:  # type: ignore[override]
        """The models that can predict."""
        return models_of(self.problem, len(self.x))

    @classmethod
    def learned(
        cls: type[P],
        learner: TrainedLearner,
        x: object,
        y: object,
        sample_weight: object = None,
        groups: object = None,
        **options: object,
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
            return cls(learner, inputs, targets.astype(np.float32), None, *more, flat=flat)
        classes, places = checked_labels(y, len(inputs))
        learner.of_classes(len(classes))  # may refuse so many
        return cls(learner, inputs, places, classes, *more)

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

    def can(self, what: str) -> bool:
        return super().can(what) and what != "novelty"

    def interval(self, x: object, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        self.need("interval")
        outputs, found = self._outputs(self.read(x)), self.reliability()
        half = found.half_width(level)  # type: ignore[union-attr]
        low, high = outputs - half, outputs + half
        return (low[:, 0], high[:, 0]) if self.flat else (low, high)

    def embedding(self, x: object) -> Float[np.ndarray, "n d"] | None:
        inputs = self.read(x)
        if self._learner.embedding() is None or self.classes is None:
            return None
        return by_chunks(partial(_embedded, self._learner, self._support()), inputs, _CHUNK)

    def reading(self) -> Float[np.ndarray, "prototypes vertices"] | None:
        links = _links(self._learner, self._support())
        if links is None:
            return None
        return np.asarray(links)[: None if self.classes is None else len(self.classes)]

    def _traced(self) -> Function:
        return self._by(self.model, jnp)

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
        write_learner(self.learner, folder, support=self.support, task=task)

    def __repr__(self) -> str:
        kinds = "" if self.classes is None else f"{len(self.classes)} classes, "
        return f"{type(self).__name__}({kinds}{len(self.x)} examples; {self.learner.about})"

    def _outputs(self, inputs: Any) -> Float[np.ndarray, "n outputs"]:
        _check_process()
        return np.asarray(self._function(inputs))

    # The models.

    @cached_property
    def choice(self) -> Choice:
        """All models but the ensemble, and how much each counts."""
        every, y = self.sample_weight is None, self.y
        models = [k for k in self.models if k != ENSEMBLE and (every or k in WEIGHTED)]
        y = y if self.classes is not None else y[:, 0].astype(np.float64)
        return Choice(models, self._fit, self.x, y, [test for _, test in self._parts])

    @cached_property
    def weights(self) -> dict[str, float]:
        """The weight of each model in the ensemble, from examples that are left out."""
        some = self.choice.weights(np.arange(len(self.y)))
        return {name: some.get(name, 0.0) for name in self.models[:-1]}

    def _refit(self, train: Places, test: Places) -> dict[str, np.ndarray]:
        found = {name: outputs[test] for name, outputs in self.choice.others(train).items()}
        if ENSEMBLE in self.models and self.sample_weight is None:
            found[ENSEMBLE] = self.choice.mean(train)[test]
        return found if self.classes is None else {k: softmax(odds) for k, odds in found.items()}

    def _fit(self, kept: Places, model: str) -> Function:
        """The function that a model learns from some of the examples."""
        more = [a if a is None else a[kept] for a in (self.sample_weight, self.groups)]
        given = self.x[kept], self.y[kept], self.classes, *more
        return TrainedPredictor(self.learner, *given, flat=self.flat)._by(model)

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
            assert self.classes is not None
            ways = len(self.classes)
            function = fitted(model, self.x, self.y, ways, xp, self.sample_weight)
            if xp is not np:
                return function
            return partial(by_chunks, function, size=256, fill=False)  # edges need much memory
        like = (_CHUNK if xp is np else QUERIES, *self.problem.features)
        shape = jax.ShapeDtypeStruct(like, jnp.float32)
        function = adapted = _adapted(self._learner, self._support(), shape)
        if xp is np:
            function = partial(by_chunks, partial(called, adapted), size=_CHUNK)
        if self.classes is None:
            return function
        ways = len(self.classes)
        return lambda inputs: function(inputs)[:, :ways] / self.learner.temperature

    def _check_weights(self, model: str) -> None:
        if self.sample_weight is not None and model not in WEIGHTED:
            raise ValueError(
                f"{WORDS[model]} cannot use sample weights: leave them out, or predict with the "
                f"model {' or '.join(WEIGHTED)}"
            )

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
    """`function(x)`, compiled."""
    return function(x)


@short
def _links(learner: MetaLearner, support: Examples) -> Array | None:
    read = learner.reading()
    reading = None if read is None else read(support).reading
    return None if reading is None else reading.links


@short
def _embedded(learner: MetaLearner, support: Examples, x: Array) -> Array:
    embed = learner.embedding()
    assert embed is not None
    return embed(support.x)(x)


def by_chunks(
    function: Callable[[Any], Any], x: np.ndarray, size: int, fill: bool = True
) -> Float[np.ndarray, "n width"]:
    """`[n, *features] -> [n, width]` by a function of `size` inputs; fewer are filled up, so that
    one compiled program serves all, unless `fill` is false.

    **Raises** `ValueError` for outputs that are not finite."""
    _check_process()
    outputs = []
    for first in range(0, max(len(x), 1), size):
        some = floats(x[first : first + size])
        more = size - len(some) if fill else 0
        full = np.pad(some, [(0, more)] + [(0, 0)] * (x.ndim - 1))
        outputs.append(np.asarray(function(full))[: len(some)])
    predicted = np.concatenate(outputs)
    if not np.all(np.isfinite(predicted)):
        raise ValueError(
            "predictions are NaN or infinite: the examples are far from those that the learner was "
            "trained on; scale them to its range"
        )
    return predicted
