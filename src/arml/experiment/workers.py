"""Jobs in processes of their own, each on its share of the processor cores.

A sweep and several seeds of a run use `carry_out`. If the process that called it is killed, its
workers notice, save what they have in hand, and end.
"""

import contextlib
import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

Message = dict[str, Any]
"""Plain data. Nothing else of the package is imported: NumPy counts the cores when it is."""
Send = Callable[[Message], None]
Stop = Callable[[], bool]
PATIENCE = 600.0
"""Seconds that a worker has to save its job once it is asked to stop; then it is killed."""


def carry_out(
    function: str,
    jobs: Sequence[Message],
    folder: Path,
    *,
    workers: int,
    received: Callable[[int, Message], None],
    stop: Stop = lambda: False,
) -> dict[int, str]:
    """Call a function once for each job in a process of its own, `workers` at a time.

    **Arguments**

    - `function`: `MODULE:FUNCTION`, called with the job, with `send`, which sends a message to this
      process, and with `stop`: once that is true, the function saves its work and returns.
    - `jobs`: plain data.
    - `folder`: gets the log of each worker, `worker-0.log` and so on.
    - `received`: called with the number of the job and each message.
    - `stop`: asked twice a second; once true, the workers stop, and no other job begins.

    **Returns** the jobs that failed, by number, each with the reason.
    """
    context = multiprocessing.get_context("spawn")
    folder.mkdir(parents=True, exist_ok=True)
    stopping = context.Event()
    waiting, free = list(enumerate(jobs)), list(range(workers))
    # The number of a job, its place among the workers that run at the same time, and its process.
    running: dict[Connection, tuple[int, int, SpawnProcess]] = {}
    failed: dict[int, str] = {}
    try:
        while waiting or running:
            if stop():
                stopping.set()
                waiting.clear()
            while waiting and free:
                (number, job), place = waiting.pop(0), free.pop(0)
                ours, theirs = context.Pipe(duplex=False)
                given = function, job, place, workers, log_of(folder, place), theirs, stopping
                process = context.Process(target=_work, args=given)
                process.start()
                theirs.close()  # so that the end of the process ends the messages
                running[ours] = number, place, process
            for line in wait([*running], timeout=0.5):
                assert isinstance(line, Connection)
                number, place, process = running[line]
                try:
                    message = line.recv()
                except EOFError:
                    process.join()
                    if process.exitcode and not stopping.is_set():
                        failed[number] = (
                            f"its process ended with status {process.exitcode}; see "
                            f"{log_of(folder, place)}"
                        )
                    free.append(place)
                    del running[line]
                else:
                    if "failed" in message:
                        failed[number] = message["failed"]
                    else:
                        received(number, message)
    finally:
        stopping.set()
        for _, _, process in running.values():
            process.join(PATIENCE)
            process.kill()
    return failed


def log_of(folder: Path, place: int) -> Path:
    """The file with everything that a worker prints."""
    return folder / f"worker-{place}.log"


def _work(
    function: str,
    job: Message,
    place: int,
    workers: int,
    log: Path,
    line: Connection,
    stopping: Event,
) -> None:
    """The whole life of a worker."""
    # A terminal and a scheduler signal every process. The parent then asks this one to stop.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    own_part(place, workers)
    parent = multiprocessing.parent_process()

    def stop() -> bool:
        return stopping.is_set() or (parent is not None and not parent.is_alive())

    def send(message: Message) -> None:
        # The parent may have been killed: the work in hand is saved anyway.
        with contextlib.suppress(OSError):
            line.send(message)

    module, _, name = function.partition(":")
    try:
        getattr(import_module(module), name)(job, send, stop)
    except Exception as error:
        traceback.print_exc()
        kind = "" if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: "
        send({"failed": kind + " ".join(str(error).split())[:500]})


def own_part(place: int, workers: int) -> None:
    """Keep this process to its part of the cores, and to one of the accelerators that
    `$CUDA_VISIBLE_DEVICES` names. JAX counts both when it is first used, so call this before."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[place::workers] or [cores[place % len(cores)]])
    devices = [d for d in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if d]
    if len(devices) > 1:
        os.environ["CUDA_VISIBLE_DEVICES"] = devices[place % len(devices)]
