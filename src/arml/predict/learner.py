"""From a few labelled examples to predictions: a meta-trained learner learns one's own task.

learner = arml.load("runs/mine")
predictor = learner.adapt(pictures, ["oak", "oak", "elm", "elm"])
predictor.predict(more)            # ["elm", ...]
predictor.predict_proba(more)      # one row a picture, columns as predictor.classes
print(predictor.reliability())     # how far to trust it
predictor.save("trees"); arml.load_predictor("trees")

[1] Guo, Pleiss, Sun and Weinberger, On Calibration of Modern Neural Networks, ICML 2017.
[2] Platt, Probabilistic Outputs for Support Vector Machines, 1999.
"""

import dataclasses
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Array, Float, Int
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from arml.core.episodes import Problem, Task
from arml.core.learner import MetaLearner
from arml.experiment.running import Portable, Run
from arml.predict.files import (
    PHOTOGRAPHS,
    SUPPORT,
    WEIGHTS,
    check_free,
    check_predictor,
    kind_of,
    locate,
    packed,
    read_learner,
    unpacked,
    write_learner,
)
from arml.predict.models import models_of
from arml.predict.photos import PhotoLearner, load_photo_predictor
from arml.predict.predictor import Predictor, inductive, learned
from arml.results.files import RunError, read_arrays
from arml.training.evaluate import concatenated, looks


class FewShotLearner:
    """A meta-trained learner, ready for tasks of one's own; `arml.load` opens one.

        learner = arml.load("regression2d")
        learner.problem, learner.portable.families

    Inputs are vectors `[n, d]`, pictures `[n, size, size, 3]` in bytes, or the columns of a table.
    """

    def __init__(self, portable: Portable) -> None:
        inside = inductive(portable.learner, portable.problem.support)
        self.portable = dataclasses.replace(portable, learner=inside)

    @property
    def problem(self) -> Problem:
        """The kind of tasks that the learner was built for."""
        return self.portable.problem

    def adapt(
        self,
        x: object,
        y: object,
        sample_weight: object = None,
        *,
        groups: object = None,
        **options: Any,
    ) -> Any:
        """Learn a task from its support set.

        **Arguments**

        - `x`: inputs `[n, *features]`: NumPy, JAX or PyTorch arrays, or a data frame. Pixels are
          bytes, or floats in [0, 1]. A learner of tables takes any: see `arml.predict.tables`.
        - `y`: `n` labels of any kind that can be sorted, of any number of classes; or `n` numbers
          or rows of numbers (regression).
        - `sample_weight`: how much each example counts `[n]`, for predictors that then use the
          model `logistic` or `edges`; no other model can use it, and no learner of tables.
        - `groups`: a value for each example, such as a person's name; those with the same are left
          out together wherever examples are. For tables it may be the name of a column.
        - `options`: for tables `keep`, `without` and `dates`: see `arml.predict.tables.learned`.

        Returns a `Predictor`; of a table a `arml.predict.tables.TablePredictor`.

        **Raises** `ValueError` for examples that cannot be learned."""
        if self.problem.inputs != "tables":
            if options:
                raise ValueError(
                    f"{', '.join(options)}: only learners of tables have these options"
                )
            return learned(self.portable, x, y, sample_weight, groups)
        if sample_weight is not None:
            raise ValueError("a learner of tables cannot use sample weights: leave them out")
        return _tables().adapted(self.portable, x, y, groups=groups, **options)

    def save(self, folder: Path | str) -> None:
        """Write it as a folder of `config.json` and `weights.safetensors`, to share."""
        write_learner(self.portable, folder)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.portable.about})"

    def __reduce__(self) -> tuple[object, ...]:
        return unpacked, (load, packed(self.save))

    def __deepcopy__(self, memo: object) -> "FewShotLearner":
        return self  # it never changes, and scikit-learn copies parameters often


Learner = FewShotLearner | PhotoLearner


def load(path: Path | str, **options: Any) -> Learner:
    """The learner of a run folder, one that was saved, or one that the package carries, unless a
    folder here has that name. The learner "photos", and that of an ONNX model of pictures, take
    pictures and train nothing: see `arml.predict.photos`; `options` are those of such a model.

        learner = arml.load("regression2d")
        predictor = learner.adapt([[0, 1], [1, 1], [2, 1], [3, 1], [4, 1]], [0, 1, 2, 3, 4])
        predictor.predict([[2.5, 1]])

    **Raises** `RunError` if there is none.
    """
    path, _ = locate(path)
    if path.is_file():
        return PhotoLearner(path, **options)
    if options:
        raise ValueError(f"{next(iter(options))} is for ONNX models of pictures: leave it out")
    shared = (path / WEIGHTS).exists()
    return FewShotLearner(read_learner(path)[0] if shared else Run(path).portable())


def load_predictor(folder: Path | str, model: Path | str | None = None) -> Any:
    """A predictor that was saved. `model` is the frozen network of one of photographs, if it is not
    that of the package.

        predictor.save("line")
        arml.load_predictor("line").predict([[2.5, 1]])

    **Raises** `RunError` if it is not there, altered or cut short.
    """
    folder = Path(folder)
    check_predictor(folder)
    if kind_of(folder) == PHOTOGRAPHS:
        return load_photo_predictor(folder, model)
    portable, task = read_learner(folder)
    if task is None:
        raise RunError(f"{folder}: its {SUPPORT} is of another predictor: save it again")
    classes = None if task.classes is None else np.asarray(task.classes)
    support, names = read_arrays(folder / SUPPORT, task.sha256), models_of(portable.problem)
    if task.reader is not None:
        return _tables().restored(portable, support, classes, task.target, task.reader)
    if task.model not in names or (task.weights and {*task.weights} != {*names[:-1]}):
        raise RunError(f"{folder}: its models are not those of this version: save it again")
    few = FewShotLearner(portable)
    predictor = Predictor(few.portable, classes=classes, flat=task.flat, **support)
    predictor.columns = tuple(task.columns) if task.columns else None
    predictor.target = task.target
    if task.weights:
        vars(predictor)["weights"] = task.weights
    return predictor.using(task.model)


def _tables() -> Any:
    """The predictors of tables, a room above this one: it is found by its name, as plug-ins are."""
    return import_module("arml.predict.tables")


def exported(run: Path | str, folder: Path | str, *, tasks: int = 200) -> Portable:
    """Write a run's learner as a folder to share, its temperature chosen on `tasks` validation
    tasks (0 for none; they need the run's data).

    **Raises** `RunError` for a folder that is no run, or if it cannot be written.
    """
    check_free(Path(folder), predictor=False)  # before the work
    opened = Run(run)
    portable = opened.portable()
    if tasks and portable.problem.kind == "classification":
        learner, chunk = inductive(portable.learner), portable.experiment.chunk
        parts = looks(
            _outputs, learner, opened.splits.validation, split="validation", n=tasks, chunk=chunk
        )
        outputs, targets = concatenated(parts)
        found = calibrated(outputs.reshape(-1, outputs.shape[-1]), targets.reshape(-1))
        portable = dataclasses.replace(portable, temperature=found)
    write_learner(portable, folder)
    return portable


def _outputs(learner: MetaLearner, task: Task, key: Array) -> tuple[Array, Array]:
    """The predictions on ONE task, and the targets."""
    return learner.adapt(task.support, key=key).predict(task.query.x), task.query.y


LACKING = 1e6
"""A logit that lies further below the largest belongs to a class that the task lacks."""


def temperature(logits: Float[np.ndarray, "n ways"], y: Int[np.ndarray, " n"]) -> float:
    """The T for which softmax(logits / T) has the least mean cross-entropy [1], from 0.05 to 20.

    The targets are smoothed [2]: that of the right class is (n + 1) / (n + ways), that of each
    other 1 / (n + ways), for n predictions. If all are right, the next one is still not certain.
    The cross-entropy is convex in 1/T, so a bounded search over log T finds it.
    """
    n = len(y)
    # A class that a task lacks has a logit of about -1e9, and is no class of this task.
    there = ~(logits < logits.max(axis=1, keepdims=True) - LACKING)
    sure = n / (n + there.sum(axis=1))

    def smoothed(log_t: float) -> float:
        logs = log_softmax(logits.astype(np.float64) / np.exp(log_t), axis=1)
        others = logs.mean(axis=1, where=there)
        return float(-np.mean(sure * logs[np.arange(n), y] + (1 - sure) * others))

    bounds = (np.log(0.05), np.log(20.0))
    return float(np.exp(minimize_scalar(smoothed, bounds=bounds, options={"xatol": 1e-5}).x))


def calibrated(logits: Float[np.ndarray, "n ways"], y: Int[np.ndarray, " n"]) -> float:
    """The temperature, or 1 if it does not help: the one of the first half of the predictions must
    lower the mean cross-entropy of the second half."""
    half = len(y) // 2
    held = logits[half:], y[half:]
    if half and cross_entropy(*held, temperature(logits[:half], y[:half])) < cross_entropy(*held):
        return temperature(logits, y)
    return 1.0


def cross_entropy(
    logits: Float[np.ndarray, "n ways"], y: Int[np.ndarray, " n"], temperature: float = 1.0
) -> float:
    """The mean cross-entropy of softmax(logits / temperature)."""
    logs = log_softmax(logits.astype(np.float64) / temperature, axis=1)
    return float(-np.mean(logs[np.arange(len(y)), y]))
