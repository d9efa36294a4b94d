"""Many jobs, each in a separate process: on the cores of this machine, or on a Ray cluster.

`carry_out` is the interface, with a carrier for each place. Seeds, sweeps and the study use it. If
the process that called it is killed, its workers notice, save their state, and end. On Ray a job
whose node or process dies is tried again, and continues at its checkpoint: its folder must be on
storage that all nodes share.
"""

import io
import multiprocessing
import os
import secrets
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from types import ModuleType
from typing import Any

Job = dict[str, Any]
"""Plain data. Nothing else of the package is imported: NumPy counts the cores when it is."""
Stopping = Callable[[], bool]
Carrier = Callable[[str, Job, Path], str]
"""Carries out a function with a job, which is to stop once the path exists; returns the failure."""
MAX_RETRIES = 5
"""How often Ray tries a job again whose node or process has died."""
HANDED_ON = ("ARML_", "GLIBC_", "JAX_", "XLA_", "PYTHONPATH")
"""Beginnings of the variables of the environment that jobs on a cluster get."""


def carry_out(
    function: str,
    jobs: Sequence[Job],
    folder: Path,
    *,
    workers: int,
    stop: Stopping = lambda: False,
    watch: Callable[[], object] = lambda: None,
    on: str | None = None,
) -> Iterator[tuple[int, str]]:
    """Call `MODULE:FUNCTION` once for each job in its own process, `workers` at a time. It gets the
    job, and a `stop`: once that returns True, it saves its work and returns. `folder` gets the
    logs of this machine's workers. Twice a second `watch` and `stop` are called. Once `stop` is
    true, no other job begins. `on` is None for this machine, `ray` or `ray://HOST:PORT` for a Ray
    cluster. **Returns** an iterator over the jobs that have ended: the number and the failure, ""
    for none.
    """
    folder.mkdir(parents=True, exist_ok=True)
    carry = _here(folder, workers) if on is None else _on_ray(on)
    stopped = folder.resolve() / f".stop-{secrets.token_hex(4)}"
    with ThreadPoolExecutor(max(workers, 1)) as pool:
        running = {pool.submit(carry, function, job, stopped): i for i, job in enumerate(jobs)}
        try:
            while running:
                done, _ = wait(running, timeout=0.5, return_when=FIRST_COMPLETED)
                watch()
                for one in done:
                    yield running.pop(one), one.result()
                if stop():
                    stopped.touch()
                    running = {one: i for one, i in running.items() if not one.cancel()}
        finally:
            stopped.touch()
            pool.shutdown(cancel_futures=True)
            stopped.unlink()


def _here(folder: Path, workers: int) -> Carrier:
    """The carrier of this machine, whose workers share the cores and the accelerators."""
    context, places = multiprocessing.get_context("spawn"), SimpleQueue[int]()
    for place in range(workers):
        places.put(place)

    def carry(function: str, job: Job, stopped: Path) -> str:
        place = places.get()
        log = folder / f"worker-{place}.log"
        given = (place, workers, log)
        try:
            with ProcessPoolExecutor(1, context, initializer=_begin, initargs=given) as pool:
                return pool.submit(call, function, job, stopped).result()
        except BrokenProcessPool:
            return f"its process was killed; see {log}"
        finally:
            places.put(place)

    return carry


def _begin(place: int, workers: int, log: Path) -> None:
    """The first call in a worker of this machine."""
    # A terminal and a scheduler signal every process. The parent then asks this one to stop.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # a killed job leaves its last lines
    # JAX counts cores and accelerators when it is first used.
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[place::workers] or [cores[place % len(cores)]])
    devices = [d for d in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if d]
    if len(devices) > 1:
        os.environ["CUDA_VISIBLE_DEVICES"] = devices[place % len(devices)]
    if workers > max(len(devices), 1):
        # Else each would reserve most of the memory of the accelerator that they share.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def call(function: str, job: Job, stopped: Path) -> str:
    """Carry out a job in a worker; returns the failure, "" for none."""
    parent = multiprocessing.parent_process()

    def alone() -> bool:
        return parent is not None and not parent.is_alive()

    module, _, name = function.partition(":")
    if stopped.exists():
        return ""
    try:
        getattr(import_module(module), name)(job, lambda: stopped.exists() or alone())
    except Exception as error:
        traceback.print_exc()
        kind = "" if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: "
        return kind + " ".join(str(error).split())[:500]
    finally:
        if alone():
            os._exit(1)  # the caller has ended
    return ""


def cluster(on: str) -> ModuleType:
    """The package Ray, connected to the cluster that `on` (`ray://HOST:PORT`) or `$RAY_ADDRESS`
    names; without one, Ray is started on this machine. **Raises** `ValueError` in one line."""
    from arml.results.machine import cores, extra

    if on != "ray" and not on.startswith("ray://"):
        raise ValueError(f"expected ray or ray://HOST:PORT after --on, got {on!r}")
    ray = extra("ray", "ray", "--on ray")
    if ray.is_initialized():
        return ray
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    handed = {k: v for k, v in os.environ.items() if k.startswith(HANDED_ON)}
    own: Job = {"runtime_env": {"env_vars": handed}, "log_to_driver": False}
    if on == "ray" and "RAY_ADDRESS" not in os.environ:
        own |= {"num_cpus": cores(), "include_dashboard": False}
    try:
        with warnings.catch_warnings(action="ignore"):  # of a fork: Ray only starts programs
            ray.init(None if on == "ray" else on, logging_level="ERROR", **own)
    except (ConnectionError, RuntimeError, ValueError) as error:
        first = " ".join(str(error).split())[:200]
        advice = "check the address, and set RAY_AUTH_MODE=token if the cluster has a token"
        raise ValueError(f"no Ray cluster at {on} ({first}): {advice}") from error
    return ray


def _on_ray(on: str) -> Carrier:
    """The carrier of a cluster: a job gets one core, and one GPU if there are some."""
    ray = cluster(on)
    gpus = min(1, ray.cluster_resources().get("GPU", 0))
    own = {"env_vars": {"NPROC": "1"}}  # thread of XLA's; Ray sets those of OpenMP
    task = ray.remote(num_gpus=gpus, max_retries=MAX_RETRIES, max_calls=1, runtime_env=own)(call)

    def carry(function: str, job: Job, stopped: Path) -> str:
        try:
            return str(ray.get(task.remote(function, job, stopped)))
        except ray.exceptions.RayError as error:
            return " ".join(str(error).split())[:500]

    return carry
