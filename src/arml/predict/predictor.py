"""A task that was learned from a few labelled examples: it predicts, and says how far to trust it.

A prediction depends on the support set and on its own input, not on the other queries: networks
that normalise by their batch take the statistics of the support set instead.

A task may have more classes than the learner was meta-trained on. Class prototypes are made for any
number of classes. A learner whose weights depend on their number (a head, labels that an encoder
reads) learns several tasks of as many classes as it knows, each class in `ROUNDS` of them or more;
the score of a class is its mean logit over these tasks.
"""

import dataclasses
import os
import warnings
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from arml.algorithms.arml import SoftClusters, Trace
from arml.algorithms.arml_extensions import VertexTrace
from arml.core.compilation import short
from arml.core.episodes import Examples, Problem
from arml.core.learner import MetaLearner
from arml.datasets.features import remade
from arml.experiment.recipes import initial
from arml.experiment.running import Portable
from arml.nn.networks import Body
from arml.predict.files import write_learner
from arml.predict.inputs import (
    checked_inputs,
    checked_labels,
    checked_targets,
    floats,
    joined_inputs,
    joined_labels,
    places_of,
)
from arml.predict.models import (
    ENSEMBLE,
    LEARNER,
    Function,
    check_model,
    class_weights,
    fitted,
    mixed,
    models_of,
    number_weights,
    softmax,
)
from arml.predict.onnx import QUERIES, write_predictor
from arml.predict.reliability import (
    Evaluation,
    NumberReliability,
    Places,
    Reliability,
    classification_reliability,
    copies_of,
    regression_reliability,
)
from arml.training.checkpoint import filled, named

CHUNK = 64
"""Queries predicted at once; fewer are filled up, so that one compiled program serves all."""
ROUNDS = 4
"""Tasks that each class is in, at least, where there are more classes than the learner knows."""
WORSE = 4
"""An adaptation that diverges passes this at once; one that has learned little does not."""
NEAR = 0.05
"""Pictures are copies if their distance is below this share of the median distance."""
P = TypeVar("P", bound="Predictor")


class NotFinite(ValueError):
    """A prediction is not finite."""


class Predictor:
    """A learned task. `classes` are its labels in order; None for regression.

        predictor = learner.adapt([[0, 1], [1, 1], [2, 1], [3, 1], [4, 1]], [0, 1, 2, 3, 4])
        predictor.predict([[1.5, 1]])

    Its methods raise `ValueError` in one line for inputs of another shape.
    """

    def __init__(
        self,
        portable: Portable,
        x: np.ndarray,
        y: np.ndarray,
        classes: np.ndarray | None,
        flat: bool,
    ) -> None:
        self.portable, self.x, self.y, self.classes, self._flat = portable, x, y, classes, flat
        self.model = LEARNER
        """The model that predicts: see `using`."""
        # Of a table: the names of the inputs, and of the column that it predicts.
        self.columns: tuple[str, ...] | None = None
        self.target: str | None = None

    @property
    def problem(self) -> Problem:
        """The kind of tasks that the learner was built for."""
        return self.portable.problem

    @property
    def models(self) -> tuple[str, ...]:
        """The models that can predict: see `using`."""
        return models_of(self.problem)

    def using(self: P, model: str) -> P:
        """The same, predicting with another model: the `learner`, `logistic` regression on the
        inputs or on the `edges` of pictures, a Gaussian `process` for numbers, or the `ensemble` of
        all, with weights from examples that are left out. **Raises** `ValueError` for another."""
        check_model(model, self.problem)
        other = object.__new__(type(self))  # a copy by `copy` would be saved and loaded
        kept = {k: v for k, v in vars(self).items() if k not in {"_function", "_reliability"}}
        vars(other).update(kept, model=model)
        return other

    def predict(self, x: object, none: str | None = None) -> np.ndarray:
        """The label of each input `[n]`, or its targets: `[n, targets]`, `[n]` if `y` was so.

        **Arguments**

        - `none`: the label of queries that may belong to none of the classes, because the
          probability of their class is below that of 95% of the examples when these are left out.

        **Raises** `ValueError` for inputs of another shape, or that are not finite."""
        if self.classes is None:
            outputs = self._outputs(x)
            return outputs[:, 0] if self._flat else outputs
        chances = self.predict_proba(x)
        labels = self.classes[chances.argmax(axis=1)]
        if none is None:
            return labels
        return np.where(chances.max(axis=1) < self.threshold(), none, labels.astype(object))

    def predict_proba(self, x: object) -> Float[np.ndarray, "n classes"]:
        """The probability of each class, columns in the order of `classes`. **Raises** `ValueError`
        as `predict`, and for regression."""
        if self.classes is None:
            raise ValueError("a regression has no probabilities: use predict")
        return softmax(self._outputs(x).astype(np.float64))

    def evaluate(self, x: object, y: object) -> Evaluation:
        """How inputs are predicted whose labels `y` are known: the accuracy of each class, the
        confusion matrix, the worst mistakes. **Raises** `ValueError` as `predict_proba`, and for a
        label that is not among `classes`."""
        chances = self.predict_proba(x)
        assert self.classes is not None
        return Evaluation(self.classes, places_of(y, self.classes), chances)

    def reliability(self) -> Reliability | NumberReliability:
        """How far it can be trusted: its accuracy or error on examples that are left out, of all
        models, and which examples look mislabelled. Each fold learns anew, and nothing that reads
        labels is kept from one fold to the next. Found once."""
        return self._reliability

    def threshold(self, level: float = 0.95) -> float:
        """The probability that the predicted class of `level` of the examples has when these are
        left out. A query whose class has less may belong to none of the classes. **Raises**
        `ValueError` for regression."""
        if self.classes is None:
            raise ValueError("a regression has no probabilities, and so no threshold of them")
        return self._reliability.threshold(level)

    def interval(self, x: object, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """The ends of an interval around each prediction, for regression: about `level` of new
        targets lie within, if they are drawn as the examples were. **Raises** `ValueError` as
        `predict`, for classes, and for too few examples: 0.9 needs nine."""
        if self.classes is not None:
            raise ValueError("classes have no interval: use predict_proba")
        outputs = self._outputs(x)
        half = self._reliability.half_width(level)
        low, high = outputs - half, outputs + half
        return (low[:, 0], high[:, 0]) if self._flat else (low, high)

    def novelty(self, x: object) -> Float[np.ndarray, " n"]:
        """How far each input `[n]` is from all that its learner was trained on: above 1, farther
        than 95% of inputs of known kinds. **Raises** `ValueError` as `predict`, and for a learner
        with which novelty was not shown to tell new kinds from known ones."""
        if self.portable.novelty is None:
            raise ValueError("this learner has no measure of novelty: nothing shows what is new")
        return self.portable.novelty(checked_inputs(x, self.problem, "queries"))

    def embedding(self, x: object) -> Float[np.ndarray, "n d"] | None:
        """The vectors of inputs, in which the learner compares them with the classes; None for a
        learner that adapts all of its weights."""
        inputs, support = checked_inputs(x, self.problem, "queries"), self._support()
        if self.portable.learner.embedding() is None or self.classes is None:
            return None
        return by_chunks(lambda some: _embedded(self.portable.learner, support, some), inputs)

    def reading(self) -> Float[np.ndarray, "prototypes vertices"] | None:
        """How much each prototype of the task reads each vertex of the meta-knowledge graph, rows
        with sum one; for class prototypes a row is a class. None for a learner without a graph."""
        reading = trace.reading if (trace := self.trace()) else None
        rows = len(self.classes) if self.classes is not None else None
        return None if reading is None else np.asarray(reading.links)[:rows]

    def trace(self) -> Trace | VertexTrace | None:
        """All steps of the encoding of the support set; None for a learner without a graph."""
        learner = self._learner
        if learner is None or learner.reading() is None:
            return None
        return _trace(learner, self._support())

    def add(self, x: object, y: object) -> "Predictor":
        """A predictor that has learned from these examples, too; they may be of new classes.

        Nothing is trained again: the learner adapts to all examples, as `adapt` does. This
        predictor stays as it is.

        **Raises** `ValueError` as `adapt`, and for labels that do not sort with those before.
        """
        more = checked_inputs(x, self.problem, "support inputs")
        known = self.y if self.classes is None else self.classes[self.y]
        both = joined_labels(known[:, 0] if self._flat else known, y, len(more))
        added = learned(self.portable, joined_inputs(self.x, more), both)
        added.columns, added.target, added.model = self.columns, self.target, self.model
        return added

    def to_onnx(self, path: Path | str, model: Path | str | None = None) -> None:
        """Write it as an ONNX file, which runs without JAX (extra `onnx`): see `arml.predict.onnx`.
        A learner on features needs its frozen `model`, unless it is the one that ships.

        **Raises** `ValueError` if ONNX lacks an operation; `RunError` if it cannot write."""
        extractor = None if self.portable.inputs is None else remade(self.portable.inputs, model)
        write_predictor(
            Path(path), self._by(self.model, jnp), self.problem, self.classes, extractor
        )

    def save(self, folder: Path | str) -> None:
        """Write it as a folder: the learner's, and `support.safetensors`. **Raises** `RunError` if
        it cannot be written."""
        task = {
            "classes": None if self.classes is None else self.classes.tolist(),
            "flat": self._flat,
            "columns": self.columns,
            "target": self.target,
            "model": self.model,
            "weights": self.weights if self.model == ENSEMBLE else None,
        }
        write_learner(self.portable, folder, support={"x": self.x, "y": self.y}, task=task)

    def __repr__(self) -> str:
        kinds = "" if self.classes is None else f"{len(self.classes)} classes, "
        examples = f"{kinds}{len(self.x)} examples"
        return f"{type(self).__name__}({examples}; {self.portable.about})"

    # The models.

    @cached_property
    def weights(self) -> dict[str, float]:
        """The weight of each model in the ensemble, from examples that are left out."""
        names = models_of(self.problem)[:-1] or (LEARNER,)
        if len(names) == 1:
            return {LEARNER: 1.0}

        def refit(train: Places, test: Places) -> dict[str, np.ndarray]:
            return self._refitted(train)._each(self.x[test])

        if self.classes is None:
            found = regression_reliability(refit, self.y, self._groups, folds=5)
            each = {found.model: found, **found.others}
            squared = [each[k].relative ** 2 if k in each else np.nan for k in names]
            weights = number_weights(np.array(squared))
        else:
            checked = classification_reliability(
                refit, self.y, self.classes, self._groups, repeats=1
            )
            every = {LEARNER: checked, **checked.others}
            n = np.arange(len(checked.labels))
            own = [every[k].probabilities[n, checked.labels] for k in names if k in every]
            weights = class_weights(np.stack(own, axis=1) if len(n) else np.zeros((0, len(names))))
        return dict(zip(names, weights.tolist(), strict=True))

    @cached_property
    def _reliability(self) -> Any:
        def refit(train: Places, test: Places) -> dict[str, np.ndarray]:
            part = self._refitted(train)
            found = part._each(self.x[test])
            if len(found) > 1:
                weighted = [w * found[name] for name, w in part.weights.items() if w]
                found[ENSEMBLE] = np.sum(weighted, axis=0)
            return found

        if self.classes is None:
            return regression_reliability(refit, self.y, self._groups, model=self.model)
        return classification_reliability(
            refit, self.y, self.classes, self._groups, model=self.model
        )

    @cached_property
    def _groups(self) -> Int[np.ndarray, " n"]:
        """Copies among the examples have one group."""
        return copies_of(self.x, self.y, NEAR if self.x.ndim == 4 else 0.0)

    def _refitted(self, kept: Places) -> "Predictor":
        """The predictor of the examples in these places alone, by the learner: everything that was
        chosen by labels is chosen again."""
        other = Predictor(self.portable, self.x[kept], self.y[kept], self.classes, self._flat)
        vars(other)["_groups"] = self._groups[kept]
        return other

    def _each(self, inputs: np.ndarray) -> dict[str, np.ndarray]:
        """The probabilities or the numbers of inputs, by each model but the ensemble. A number that
        could not be found is infinite."""
        found: dict[str, np.ndarray] = {}
        for name in models_of(self.problem):
            if name == ENSEMBLE:
                continue
            try:
                outputs = self._adapted_once(inputs) if name == LEARNER else self._by(name)(inputs)
                exact = outputs.astype(np.float64)
                found[name] = exact if self.classes is None else softmax(exact)
            except NotFinite:
                if self.classes is not None:
                    raise
                found[name] = np.full((len(inputs), self.y.shape[1]), np.inf)
        return found

    def _adapted_once(self, inputs: np.ndarray) -> np.ndarray:
        """The learner's outputs by a program that adapts and predicts: it is compiled once for all
        support sets of a size."""
        if self._learner is None:
            return self._by(LEARNER)(inputs)
        learner, support = self._learner, self._support()
        return self._cut(by_chunks(lambda some: _answers(learner, support, some), inputs))

    def _cut(self, outputs: Any) -> Any:
        """Log-odds of the classes from the outputs of the learner; numbers stay."""
        if self.classes is None:
            return outputs
        return outputs[:, : len(self.classes)] / self.portable.temperature

    def _outputs(self, x: object) -> Float[np.ndarray, "n outputs"]:
        """The log-odds `[n, classes]` or the targets `[n, targets]` of inputs, by its model."""
        _check_process()
        return self._function(checked_inputs(x, self.problem, "queries"))

    @cached_property
    def _function(self) -> Function:
        function = self._by(self.model)
        if self.classes is None and self.model == LEARNER:
            _check_fit(function(self.x), self.y)
        return function

    def _by(self, model: str, xp: ModuleType = np) -> Function:
        """The function from inputs `[n, *features]` to log-odds or targets; with `jax.numpy` as
        `xp` it can be traced."""
        if model == LEARNER:
            function = self._adapted(0 if xp is np else QUERIES)
            if xp is np:
                return lambda inputs: self._cut(by_chunks(function, inputs))
            return lambda inputs: self._cut(function(inputs))
        if model == ENSEMBLE:
            parts = {name: self._by(name, xp) for name, w in self.weights.items() if w}
            return mixed(parts, self.weights, self.classes is not None, xp)
        function = fitted(model, self.x, self.y, xp)
        return function if xp is not np else lambda inputs: _in_parts(function, inputs)

    def _support(self) -> Examples:
        y = self.y.astype(np.float32 if self.classes is None else np.int32)
        return Examples(*jax.device_put((floats(self.x), y)))  # `asarray` compiles by shape

    @property
    def _ways(self) -> int:
        return max(self.problem.outputs, 0 if self.classes is None else len(self.classes))

    @cached_property
    def _learner(self) -> MetaLearner | None:
        return for_classes(self.portable, self._ways)

    def _adapted(self, n: int) -> Callable[[Array], Array]:
        support, features = self._support(), self.problem.features
        if self._learner is not None:
            return adapted_function(self._learner, support, features, n)
        return grouped_function(self.portable.learner, support, self.problem, self._ways, n)


def learned(portable: Portable, x: object, y: object) -> Predictor:
    """The task of a support set, learned. **Raises** `ValueError` for other examples."""
    inputs = checked_inputs(x, portable.problem, "support inputs")
    if not len(inputs):
        raise ValueError("no examples: give some")
    if portable.problem.kind == "regression":
        targets, flat = checked_targets(y, portable.problem, len(inputs))
        return Predictor(portable, inputs, targets, None, flat)
    classes, places = checked_labels(y, len(inputs))
    return Predictor(portable, inputs, places, classes, False)


def inductive(learner: MetaLearner, support: int | None = None) -> MetaLearner:
    """The same learner as it is used outside of training: normalisation takes the statistics of the
    support set alone, and nothing grows with more examples than the `support` of training."""

    def change(node: PyTree) -> PyTree:
        if isinstance(node, Body):
            return dataclasses.replace(node, normalisation="support")
        return dataclasses.replace(node, most=support) if isinstance(node, SoftClusters) else node

    return jax.tree.map(change, learner, is_leaf=lambda node: isinstance(node, Body | SoftClusters))


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


def _check_fit(predicted: np.ndarray, y: np.ndarray) -> None:
    """Warn of a regression whose error on its own examples is `WORSE` times that of zero."""
    error, size = float(np.mean(np.square(predicted - y))), float(np.mean(np.square(y)))
    if error > WORSE * size:
        warnings.warn(
            f"the learner does not fit the {len(y)} examples: their mean squared error is "
            f"{error:.3g}, where zero as the answer makes {size:.3g}; do not trust its "
            "predictions. Scale inputs and targets to the range of its training",
            stacklevel=2,
        )


@short
def _closure(learner: MetaLearner, support: Examples, like: jax.ShapeDtypeStruct) -> Any:
    adapted = learner.adapt(support, key=jax.random.key(0))
    return eqx.filter_closure_convert(adapted.predict, like)


@short
def _answers(learner: MetaLearner, support: Examples, x: Array) -> Array:
    return learner.adapt(support, key=jax.random.key(0)).predict(x)


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


def adapted_function(
    learner: MetaLearner, support: Examples, features: tuple[int, ...], n: int = 0
) -> Callable[[Array], Array]:
    """The prediction function: adapted once. It is compiled for `CHUNK` inputs; with `n`, it is for
    `n` inputs and not compiled, so that it can be traced."""
    closure = _closure(learner, support, jax.ShapeDtypeStruct((n or CHUNK, *features), jnp.float32))
    return closure if n else short(closure)


def _in_parts(function: Function, x: np.ndarray, size: int = 256) -> np.ndarray:
    """A function of arrays, of few inputs at once: edges and kernels need much memory."""
    parts = [function(x[i : i + size]) for i in range(0, max(len(x), 1), size)]
    return np.concatenate(parts)


def by_chunks(function: Callable[[Array], Array], x: np.ndarray) -> Float[np.ndarray, "n width"]:
    """`[n, *features] -> [n, width]` by a function of `CHUNK` inputs. **Raises** `NotFinite`."""
    _check_process()
    outputs = []
    for first in range(0, max(len(x), 1), CHUNK):
        some = floats(x[first : first + CHUNK])
        full = np.zeros((CHUNK, *x.shape[1:]), np.float32)
        full[: len(some)], full[len(some) :] = some, some[:1] if len(some) else 0
        outputs.append(np.asarray(function(jax.device_put(full)))[: len(some)])
    predicted = np.concatenate(outputs)
    if not np.all(np.isfinite(predicted)):
        raise NotFinite(
            "predictions are NaN or infinite: the examples are far from those that the learner was "
            "trained on; scale them to its range"
        )
    return predicted


# More classes than in meta-training.


def for_classes(portable: Portable, ways: int) -> MetaLearner | None:
    """The learner for tasks of `ways` classes or fewer; None if weights depend on their number."""
    if ways <= portable.problem.outputs:
        return portable.learner
    problem = dataclasses.replace(portable.problem, outputs=ways)
    try:
        blank = eqx.filter_eval_shape(initial, portable.experiment, problem)
    except ValueError:  # a method may refuse so many classes
        return None
    trained, wanted = named(portable.learner), named(blank)
    if {k: v.shape for k, v in trained.items()} != {k: v.shape for k, v in wanted.items()}:
        return None
    return inductive(filled(blank, trained), portable.problem.support)


def groups_of(classes: int, ways: int) -> Int[np.ndarray, "groups ways"]:
    """Groups of `ways` different classes of `classes`, each class in `ROUNDS` of them or more.

    A round deals all classes out in random order; its last group is filled with others.
    """
    rng = np.random.default_rng(0)
    dealt = []
    for _ in range(ROUNDS):
        order = rng.permutation(classes)
        rest = len(order) % ways
        if rest:
            order = np.concatenate([order, rng.permutation(order[:-rest])[: ways - rest]])
        dealt.append(order.reshape(-1, ways))
    return np.concatenate(dealt)


def grouped_function(
    learner: MetaLearner, support: Examples, problem: Problem, classes: int, n: int = 0
) -> Callable[[Array], Float[Array, "n classes"]]:
    """The prediction function that combines W-way tasks; `n` as in `adapted_function`."""
    ways = problem.outputs
    dealt = groups_of(classes, ways)
    x, y = np.asarray(support.x), np.asarray(support.y)
    functions = []
    for group in dealt:
        own = np.concatenate([np.flatnonzero(y == k) for k in group])
        places = np.repeat(np.arange(ways), [np.sum(y == k) for k in group])
        part = Examples(jnp.asarray(x[own]), jnp.asarray(places, jnp.int32))
        functions.append(adapted_function(learner, part, problem.features, n))
    # Row g places the outputs of group g among all classes.
    place = np.stack([np.eye(classes, dtype=np.float32)[group] for group in dealt])
    share = jnp.asarray(place / place.sum(axis=(0, 1)))

    def scores(query: Array) -> Array:
        logits = jnp.stack([function(query) for function in functions])
        centred = logits - jnp.mean(logits, axis=-1, keepdims=True)
        return jnp.einsum("gnw,gwc->nc", centred, share)

    return scores
