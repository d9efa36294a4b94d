"""The units of a study, carried out by workers: one unit a worker, in order."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from arml.reproduce.plan import Unit, is_done
from arml.results.files import Json, write_json
from arml.results.worker import Message
from arml.results.workers import Hire, carry_out, processes


@dataclass
class Progress:
    """The progress of a study, for the overview. It may be read at any time."""

    units: Sequence[Unit]
    already: int = 0
    """Units that were done before."""
    done: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """The folder of each unit that failed, and why."""
    running: dict[int, Json] = field(default_factory=dict)
    """By worker: `unit`, `phase`, `done`, `total`, `since`."""
    planned: float = 0.0
    spent: float = 0.0
    """Seconds that the finished units took; `planned` is the estimate for them."""

    def left(self, workers: int) -> float:
        """The remaining seconds: the estimate, corrected by the times of the finished units."""
        over = {*self.done, *self.failed}
        total: float = sum(u["seconds"] for u in self.units if u["folder"] not in over)
        for at in self.running.values():
            if at["phase"] == "training" and at["total"]:
                total -= at["unit"]["seconds"] * at["done"] / at["total"]
        pace = self.spent / self.planned if self.planned else 1.0
        return max(total, 0.0) * pace / max(workers, 1)


def carry_out_all(
    units: Sequence[Unit],
    out: Path,
    *,
    workers: int,
    watch: Callable[[Progress], None],
    stop: Callable[[], bool],
    hire: Hire | None = None,
) -> Progress:
    """Carry out the units that are not done yet.

    A unit that fails is noted in `failure.json` of its folder, and the others go on. When `stop`
    returns true, the running units are saved, and the same call continues from there. `hire` makes
    another kind of worker than a process (`cluster.hire`).
    """
    progress = Progress(units)

    def begun(index: int, job: Message) -> None:
        about = {"unit": job["unit"], "since": time.monotonic()}
        progress.running[index] = {**about, "phase": "starting", "done": 0, "total": 0}

    def heard(index: int, job: Message, message: Message) -> bool:
        if "end" not in message:
            progress.running[index].update(message)
            return False
        at, folder = progress.running.pop(index), job["unit"]["folder"]
        failure = out / folder / "failure.json"
        if message["end"] == "failed":
            progress.failed[folder] = message["error"]
            write_json(failure, {"error": message["error"]})
        elif message["end"] == "done":
            progress.done.append(folder)
            progress.planned += job["unit"]["seconds"]
            progress.spent += time.monotonic() - at["since"]
            failure.unlink(missing_ok=True)
        return False

    progress.done += [unit["folder"] for unit in units if is_done(unit, out)]
    progress.already = len(progress.done)
    left = [unit for unit in units if unit["folder"] not in {*progress.done}]
    workers = min(workers, len(left))
    carry_out(
        ({"out": str(out.resolve()), "unit": unit} for unit in left),
        hire or processes("arml.reproduce.unit:work", out, workers),
        workers=workers,
        heard=heard,
        begun=begun,
        stop=stop,
        tick=lambda: watch(progress),
    )
    return progress
