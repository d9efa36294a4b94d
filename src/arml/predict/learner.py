"""From a few labelled examples to predictions: a meta-trained learner learns one's own task.

learner = arml.load("runs/mine")
predictor = learner.adapt(pictures, ["oak", "oak", "elm", "elm"])
predictor.predict(more)            # ["elm", ...]
predictor.predict_proba(more)      # one row a picture, columns as predictor.classes
print(predictor.reliability())     # how far to trust it
predictor.save("trees"); arml.load_predictor("trees")
"""

import copyreg
import dataclasses
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Array

from arml.core.calibration import calibrated
from arml.core.episodes import Problem, Task
from arml.core.inner import steps_of
from arml.core.learner import MetaLearner
from arml.experiment.running import Portable, Run
from arml.predict.files import (
    SUPPORT,
    WEIGHTS,
    check_predictor,
    locate,
    packed,
    read_learner,
    read_support,
    unpacked,
    write_learner,
)
from arml.predict.models import models_of
from arml.predict.onnx import write_learner_file
from arml.predict.photos import PhotoLearner, is_photo_predictor, load_photo_predictor
from arml.predict.places import check_free
from arml.predict.predictor import Predictor, for_classes, inductive, learned
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

    def adapt(self, x: object, y: object) -> Any:
        """Learn a task from its support set.

        **Arguments**

        - `x`: inputs `[n, *features]`: NumPy, JAX or PyTorch arrays, or a data frame. Pixels are
          bytes, or floats in [0, 1]. A learner of tables takes any: see `arml.tables.predictor`.
        - `y`: `n` labels of any kind that can be sorted, of any number of classes; or `n` numbers
          or rows of numbers (regression).

        Returns a `Predictor`; of a table a `arml.tables.predictor.TablePredictor`.

        **Raises** `ValueError` for examples that cannot be learned."""
        if len(self.problem.features) == 2:
            return _tables().adapted(self.portable, x, y)
        return learned(self.portable, x, y)

    def save(self, folder: Path | str) -> None:
        """Write it as a folder of `config.json` and `weights.safetensors`, to share."""
        write_learner(self.portable, folder)

    def to_onnx(self, path: Path | str, ways: int | None = None) -> None:
        """Write a metric learner as a whole as an ONNX file, for up to `ways` classes: it reads
        support, labels and queries. **Raises** as `Predictor.to_onnx`, and for other learners."""
        ways = max(ways or 0, self.problem.outputs)
        learner = for_classes(self.portable, ways)
        if self.problem.kind != "classification" or learner is None or steps_of(learner):
            raise ValueError(
                f"{self.portable.experiment.recipe} adapts its weights, and only a metric learner "
                "(ProtoNet, TADAM, VERSA) can be written as a whole: export a predictor that has "
                "adapted, as `arml adapt --save` keeps it"
            )
        problem = dataclasses.replace(self.problem, outputs=ways)
        write_learner_file(learner, problem, self.portable.temperature, Path(path))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.portable.about})"

    def __reduce__(self) -> tuple[object, ...]:
        return unpacked, (load, packed(self.save))

    def __deepcopy__(self, memo: object) -> "FewShotLearner":
        return self  # it never changes, and scikit-learn copies parameters often


Learner = FewShotLearner | PhotoLearner


def load(path: Path | str) -> Learner:
    """The learner of a run folder, one that was saved, or one that the package carries, unless a
    folder here has that name. The learner "photos", and that of an ONNX model of pictures, take
    pictures and train nothing: see `arml.predict.photos`.

        learner = arml.load("regression2d")
        predictor = learner.adapt([[0, 1], [1, 1], [2, 1], [3, 1], [4, 1]], [0, 1, 2, 3, 4])
        predictor.predict([[2.5, 1]])

    **Raises** `RunError` if there is none.
    """
    path, _ = locate(path)
    if path.is_file():
        return PhotoLearner(path)
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
    if is_photo_predictor(folder):
        return load_photo_predictor(folder, model)
    portable, task = read_learner(folder)
    if task is None:
        raise RunError(f"{folder}: its {SUPPORT} is of another predictor: save it again")
    classes = None if task.classes is None else np.asarray(task.classes)
    if task.reader is not None:
        arrays = read_arrays(folder / SUPPORT, task.sha256)
        return _tables().restored(portable, arrays, classes, task.target, task.reader)
    x, y = read_support(folder, portable.problem, task)
    predictor = Predictor(FewShotLearner(portable).portable, x, y, classes, task.flat)
    predictor.columns = tuple(task.columns) if task.columns else None
    predictor.target = task.target
    weights, names = task.weights, models_of(portable.problem)
    if task.model not in names or (weights is not None and {*weights} != {*names[:-1]}):
        raise RunError(f"{folder}: its models are not those of this version: save it again")
    predictor = predictor.using(task.model)
    if weights is not None:
        vars(predictor)["weights"] = weights
    return predictor


def _tables() -> Any:
    """The predictors of tables, a room above this one: it is found by its name, as plug-ins are."""
    return import_module("arml.tables.predictor")


def _restored(files: dict[str, bytes]) -> Predictor:
    return unpacked(load_predictor, files)


# Here, not in the class: to unpickle a predictor is to load it.
copyreg.pickle(Predictor, lambda predictor: (_restored, (packed(predictor.save),)))


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
