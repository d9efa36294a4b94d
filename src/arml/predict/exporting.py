"""A run's learner as a folder to share, calibrated on validation tasks."""

import dataclasses
from pathlib import Path

from jaxtyping import Array

from arml.core.calibration import temperature
from arml.core.episodes import Problem, Task
from arml.core.learner import MetaLearner
from arml.experiment.loaded import Portable, Run
from arml.predict.embedding import Vectors, embeds, measured_novelty, of_task
from arml.predict.inference import inductive
from arml.predict.shared import check_free
from arml.predict.sharing import write_learner
from arml.training.evaluate import looks, together


def exported(run: Path | str, folder: Path | str, *, tasks: int = 200) -> Portable:
    """Write a run's learner as a folder to share, its temperature set and its novelty measured on
    `tasks` validation tasks (0 for neither; they need the run's data).

    **Raises** `RunError` for a folder that is no run, or if it cannot be written.
    """
    check_free(Path(folder), predictor=False)  # before the work
    opened = Run(run)
    portable = opened.portable()
    if tasks:
        portable = _measured(portable, opened, tasks)
    write_learner(portable, folder)
    return portable


def _of_task(
    given: tuple[MetaLearner, Problem], task: Task, key: Array
) -> tuple[Array, Array, tuple[Array, ...] | None]:
    """The predictions on ONE task, the targets, and its vectors: it is drawn and adapted to once
    for the calibration and the novelty."""
    learner, problem = given
    outputs = learner.adapt(task.support, key=key).predict(task.query.x)
    found = of_task(given, task, key) if embeds(learner, problem) else None
    return outputs, task.query.y, found


def _measured(portable: Portable, run: Run, tasks: int) -> Portable:
    learner, chunk = inductive(portable.learner), portable.experiment.chunk
    train, validation = run.splits.train, run.splits.validation
    best, found = portable.temperature, None
    if portable.problem.kind == "classification":
        given = learner, portable.problem
        parts = looks(_of_task, given, validation, split="validation", n=tasks, chunk=chunk)
        outputs, targets, vectors = together(parts)
        found = vectors and Vectors(*vectors)
        best = temperature(outputs.reshape(-1, outputs.shape[-1]), targets.reshape(-1))
    novelty = measured_novelty(learner, train, validation, tasks=tasks, chunk=chunk, found=found)
    return dataclasses.replace(portable, temperature=best, novelty=novelty)
