"""Learners and predictors that need no JAX (`plain`), for commands that should answer at once.

`quick_learner` and `quick_predictor` open the folders of `arml.load` and `arml.load_predictor`, and
return None for a learner that needs JAX. They have the methods that the command line uses.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
from jaxtyping import Float

from arml.core.novelty import Novelty
from arml.core.problem import Problem
from arml.predict.inputs import checked_inputs, checked_labels, floats
from arml.predict.marks import Marks, places_of
from arml.predict.means import Means
from arml.predict.plain import Plain, PlainTask, plain
from arml.predict.shared import (
    SUPPORT,
    WEIGHTS,
    Learned,
    check_predictor,
    read_content,
    read_novelty,
    read_support,
    write_folder,
)
from arml.predict.simple import softmax
from arml.results.files import read_arrays
from arml.training.provenance import provenance_without_jax

if TYPE_CHECKING:
    from arml.predict.predictor import Predictor


class QuickPortable(NamedTuple):
    """Facts about the learner, as in `arml.experiment.loaded.Portable`."""

    families: tuple[str, ...]
    temperature: float
    novelty: Novelty | None
    inputs: None = None


class QuickLearner:
    """A meta-trained learner in NumPy."""

    def __init__(
        self, learner: Plain, problem: Problem, portable: QuickPortable, folder: Path | None = None
    ) -> None:
        self.plain, self.problem, self.portable, self.folder = learner, problem, portable, folder

    def adapt(self, x: object, y: object) -> "QuickPredictor":
        """Learn a task from its support set: as `FewShotLearner.adapt`."""
        inputs = checked_inputs(x, self.problem, "support inputs")
        classes, places = checked_labels(y, len(inputs))
        return QuickPredictor(self, inputs, places, classes)


class QuickPredictor(Means):
    """A learned task in NumPy."""

    classes: np.ndarray
    reader = None
    columns: tuple[str, ...] | None = None
    target: str | None = None

    def __init__(
        self,
        learner: QuickLearner,
        x: np.ndarray,
        y: np.ndarray,
        classes: np.ndarray,
    ) -> None:
        self.learner, self.x, self.y, self.classes = learner, x, y, classes
        self.portable = learner.portable
        self._task: PlainTask | None = None
        self._last: tuple[object, np.ndarray] | None = None

    @property
    def problem(self) -> Problem:
        """As `Predictor.problem`."""
        return self.learner.problem

    def _without(self, kept: np.ndarray) -> "QuickPredictor":
        return QuickPredictor(self.learner, self.x[kept], self.y[kept], self.classes)

    def _by_learner(self, _: ModuleType) -> Callable[[Any], Any]:
        def odds(inputs: np.ndarray) -> np.ndarray:
            logits = self._adapted().logits(self._vectors(inputs)).astype(np.float64)
            return logits / self.portable.temperature

        return odds

    def _adapted(self) -> PlainTask:
        if self._task is None:
            self._task = self.learner.plain.adapt(floats(self.x), self.y)
        return self._task

    def _vectors(self, x: np.ndarray) -> Float[np.ndarray, "n d"]:
        """The embedding, which probabilities and novelty share."""
        if self._last is None or self._last[0] is not x:
            self._last = x, self._adapted().vectors(floats(x))
        return self._last[1]

    def predict_proba(self, x: object) -> Float[np.ndarray, "n classes"]:
        """As `Predictor.predict_proba`."""
        inputs = checked_inputs(x, self.problem, "queries")
        return softmax(self._answers(inputs))

    def evaluate(self, x: object, y: object) -> Marks:
        """As `Predictor.evaluate`."""
        return Marks(self.classes, places_of(y, self.classes), self.predict_proba(x))

    def novelty(self, x: object) -> Float[np.ndarray, " n"]:
        """As `Predictor.novelty`."""
        inputs = checked_inputs(x, self.problem, "queries")
        known, bounds = self._known()
        assert bounds[1] is not None
        return known.distances(self._vectors(inputs)) / bounds[1]

    def support_novelty(self) -> float:
        """As `Predictor.support_novelty`."""
        known, bounds = self._known()
        return float(known.distances(self._vectors(self.x)).mean() / bounds[0])

    def _known(self) -> tuple[Novelty, tuple[float, float | None]]:
        known = self.portable.novelty
        assert known is not None
        return known, known.bounds(np.bincount(self.y))

    def away(self) -> Float[np.ndarray, " n"]:
        """The squared distance of each example from the mean of its class."""
        far = self._vectors(self.x) - self._adapted().means[self.y]
        return np.square(far).sum(axis=1)

    def reading(self) -> None:
        """It has no graph."""

    def save(self, folder: Path) -> None:
        """As `Predictor.save`."""
        assert self.learner.folder is not None
        known, content = read_content(self.learner.folder)
        weights = read_arrays(self.learner.folder / WEIGHTS, known.weights_sha256)
        content.pop("task", None)
        facts = {**content, "made": provenance_without_jax()}
        support, means = self._saved()
        task = {"classes": self.classes.tolist(), "flat": False, **means}
        task |= dict.fromkeys(("columns", "target", "reader"))
        write_folder(folder, facts, weights, self.portable.novelty, support=support, task=task)


def quick_learner(folder: Path) -> QuickLearner | None:
    """The learner in a folder; None for a run, and for one that needs JAX.

    **Raises** `RunError` for a learner that was altered or cut short.
    """
    return _opened(folder)[0] if (folder / WEIGHTS).is_file() else None


def quick_predictor(folder: Path) -> QuickPredictor | None:
    """The predictor in a folder; None if it needs JAX. **Raises** as `quick_learner`."""
    if not (folder / SUPPORT).is_file() or not (folder / WEIGHTS).is_file():
        return None
    learner, task = _opened(folder)
    if learner is None or task is None or task.classes is None or task.reader:
        return None
    x, y, fits = read_support(folder, learner.problem, task)
    if {*y.tolist()} != {*range(len(task.classes))}:
        return None
    predictor = QuickPredictor(learner, x, y, np.asarray(task.classes))
    return predictor.restored(task.uses, task.shares, fits)


def _opened(folder: Path) -> tuple[QuickLearner | None, Learned | None]:
    known, _ = read_content(folder)
    try:
        problem = msgspec.convert(known.problem, Problem)
    except msgspec.ValidationError:  # the whole reader names the error
        return None, None
    if known.inputs is not None or problem.kind != "classification":
        return None, None
    weights = read_arrays(folder / WEIGHTS, known.weights_sha256)
    learner = plain(known.experiment, problem, weights)
    if learner is None:
        return None, None
    novelty = read_novelty(folder, known.novelty)
    portable = QuickPortable(known.families, known.temperature, novelty)
    return QuickLearner(learner, problem, portable, folder), known.task


FEW = 2_000
"""Files up to which NumPy answers sooner than JAX starts."""


def few(queries: Sequence[Path], most: int = FEW) -> bool:
    """Whether there are so few files that NumPy answers sooner than JAX starts."""
    from arml.datasets.folders import image_files

    return not queries or len(image_files(queries)) <= most


def opened_predictor(
    folder: Path, queries: Sequence[Path], *, table: bool
) -> "Predictor | QuickPredictor":
    """The predictor in a folder: in NumPy, if that answers such queries sooner.

    **Raises** `RunError` as `arml.load_predictor`.
    """
    check_predictor(folder)
    quick = quick_predictor(folder)
    if quick is not None and (table or few(queries)):  # the caller refuses a table of pictures
        return quick
    from arml.predict.learner import load_predictor

    return load_predictor(folder)
