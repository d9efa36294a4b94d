"""Progress of a training and of a scoring, from the first second on."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from arml.report.tables import duration
from arml.results.files import Json, read_metrics

PLAIN_SECONDS = 10.0
"""Seconds between two lines of progress where there is no terminal."""


class Quality:
    """A validation score as text: `accuracy 0.66 on validation tasks (chance 0.20)`."""

    def __init__(self, metric: str, ways: int = 0) -> None:
        self.name = "accuracy" if metric == "accuracy" else "mean squared error"
        self.chance = f" (chance {1 / ways:.2f})" if metric == "accuracy" and ways else ""

    def said(self, mean: float | None, half: float | None = None) -> str:
        """The score, with half of its 95% interval if given."""
        value = _number(mean) + ("" if half is None or mean is None else f" ± {_number(half)}")
        return f"{self.name} {value} on validation tasks{self.chance}"


def last_scored(folder: Path) -> Json | None:
    """The last record of a training with a validation score."""
    records = reversed(read_metrics(folder / "metrics.jsonl"))
    return next((record for record in records if "validation" in record), None)


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.3g}"


class Display:
    """Shows a training: a bar on a terminal, and a plain line every ten seconds elsewhere.

    Before the first steps are done, most of the time is compilation. The display then shows how
    long that has taken.
    """

    def __init__(
        self,
        console: Console,
        steps: int,
        *,
        quality: Quality | None = None,
        interval: int = 0,
        validate_every: int = 0,
    ) -> None:
        self.console, self.steps = console, steps
        self.quality = quality or Quality("mse")
        self.loss = self.validation = ""
        self.born = self.phased = time.monotonic()
        self.interval, self.validate_every = interval, validate_every
        """In steps; 0 if unknown."""
        self.watched, self.rate = self.born, 0.0
        self.first: tuple[float, int] | None = None
        self.reached = 0
        self.spoken = self.born
        self.phase = "loading"
        self.over = threading.Event()
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[said]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self.task = self.bar.add_task(self.phase, total=None, said="")

    def __enter__(self) -> "Display":
        self.bar.start()
        self.ticker = threading.Thread(target=self._tick, daemon=True)
        self.ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.ticker.join()
        self.bar.stop()

    def _tick(self) -> None:
        while not self.over.wait(0.5):
            if self.phase in ("loading", "compiling"):
                self._show_start()
            elif self.phase == "training":
                self._show_validation()

    def _show_start(self, *, always: bool = False) -> None:
        """Show the time until the first steps are done."""
        took = time.monotonic() - self.phased
        if self.phase == "loading":
            self.bar.update(self.task, said=duration(took))
            self._say(f"loading: {duration(took)}")
            return
        self.bar.update(self.task, description="compiling", total=None, said=duration(took))
        self._say(f"compiling and making the first steps: {duration(took)}", always=always)

    def _show_validation(self) -> None:
        """Show a validation that takes longer than the steps before it."""
        upcoming = min(self.reached + self.interval, self.steps)
        due = upcoming == self.steps or (
            self.validate_every > 0
            and upcoming // self.validate_every > self.reached // self.validate_every
        )
        if not due or upcoming == self.reached or not self.rate:
            return
        took = time.monotonic() - self.watched - self.interval / self.rate
        if took > 1:
            said = f"{upcoming:,}/{self.steps:,}, {duration(took)}"
            self.bar.update(self.task, description="validating", said=said)
            self._say(f"step {upcoming:,} of {self.steps:,}: validating: {duration(took)}")

    def _say(self, text: str, *, always: bool = False) -> None:
        """Print a plain line if there is no terminal, at least ten seconds after the last one."""
        now = time.monotonic()
        if self.bar.disable and (always or now - self.spoken > PLAIN_SECONDS):
            self.spoken = now
            self.console.print(text, highlight=False, soft_wrap=True)

    def reading(self, what: str, done: int, total: int) -> None:
        """Show that images are decoded."""
        self.phase = f"reading {what}"
        said = f"{done:,}/{total:,}"
        self.bar.update(
            self.task, description=self.phase, completed=done, total=total or None, said=said
        )
        self._say(f"reading {what}: {said}")

    def watch(self, step: int, record: Mapping[str, float | None]) -> None:
        """Show that step `step` is done."""
        now = time.monotonic()
        self.reached, self.watched = step, now
        if not record:
            # Before the first step: the run compiles next.
            self.phase, self.phased = "compiling", now
            if step:
                self.bar.console.print(f"resuming at step {step:,}", highlight=False)
            self._show_start(always=True)
            return
        if "loss" in record:
            self.loss = f"loss {_number(record['loss'])}"
        if "validation" in record:
            self.validation = self.quality.said(record["validation"])
        rate = 0.0
        if self.first is None:
            # The first interval compiled: its time is not that of the others.
            self.phase, self.first = "training", (now, step)
            self.bar.reset(self.task, total=self.steps, description="training")
        else:
            rate = self.rate = (step - self.first[1]) / max(now - self.first[0], 1e-9)
        pace = f"{rate:.3g} steps/s" if rate else ""
        left = f"{duration((self.steps - step) / rate)} left" if rate else ""
        if "validation" in record and not self.bar.disable:
            self.bar.console.print(f"step {step:,}: {self.validation}", highlight=False)
        short = ", ".join(filter(None, (f"{step:,}/{self.steps:,}", pace, self.loss, left)))
        self.bar.update(self.task, completed=step, description="training", said=short)
        parts = (pace, self.loss, self.validation, left)
        said = ", ".join(filter(None, parts))
        self._say(f"step {step:,} of {self.steps:,}: {said}", always=step == self.steps)


@contextlib.contextmanager
def scoring() -> Iterator[Callable[[int, int], None]]:
    """A function that shows how many tasks are scored, on the standard error stream because a
    program may read the output."""
    with working("loading and compiling", Console(stderr=True), at_once=True) as show:
        yield lambda done, total: show(f"scored {done:,} of {total:,} tasks", done, total)


@contextlib.contextmanager
def working(text: str, console: Console, *, at_once: bool = False) -> Iterator[Callable[..., None]]:
    """A function `show(text, done, total)` that shows what is done now, and how much of it is done
    if that is known, with the time left: a bar on a terminal; elsewhere a line every ten seconds,
    the first one perhaps at once."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[said]}"),
    )
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task(text, total=None, said="")
    begun = time.monotonic()
    spoken = begun - PLAIN_SECONDS if at_once else begun
    over = threading.Event()
    state: Json = {"text": text, "done": 0, "total": None}

    def tick() -> None:
        nonlocal spoken
        while not over.wait(0.5):
            now = time.monotonic()
            said, done, total = duration(now - begun), state["done"], state["total"]
            if done and total:
                said += f", {duration((now - begun) * (total / done - 1))} left"
            bar.update(task, said=said)
            if bar.disable and now - spoken > PLAIN_SECONDS:
                spoken = now
                console.print(f"{state['text']} ({said})", highlight=False, soft_wrap=True)

    def show(text: str, done: int = 0, total: int | None = None) -> None:
        bar.update(task, description=text, completed=done, total=total)
        state.update(text=text, done=done, total=total)

    ticker = threading.Thread(target=tick, daemon=True)
    ticker.start()
    try:
        with bar:
            yield show
    finally:
        over.set()
        ticker.join()
