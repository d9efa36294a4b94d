"""`arml train --stream`: a recipe is trained on families that arrive one after another.

The folder is a run after each stage, and the same command goes on from there.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import jax
import numpy as np

from arml.core.episodes import Problem
from arml.core.learner import MetaLearner
from arml.experiment.options import Experiment, absolute, essence, metric_of
from arml.experiment.recipes import built
from arml.experiment.running import claim, differences, like
from arml.growth.folder import FILE, SPLIT, check_new, publish, with_vertices
from arml.growth.growing import Growth, StreamOptions, grown
from arml.growth.replay import kept
from arml.growth.vertices import own_vertices
from arml.results.files import Json, RunError, locked, plain, read_json, write_json
from arml.tasks.mixture import mixture
from arml.tasks.options import splits_of
from arml.training import checkpoint
from arml.training.evaluate import evaluate

MOST = 2**30
"""Bytes of tasks that are kept for replay."""


def train_stream(
    experiment: Experiment,
    folder: Path | str,
    options: StreamOptions | None = None,
    *,
    say: Callable[[str], None] = lambda line: None,
) -> Json:
    """Meta-train on families that arrive one after another, in `folder`; it goes on after the last
    whole stage.

    The steps of the experiment are those of the whole stream, and all stages have the same number.
    A learner whose vertices own the weights of the network grows; others train all weights, with
    replay. Scores of test tasks are taken after each stage, and decide nothing.

    **Returns** the content of `growth.json`: the `metric`, in `records` the decisions of each stage
    and its scores on test tasks, and in `plan` the options.

    **Raises** `ValueError` or `RunError` in one line.
    """
    options, folder = options or StreamOptions(), Path(folder)
    options.check()
    experiment.check()
    experiment = absolute(experiment)
    plan = plain({"experiment": essence(experiment), "stream": asdict(options)})
    content = _begun(folder, plan)
    with locked(folder):
        splits = splits_of(experiment.tasks.build(folder / SPLIT))
        order = options.stages(splits.train.families)
        steps = experiment.steps // len(order)
        if steps < 1:
            raise ValueError(
                f"{experiment.steps} steps are too few for {len(order)} stages: raise --steps"
            )
        problem = splits.train.problem
        check_room(problem, len(splits.train.families), options.keep)
        if content is None:
            content = {"metric": metric_of(experiment.tasks), "records": [], "plan": plan}
            write_json(folder / FILE, content)
        experiment = replace(experiment, recipe=f"{experiment.recipe} (stream)")
        claim(experiment, splits, folder)
        train, held, test = (mixture(part) for part in splits[:3])
        memory = kept(train, options.keep, key=jax.random.key(1_000 + experiment.seed))
        staged = replace(experiment, steps=steps)
        growth, seconds = _resumed(experiment, problem, folder, steps, built(experiment, problem))
        if growth.stages:
            say(f"resuming after {growth.stages} of {len(order)} stages")
        for index, name in list(enumerate(order))[growth.stages :]:
            say(f"stage {index + 1} of {len(order)}, {name}")
            started = time.monotonic()
            growth = grown(growth, train, held, {name: 1.0}, options, staged, memory=memory)
            scores = {
                family: evaluate(
                    growth.learner, test.only(family), options.held, progress=False
                ).mean
                for family in dict.fromkeys(order)
            }
            scored = {
                "stage": index,
                "decision": "scored",
                "family": name,
                "scores": scores,
                "vertices": own_vertices(growth.learner) or 0,
                **{part: growth.records[-1][part] for part in ("tasks", "replayed")},
            }
            growth = replace(growth, records=(*growth.records, scored))
            seconds += time.monotonic() - started
            content["records"] = growth.records
            losses = [
                (steps * record["stage"] + step, loss)
                for record in growth.records
                for step, loss in record.get("losses", ())
            ]
            learner, step = growth.learner, steps * growth.stages
            publish(folder, learner, content, experiment, losses, step=step, seconds=seconds)
    return content


def _begun(folder: Path, plan: Json) -> Json | None:
    """The content of `growth.json`; None in a new folder.

    **Raises** `RunError` for a folder that holds something else, or was made with other options.
    """
    content = read_json(folder / FILE) if (folder / FILE).is_file() else {}
    if "plan" not in content:
        check_new(folder)
        return None
    if changes := differences(content["plan"], plan):
        more = f"; and {len(changes) - 8} more" if len(changes) > 8 else ""
        raise RunError(
            f"{folder} was made with other options ({'; '.join(changes[:8])}{more}): give those to "
            "go on, or name another folder"
        )
    return content


def check_room(problem: Problem, families: int, keep: int) -> None:
    """Raise `ValueError` if the kept tasks of all families need too much memory."""
    numbers = (problem.support + problem.query) * int(np.prod(problem.features))
    each = 4 * numbers * families
    if keep * each > MOST:
        raise ValueError(
            f"expected kept tasks of at most {MOST / 2**30:g} GiB, got {keep} of each family, "
            f"which are {keep * each / 2**30:.1f} GiB: give --keep {MOST // each}"
        )


def _resumed(
    experiment: Experiment, problem: Problem, folder: Path, steps: int, fresh: MetaLearner
) -> tuple[Growth, float]:
    """The stream as far as its newest checkpoint has it, and the seconds that it took."""
    step = checkpoint.latest(folder / "checkpoints")
    if step is None:
        return Growth(fresh), 0.0
    stages = step // steps
    # The other files may be those of the next stage already.
    records = [r for r in read_json(folder / FILE)["records"] if r["stage"] < stages]
    scored = [record for record in records if record["decision"] == "scored"]
    vertices, first = scored[-1]["vertices"], own_vertices(fresh) or 0
    if vertices > first:
        experiment = with_vertices(experiment, vertices, vertices - first)
    saved = checkpoint.restore(folder / "checkpoints", step, like(experiment, problem))
    known = tuple(dict.fromkeys(record["family"] for record in scored))
    return Growth(saved.state.learner, known, stages, tuple(records)), float(saved.seconds)
