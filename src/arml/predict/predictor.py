"""From a few labelled examples to predictions: a meta-trained learner learns one's own task.

    learner = arml.load("runs/mine")
    predictor = learner.adapt(pictures, ["oak", "oak", "elm", "elm"])
    predictor.predict(more)            # ["elm", ...]
    predictor.predict_proba(more)      # one row a picture, columns as predictor.classes
    predictor.save("trees"); arml.load_predictor("trees")

A prediction depends on the support set and on its own input, not on the other queries: networks
that normalise by their batch take the statistics of the support set instead.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from arml.core.calibration import temperature
from arml.core.compilation import short
from arml.core.episodes import Examples, Problem
from arml.core.learner import Conditioned
from arml.core.novelty import Novelty
from arml.experiment import Portable, Trained, load_learner
from arml.experiment import load as load_run
from arml.nn.relational import Relational, Trace
from arml.predict.embedding import embeds, measured_novelty, query_vectors
from arml.predict.embedding import vectors as task_vectors
from arml.predict.inference import (
    adapted_function,
    by_chunks,
    check_fit,
    examples,
    floats,
    inductive,
)
from arml.predict.inputs import checked_inputs, checked_labels, checked_targets
from arml.predict.pickling import packed, unpacked
from arml.predict.sharing import SUPPORT, WEIGHTS, locate, read_arrays, read_learner, write_learner
from arml.results.folder import RunError
from arml.training.evaluate import predictions


class FewShotLearner:
    """A meta-trained learner, ready for tasks of one's own."""

    def __init__(self, portable: Portable) -> None:
        inside = inductive(portable.learner, examples(portable))
        self.portable = dataclasses.replace(portable, learner=inside)

    @property
    def problem(self) -> Problem:
        """The kind of tasks that it was built for."""
        return self.portable.problem

    def adapt(self, x: Any, y: Any) -> "Predictor":
        """Learn a task from its support set.

        **Arguments**

        - `x`: inputs `[n, *features]`: NumPy, JAX or PyTorch arrays, or a data frame. Pixels are
          bytes, or floats in [0, 1].
        - `y`: `n` labels of any kind that can be sorted (classification), or `n` numbers or rows of
          numbers (regression).

        **Raises** `ValueError` for what cannot be such a support set.
        """
        inputs = checked_inputs(x, self.problem, "support inputs")
        if not len(inputs):
            raise ValueError("expected one or more support inputs, got none: give some examples")
        if self.problem.kind == "regression":
            targets, flat = checked_targets(y, self.problem, len(inputs))
            return Predictor(self.portable, inputs, targets, None, flat)
        classes, places = checked_labels(y, self.problem, len(inputs))
        return Predictor(self.portable, inputs, places, classes, False)

    def save(self, folder: Path | str) -> None:
        """Write it as a folder of `config.json` and `weights.safetensors`, to share."""
        write_learner(self.portable, folder)

    def __reduce__(self) -> Any:
        return unpacked, (load, packed(self.save))

    def __deepcopy__(self, memo: Any) -> "FewShotLearner":
        return self  # it never changes, and scikit-learn copies parameters often


class Predictor:
    """A learned task. `classes` are its labels in order; None for regression."""

    def __init__(
        self,
        portable: Portable,
        x: np.ndarray,
        y: np.ndarray,
        classes: np.ndarray | None,
        flat: bool,
    ) -> None:
        self.portable, self.x, self.y, self.classes, self._flat = portable, x, y, classes, flat
        self._function: Callable[[Array], Array] | None = None
        # Of a table that it was made from: the names of the inputs, and of what it predicts.
        self.columns: tuple[str, ...] | None = None
        self.target: str | None = None

    def __reduce__(self) -> Any:
        return unpacked, (load_predictor, packed(self.save))

    @property
    def problem(self) -> Problem:
        """The kind of tasks that its learner was built for."""
        return self.portable.problem

    def _support(self) -> Examples:
        y = jnp.asarray(self.y, jnp.int32 if self.classes is not None else jnp.float32)
        return Examples(jnp.asarray(floats(self.x)), y)

    def _outputs(self, x: Any) -> Float[np.ndarray, "n outputs"]:
        problem = self.portable.problem
        inputs = checked_inputs(x, problem, "queries")
        if self._function is None:
            self._function = adapted_function(
                self.portable.learner, self._support(), problem.features
            )
            if self.classes is None:
                check_fit(by_chunks(self._function, self.x, problem.outputs), self.y)
        outputs = by_chunks(self._function, inputs, problem.outputs)
        if not np.all(np.isfinite(outputs)):
            raise ValueError(
                "expected predictions that are finite, got NaN or infinity: the examples are far "
                "from those that the learner was trained on; scale them to its range"
            )
        return outputs

    def predict(self, x: Any) -> np.ndarray:
        """The label of each input `[n]`, or its targets: `[n, targets]`, `[n]` if `y` was so.

        **Raises** `ValueError` for inputs of another shape, or that are not finite.
        """
        outputs = self._outputs(x)
        if self.classes is None:
            return outputs[:, 0] if self._flat else outputs
        return self.classes[np.argmax(outputs[:, : len(self.classes)], axis=1)]

    def predict_proba(self, x: Any) -> Float[np.ndarray, "n classes"]:
        """The probability of each class, columns in the order of `classes`.

        **Raises** `ValueError` as `predict`, and for regression.
        """
        if self.classes is None:
            raise ValueError("expected a classification task for probabilities: use predict")
        logits = self._outputs(x)[:, : len(self.classes)].astype(np.float64)
        logits /= self.portable.temperature
        chances = np.exp(logits - logits.max(axis=1, keepdims=True, initial=-np.inf))
        return chances / chances.sum(axis=1, keepdims=True)

    def novelty(self, x: Any) -> Float[np.ndarray, " n"]:
        """How far each input `[n]` is from what meta-training saw: above 1, farther than 95% of the
        queries of validation tasks, it looks like none of the families that the learner knows.

        **Raises** `ValueError` as `predict`; for regression, where an input says nothing without
        its target; and for a learner with which novelty has not been measured, or cannot be.
        """
        known = self._known()
        inputs = checked_inputs(x, self.problem, "queries")
        if known.query is None:
            raise ValueError(
                "expected a classification task for the novelty of single queries, got regression: "
                "use support_novelty()"
            )
        return known.distances(self._embedded(inputs)) / known.query

    def support_novelty(self) -> float:
        """The same of the support set: the mean over its examples, or of its code in regression.

        **Raises** `ValueError` for a learner whose novelty has not been measured, or cannot be.
        """
        known = self._known()
        if self.classes is not None:
            own = self._embedded(self.x)
        else:
            own = np.asarray(task_vectors(self.portable.learner, self._support(), self.problem))
        return float(known.distances(own).mean() / known.support)

    def _embedded(self, inputs: np.ndarray) -> Float[np.ndarray, "n d"]:
        learner, support, problem = self.portable.learner, self._support(), self.problem
        return by_chunks(
            lambda x: query_vectors(learner, support, problem, x),
            inputs,
            self._known().bank.shape[1],
        )

    def _known(self) -> Novelty:
        portable = self.portable
        if portable.novelty is not None:
            return portable.novelty
        if not embeds(portable.learner, portable.problem):
            raise ValueError(
                f"expected a method with an embedding that tasks share, got "
                f"{portable.experiment.recipe}: `arml list` names ARML and others that have one"
            )
        raise ValueError(
            "expected a learner with which novelty was measured, got none: `arml export RUN --out "
            "FOLDER` measures it; load that folder"
        )

    def reading(self) -> Float[np.ndarray, "prototypes vertices"] | None:
        """How much each prototype of the task reads each vertex of the meta-knowledge graph, rows
        with sum one; for class prototypes a row is a class. None for a learner without a graph."""
        reading = trace.reading if (trace := self.trace()) else None
        rows = len(self.classes) if self.classes is not None else None
        return None if reading is None else np.asarray(reading.links)[:rows]

    def trace(self) -> Trace | None:
        """What the encoding of the support set passed through; None for a learner without one."""
        learner = self.portable.learner
        if not isinstance(learner, Conditioned) or not isinstance(learner.encode, Relational):
            return None
        return _trace(learner, self._support())

    def save(self, folder: Path | str) -> None:
        """Write it as a folder: the learner's, and `support.safetensors`.

        **Raises** `RunError` if it cannot be written.
        """
        classes = None if self.classes is None else self.classes.tolist()
        task = {"classes": classes, "flat": self._flat}
        task |= {"columns": self.columns, "target": self.target}
        write_learner(self.portable, folder, support={"x": self.x, "y": self.y}, task=task)


def load(path: Path | str) -> FewShotLearner:
    """The learner of a run folder, one that was saved or shared, or one that the package carries:
    `load("starter")`. A folder here of that name that holds a learner goes first.

    **Raises** `RunError` if there is none.
    """
    path, _ = locate(path)
    if (path / WEIGHTS).exists():
        return FewShotLearner(read_learner(path)[0])
    return FewShotLearner(load_learner(path))


def exported(run: Path | str, folder: Path | str, *, tasks: int = 200) -> Portable:
    """Write a run's learner as a folder to share, its temperature set and its novelty measured on
    `tasks` validation tasks (0 for neither; they need the run's data).

    **Raises** `RunError` for a folder that is no run, or if it cannot be written.
    """
    portable = load_learner(run)
    if tasks:
        portable = _measured(portable, load_run(run), tasks)
    write_learner(portable, folder)
    return portable


def _measured(portable: Portable, run: Trained, tasks: int) -> Portable:
    learner, chunk = inductive(portable.learner), portable.experiment.chunk
    train, validation = run.splits.train, run.splits.validation
    best = portable.temperature
    if portable.problem.kind == "classification":
        found = predictions(learner, validation, split="validation", n=tasks, chunk=chunk)
        logits = found.outputs.reshape(-1, found.outputs.shape[-1])
        best = temperature(logits, found.targets.reshape(-1))
    novelty = measured_novelty(learner, train, validation, tasks=tasks, chunk=chunk)
    return dataclasses.replace(portable, temperature=best, novelty=novelty)


def load_predictor(folder: Path | str) -> Predictor:
    """A predictor that was saved.

    **Raises** `RunError` if there is none, or it was altered or cut short.
    """
    folder = Path(folder)
    if not (folder / SUPPORT).exists():
        found = "a learner without a task" if (folder / WEIGHTS).exists() else "none"
        raise RunError(
            f"expected a saved predictor in {folder}, found {found}: `arml adapt --save` makes one"
        )
    portable, content = read_learner(folder)
    task = content.get("task")
    if task is None:
        raise RunError(f"{folder}: its {SUPPORT} is of another predictor: save it again")
    arrays = read_arrays(folder / SUPPORT, task["sha256"])
    classes = None if task["classes"] is None else np.asarray(task["classes"])
    portable = FewShotLearner(portable).portable
    predictor = Predictor(portable, arrays["x"], arrays["y"], classes, task["flat"])
    columns, predictor.target = task.get("columns"), task.get("target")  # older files lack these
    predictor.columns = tuple(columns) if columns else None
    return predictor


@short
def _trace(learner: Conditioned, support: Examples) -> Trace:
    assert isinstance(learner.encode, Relational)
    return learner.encode.trace(learner.look(learner.net, support))
