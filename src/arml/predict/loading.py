"""Loads learners and predictors by name, folder or object: the interface for practitioners.

    predictor = arml.adapt("runs/mine", pictures, ["oak", "oak", "elm", "elm"])
    predictor.predict(more), predictor.predict_proba(more)
    print(predictor.reliability())     # how far to trust it
    predictor.save("trees"); arml.load_predictor("trees")

Photographs need no JAX, which takes a second to load.
"""

import os
from functools import partial
from pathlib import Path
from typing import Any

from arml.core.inputs import INPUTS
from arml.datasets.decode import LOG
from arml.plugins.sources import Source
from arml.predict.base import Predictor, TaskLearner
from arml.predict.encoded import EncodedLearner, load_encoded
from arml.predict.files import (
    PREDICTOR_FORMAT,
    SHIPPED_LEARNERS,
    check_predictor,
    locate,
    unpacked,
    zipped,
)
from arml.predict.kinds import Asked, inputs_of, untrained
from arml.predict.scikit import NAMED_ESTIMATORS, predicts
from arml.results.files import RunError, read_json
from arml.results.folder import CONFIG_FILE


def load(learner: Any, model: Any = None, *, x: object = None, **options: object) -> TaskLearner:
    """A learner, ready for your own tasks.

        learner = arml.load("regression2d")
        predictor = learner.adapt([[0, 1], [1, 1], [2, 1], [3, 1], [4, 1]], [0, 1, 2, 3, 4])
        predictor.predict([[2.5, 1]])

    **Arguments**

    - `learner`: a run folder, a learner that was saved, or the name of one that the package carries
      (unless a folder here has that name); an `arml.Run`; the result of `arml.fit` or `arml.build`.
      An estimator of scikit-learn learns tables, or the kind of `x`: see `arml.predict.scikit`.
      "photos", an ONNX model of pictures, and the name of a registered kind of inputs need no
      training: see `arml.predict.encoded`.
    - `model`: the frozen model of a learner on features, if it is not the one that ships; or the
      model that learns from the vectors or columns: an estimator, or one of
      `arml.predict.scikit.NAMED_ESTIMATORS`.
    - `x`: the inputs that an estimator will learn.
    - `options`: of an ONNX model of pictures: see `arml.photographs.learner.PhotoLearner`.

    **Raises** `RunError` if there is no such learner, `ValueError` for other objects and models.
    """
    estimator = None
    if model is not None and not isinstance(model, str | os.PathLike) and not predicts(model):
        raise ValueError(
            f"expected a file or an estimator as the model, got {type(model).__name__}"
        )
    kind = predicts(learner)
    if kind is not None:
        table = SHIPPED_LEARNERS / ("tables" if kind == "classification" else "tables-regression")
        holding = (name for name, one in untrained().items() if one.holds(x))
        learner, estimator = next(holding, table), learner
    elif predicts(model) is not None or (
        str(model) in NAMED_ESTIMATORS and not Path(str(model)).exists()
    ):
        model, estimator = None, str(model) if isinstance(model, os.PathLike) else model
    found = None
    if isinstance(learner, str | os.PathLike):
        learner, _ = locate(Path(learner))
        file, kinds = learner if learner.is_file() else None, untrained()
        own = (one for one in kinds.values() if file is not None and one.opens(file))
        named = kinds.get(str(learner)) or next(own, None)
        if named is not None:
            found = named.learner(model or file, **options) or EncodedLearner(named)
    if found is None and options:
        raise ValueError(f"{next(iter(options))} is for ONNX models: leave it out")
    if found is None and not isinstance(learner, TaskLearner):
        from arml.predict.learner import FewShotLearner

        learner = FewShotLearner.of(learner)
    found = found or learner.with_model(model)
    return found if estimator is None else found.with_estimator(estimator)


def adapt(
    learner: object, x: object, y: object = None, sample_weight: object = None, **options: object
) -> Predictor:
    """Learn a task from a few labelled examples.

        fitted = arml.fit(arml.build("maml", tasks), tasks, steps=400)
        predictor = arml.adapt(fitted, [[0.0], [1.0], [2.0]], [0.0, 0.8, 0.9])
        predictor.predict([[1.5]])

    **Arguments**

    - `learner`: as `arml.load` takes it.
    - `x`, `y`, `sample_weight`, `options`: the examples, as `FewShotLearner.adapt` or
      `PhotoLearner.adapt` takes them. Without `y`, `x` is a folder or a zip of files, with one
      folder for each class: see `arml.datasets.folders.open_source`.

    **Returns** an `arml.Predictor`.

    **Raises** `ValueError` for examples that cannot be learned, and as `arml.load`.
    """
    if y is None:
        found_learner = load(learner)
        kind = inputs_of(found_learner)
        if not isinstance(x, str | os.PathLike) or not kind.suffixes:
            raise ValueError(
                "expected labels y: only a folder of files works without them"
                + f", and {kind.many} are no files" * (not kind.suffixes)
            )
        from arml.datasets.folders import open_source

        with open_source(Path(x), kind.suffixes, kind.one) as source:
            for remark in source.remarks:
                LOG.warning(remark)
            kind.tell_left_out(source.left_out, Asked())
            found = adapt(found_learner, source.pictures, source.labels, sample_weight, **options)
            if "groups" not in options:
                line = kind.together(source, found.x)
                if line:
                    LOG.warning("%s (in Python: groups=...)", line)
            return found
    return load(learner, x=x).adapt(x, y, sample_weight, **options)


def load_predictor(folder: Path | str, model: Path | str | None = None) -> Predictor:
    """Load a saved predictor from its folder or a zip of it. `model` is its frozen network, if this
    does not ship with the package.

        predictor.save("line")
        arml.load_predictor("line").predict([[2.5, 1]])

    **Raises** `RunError` if it does not exist, was altered or was cut short.
    """
    folder = Path(folder)
    check_predictor(folder)
    if folder.is_file():
        try:
            return unpacked(partial(load_predictor, model=model), zipped(folder.read_bytes()))
        except RunError as error:
            raise RunError(f"{folder}: {error}") from error
    config = read_json(folder / CONFIG_FILE)
    what, name = str(config.get("what")), str(config.get("what")).removeprefix(PREDICTOR_FORMAT)
    if what.startswith(PREDICTOR_FORMAT):
        made = config.get("extractor")
        if name not in INPUTS and isinstance(made, dict) and "version" in made:
            source = Source(made["name"], made["version"])
            raise RunError(f"{folder}: its inputs are {name} of {source.name}: {source.remedy}")
        return load_encoded(folder, name, model)
    from arml.predict.learner import read_predictor

    return read_predictor(folder, model)
