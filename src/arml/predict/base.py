"""The interface of every predictor: a task that was learned from a few labelled examples.

It loads no JAX, which photographs do not need.
"""

from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from arml.predict.files import packed, unpacked
from arml.predict.folds import FOLDS, NEAR, equal_inputs
from arml.predict.inputs import checked_groups, places_of
from arml.predict.reliability import (
    Evaluation,
    NumberReliability,
    Reliability,
    classification_reliability,
    regression_reliability,
)

LEARNER = "learner"


class PredictorBase:
    """A learned task; another class says how inputs are read and predicted."""

    portable: Any
    """The learner with its facts: a `Portable`, or `Frozen` of photographs."""
    classes: np.ndarray | None
    """Its labels in order; None for regression."""
    x: np.ndarray
    """The inputs of the examples `[n, *features]`."""
    y: np.ndarray
    """The places of their labels among `classes` `[n]`, or their targets `[n, targets]`."""
    sample_weight: Float[np.ndarray, " n"] | None = None
    """How much each example counts; None if all count alike."""
    groups: Int[np.ndarray, " n"] | None = None
    """Examples that belong together have the same number; None if none do."""
    model = LEARNER
    """The model that predicts."""
    models: tuple[str, ...] = (LEARNER,)
    """The models that can predict."""
    columns: tuple[str, ...] | None = None
    """Of a table: the names of the inputs."""
    target: str | None = None
    """Of a table: the name of the column that it predicts."""
    pictures = False
    """Whether inputs are pictures or their vectors, whose near copies are equal."""
    frozen: Path | None = None
    """The file of a frozen network that is not kept with it."""
    most = FOLDS
    """Folds of its check at most."""
    flat = False
    """Whether one target came without an axis of its own."""

    @property
    def problem(self) -> Any:
        """The `Problem` that the learner was built for."""
        return self.portable.problem

    def read(self, x: Any) -> Any:
        """The inputs as every method takes them, too, checked and converted."""
        raise NotImplementedError

    def _outputs(self, inputs: Any) -> Float[np.ndarray, "n outputs"]:
        """The log-odds `[n, classes]` or the targets `[n, targets]` of inputs that were read."""
        raise NotImplementedError

    def _refit(
        self, train: Int[np.ndarray, " _"], test: Int[np.ndarray, " _"]
    ) -> dict[str, np.ndarray]:
        """Learn from some of the examples alone, and predict others: the probabilities, or the
        targets, by each model."""
        raise NotImplementedError

    def save(self, folder: Path | str) -> None:
        """Write it as a folder, which `arml.load_predictor` opens. **Raises** `RunError` if it
        cannot be written."""
        raise NotImplementedError

    def __reduce__(self) -> tuple[object, ...]:
        # By name, because the loader knows every kind of predictor.
        load = import_module("arml.predict.learner").load_predictor
        return unpacked, (partial(load, model=self.frozen), packed(self.save))

    def predict(self, x: Any, none: str | None = None) -> np.ndarray:
        """The label of each input `[n]`, or its targets: `[n, targets]`, `[n]` if `y` was so.

        **Arguments**

        - `none`: the label of queries that may belong to none of the classes: photographs whose
          `novelty` is above 1, and other inputs if the probability of their class is below that of
          95% of the examples when these are left out.

        **Raises** `ValueError` for inputs that cannot be read."""
        inputs = self.read(x)
        outputs = self._outputs(inputs)
        if self.classes is None:
            return outputs[:, 0] if self.flat else outputs
        labels = self.classes[outputs.argmax(axis=1)]
        if none is None:
            return labels
        outside = self.outside(inputs, softmax(outputs.astype(np.float64)))
        return np.where(outside, none, labels.astype(object))

    def outside(self, x: Any, chances: Float[np.ndarray, "n classes"]) -> Bool[np.ndarray, " n"]:
        """Whether each input with these probabilities may belong to none of the classes: see
        `predict`."""
        found = self.reliability()
        assert isinstance(found, Reliability)
        return chances.max(axis=1) < found.threshold()

    def predict_proba(self, x: Any) -> Float[np.ndarray, "n classes"]:
        """The probability of each class, columns in the order of `classes`. **Raises** `ValueError`
        as `predict`, and for regression."""
        if self.classes is None:
            raise ValueError("a regression has no probabilities: use predict")
        return softmax(self._outputs(self.read(x)).astype(np.float64))

    def using(self, model: str) -> Any:
        """The same, predicting with another of its `models`. **Raises** `ValueError` for another
        name."""
        if model not in self.models:
            raise ValueError(
                f"no model {model!r} predicts such tasks: choose {' or '.join(self.models)}"
            )
        return self

    def evaluate(self, x: Any, y: Any) -> Evaluation:
        """How inputs are predicted whose labels `y` are known: the accuracy of each class, the
        confusion matrix, the worst mistakes. **Raises** `ValueError` as `predict_proba`, and for a
        label that is not among `classes`."""
        chances = self.predict_proba(x)
        assert self.classes is not None
        return Evaluation(self.classes, places_of(y, self.classes), chances)

    def reliability(self, groups: Any = None) -> Reliability | NumberReliability:
        """How far it can be trusted: its accuracy or error on examples that are left out, of all
        models, and which examples look mislabelled. Each fold learns anew, and nothing that reads
        labels is kept from one fold to the next. Computed once.

        **Arguments**

        - `groups`: a value for each example; those with the same are left out together, such as
          several rows of one person. Those of `adapt` if not given.

        **Raises** `ValueError` for another number of groups."""
        if groups is None:
            return self._reliability
        other = object.__new__(type(self))  # `copy` would save and load it
        found = [k for k, one in vars(type(self)).items() if isinstance(one, cached_property)]
        kept = {k: v for k, v in vars(self).items() if k not in (*found, "_reliability")}
        vars(other).update(kept, groups=checked_groups(groups, len(self.y)))
        return other._reliability

    @cached_property
    def _reliability(self) -> Reliability | NumberReliability:
        given, together = (self._refit, self.y), (self._same, self.groups)
        options: Any = {"model": self.model, "most": self.most}
        if self.classes is None:
            return regression_reliability(*given, *together, **options)
        return classification_reliability(*given, self.classes, *together, **options)

    @cached_property
    def _same(self) -> Int[np.ndarray, " n"]:
        """Equal examples have one number."""
        return equal_inputs(self.x, NEAR if self.pictures else 0.0)

    def novelty(self, x: Any) -> Float[np.ndarray, " n"] | None:
        """How far each input is from all classes; above 1 it may belong to none. None where no such
        measure tells more than the probabilities."""
        return None

    def embedding(self, x: Any) -> Float[np.ndarray, "n d"] | None:
        """The vectors of inputs, in which the learner compares them with the classes; None for a
        learner that adapts all of its weights."""
        return None

    def reading(self) -> Float[np.ndarray, "prototypes vertices"] | None:
        """How much each prototype of the task reads each vertex of the meta-knowledge graph, rows
        with sum one; for class prototypes a row is a class. None for a learner without a graph."""
        return None


def softmax(logits: Any, xp: Any = np) -> Any:
    """The probabilities of log-odds `[n, classes]`; with `jax.numpy` as `xp` it can be traced."""
    chances = xp.exp(logits - logits.max(axis=1, keepdims=True, initial=-np.inf))
    return chances / chances.sum(axis=1, keepdims=True)
