"""One trial of a sweep, in this process or as the job of a worker process."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import jax

from arml.experiment.options import Experiment, from_json
from arml.experiment.running import run
from arml.experiment.workers import Message, Send
from arml.results.files import read_metrics
from arml.training import checkpoint
from arml.training.fit import NotFiniteError

Report = Callable[[int, float], bool]
"""Called with a step and its validation score; returns whether to stop the trial."""


class End(NamedTuple):
    """How a trial ended, and why: `complete`, `behind` other trials, `bad` (its loss was not
    finite), or `stopped` (it can be resumed)."""

    how: str
    why: str = ""


def attempt(experiment: Experiment, folder: Path, report: Report, stop: Callable[[], bool]) -> End:
    """Train in `folder`, from its newest checkpoint if it has one, and report each validation
    score."""
    behind = bad = False

    def told(step: int, record: Mapping[str, int | float | None]) -> None:
        nonlocal behind, bad
        if "validation" in record:
            score = record["validation"]
            bad = bad or score is None
            behind = behind or (score is not None and report(step, score))

    saved = checkpoint.latest(folder / "checkpoints") or 0
    for record in read_metrics(folder / "metrics.jsonl"):
        if record["step"] <= saved:
            told(record["step"], record)
    try:
        if not (behind or bad):
            reached = run(experiment, folder, watch=told, stop=lambda: behind or bad or stop())
    except NotFiniteError as error:
        return End("bad", str(error))
    finally:
        # Each trial compiles programs of its own.
        jax.clear_caches()
    if bad:
        return End("bad", "the validation score is not finite")
    if behind:
        return End("behind")
    return End("complete" if reached == experiment.steps else "stopped")


def work(job: Message, send: Send, stop: Callable[[], bool]) -> Message:
    """A trial as a worker's job `{experiment, folder}`: sends each score as `{step, score}`."""

    def report(step: int, score: float) -> bool:
        send({"step": step, "score": score})
        return False

    experiment = from_json(job["experiment"], "the experiment of a trial")
    end = attempt(experiment, Path(job["folder"]), report, stop)
    return {"end": end.how, "error": end.why}
