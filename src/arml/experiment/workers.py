"""Many jobs, each in a process of its own: on the cores of this machine, or on a Ray cluster.

`carry_out` is the interface, with a carrier for each place. Seeds, sweeps and the study use it. If
the process that called it is killed, its workers notice, save their state, and end. On Ray a job
whose node or process dies is tried again, and continues at its checkpoint: its folder must be on
storage that all nodes share.
"""

import contextlib
import multiprocessing
import os
import signal
import traceback
import warnings
from collections.abc import Callable, Generator, Sequence
from importlib import import_module
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

Message = dict[str, Any]
"""Plain data. Nothing else of the package is imported: NumPy counts the cores when it is."""
Send = Callable[[Message], object]
Stop = Callable[[], bool]
PATIENCE = 600.0
"""Seconds that a worker has to save its job once it is asked to stop; then it is killed."""
RETRIES = 5
"""How often Ray tries a job again whose node or process has died."""
HANDED_ON = ("ARML_", "JAX_", "XLA_", "PYTHONPATH")
"""Beginnings of the variables of the environment that jobs on a cluster get."""


def carry_out(
    function: str,
    jobs: Sequence[Message],
    folder: Path,
    *,
    workers: int,
    received: Callable[[int, Message], None],
    stop: Stop = lambda: False,
    on: str | None = None,
) -> dict[int, str]:
    """Call a function once for each job in a process of its own, `workers` at a time.

    **Arguments**

    - `function`: `MODULE:FUNCTION`, called with the job, with `send`, which sends a message to this
      process, and with `stop`: once that is true, the function saves its work and returns.
    - `jobs`: plain data.
    - `folder`: gets the log of each worker of this machine, `worker-0.log` and so on.
    - `received`: called with the number of the job and each message.
    - `stop`: asked twice a second; once true, the workers stop, and no other job begins.
    - `on`: None for this machine; `ray` or `ray://HOST:PORT` for a Ray cluster, see `cluster`.

    **Returns** the jobs that failed, by number, each with the reason.
    """
    folder.mkdir(parents=True, exist_ok=True)
    carrier = _here(function, jobs, folder, workers, stop)
    if on is not None:
        carrier = _on_ray(function, jobs, on, workers, stop)
    failed = {}
    with contextlib.closing(carrier):
        for number, message in carrier:
            if "failed" in message:
                failed[number] = message["failed"]
            else:
                received(number, message)
    return failed


def _here(
    function: str, jobs: Sequence[Message], folder: Path, workers: int, stop: Stop
) -> Generator[tuple[int, Message]]:
    """Carry out jobs on this machine; yields the number of a job and each of its messages."""
    context = multiprocessing.get_context("spawn")
    stopping = context.Event()
    waiting, free = list(enumerate(jobs)), list(range(workers))
    # The number of a job, its place among the workers that run at the same time, and its process.
    running: dict[Connection, tuple[int, int, SpawnProcess]] = {}
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
                    yield number, line.recv()
                except EOFError:
                    process.join()
                    free.append(place)
                    del running[line]
                    if process.exitcode and not stopping.is_set():
                        why = f"its process ended with status {process.exitcode}"
                        yield number, {"failed": f"{why}; see {log_of(folder, place)}"}
    finally:
        stopping.set()
        for _, _, process in running.values():
            process.join(PATIENCE)
            process.kill()


def cluster(on: str) -> Any:
    """The package Ray, connected to the cluster that `on` (`ray://HOST:PORT`) or `$RAY_ADDRESS`
    names; without one, Ray is started on this machine.

    **Raises** `ValueError` in one line.
    """
    from arml.results.files import cores, extra

    if on != "ray" and not on.startswith("ray://"):
        raise ValueError(f"expected ray or ray://HOST:PORT after --on, got {on!r}")
    ray = extra("ray", "ray", "--on ray")
    if not ray.is_initialized():
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        handed = {k: v for k, v in os.environ.items() if k.startswith(HANDED_ON)}
        named = on != "ray" or "RAY_ADDRESS" in os.environ
        own = {} if named else {"num_cpus": cores(), "include_dashboard": False}
        warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)  # Ray only starts programs
        try:
            ray.init(
                on if on != "ray" else None,
                runtime_env={"env_vars": handed},
                log_to_driver=False,
                logging_level="ERROR",
                **own,
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            first = " ".join(str(error).split())[:200]
            raise ValueError(f"no Ray cluster at {on} ({first}): check the address") from error
    return ray


class Board:
    """An actor of Ray's: the messages of the jobs, and whether they are asked to stop."""

    def __init__(self) -> None:
        self.stopping, self.messages = False, list[tuple[int, Message]]()

    def exchange(self, stopping: bool) -> list[tuple[int, Message]]:
        """Called by the driver, which takes the messages."""
        self.stopping, taken, self.messages = stopping, self.messages, []
        return taken

    def put(self, number: int, *messages: Message) -> bool:
        """Called by the jobs; returns whether to stop."""
        self.messages += [(number, message) for message in messages]
        return self.stopping


def _on_ray(
    function: str, jobs: Sequence[Message], on: str, workers: int, stop: Stop
) -> Generator[tuple[int, Message]]:
    """Carry out jobs on a cluster, as `_here` on this machine: each gets one core, and one GPU if
    there are some."""
    ray = cluster(on)
    gpus = min(1, ray.cluster_resources().get("GPU", 0))
    board = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(Board).remote()
    carry = ray.remote(num_gpus=gpus, max_retries=RETRIES, max_calls=1)(_carry)
    waiting, running, stopping = list(enumerate(jobs)), dict[Any, int](), False
    while waiting or running:
        if stopping := stopping or stop():
            waiting.clear()
        while waiting and len(running) < workers:
            number, job = waiting.pop(0)
            running[carry.remote(function, job, number, board)] = number
        ended, _ = ray.wait([*running], timeout=0.5)
        yield from ray.get(board.exchange.remote(stopping))
        for one in ended:
            number = running.pop(one)
            try:
                ray.get(one)
            except ray.exceptions.RayError as error:
                yield number, {"failed": " ".join(str(error).split())[:500]}


def _carry(function: str, job: Message, number: int, board: Any) -> None:
    """A job on a node of the cluster."""
    import ray

    os.environ["NPROC"] = "1"  # thread of XLA's; Ray sets those of OpenMP

    def send(*messages: Message) -> bool:
        stopping: bool = ray.get(board.put.remote(number, *messages))
        return stopping

    if not send():
        _call(function, job, send, send)


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

    _call(function, job, send, stop)


def _call(function: str, job: Message, send: Send, stop: Stop) -> None:
    """Carry out a job; an error becomes a message."""
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
