"""`arml train --seeds N`: several seeds of one experiment, side by side."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import jax
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from arml.cli.console import command, say
from arml.cli.errors import UsageError
from arml.cli.progress import PLAIN_SECONDS, Quality, last_scored
from arml.cli.stopping import INTERRUPTED, Stop
from arml.experiment.options import Experiment
from arml.experiment.running import check_claim, of_seed, train_seeds
from arml.results.files import cores
from arml.training import checkpoint


class SeedsDisplay:
    """A bar for each seed on a terminal, and a line for all of them every ten seconds elsewhere."""

    def __init__(self, console: Console, seeds: Sequence[int], steps: int) -> None:
        self.console, self.steps = console, steps
        self.spoken = time.monotonic()
        self.said = dict.fromkeys(seeds, "waiting")
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[said]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self.tasks = {
            seed: self.bar.add_task(f"seed {seed}", total=None, said="waiting", start=False)
            for seed in seeds
        }

    def watch(self, seed: int, step: int, record: Mapping[str, float | None]) -> None:
        """A seed has reached a step."""
        if not record:
            self.said[seed] = "compiling"
            self.bar.start_task(self.tasks[seed])
        else:
            self.said[seed] = f"{step:,}/{self.steps:,}"
        self.bar.update(
            self.tasks[seed],
            total=self.steps if record else None,
            completed=step,
            said=self.said[seed],
        )

    def tick(self) -> None:
        """Called twice a second."""
        now = time.monotonic()
        if self.bar.disable and now - self.spoken > PLAIN_SECONDS:
            self.spoken = now
            parts = ", ".join(f"seed {seed} {said}" for seed, said in self.said.items())
            say(self.console, parts)


def train_all(
    console: Console,
    experiment: Experiment,
    folder: Path,
    count: int,
    again: str,
    quality: Quality,
    *,
    workers: int | None = None,
) -> int:
    """Train `count` seeds from the experiment's own on, `workers` at once or as many as suit this
    machine; returns the exit status."""
    if (folder / "config.json").exists():
        raise UsageError(f"expected a folder for several seeds, got the run {folder}: name another")
    seeds = list(range(experiment.seed, experiment.seed + count))
    left = []
    for seed in seeds:
        own, place = of_seed(experiment, folder, seed)
        own.check()
        check_claim(own, place)
        if checkpoint.latest(place / "checkpoints") != own.steps:
            left.append(seed)
    if workers is None:
        # Processes on one accelerator would each reserve most of its memory.
        workers = cores() if jax.default_backend() == "cpu" else 1
    workers = min(workers, len(left))
    if left:
        at_once = f", {workers} at a time" if workers < len(left) else ""
        say(console, f"training {len(left)} of {count} seeds{at_once}, one process each")
    display = SeedsDisplay(console, left, experiment.steps)
    stop = Stop("stopping after the steps in hand, which are then saved")
    with stop.listening(), display.bar:
        failed = train_seeds(
            experiment,
            folder,
            left,
            workers=workers,
            watch=display.watch,
            stop=stop,
            tick=display.tick,
        )
    for seed, why in failed.items():
        say(console, f"seed {seed} failed: {why}")
    if stop():
        say(console, f"stopped and saved; to resume: {again}")
        return INTERRUPTED
    _summary(console, [folder / f"seed-{s}" for s in seeds if s not in failed], quality)
    if failed:
        say(console, f"to try the failed seeds again: {again}")
        return 1
    return 0


def _summary(console: Console, folders: Sequence[Path], quality: Quality) -> None:
    """The last validation score of each seed, and their mean and spread."""
    last = []
    for folder in folders:
        if record := last_scored(folder):
            last.append(record["validation"])
            said = quality.said(last[-1], record.get("validation_ci95"))
            say(console, f"{folder.name}: {said}")
    if len(last) > 1 and all(score is not None for score in last):
        spread = float(np.std(last, ddof=1))
        mean = float(np.mean(last))
        say(console, f"{len(last)} seeds: mean {mean:.3g}, standard deviation {spread:.2g}")
    if folders:
        say(console, f"next: {command('evaluate', str(folders[0].parent))}")
