"""The score of a run, with all facts that a reader needs: the content of `result.json`.

The tasks of a split are the same for every run, so two runs are compared task by task.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, cast

import jax
import numpy as np
from jaxtyping import Array

from arml.core.calibration import expected_error, temperature
from arml.core.compilation import short
from arml.core.episodes import TaskDistribution, in_words
from arml.core.inner import steps_of, with_steps
from arml.core.learner import MetaLearner, adapted_to, parameters
from arml.experiment.by_class import by_class, class_names
from arml.experiment.loaded import Run
from arml.experiment.options import Experiment, fingerprint
from arml.experiment.simple import simple_classifiers, simple_scores
from arml.results.files import plain
from arml.results.folder import (
    CLASSES,
    FORMAT,
    ByClass,
    Calibration,
    Result,
    write_by_class,
    write_result,
)
from arml.results.scores import Scores, pairing, write_scores
from arml.training.devices import everywhere, mesh_of
from arml.training.evaluate import Predictions, Split, predictions
from arml.training.provenance import commit, device, versions

CALIBRATION_TASKS = 200
"""Validation tasks on which the temperature is set."""


class Scored(NamedTuple):
    """A run and its scores: the summary for `result.json`, and one score for each task."""

    folder: Path
    run: Run
    result: Result
    scores: Scores
    classes: ByClass | None = None
    """Which classes are hard, if the classes of the tasks have names."""


def unscored(folder: Path | str, split: Split = "test") -> Scores:
    """Scores of no task of a run, to see before any work whether two runs can be compared."""
    tasks = Run(folder).tasks(split)
    identity = tasks.identity()
    none = np.zeros(0)
    return Scores(
        none, none, pairing(identity, split), tasks.families, split=split, identity=identity
    )


def evaluate_run(
    folder: Path | str,
    *,
    tasks: int = 1000,
    split: Split = "test",
    steps: int | None = None,
    change: Callable[[MetaLearner], MetaLearner] = lambda learner: learner,
    devices: int = 1,
    simple: bool = False,
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> Scored:
    """Score the newest checkpoint of a run folder on the first `tasks` tasks of a split.

    **Arguments**

    - `steps`: inner steps at test; those of the training if None.
    - `change`: a change of the learner before it is scored.
    - `devices`: of this process; they share the tasks, and the scores are the same to rounding.
    - `simple`: whether to score simple classifiers on the same tasks, too.
    - `watch`: called with the tasks done and their total.

    **Raises** `RunError` for a folder that is not a run or is damaged, `ValueError` for an invalid
    number of tasks or steps.
    """
    if tasks < 1:
        raise ValueError(f"tasks must be at least 1, got {tasks}: ask for some hundreds")
    run = Run(folder)
    learner = change(run.learner if steps is None else with_steps(run.learner, steps))
    distribution = run.tasks(split)
    mesh = mesh_of(devices)
    learner = everywhere(mesh, learner)
    classifies = _classifies(distribution)
    own = tasks + (CALIBRATION_TASKS if classifies and split == "test" else 0)
    total = own + tasks * len(simple_classifiers(distribution.problem) if simple else ())

    def predicted_on(split: Split, n: int, before: int) -> Predictions:
        return predictions(
            learner,
            everywhere(mesh, run.tasks(split)),
            split=split,
            n=n,
            chunk=run.experiment.chunk,
            mesh=mesh,
            watch=lambda done, _: watch(before + done, total),
        )

    predicted = predicted_on(split, tasks, 0)
    calibration = None
    if classifies:
        test = split == "test"
        validated = predicted_on("validation", CALIBRATION_TASKS, tasks) if test else None
        calibration = calibrated(predicted, validated)
    scores = replace(predicted.scores, step=run.step)
    summary = scores.summary()
    inputs = run.splits.inputs
    result = Result(
        format=FORMAT,
        # Rows of different models are not seeds of one experiment.
        recipe=run.experiment.recipe + (f" ({inputs['model']})" if inputs else ""),
        seed=run.experiment.seed,
        split=split,
        metric=scores.metric,
        score=summary["score"],
        families=summary["families"],
        inner_steps=steps_of(learner),
        protocol=protocol(run.experiment, learner, distribution),
        commit=commit(),
        versions=versions(),
        device=device(),
        seconds=round(run.seconds, 2),
        parameters=parameters(run.learner),
        steps=run.step,
        floor=distribution.floor(),
        trained=run.made,
        options=fingerprint(run.experiment),
        inputs=inputs,
        calibration=calibration,
    )
    if simple:
        result["simple"] = simple_scores(
            distribution,
            tasks,
            split=split,
            chunk=run.experiment.chunk,
            watch=lambda done: watch(own + done, total),
        )
    return Scored(run.folder, run, result, scores, _by_class(run, predicted, split, calibration))


def _by_class(
    run: Run, predicted: Predictions, split: Split, calibration: Calibration | None
) -> ByClass | None:
    tasks = run.tasks(split)
    names = class_names(run.folder, tasks, split)
    if names is None:
        return None
    best = (calibration["temperature"] if calibration else None) or 1.0
    return by_class(predicted, names, tasks, step=run.step, temperature=best)


def keep(scored: Scored) -> None:
    """Write the scores of single tasks and the result into the folder of the run."""
    write_scores(scored.folder / "scores.npz", scored.scores)
    (scored.folder / CLASSES).unlink(missing_ok=True)
    if scored.classes is not None:
        write_by_class(scored.folder, scored.classes)
    # Last: if there is a result, the scores are complete.
    write_result(scored.folder / "result.json", scored.result)


def kept(
    folder: Path | str, *, tasks: int, split: Split = "test", steps: int | None = None
) -> Scored | None:
    """The scores that `keep` wrote, of the first `tasks` tasks. None if they are of another split,
    of fewer tasks, of other inner steps or of another checkpoint than the newest."""
    run = Run(folder)
    scores, result = run.scores, run.result
    if scores is None or result is None:
        return None
    same = scores.split == split and scores.step == run.step and len(scores) >= tasks
    if not same or steps not in (None, scores.inner_steps):
        return None
    scores = scores.first(tasks)
    # The calibration in the result, and the simple scores, are of another number of tasks.
    if scores.score["n"] != result["score"]["n"]:
        result = {**result, "calibration": None, "simple": {}}
    return Scored(run.folder, run, cast(Result, {**result, **scores.summary()}), scores)


def calibrated(predicted: Predictions, validated: Predictions | None) -> Calibration:
    """The calibration of the probabilities of `predicted`, before and after the temperature that is
    best on `validated`. If that is None, there is no temperature."""
    logits, y = _flat(predicted)
    error = plain(expected_error(logits, y))
    if validated is None:
        return Calibration(error=error, temperature=None, error_calibrated=None, tasks=0)
    best = temperature(*_flat(validated))
    return Calibration(
        error=error,
        temperature=plain(best),
        error_calibrated=plain(expected_error(logits, y, best)),
        tasks=len(validated.outputs),
    )


def _flat(predicted: Predictions) -> tuple[np.ndarray, np.ndarray]:
    outputs = predicted.outputs
    return outputs.reshape(-1, outputs.shape[-1]), predicted.targets.reshape(-1)


def protocol(experiment: Experiment, learner: MetaLearner, tasks: TaskDistribution) -> str:
    """The conditions of a score in words: the protocol of the tasks, and whether predictions depend
    on the other queries of a task."""
    said = in_words(tasks.protocol())
    statistics = {"batch": "batch statistics (transductive)", "support": "support statistics"}
    if normalisation := getattr(experiment.network, "normalisation", None):
        return f"{said}, {statistics[normalisation]}" if _classifies(tasks) else said
    parts = (experiment.network, experiment.algorithm)
    if all(type(part).__module__.startswith("arml.") for part in parts):
        return said  # our networks without this option have no normalisation
    return f"{said}, transductive" if is_transductive(learner, tasks) else said


def _classifies(tasks: TaskDistribution) -> bool:
    return tasks.problem.kind == "classification"


def is_transductive(learner: MetaLearner, tasks: TaskDistribution) -> bool:
    """Whether the prediction of a query changes if it is asked alone, on one task."""
    alone, together = _alone_and_together(learner, tasks)
    return not np.allclose(alone, together, rtol=1e-3, atol=1e-3)


@short
def _alone_and_together(learner: MetaLearner, tasks: TaskDistribution) -> tuple[Array, Array]:
    """The prediction of the first query of a task by itself, and among all of them."""
    draw, key = jax.random.split(jax.random.key(0))
    task = tasks.sample(draw)
    predict = adapted_to(learner, task.support, key=key).predict
    return predict(task.query.x[:1])[0], predict(task.query.x)[0]
