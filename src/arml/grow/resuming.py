"""A training that was stopped goes on from the interval that it had reached, bit for bit."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

import numpy as np

from arml.core.learner import MetaLearner
from arml.results.arrays import read_arrays, write_arrays
from arml.results.files import Json, RunError, write_json
from arml.results.forms import Count, Digest
from arml.results.schema import read_checked
from arml.tasks.options import TasksLike, splits_of
from arml.training.checkpoint import filled, named
from arml.training.fit import Fitted, Moment
from arml.training.options import FitOptions
from arml.training.step import TrainState, start

Train = Callable[[MetaLearner | Fitted, Callable[[Moment], None]], Fitted]


class Reached(TypedDict):
    """The file of a training that was stopped."""

    step: Count
    sha256: Digest
    history: list[Json]


def resumed(
    train: Train,
    learner: MetaLearner | Fitted,
    tasks: TasksLike,
    options: FitOptions,
    seed: int,
    file: Path,
) -> Fitted:
    """`train(learner, callback)`, from where it was stopped if `file` says so; `callback` keeps
    each interval there.

    **Raises** `RunError` for a damaged file.
    """
    if isinstance(learner, Fitted):
        begun = learner
    else:
        problem, families = splits_of(tasks).train.problem, splits_of(tasks).train.families
        state = start(learner, options.outer.build(options.steps))
        begun = Fitted(learner, (), state, options, seed, problem, families)
    taken = begun
    if file.exists():
        held = read_checked(file, Reached, "delete its folder")
        arrays = read_arrays(file.with_suffix(f".{held['step']}"), held["sha256"])
        state = _filled(begun.state, arrays)
        taken = replace(begun, learner=state.learner, state=state, history=tuple(held["history"]))
    history = [*taken.history]

    def keep(now: Moment) -> None:
        history.append({"step": now.step, **now.record})
        arrays = {where: np.asarray(leaf) for where, leaf in named(now.state).items()}
        weights = file.with_suffix(f".{now.step}")
        digest = write_arrays(weights, arrays)
        write_json(file, {"step": now.step, "sha256": digest, "history": history})
        for old in file.parent.glob(f"{file.stem}.*"):
            if old not in (file, weights):
                old.unlink()

    if taken.step >= options.steps:
        return taken
    return train(taken if file.exists() else learner, keep)


def _filled(blank: TrainState, arrays: dict[str, np.ndarray]) -> TrainState:
    wanted = {where: leaf.shape for where, leaf in named(blank).items()}
    if wanted != {where: array.shape for where, array in arrays.items()}:
        raise RunError("expected the weights of this training, got others: delete the folder")
    return filled(blank, arrays)
