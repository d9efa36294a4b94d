"""A worker process: it reads jobs as lines of JSON and writes messages as lines of JSON.

`python -m arml.results.worker MODULE:FUNCTION [CORES]` calls `FUNCTION(job, send, stop)` for each
line that it reads. The function sends messages while it works, and returns the last message of the
job, which has the key `end`. The worker stops when its standard input closes: `stop()` is then
true, the function saves the job in hand, and the process ends. A worker therefore also ends when
its parent is killed.
"""

import contextlib
import json
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable
from importlib import import_module
from typing import TextIO

from arml.results.files import Json

Message = Json
"""A job, or news of one: an object of JSON."""
Send = Callable[[Message], None]
Carry = Callable[[Message, Send, Callable[[], bool]], Message]
"""Carries out a job: `(job, send, stop) -> last message`."""


def finished(carry: Carry, job: Message, send: Send, stop: Callable[[], bool]) -> Message:
    """The last message of a job. An exception becomes the message `failed` with one line, and its
    traceback goes to the standard error stream."""
    try:
        return carry(job, send, stop)
    except Exception as error:
        traceback.print_exc()
        known = isinstance(error, ValueError | OSError)
        kind = "" if known else f"unexpected {type(error).__name__}: "
        return {"end": "failed", "error": kind + " ".join(str(error).split())[:500]}


def serve(carry: Carry, source: TextIO, target: TextIO) -> None:
    """Carry out one job after another until `source` ends."""
    lines: queue.Queue[str | None] = queue.Queue()
    ended = threading.Event()

    def read() -> None:
        for line in source:
            lines.put(line)
        ended.set()
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()

    def send(message: Message) -> None:
        # The parent may have been killed: the job in hand is saved anyway.
        with contextlib.suppress(OSError):
            target.write(json.dumps(message) + "\n")
            target.flush()

    while (line := lines.get()) is not None and not ended.is_set():
        send(finished(carry, json.loads(line), send, ended.is_set))


def main() -> None:
    name, _, function = sys.argv[1].partition(":")
    cores = sys.argv[2] if len(sys.argv) > 2 else ""
    # Before JAX is imported, which counts the cores.
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    # Libraries print to the standard output: that text must not come between the messages.
    target = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(getattr(import_module(name), function), sys.stdin, target)


if __name__ == "__main__":
    main()
