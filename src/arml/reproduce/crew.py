"""Units spread over worker processes: one unit a worker, in order, each on cores of its own.

Nothing of a unit is in this process: a worker that crashes costs its unit, and a new worker takes
its place.
"""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arml.reproduce.plan import is_done
from arml.results.files import write_json

REPLACED = 600.0
"""Seconds after which a worker is replaced between two units, so that what compilers keep in memory
does not add up over a night."""


@dataclass
class Progress:
    """How far a study is, for the overview: all of it may be read at any time."""

    units: Sequence[dict[str, Any]]
    begun: float = field(default_factory=time.monotonic)
    already: int = 0
    """Units that were done before."""
    done: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """The folder of each unit that failed, and why."""
    running: dict[int, dict[str, Any]] = field(default_factory=dict)
    """By worker: `unit`, `phase`, `done`, `total`, `since`."""
    planned: float = 0.0
    spent: float = 0.0
    """Seconds that the finished units should have taken, and took."""

    def left(self, workers: int) -> float:
        """Seconds to go, by the plan, corrected by what the finished units took."""
        over = {*self.done, *self.failed}
        total: float = sum(u["seconds"] for u in self.units if u["folder"] not in over)
        for at in self.running.values():
            if at["phase"] == "training" and at["total"]:
                total -= at["unit"]["seconds"] * at["done"] / at["total"]
        pace = self.spent / self.planned if self.planned else 1.0
        return max(total, 0.0) * pace / max(workers, 1)


def shares(workers: int) -> list[str]:
    """The cores of each worker, as `0,1`; empty where the system cannot say which there are."""
    if not hasattr(os, "sched_getaffinity"):
        return [""] * workers
    cores = sorted(os.sched_getaffinity(0))
    if workers >= len(cores):
        return [str(cores[i % len(cores)]) for i in range(workers)]
    return [",".join(map(str, cores[i::workers])) for i in range(workers)]


def accelerators(workers: int) -> list[dict[str, str]]:
    """One accelerator a worker where the environment names several."""
    named = [d for d in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if d]
    if len(named) < 2:
        return [{} for _ in range(workers)]
    return [{"CUDA_VISIBLE_DEVICES": named[i % len(named)]} for i in range(workers)]


class Worker:
    """A process, and the thread that listens to it."""

    def __init__(
        self, index: int, out: Path, cores: str, device: dict[str, str], news: queue.Queue[Any]
    ) -> None:
        self.index, self.born = index, time.monotonic()
        self.log = (out / f"worker-{index}.log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "arml.reproduce.worker", str(out), cores],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env={**os.environ, **device},
            # Ctrl-C is for us, who then ask the workers to save and stop.
            start_new_session=True,
        )
        threading.Thread(target=self._listen, args=(news,), daemon=True).start()

    def _listen(self, news: "queue.Queue[Any]") -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                news.put((self, json.loads(line)))
        news.put((self, None))

    def give(self, unit: dict[str, Any]) -> None:
        """Hand it a unit."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # It may be gone, as its listener will say.
            self.process.stdin.write((json.dumps(unit) + "\n").encode())
            self.process.stdin.flush()

    def dismiss(self) -> None:
        """Ask it to save and stop."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()

    def gone(self) -> int:
        """Its exit status, after its last word."""
        status = self.process.wait()
        self.log.close()
        return status


def carry_out_all(
    units: Sequence[dict[str, Any]],
    out: Path,
    *,
    workers: int,
    watch: Callable[[Progress], None],
    stop: Callable[[], bool],
    hire: Callable[..., Any] = Worker,
) -> Progress:
    """Carry the units out; those that are done already are left alone.

    A unit that fails is noted in `failure.json` of its folder, and the others go on. After `stop`
    says so, the units in hand are saved, and the same call goes on from there. `hire` makes a
    worker of another kind (`cluster.hire`).
    """
    progress = Progress(units)
    waiting = []
    for unit in units:
        if is_done(unit, out):
            progress.already += 1
            progress.done.append(unit["folder"])
        else:
            waiting.append(unit)
    out.mkdir(parents=True, exist_ok=True)
    news: queue.Queue[Any] = queue.Queue()
    workers = min(workers, len(waiting))
    places = list(zip(shares(workers), accelerators(workers), strict=True))
    crew: dict[int, Any] = {}
    hired: list[Any] = []

    def next_unit(index: int) -> None:
        worker: Any = crew.pop(index, None)
        if worker is not None and (
            stop() or not waiting or time.monotonic() - worker.born > REPLACED
        ):
            worker.dismiss()
            worker = None
        if stop() or not waiting:
            return
        unit = waiting.pop(0)
        if worker is None:
            worker = hire(index, out, *places[index], news)
            hired.append(worker)
        crew[index] = worker
        about = {"unit": unit, "since": time.monotonic()}
        progress.running[index] = {**about, "phase": "starting", "done": 0, "total": 0}
        worker.give(unit)

    def ended(index: int, message: dict[str, Any]) -> None:
        at = progress.running.pop(index)
        folder = at["unit"]["folder"]
        failure = out / folder / "failure.json"
        if message["end"] == "failed":
            progress.failed[folder] = message["error"]
            write_json(failure, {"error": message["error"]})
        elif message["end"] == "done":
            progress.done.append(folder)
            progress.planned += at["unit"]["seconds"]
            progress.spent += time.monotonic() - at["since"]
            failure.unlink(missing_ok=True)

    def listen() -> None:
        while progress.running:
            watch(progress)
            if stop():
                for worker in crew.values():
                    worker.dismiss()
            try:
                worker, message = news.get(timeout=0.5)
            except queue.Empty:
                continue
            index = worker.index
            if index not in crew or crew[index] is not worker:
                continue  # It was replaced: nothing of it is in hand.
            if message is None:
                # It went with its unit in hand.
                del crew[index]
                lost = f"its process ended with status {worker.gone()}; see worker-{index}.log"
                ended(index, {"end": "stopped" if stop() else "failed", "error": lost})
                next_unit(index)
            elif "end" in message:
                ended(index, message)
                next_unit(index)
            else:
                progress.running[index].update(message)

    try:
        for index in range(workers):
            next_unit(index)
        listen()
    finally:
        for worker in hired:
            worker.dismiss()
        for worker in hired:
            worker.gone()
    watch(progress)
    return progress
