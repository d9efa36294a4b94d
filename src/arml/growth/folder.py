"""The run folder of a learner that grows. Beside the files of every run, `growth.json` has the
decisions and the scores. Each file is replaced as a whole, and the checkpoint is written last: a
stage counts once its checkpoint is there."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from arml.core.learner import MetaLearner
from arml.experiment.options import Experiment
from arml.experiment.running import Clocked, check_place
from arml.results.files import LOCK, Json, RunError, plain, write_json, write_text
from arml.training import checkpoint
from arml.training.fit import start

SPLIT, FILE = "split.json", "growth.json"


def check_new_run(folder: Path) -> None:
    """Raise `RunError` for a folder that is not empty."""
    check_place(folder)
    if any(path.name not in (SPLIT, LOCK) for path in folder.glob("*")):
        holds = "a learner that has grown" if (folder / FILE).is_file() else "other files"
        raise RunError(
            f"expected an empty or new folder, got {folder}, which holds {holds}: name another"
        )


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
    write_text(folder / "metrics.jsonl", "".join(lines))
    state = start(learner, experiment.outer.build(experiment.steps))
    checkpoint.save(folder / "checkpoints", step, Clocked(state, np.asarray(seconds)))
