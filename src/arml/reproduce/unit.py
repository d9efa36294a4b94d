"""One row and one seed: trained, scored and explained, in an ordinary run folder.

Each part continues where it stopped, and a finished part is not repeated.
"""

import time
from collections.abc import Callable
from pathlib import Path

from arml.experiment.folder import check_claim
from arml.experiment.options import from_json
from arml.experiment.running import run
from arml.experiment.scoring import evaluate_run
from arml.explain.explaining import explain
from arml.reproduce.plan import Unit, is_done, is_scored, suffix
from arml.reproduce.variants import VARIANTS
from arml.results.folder import write_result
from arml.results.lock import alone
from arml.results.scores import write_scores
from arml.results.worker import Message, Send
from arml.training import checkpoint

Watch = Callable[[str, int, int], None]
"""Called with the phase (`training`), how much of it is done, and how much there is."""

EVERY = 0.5
"""Seconds between two messages about one phase."""


def work(job: Message, send: Send, stop: Callable[[], bool]) -> Message:
    """Carry out one unit as a worker's job `{out, unit}`."""
    sent = ("", 0.0)

    def watch(phase: str, done: int, total: int) -> None:
        nonlocal sent
        now = time.monotonic()
        if phase != sent[0] or now - sent[1] > EVERY:
            sent = (phase, now)
            send({"phase": phase, "done": done, "total": total})

    finished = carry_out(job["unit"], Path(job["out"]), watch=watch, stop=stop)
    return {"end": "done" if finished else "stopped"}


def carry_out(unit: Unit, out: Path, *, watch: Watch, stop: Callable[[], bool]) -> bool:
    """Train, score and explain one unit within the study's folder `out`.

    `stop` is asked between two intervals of training and between two chunks of scoring.

    **Returns** whether the unit is finished. If not, the same call continues from there.

    **Raises** `ValueError` or `RunError` in one line, as `run`, `score` and `explain` do.
    """
    folder = out / unit["folder"]
    with alone(folder):
        if is_done(unit, out):
            return True
        experiment = from_json(unit["experiment"], unit["folder"])
        # Somebody may have copied a finished run here: it must be of this experiment.
        check_claim(experiment, folder)
        steps = experiment.steps
        if checkpoint.latest(folder / "checkpoints") != steps:
            watch("compiling", 0, steps)
            reached = run(
                experiment,
                folder,
                watch=lambda step, record: watch("training", step, steps) if record else None,
                stop=stop,
            )
            if reached < steps:
                return False
        try:
            _score(unit, out, watch, stop)
        except _Stopped:
            return False
        if unit["explain"] and not (folder / "explain" / "explain.json").is_file():
            watch("explaining", 0, 1)
            explain(folder, folder / "explain", tasks=unit["explain"])
    return True


class _Stopped(Exception):
    """Scoring was stopped. The next call scores from the first task."""


def _score(unit: Unit, out: Path, watch: Watch, stop: Callable[[], bool]) -> None:
    folder = out / unit["folder"]

    def watched(done: int, total: int) -> None:
        watch("scoring", done, total)
        if stop():
            raise _Stopped

    for scored in unit["scored"]:
        if is_scored(unit, scored, out):
            continue
        found = evaluate_run(folder, tasks=unit["tasks"], change=VARIANTS[scored], watch=watched)
        end = suffix(scored)
        write_scores(folder / f"scores{end}.npz", found.scores)
        # Last, because a result means that the scores are there.
        write_result(folder / f"result{end}.json", found.result)
