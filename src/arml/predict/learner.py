"""From a few labelled examples to predictions: a meta-trained learner learns one's own task.

learner = arml.load("runs/mine")
predictor = learner.adapt(pictures, ["oak", "oak", "elm", "elm"])
predictor.predict(more)            # ["elm", ...]
predictor.predict_proba(more)      # one row a picture, columns as predictor.classes
predictor.save("trees"); arml.load_predictor("trees")
"""

import copyreg
import dataclasses
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from arml.experiment.loaded import Portable, Run
from arml.predict.backbone import backbone
from arml.predict.holder import Holder
from arml.predict.inference import inductive
from arml.predict.onnx.whole import write_learner_file
from arml.predict.pickling import packed, unpacked
from arml.predict.predictor import Predictor, learned
from arml.predict.shared import SUPPORT, WEIGHTS, check_predictor, locate, read_support
from arml.predict.sharing import read_learner, write_learner
from arml.results.files import RunError, read_arrays


class FewShotLearner(Holder):
    """A meta-trained learner, ready for tasks of one's own; `arml.load` opens one.

        learner = arml.load("regression2d")
        learner.problem, learner.portable.families

    Inputs are vectors `[n, d]`, pictures `[n, size, size, 3]` in bytes, or the columns of a table.
    """

    def __init__(self, portable: Portable) -> None:
        inside = inductive(portable.learner, portable.problem.support)
        self.portable = dataclasses.replace(portable, learner=inside)

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
        write_learner_file(self.portable, Path(path), ways or self.problem.outputs)

    def __reduce__(self) -> tuple[object, ...]:
        return unpacked, (load, packed(self.save))

    def __deepcopy__(self, memo: object) -> "FewShotLearner":
        return self  # it never changes, and scikit-learn copies parameters often


def load(path: Path | str) -> FewShotLearner:
    """The learner of a run folder, one that was saved, or one that the package carries, unless a
    folder here has that name; of an ONNX model of pictures, the nearest class mean of its vectors.

        learner = arml.load("regression2d")
        predictor = learner.adapt([[0, 1], [1, 1], [2, 1], [3, 1], [4, 1]], [0, 1, 2, 3, 4])
        predictor.predict([[2.5, 1]])

    **Raises** `RunError` if there is none.
    """
    path, _ = locate(path)
    if path.is_file():
        return FewShotLearner(backbone(path))
    shared = (path / WEIGHTS).exists()
    return FewShotLearner(read_learner(path)[0] if shared else Run(path).portable())


def load_predictor(folder: Path | str) -> Any:
    """A predictor that was saved.

        predictor.save("line")
        arml.load_predictor("line").predict([[2.5, 1]])

    **Raises** `RunError` if it is not there, altered or cut short.
    """
    folder = Path(folder)
    check_predictor(folder)
    portable, task = read_learner(folder)
    if task is None:
        raise RunError(f"{folder}: its {SUPPORT} is of another predictor: save it again")
    classes = None if task.classes is None else np.asarray(task.classes)
    if task.reader is not None:
        arrays = read_arrays(folder / SUPPORT, task.sha256)
        return _tables().restored(portable, arrays, classes, task.target, task.reader)
    x, y, fits = read_support(folder, portable.problem, task)
    learnt = FewShotLearner(portable).portable, x, y, classes, task.flat
    predictor = Predictor(*learnt)
    predictor.columns = tuple(task.columns) if task.columns else None
    predictor.target = task.target
    return predictor.restored(task.uses, task.shares, fits)


def _tables() -> Any:
    """The predictors of tables, a room above this one: it is found by its name, as plug-ins are."""
    return import_module("arml.tables.predictor")


def _restored(files: dict[str, bytes]) -> Predictor:
    return unpacked(load_predictor, files)


# Here, not in the class: to unpickle a predictor is to load it.
copyreg.pickle(Predictor, lambda predictor: (_restored, (packed(predictor.save),)))
