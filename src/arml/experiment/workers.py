"""Jobs spread over worker processes, each on processor cores of its own.

A worker (`python -m arml.experiment.workers MODULE:FUNCTION [CORES]`) reads jobs as lines of JSON
and writes messages as lines of JSON. It calls `FUNCTION(job, send, stop)` for each line. The
function sends messages while it works, and returns the last message of the job, which has the key
`end`. The worker stops when its standard input closes, so it also ends when its parent is killed:
`stop()` is then true, and the function saves the job in hand.

Sweeps, studies and several seeds of a run all use `carry_out`. No job runs in this process, so a
crash ends one worker only: a new process takes its place and tries the job once more.
"""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
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


LASTING = 600.0
"""Seconds after which a worker is replaced between two jobs: the memory that compilers keep would
add up over a night."""
PATIENCE = 600.0
"""Seconds that a worker has to save its job and end, once it is asked to; then it is killed."""
TRIES = 2
"""How often a job is tried if its process dies."""


News = queue.Queue[tuple["Process", Message | None]]
Hire = Callable[[int, "News"], "Process"]
"""Makes the worker with this index."""


class Process:
    """A worker process, and the thread that reads its output."""

    def __init__(
        self, function: str, log: Path, index: int, news: News, *, cores: str = "", device: str = ""
    ) -> None:
        self.index, self.born, self.path = index, time.monotonic(), log
        self.killer: threading.Timer | None = None
        self.log = log.open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "arml.experiment.workers", function, cores],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env={**os.environ, **({"CUDA_VISIBLE_DEVICES": device} if device else {})},
            # Ctrl-C reaches this process only, which then asks the workers to save and end.
            start_new_session=True,
        )
        threading.Thread(target=self._listen, args=(news,), daemon=True).start()

    def _listen(self, news: News) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                news.put((self, json.loads(line)))
        news.put((self, None))

    def give(self, job: Message) -> None:
        """Write the job as one line."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # It may have died, which the thread will report.
            self.process.stdin.write((json.dumps(job) + "\n").encode())
            self.process.stdin.flush()

    def dismiss(self) -> None:
        """Close its standard input, and kill it if it has not ended after `PATIENCE` seconds."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        if self.killer is None:
            self.killer = threading.Timer(PATIENCE, self.process.kill)
            self.killer.daemon = True
            self.killer.start()

    def ended(self) -> str:
        """Wait for the process."""
        status = self.process.wait()
        if self.killer is not None:
            self.killer.cancel()
        self.log.close()
        return f"its process ended with status {status}; see {self.path}"


def processes(function: str, folder: Path, workers: int) -> Hire:
    """Makes processes for `MODULE:FUNCTION`, which share the cores and accelerators of this machine
    and write their logs to `folder`."""
    cores, devices = shares(workers), accelerators(workers)
    folder.mkdir(parents=True, exist_ok=True)

    def hire(index: int, news: News) -> Process:
        log = folder / f"worker-{index}.log"
        return Process(function, log, index, news, cores=cores[index], device=devices[index])

    return hire


def shares(workers: int) -> list[str]:
    """The cores of each worker, as `0,1`; empty if the system does not list the cores."""
    if not hasattr(os, "sched_getaffinity"):
        return [""] * workers
    cores = sorted(os.sched_getaffinity(0))
    if workers >= len(cores):
        return [str(cores[i % len(cores)]) for i in range(workers)]
    return [",".join(map(str, cores[i::workers])) for i in range(workers)]


def accelerators(workers: int) -> list[str]:
    """The accelerator of each worker, if `$CUDA_VISIBLE_DEVICES` names several; else empty."""
    named = [d for d in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if d]
    return [named[i % len(named)] if len(named) > 1 else "" for i in range(workers)]


def carry_out(
    jobs: Iterable[Message],
    hire: Hire,
    *,
    workers: int,
    heard: Callable[[int, Message, Message], bool],
    begun: Callable[[int, Message], None] = lambda index, job: None,
    stop: Callable[[], bool] = lambda: False,
    tick: Callable[[], None] = lambda: None,
    lasting: float = LASTING,
) -> None:
    """Carry out the jobs, `workers` at a time.

    **Arguments**

    - `jobs`: the next one is taken when a worker is free.
    - `heard`: called with the worker's index, its job and each message; the last message has the
      key `end`, which is `stopped` or `failed` if the worker died. If it returns true, the worker
      is asked to save the job and stop.
    - `begun`: called when a worker gets a job.
    - `stop`: once true, the workers save their jobs and end, and no other job begins.
    - `tick`: called every half second.
    - `lasting`: seconds after which a worker is replaced between two jobs.
    """
    waiting = iter(jobs)
    news: News = queue.Queue()
    crew: dict[int, Process] = {}
    hired: list[Process] = []
    in_hand: dict[int, Message] = {}
    tries: dict[int, int] = {}
    leaving: set[int] = set()

    def dismiss(index: int) -> None:
        leaving.add(index)
        crew[index].dismiss()

    def start(index: int, job: Message) -> None:
        if index not in crew:
            crew[index] = hire(index, news)
            hired.append(crew[index])
            leaving.discard(index)
        in_hand[index] = job
        crew[index].give(job)

    def start_next(index: int) -> None:
        job = None if stop() else next(waiting, None)
        old = crew.get(index)
        if old and (job is None or index in leaving or time.monotonic() - old.born > lasting):
            dismiss(index)
            del crew[index]
        if job is not None:
            tries[index] = 1
            begun(index, job)
            start(index, job)

    def end(index: int, message: Message) -> None:
        heard(index, in_hand.pop(index), message)
        start_next(index)

    try:
        for index in range(workers):
            start_next(index)
        while in_hand:
            tick()
            if stop():
                for index in crew:
                    dismiss(index)
            try:
                worker, message = news.get(timeout=0.5)
            except queue.Empty:
                continue
            index = worker.index
            if crew.get(index) is not worker:
                continue  # It was replaced, and had no job.
            if message is None:
                del crew[index]
                how = worker.ended()
                if not stop() and index not in leaving and tries[index] < TRIES:
                    tries[index] += 1
                    start(index, in_hand[index])
                elif stop() or index in leaving:
                    # It was asked to end, and may not have read the job.
                    end(index, {"end": "stopped"})
                else:
                    end(index, {"end": "failed", "error": how})
            elif "end" in message:
                end(index, message)
            elif heard(index, in_hand[index], message):
                dismiss(index)
    finally:
        for worker in hired:
            worker.dismiss()
        for worker in hired:
            worker.ended()
    tick()


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
