"""The run folder of a learner that grows.

Beside the files of every run, `growth.json` has the decisions and the scores, and `growing/` has
the options of an unfinished command and the trainings of its present stage. Each file is replaced
as a whole, and the checkpoint is written last: a stage counts once its checkpoint is there.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from arml.experiment.options import Experiment, to_json
from arml.experiment.running import Clocked, check_place, differences
from arml.growth.growing import Growth
from arml.growth.vertices import grown_vertices
from arml.results.files import LOCK, Json, RunError, plain, read_json, write_json, write_text
from arml.results.folder import read_config
from arml.training import checkpoint
from arml.training.fit import start

SPLIT, FILE, KEPT = "split.json", "growth.json", "growing"
ASKED = "asked.json"
"""The file in `growing/` with the options of the command."""


def check_claim(folder: Path, asked: Json) -> Json | None:
    """What an unfinished command, or a stream, has written about its options; None in a new folder.

    **Raises** `RunError` for a folder that holds something else, or was begun with other options.
    """
    check_place(folder)
    file = folder / KEPT / ASKED
    if file.is_file():
        old = read_json(file)
        changes = differences({name: old.get(name) for name in asked}, plain(asked))
        if changes:
            more = f"; and {len(changes) - 8} more" if len(changes) > 8 else ""
            raise RunError(
                f"{folder} was begun with other options ({'; '.join(changes[:8])}{more}): give "
                "those to go on, or name another folder"
            )
        return old
    if any(path.name not in (SPLIT, LOCK, KEPT) for path in folder.glob("*")):
        holds = "a learner that has grown" if (folder / FILE).is_file() else "other files"
        raise RunError(
            f"expected an empty or new folder, got {folder}, which holds {holds}: name another"
        )
    return None


def with_vertices(experiment: Experiment, vertices: int, added: int) -> Experiment:
    """The experiment that builds a learner with so many vertices, of which some were added."""
    if not vertices:
        return experiment
    algorithm: Any = experiment.algorithm
    return replace(experiment, algorithm=replace(algorithm, vertices=vertices, grown=added))


def publish(
    folder: Path,
    growth: Growth,
    experiment: Experiment,
    metric: str,
    steps: int,
    seconds: float,
    outcome: Json | None = None,
) -> None:
    """Make a claimed folder the run of a learner after stages of `steps` outer steps each.
    `outcome` are the scores before and after, where all stages are over."""
    records, more = growth.records, {} if outcome is None else {"outcome": outcome}
    write_json(folder / FILE, {"metric": metric, **more, "records": records})
    metrics = []
    for record in records:
        before = steps * record["stage"]
        metrics += [{"step": before + at, "loss": loss} for at, loss in record.get("losses", ())]
        metrics += [
            {"step": before + point["tasks"] // experiment.batch, "validation": point["score"]}
            for point in record.get("curve", ())
        ]
    metrics.sort(key=lambda line: line["step"])
    lines = [json.dumps(plain(line), allow_nan=False) + "\n" for line in metrics]
    write_text(folder / "metrics.jsonl", "".join(lines))
    now = with_vertices(experiment, len(growth.names), grown_vertices(growth.learner))
    write_json(folder / "config.json", {**read_config(folder), "experiment": to_json(now)})
    state = start(growth.learner, experiment.outer.build(experiment.steps))
    step = steps * len({record["stage"] for record in records})
    checkpoint.save(folder / "checkpoints", step, Clocked(state, np.asarray(seconds)))
