"""One trial of a sweep, in this process or in one of its own: `python -m arml.tuning.trial FOLDER`.

The other process reads the experiment as one line of JSON, says each validation score as another,
and stops at any further line that it is sent.
"""

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax

from arml.experiment import Experiment, NotFiniteError, from_json, run, to_json
from arml.results.folder import RunError, read_metrics
from arml.training import checkpoint

Report = Callable[[int, float], bool]
"""Told a step and its validation score; says whether to stop for it."""


class End(NamedTuple):
    """How a trial ended: `complete`, `behind` (of other trials), `bad` (its loss was not finite),
    `stopped`, to be taken up, or `error`; and why."""

    how: str
    why: str = ""


def attempt(experiment: Experiment, folder: Path, report: Report, stop: Callable[[], bool]) -> End:
    """Train in `folder`, or go on there, and report each validation score."""
    behind = bad = False

    def told(step: int, record: Any) -> None:
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


def attempt_apart(
    experiment: Experiment, folder: Path, report: Report, stop: Callable[[], bool]
) -> End:
    """`attempt` in a process of its own, which leaves nothing behind.

    **Raises** `RunError` with what that process could not do.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "arml.tuning.trial", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            # Ctrl-C is for us, who then ask it to save and stop.
            start_new_session=True,
        )
    said, heard = process.stdin, process.stdout
    assert said is not None
    assert heard is not None

    def say(line: str) -> None:
        # It may have ended of itself.
        with contextlib.suppress(OSError, ValueError):
            said.write(line + "\n")
            said.flush()

    over = threading.Event()

    def hold() -> None:
        while not over.wait(0.2):
            if stop():
                say("stop")
                return

    threading.Thread(target=hold, daemon=True).start()
    end, behind = End("error", f"see {folder / 'log.txt'}"), False
    try:
        say(json.dumps(to_json(experiment)))
        for line in heard:
            news = json.loads(line)
            if "end" in news:
                end = End(*news["end"])
            elif report(news["step"], news["score"]):
                behind = True
                say("stop")
    finally:
        # It stops at the end of what it hears, whatever ends us.
        over.set()
        with contextlib.suppress(OSError):
            said.close()
        heard.close()
        process.wait()
    if end.how == "error":
        raise RunError(f"the trial in {folder} failed: {end.why}")
    return End("behind") if behind and end.how == "stopped" else end


def main() -> None:
    """The other process's side."""
    first, asked = sys.stdin.readline(), threading.Event()

    def listen() -> None:
        sys.stdin.readline()
        asked.set()

    def say(**news: Any) -> None:
        # Nobody may be there any more.
        with contextlib.suppress(OSError):
            print(json.dumps(news), flush=True)

    def report(step: int, score: float) -> bool:
        say(step=step, score=score)
        return False

    threading.Thread(target=listen, daemon=True).start()
    try:
        experiment = from_json(json.loads(first), "the experiment")
        say(end=attempt(experiment, Path(sys.argv[1]), report, asked.is_set))
    except ValueError as error:
        say(end=End("error", str(error)))


if __name__ == "__main__":
    main()
