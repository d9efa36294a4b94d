"""A worker process: units come in as lines of JSON, and what becomes of them goes out as such.

`python -m arml.reproduce.worker OUT [CORES]` reads units from its input and keeps to the cores that
it is given (`0,1`). The end of its input is the wish to stop: the unit in hand is saved, and goes
on the next time. So a worker whose parent was killed ends, too.
"""

import json
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

EVERY = 0.5
"""Seconds between two messages about one unit."""


def keep_to(cores: str) -> None:
    """Use these cores and no others, where the system can say so. Before JAX counts them."""
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(core) for core in cores.split(",")})


class Inbox:
    """Lines of the input as they come, and whether it has ended."""

    def __init__(self, source: TextIO) -> None:
        self.lines: queue.Queue[str | None] = queue.Queue()
        self.ended = threading.Event()
        threading.Thread(target=self._read, args=(source,), daemon=True).start()

    def _read(self, source: TextIO) -> None:
        for line in source:
            self.lines.put(line)
        self.ended.set()
        self.lines.put(None)


def work(out: Path, inbox: Inbox, send: TextIO) -> None:
    """Carry out unit after unit until the input ends."""

    def say(message: dict[str, Any]) -> None:
        send.write(json.dumps(message) + "\n")
        send.flush()

    while (line := inbox.lines.get()) is not None and not inbox.ended.is_set():
        carried_out(json.loads(line), out, say, inbox.ended.is_set)


def carried_out(
    unit: dict[str, Any],
    out: Path,
    say: Callable[[dict[str, Any]], None],
    stop: Callable[[], bool],
) -> None:
    """Carry one unit out, and say how it goes and how it ended."""
    from arml.reproduce.unit import carry_out

    said: tuple[str, float] = ("", 0.0)

    def watch(what: str, done: int, total: int) -> None:
        nonlocal said
        now = time.monotonic()
        if what != said[0] or now - said[1] > EVERY:
            said = (what, now)
            say({"phase": what, "done": done, "total": total})

    try:
        finished = carry_out(unit, out, watch=watch, stop=stop)
        say({"end": "done" if finished else "stopped"})
    except Exception as error:
        # One failed row must not take the others with it; the log has the rest.
        traceback.print_exc()
        known = isinstance(error, ValueError | OSError)
        kind = "" if known else f"unexpected {type(error).__name__}: "
        say({"end": "failed", "error": kind + " ".join(str(error).split())[:500]})


def main() -> None:
    out, cores = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""
    keep_to(cores)
    # What libraries print must not come between the messages.
    send = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    work(out, Inbox(sys.stdin), send)


if __name__ == "__main__":
    main()
