"""A run's learner as a folder to share, calibrated on validation tasks."""

import dataclasses
from pathlib import Path

from arml.core.calibration import temperature
from arml.experiment import Portable, Run
from arml.predict.embedding import measured_novelty
from arml.predict.inference import inductive
from arml.predict.sharing import write_learner
from arml.training.evaluate import predictions


def exported(run: Path | str, folder: Path | str, *, tasks: int = 200) -> Portable:
    """Write a run's learner as a folder to share, its temperature set and its novelty measured on
    `tasks` validation tasks (0 for neither; they need the run's data).

    **Raises** `RunError` for a folder that is no run, or if it cannot be written.
    """
    opened = Run(run)
    portable = opened.portable()
    if tasks:
        portable = _measured(portable, opened, tasks)
    write_learner(portable, folder)
    return portable


def _measured(portable: Portable, run: Run, tasks: int) -> Portable:
    learner, chunk = inductive(portable.learner), portable.experiment.chunk
    train, validation = run.splits.train, run.splits.validation
    best = portable.temperature
    if portable.problem.kind == "classification":
        found = predictions(learner, validation, split="validation", n=tasks, chunk=chunk)
        logits = found.outputs.reshape(-1, found.outputs.shape[-1])
        best = temperature(logits, found.targets.reshape(-1))
    novelty = measured_novelty(learner, train, validation, tasks=tasks, chunk=chunk)
    return dataclasses.replace(portable, temperature=best, novelty=novelty)
