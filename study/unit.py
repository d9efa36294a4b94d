"""One run of the study: trained, scored and explained, in an ordinary run folder.

Each part continues where it stopped, a finished part is not repeated, and an interrupted unit
saves.
"""

import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import arml
from arml.core.episodes import in_words
from arml.experiment.options import from_json, to_json
from arml.explain.explaining import explain
from arml.results.files import read_json, write_json
from arml.results.folder import read_config
from arml.results.scores import Scores, write_scores
from study.plan import Unit


def is_scored(unit: Unit, out: Path) -> bool:
    """Whether a unit's run was scored with these options, steps and tasks."""
    folder = out / unit["folder"]
    if not ((folder / "scores.npz").is_file() and (folder / "row.json").is_file()):
        return False
    row = read_json(folder / "row.json")
    known = (row["steps"], row["options"], row["tasks"])
    return known == (unit["experiment"]["steps"], unit["options"], unit["tasks"])


def is_done(unit: Unit, out: Path) -> bool:
    """Whether a unit is finished."""
    explained = out / unit["folder"] / "explain" / "explain.json"
    return is_scored(unit, out) and (not unit["explain"] or explained.is_file())


def carry_out(unit: Unit, out: Path, stopping: Callable[[], bool] = lambda: False) -> bool:
    """Train, score and explain one unit; returns whether it is finished.

    **Raises** `ValueError` in one line, as `arml.run` and `arml.evaluate` do.
    """
    folder = out / unit["folder"]
    experiment = from_json(unit["experiment"], unit["folder"])
    go_on(experiment, folder)
    clock: list[tuple[int, float]] = []

    def timed(step: int, record: Any) -> None:
        clock.append((step, time.process_time()))

    if arml.run(experiment, folder, stop=stopping, watch=timed).last < experiment.steps:
        return False
    paces = [
        (after - before) / (step - at)
        for (at, before), (step, after) in pairwise(clock[1:])  # the first steps are compiled
        if step > at
    ]
    run = arml.Run(folder)
    if not is_scored(unit, out):
        if stopping():
            return False
        tasks, chunk = run.tasks("test"), experiment.chunk
        scores = arml.evaluate(run, tasks, n=unit["tasks"], progress=False, chunk=chunk)
        write_scores(folder / "scores.npz", scores)
        # Last, because a row means that the scores are there.
        pace = {"core_seconds": round(median(paces), 4)} if paces else {}
        write_json(folder / "row.json", {**row_of(unit, run, scores), **pace})
    if unit["explain"] and not (folder / "explain" / "explain.json").is_file():
        explain(folder, folder / "explain", tasks=unit["explain"])
    return True


def go_on(experiment: arml.Experiment, folder: Path) -> None:
    """Let a run whose outer rate is constant begin with the checkpoint of a finished one that has
    fewer steps and is otherwise the same: `PLACE/METHOD/seed-0` with that of
    `PLACE-start/METHOD/seed-0`."""
    if getattr(experiment.outer, "schedule", "") != "constant":
        return
    place, _, method = experiment.recipe.partition("/")
    recipe = f"{place}-start/{method}"
    shorter = folder.parents[2] / recipe / folder.name
    if (folder / "config.json").exists() or not (shorter / "row.json").is_file():
        return
    config = read_config(shorter)
    known = from_json(config["experiment"], str(shorter))
    shortened = replace(experiment, recipe=recipe, steps=known.steps)
    if replace(shortened, validate_every=known.validate_every) != known:
        return
    for name in ("checkpoints", "metrics.jsonl"):
        copy = shutil.copytree if (shorter / name).is_dir() else shutil.copy2
        copy(shorter / name, folder / name)
    write_json(
        folder / "config.json",
        {**config, "recipe": experiment.recipe, "experiment": to_json(experiment)},
    )


def row_of(unit: Unit, run: arml.Run, scores: Scores) -> dict[str, Any]:
    """All that a table says of a run besides its scores, and the seconds of processor time of a
    step, which are `core_seconds`."""
    test = run.tasks("test")
    return {
        "recipe": unit["experiment"]["recipe"],
        "seed": unit["experiment"]["seed"],
        "options": unit["options"],
        "steps": run.step,
        "inner_steps": scores.inner_steps,
        "tasks": len(scores),
        "metric": scores.metric,
        "families": list(scores.names),
        "protocol": in_words(test.protocol()),
        "normalisation": getattr(run.experiment.network, "normalisation", None),
        "floor": test.floor(),
        "seconds": round(run.seconds, 1),
        "made": run.made,
    }


def work(job: dict[str, Any], stop: Callable[[], bool]) -> None:
    """Carry out the job `{out, unit}` of a worker."""
    out, unit = Path(job["out"]), job["unit"]
    failure = out / unit["folder"] / "failure.json"
    try:
        carry_out(unit, out, stop)
    except (ValueError, OSError) as error:
        write_json(failure, {"error": " ".join(str(error).split())})
        raise
    failure.unlink(missing_ok=True)
