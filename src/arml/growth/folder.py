"""The run folder of a learner that grows, and trainings that can be resumed.

Beside the files of every run, `growth.json` has the decisions and the scores, and `growing/` has
the options of an unfinished command and the trainings of its present stage. Each file is replaced
as a whole, and the checkpoint is written last: a stage counts once its checkpoint is there.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from arml.core.episodes import TaskDistribution
from arml.core.learner import MetaLearner
from arml.experiment.options import Experiment, to_json
from arml.experiment.running import Clocked, check_place, differences
from arml.growth.vertices import grown_vertices, own_vertices
from arml.results.files import (
    LOCK,
    Json,
    RunError,
    append_metric,
    plain,
    read_json,
    read_metrics,
    truncate_metrics,
    write_json,
    write_text,
)
from arml.results.folder import read_config
from arml.training import checkpoint
from arml.training.fit import FitOptions, Fitted, Moment, OuterOptions, fit, start

SPLIT, FILE, KEPT = "split.json", "growth.json", "growing"
PLAN = "plan.json"
"""The file in `growing/` with the options of the command."""
METRICS = "metrics.jsonl"


def trained(
    learner: MetaLearner | Fitted,
    tasks: TaskDistribution,
    *,
    steps: int,
    outer: OuterOptions,
    batch: int,
    interval: int,
    seed: int,
    folder: Path | None = None,
) -> Fitted:
    """`arml.fit`, which keeps its state in `folder` after each interval and goes on from there, bit
    for bit.

    **Raises** `RunError` for a damaged file.
    """
    step = None if folder is None else checkpoint.latest(folder)
    if folder is not None and step is not None:
        whole = learner.learner if isinstance(learner, Fitted) else learner
        state = checkpoint.restore(folder, step, start(whole, outer.build(steps)))
        truncate_metrics(folder / METRICS, step)
        earlier = learner.history if isinstance(learner, Fitted) else ()
        history = (*earlier, *read_metrics(folder / METRICS))
        options = replace(FitOptions.usual(tasks.problem, steps), outer=outer, batch=batch)
        about = (replace(options, interval=interval), seed, tasks.problem, tasks.families)
        learner = Fitted(state.learner, history, state, *about)
    if isinstance(learner, Fitted) and learner.step >= steps:
        return learner

    def keep(now: Moment) -> None:
        if folder is not None:
            append_metric(folder / METRICS, {"step": now.step, **now.record})
            checkpoint.save(folder, now.step, now.state)

    return fit(
        learner,
        tasks,
        steps=steps,
        seed=seed,
        outer=outer,
        batch=batch,
        interval=interval,
        callbacks=[keep],
    )


def read_plan(folder: Path, options: Json) -> Json | None:
    """What an unfinished command has written about its options; None in a new folder.

    **Raises** `RunError` for a folder that holds something else, or was made with other options.
    """
    check_place(folder)
    file = folder / KEPT / PLAN
    if file.is_file():
        plan = read_json(file)
        changes = differences({name: plan.get(name) for name in options}, plain(options))
        if changes:
            more = f"; and {len(changes) - 8} more" if len(changes) > 8 else ""
            raise RunError(
                f"{folder} was made with other options ({'; '.join(changes[:8])}{more}): give "
                "those to go on, or name another folder"
            )
        return plan
    if any(path.name not in (SPLIT, LOCK, KEPT) for path in folder.glob("*")):
        holds = "a learner that has grown" if (folder / FILE).is_file() else "other files"
        raise RunError(
            f"expected an empty or new folder, got {folder}, which holds {holds}: name another"
        )
    return None


def with_vertices(experiment: Experiment, vertices: int, added: int) -> Experiment:
    """The experiment that builds a learner with so many vertices, of which some were added."""
    algorithm: Any = experiment.algorithm
    return replace(experiment, algorithm=replace(algorithm, vertices=vertices, grown=added))


def publish(
    folder: Path,
    learner: MetaLearner,
    content: Json,
    experiment: Experiment,
    losses: Sequence[tuple[int | float | None, float | None]],
    *,
    step: int,
    seconds: float,
) -> None:
    """Make a claimed folder the run of a learner after an outer step. `content` is that of
    `growth.json`, and `losses` are those of training, by step."""
    write_json(folder / FILE, content)
    lines = (json.dumps({"step": at, "loss": plain(loss)}) + "\n" for at, loss in losses)
    write_text(folder / METRICS, "".join(lines))
    if added := grown_vertices(learner):
        experiment = with_vertices(experiment, own_vertices(learner) or 0, added)
    write_json(folder / "config.json", {**read_config(folder), "experiment": to_json(experiment)})
    state = start(learner, experiment.outer.build(experiment.steps))
    checkpoint.save(folder / "checkpoints", step, Clocked(state, np.asarray(seconds)))
