"""A task that was learned from a few labelled examples: it predicts, and says how far to trust it.

A prediction depends on the support set and on its own input, not on the other queries: networks
that normalise by their batch take the statistics of the support set instead.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from arml.algorithms.arml import Trace
from arml.algorithms.arml_extensions import VertexTrace
from arml.core.episodes import Examples
from arml.datasets.extractor import remade
from arml.experiment.loaded import Portable
from arml.predict.classes import for_classes, grouped_function
from arml.predict.errors import intervals, rank_of
from arml.predict.holder import Holder
from arml.predict.inference import adapted_function, by_chunks, check_fit, traced
from arml.predict.inputs import (
    checked_inputs,
    checked_labels,
    checked_targets,
    floats,
    joined_inputs,
    joined_labels,
)
from arml.predict.marks import Marks, places_of
from arml.predict.means import Means
from arml.predict.notebook import as_html
from arml.predict.novelty import query_novelty, support_novelty
from arml.predict.onnx.write import QUERIES, write_predictor
from arml.predict.sharing import write_learner
from arml.predict.simple import TOGETHER, choices, softmax


class Predictor(Holder, Means):
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
        self._ways = max(portable.problem.outputs, 0 if classes is None else len(classes))
        self._learner = for_classes(portable, self._ways)
        self._adaptation: Callable[[Array], Array] | None = None
        self._checked, self._parts = False, []
        # Of a table: the names of the inputs, and of the column that it predicts.
        self.columns: tuple[str, ...] | None = None
        self.target: str | None = None

    def _seen(self) -> str:
        kinds = "" if self.classes is None else f"{len(self.classes)} classes, "
        return f"{kinds}{len(self.x)} examples; "

    def _support(self) -> Examples:
        y = self.y.astype(np.float32 if self.classes is None else np.int32)
        return Examples(*jax.device_put((floats(self.x), y)))  # `asarray` compiles by shape

    def _outputs(self, x: object) -> Float[np.ndarray, "n outputs"]:
        inputs = checked_inputs(x, self.problem, "queries")
        if self.uses != "learner":
            return self._answers(inputs)
        if self.classes is None and not self._checked:
            check_fit(self._learned(self.x), self.y)
            self._checked = True
        return self._learned(inputs)

    def _learned(self, inputs: np.ndarray) -> Float[np.ndarray, "n outputs"]:
        if self._adaptation is None:
            self._adaptation = self._adapted()
        return by_chunks(self._adaptation, inputs, self._ways)

    def _by_learner(self, xp: ModuleType) -> Callable[[Any], Any]:
        function = self._learned if xp is np else self._adapted(QUERIES)
        if self.classes is None:
            return function
        n = len(self.classes)
        return lambda inputs: function(inputs)[:, :n] / self.portable.temperature

    def _adapted(self, n: int = 0) -> Callable[[Array], Array]:
        problem, support = self.problem, self._support()
        if self._learner is not None:
            return adapted_function(self._learner, support, problem.features, n)
        return grouped_function(self.portable.learner, support, problem, self._ways, n)

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
        added.columns, added.target, added.uses = self.columns, self.target, self.uses
        return added

    def predict(self, x: object) -> np.ndarray:
        """The label of each input `[n]`, or its targets: `[n, targets]`, `[n]` if `y` was so.
        **Raises** `ValueError` for inputs of another shape, or that are not finite."""
        outputs = self._outputs(x)
        if self.classes is None:
            return outputs[:, 0] if self._flat else outputs
        return self.classes[np.argmax(outputs[:, : len(self.classes)], axis=1)]

    def predict_proba(self, x: object) -> Float[np.ndarray, "n classes"]:
        """The probability of each class, columns in the order of `classes`. **Raises** `ValueError`
        as `predict`, and for regression."""
        if self.classes is None:
            raise ValueError("expected a classification task for probabilities: use predict")
        logits = self._outputs(x)[:, : len(self.classes)].astype(np.float64)
        return softmax(logits / (self.portable.temperature if self.uses == "learner" else 1))

    def evaluate(self, x: object, y: object) -> Marks:
        """How inputs are predicted whose labels `y` are known: the accuracy of each class, the
        confusion matrix, the worst mistakes. **Raises** `ValueError` as `predict_proba`, and for a
        label that is not among `classes`."""
        chances = self.predict_proba(x)
        assert self.classes is not None
        return Marks(self.classes, places_of(y, self.classes), chances)

    def interval(self, x: object, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """The ends of an interval around each prediction, for regression: about `level` of new
        targets lie within, if they are drawn as the examples were (jackknife+). **Raises**
        `ValueError` as `predict`, for classes, and for too few examples: 0.9 needs nine."""
        if self.classes is not None:
            raise ValueError("expected a regression task, got classes: use predict_proba")
        inputs = checked_inputs(x, self.problem, "queries")
        rank_of(level, len(self.x))
        means = choices(self.problem) if self.uses == TOGETHER else (self.uses,)
        low, high = intervals(self._errors(means), self._parts, inputs, level)
        return (low[:, 0], high[:, 0]) if self._flat else (low, high)

    def _without(self, kept: np.ndarray) -> "Predictor":
        return Predictor(self.portable, self.x[kept], self.y[kept], self.classes, self._flat)

    def novelty(self, x: object) -> Float[np.ndarray, " n"]:
        """How far each input `[n]` is from the training data: above 1, farther than 95% of the
        queries of validation tasks, it looks like none of the families that the learner knows.

        **Raises** `ValueError` as `predict`; for regression, where an input says nothing without
        its target; and for a learner with which novelty has not been measured, or cannot be.
        """
        return query_novelty(self.portable, self._support(), x)

    def support_novelty(self) -> float:
        """The novelty of the support set: the mean over its examples; in regression, of its code.
        **Raises** `ValueError` for a learner whose novelty has not been measured, or cannot be."""
        return support_novelty(self.portable, self._support(), self.x)

    def reading(self) -> Float[np.ndarray, "prototypes vertices"] | None:
        """How much each prototype of the task reads each vertex of the meta-knowledge graph, rows
        with sum one; for class prototypes a row is a class. None for a learner without a graph."""
        reading = trace.reading if (trace := self.trace()) else None
        rows = len(self.classes) if self.classes is not None else None
        return None if reading is None else np.asarray(reading.links)[:rows]

    def trace(self) -> Trace | VertexTrace | None:
        """All steps of the encoding of the support set; None for a learner without a graph."""
        return traced(self._learner, self._support())

    def _repr_html_(self) -> str:
        return as_html(repr(self), self.x, self.y, self.classes)

    def to_onnx(self, path: Path | str, model: Path | str | None = None) -> None:
        """Write it as an ONNX file, which runs without JAX (extra `onnx`): see `onnx.write`. A
        learner on features needs its frozen `model`, unless it is the one that ships.

        **Raises** `ValueError` if ONNX lacks an operation; `RunError` if it cannot write."""
        eye = None if self.portable.inputs is None else remade(self.portable.inputs, model)
        portable = self.portable
        if self.uses == "learner":
            function = self._adapted(QUERIES)
        else:  # log-odds have a temperature already
            function = self._by(self.uses, jnp)
            portable = dataclasses.replace(portable, temperature=1.0)
        given = portable, self._support(), self.classes, self._ways, eye
        write_predictor(Path(path), function, *given)

    def save(self, folder: Path | str) -> None:
        """Write it as a folder: the learner's, and `support.safetensors`. **Raises** `RunError` if
        it cannot be written."""
        classes = None if self.classes is None else self.classes.tolist()
        task = {"classes": classes, "flat": self._flat}
        support, means = self._saved()
        task |= {"columns": self.columns, "target": self.target, **means}
        write_learner(self.portable, folder, support=support, task=task)


def learned(portable: Portable, x: object, y: object) -> Predictor:
    """The task of a support set, learned. **Raises** `ValueError` for other examples."""
    inputs = checked_inputs(x, portable.problem, "support inputs")
    if not len(inputs):
        raise ValueError("expected one or more support inputs, got none: give some examples")
    if portable.problem.kind == "regression":
        targets, flat = checked_targets(y, portable.problem, len(inputs))
        return Predictor(portable, inputs, targets, None, flat)
    classes, places = checked_labels(y, len(inputs))
    return Predictor(portable, inputs, places, classes, False)
