"""A learner to share: a folder of `config.json` and `weights.safetensors`, readable without running
anybody's code, and without the data that it was trained on. `shared` has its format.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import equinox as eqx
import numpy as np

from arml.core.learner import MetaLearner
from arml.experiment.building import initial
from arml.experiment.loaded import Portable, problem_of
from arml.experiment.options import from_json, to_json
from arml.predict.shared import (
    CONFIG,
    FORMAT,
    WEIGHTS,
    Learned,
    read_content,
    read_novelty,
    write_folder,
)
from arml.results.files import JsonView, RunError, read_arrays
from arml.training.checkpoint import filled, named
from arml.training.provenance import provenance


def write_learner(
    portable: Portable,
    folder: Path | str,
    *,
    support: Mapping[str, np.ndarray] | None = None,
    task: JsonView | None = None,
) -> None:
    """Write a learner; with `support` and `task`, a predictor: the examples that it adapted to.

    **Raises** `RunError` if it cannot be written, or if the folder holds something else.
    """
    arrays = {name: np.asarray(leaf) for name, leaf in named(portable.learner).items()}
    experiment = to_json(portable.experiment)
    # Paths of the training data are removed: they mean nothing on another machine.
    experiment["tasks"].pop("data", None)
    facts = {
        "format": FORMAT,
        "experiment": experiment,
        "problem": dataclasses.asdict(portable.problem),
        "families": portable.families,
        "temperature": portable.temperature,
        "inputs": portable.inputs,
        "trained": portable.trained,
        "made": provenance(),
    }
    write_folder(Path(folder), facts, arrays, portable.novelty, support=support, task=task)


def read_learner(folder: Path | str) -> tuple[Portable, Learned | None]:
    """A learner that `write_learner` wrote, and its task if it is that of a predictor.

    **Raises** `RunError` for a folder that is none, is of a later format, was altered or cut short.
    """
    folder = Path(folder)
    known, _ = read_content(folder)
    where = str(folder / CONFIG)
    experiment = from_json(known.experiment, where)
    problem = problem_of(known.problem, f"{where}: problem")
    arrays = read_arrays(folder / WEIGHTS, known.weights_sha256)
    try:
        blank = eqx.filter_eval_shape(initial, experiment, problem)
    except Exception as error:
        first = " ".join(str(error).split())[:200]
        raise RunError(f"{where}: no learner can be built of its options: {first}") from error
    portable = Portable(
        experiment,
        _filled(blank, arrays, folder),
        problem,
        known.families,
        known.temperature,
        trained=known.trained,
        inputs=known.inputs,
        novelty=read_novelty(folder, known.novelty),
    )
    return portable, known.task


def _filled(blank: MetaLearner, arrays: Mapping[str, np.ndarray], folder: Path) -> MetaLearner:
    wanted = {name: array.shape for name, array in named(blank).items()}
    if wanted != {name: array.shape for name, array in arrays.items()}:
        raise RunError(
            f"{folder}: its weights are not those of the learner that this version builds: use the "
            "version of arml that wrote it"
        )
    return filled(blank, arrays)
