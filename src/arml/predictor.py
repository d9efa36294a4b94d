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

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from arml.calibration import temperature
from arml.compilation import short
from arml.episodes import Examples, Problem
from arml.evaluate import predictions
from arml.experiment import Portable, load_learner
from arml.experiment import load as load_run
from arml.learner import Conditioned, MetaLearner
from arml.nn.networks import Body
from arml.nn.relational import Relational
from arml.results import RunError
from arml.sharing import SUPPORT, WEIGHTS, locate, read_arrays, read_learner, write_learner

CHUNK = 64
"""Queries predicted at once; fewer are filled up, so that one compiled program serves all."""


class FewShotLearner:
    """A meta-trained learner, ready for tasks of one's own."""

    def __init__(self, portable: Portable) -> None:
        self.portable = dataclasses.replace(portable, learner=inductive(portable.learner))

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
        inputs = _inputs(x, self.problem, "support inputs")
        if self.problem.kind == "regression":
            targets, flat = _targets(y, self.problem, len(inputs))
            return Predictor(self.portable, inputs, targets, None, flat)
        classes, places = _classes(y, self.problem, len(inputs))
        return Predictor(self.portable, inputs, places, classes, False)

    def save(self, folder: Path | str) -> None:
        """Write it as a folder of `config.json` and `weights.safetensors`, to share."""
        write_learner(self.portable, folder)


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

    @property
    def problem(self) -> Problem:
        """The kind of tasks that its learner was built for."""
        return self.portable.problem

    def _support(self) -> Examples:
        y = jnp.asarray(self.y, jnp.int32 if self.classes is not None else jnp.float32)
        return Examples(jnp.asarray(_floats(self.x)), y)

    def _outputs(self, x: Any) -> Float[np.ndarray, "n outputs"]:
        problem = self.portable.problem
        inputs = _inputs(x, problem, "queries")
        if self._function is None:
            self._function = _adapted(self.portable.learner, self._support(), problem.features)
        outputs = [np.zeros((0, problem.outputs), np.float32)]
        for first in range(0, len(inputs), CHUNK):
            some = _floats(inputs[first : first + CHUNK])
            filled = np.concatenate([some, np.repeat(some[:1], CHUNK - len(some), axis=0)])
            outputs.append(np.asarray(self._function(jnp.asarray(filled)))[: len(some)])
        return np.concatenate(outputs)

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

    def reading(self) -> Float[np.ndarray, "prototypes vertices"] | None:
        """How much each prototype of the task reads each vertex of the meta-knowledge graph, rows
        with sum one; for class prototypes a row is a class. None for a learner without a graph."""
        learner = self.portable.learner
        if not isinstance(learner, Conditioned) or not isinstance(learner.encode, Relational):
            return None
        reading = short(lambda encode, s: encode.trace(s).reading)(learner.encode, self._support())
        if reading is None:
            return None
        rows = len(self.classes) if self.classes is not None else None
        return np.asarray(reading.links)[:rows]

    def save(self, folder: Path | str) -> None:
        """Write it as a folder: the learner's, and `support.safetensors`.

        **Raises** `RunError` if it cannot be written.
        """
        classes = None if self.classes is None else self.classes.tolist()
        task = {"classes": classes, "flat": self._flat}
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
    """Write a run's learner as a folder to share, its temperature set on `tasks` validation tasks
    (0 for none; those need the run's data).

    **Raises** `RunError` for a folder that is no run, or if it cannot be written.
    """
    portable = load_learner(run)
    if tasks and portable.problem.kind == "classification":
        validation = load_run(run).tasks("validation")
        logits, y = predictions(
            inductive(portable.learner),
            validation,
            split="validation",
            n=tasks,
            chunk=portable.experiment.chunk,
        )
        best = temperature(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))
        portable = dataclasses.replace(portable, temperature=best)
    write_learner(portable, folder)
    return portable


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
    task = content["task"]
    arrays = read_arrays(folder / SUPPORT, task["sha256"])
    classes = None if task["classes"] is None else np.asarray(task["classes"])
    portable = FewShotLearner(portable).portable
    return Predictor(portable, arrays["x"], arrays["y"], classes, task["flat"])


def inductive(learner: MetaLearner) -> MetaLearner:
    """The same learner with normalisation by the support set's statistics alone."""

    def change(node: Any) -> Any:
        return dataclasses.replace(node, normalisation="support") if _is_body(node) else node

    changed: MetaLearner = jax.tree.map(change, learner, is_leaf=_is_body)
    return changed


def _is_body(node: Any) -> bool:
    return isinstance(node, Body)


@short
def _closure(learner: MetaLearner, support: Examples, like: Array) -> Any:
    adapted = learner.adapt(support, key=jax.random.key(0))
    return eqx.filter_closure_convert(adapted.predict, like)


def _adapted(
    learner: MetaLearner, support: Examples, features: tuple[int, ...]
) -> Callable[[Array], Array]:
    """The prediction function for `CHUNK` inputs: adapted once, compiled once."""
    like = jnp.zeros((CHUNK, *features), jnp.float32)
    function: Callable[[Array], Array] = short(_closure(learner, support, like))
    return function


def _floats(x: np.ndarray) -> np.ndarray:
    """Pixels of bytes as floats in [0, 1]."""
    return (x / np.float32(255)).astype(np.float32) if x.dtype == np.uint8 else x


def _inputs(x: Any, problem: Problem, what: str) -> np.ndarray:
    wanted = f"[n, {', '.join(map(str, problem.features))}]"
    try:
        array = np.asarray(x)
        array = array if array.dtype == np.uint8 else array.astype(np.float32)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"expected {what} as numbers {wanted}, got {error}: convert them"
        ) from None
    if array.ndim == 0 or array.shape[1:] != problem.features:
        raise ValueError(
            f"expected {what} of shape {wanted}, got {list(array.shape)}: resize or choose the "
            "columns that the learner was trained on"
        )
    if not np.all(np.isfinite(array)):
        raise ValueError(f"expected finite {what}, got NaN or infinity: fill or drop these rows")
    pixels = len(problem.features) == 3 and array.dtype != np.uint8 and array.size > 0
    if pixels and (array.min() < 0 or array.max() > 1):
        raise ValueError(
            f"expected pixels as bytes, or floats from 0 to 1, got floats from {array.min():g} to "
            f"{array.max():g}: divide by 255, or pass bytes"
        )
    return array


def _classes(y: Any, problem: Problem, n: int) -> tuple[np.ndarray, np.ndarray]:
    labels = np.asarray(y)
    if labels.dtype == object:
        labels = np.asarray([str(label) for label in labels.ravel()]).reshape(labels.shape)
    if labels.shape != (n,):
        raise ValueError(f"expected {n} labels, one an input, got shape {list(labels.shape)}")
    if labels.dtype.kind == "f" and not np.all(np.isfinite(labels)):
        raise ValueError("expected a label for every input, got NaN: drop these rows")
    classes, places = np.unique(labels, return_inverse=True)
    if not 2 <= len(classes) <= problem.outputs:
        raise ValueError(
            f"expected 2 to {problem.outputs} classes, got {len(classes)}: this learner was "
            f"trained on {problem.outputs}-way tasks; leave classes out, or train with more --ways"
        )
    return classes, places.astype(np.int32)


def _targets(y: Any, problem: Problem, n: int) -> tuple[np.ndarray, bool]:
    targets = np.asarray(y, np.float32)
    flat = targets.ndim == 1
    targets = targets[:, None] if flat else targets
    if targets.shape != (n, problem.outputs):
        raise ValueError(
            f"expected targets of shape [{n}, {problem.outputs}], got {list(targets.shape)}"
        )
    if not np.all(np.isfinite(targets)):
        raise ValueError("expected finite targets, got NaN or infinity: drop these rows")
    return targets, flat
