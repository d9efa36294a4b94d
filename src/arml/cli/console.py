"""The terminal: reads options, writes text and progress, and handles Ctrl-C."""

import contextlib
import io
import json
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Literal, TypeVar

import tyro
from rich.console import Console, Group
from rich.progress import (
    BarColumn,
    Progress,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from arml.plugins.loading import as_options
from arml.report.tables import duration, grid
from arml.results.files import plain

T = TypeVar("T")
TYRO_CONFIG = (tyro.conf.DisallowNone, tyro.conf.PositionalMetavarFromFieldName)
"""tyro's settings for every command."""
PROGRESS_SECONDS = 10.0
"""Seconds between two lines of progress where there is no terminal."""
EXIT_INTERRUPTED = 130
"""The exit status of a command that was interrupted."""
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def parse(kind: type[T], arguments: Sequence[str], *, prog: str) -> T:
    """An instance of the dataclass `kind` from command-line arguments; see `understood`."""
    found: T = understood(kind, arguments, prog=prog)
    return found


def understood(kind: Any, arguments: Sequence[str], *, prog: str, **options: Any) -> Any:
    """The result of `tyro.cli` for command-line arguments, with its `options`. **Raises**
    `SystemExit` after `--help`, and `ValueError` in one line for errors that tyro would print in a
    box, and for an option that was given twice: tyro would drop the first."""
    names = [word.split("=")[0] for word in arguments if word.startswith("--")]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{twice[0]} was given twice: give it once, with all values after it")
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(kind, args=list(arguments), prog=prog, config=TYRO_CONFIG, **options)
    except SystemExit as end:
        if not end.code:
            raise
    rows = [row.strip("│| ") for row in Text.from_ansi(said.getvalue()).plain.splitlines()]
    # The frame is left out, with its title; the parts inside are separated by lines.
    parts = " ".join("\n" if {*row} <= {*"─-"} else row for row in rows[1:-1]).split("\n")
    raise ValueError("; ".join(filter(None, map(str.strip, parts))))


def refuse(options: object, names: Sequence[str], owners: str) -> None:
    """Raise `ValueError` for the first of these options that was given: it is for others."""
    for name in names:
        if getattr(options, name, None) != getattr(type(options), name, None):
            raise ValueError(f"--{name.replace('_', '-')} is for {owners}: leave it out")


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """How an ONNX model of pictures is used. Options that are not given are read from the file
    preprocessor_config.json beside the model, or assumed; a line names the assumed ones."""

    output: str | None = None
    """Name of the output, if the model has several, or of a value inside it (extra onnx)."""
    pool: Literal["cls", "mean", "none"] | None = None
    """For an output with tokens or positions: the first token, the mean, or all of it."""
    size: int | None = None
    """Pixels on each side of the ONNX model's input."""
    mean: tuple[float, float, float] | None = None
    """Mean of each channel of pixels in [0, 1]."""
    std: tuple[float, float, float] | None = None
    """Standard deviation of each channel; 0.003922, with --mean 0 0 0, keeps values of 0 to 255."""

    def given(self) -> dict[str, Any]:
        found = {name: getattr(self, name) for name in ModelOptions.__dataclass_fields__}
        return {name: value for name, value in found.items() if value is not None}


Shown = str | Table | Group
"""A line or a table to print."""


def say(console: Console, *lines: Shown) -> None:
    """Print tables, and plain lines without line breaks: paths and commands can be copied."""
    for line in lines:
        if isinstance(line, str):
            console.print(Text(line), soft_wrap=True)
        else:
            console.print(line)


def tell(*lines: str) -> None:
    """`say` on the standard error stream, because a program may read the output."""
    say(Console(stderr=True), *lines)


@contextlib.contextmanager
def doubts() -> Iterator[None]:
    """Print the first line of the package's logger, and the number of different ones after it."""
    from arml.datasets.decode import logged  # slow to load, and here it is loaded in any case

    lines = list[str]()
    try:
        with logged() as lines:
            yield
    finally:
        if lines:
            tell(lines[0] + (f", and {len(lines) - 1} more such lines" if len(lines) > 1 else ""))


def print_json(value: object) -> None:
    print(json.dumps(plain(value), indent=2, ensure_ascii=False))


def command(*words: str) -> str:
    """A command of this program to copy, with the plug-ins that were given."""
    return shlex.join(["arml", *words, *as_options()])


def listed(headings: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> Table:
    """A table without lines; the text in its last column is wrapped."""
    left = (0, len(headings) - 1)
    table = grid(headings, rows, left=left, box=None, show_header=any(headings), title=title)
    for column in table.columns[:-1]:
        column.no_wrap = True
    return table


class Display:
    """Shows work in progress: on a terminal a bar for each row, elsewhere a line every ten
    seconds."""

    def __init__(self, console: Console, text: str, rows: Sequence[object] = ("",)) -> None:
        self.console = console
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
            transient=True,
            disable=not console.is_terminal,
            speed_estimate_period=600,
        )
        self.tasks = {row: self.bar.add_task(text, total=None, note="") for row in rows}
        self.texts: dict[tuple[object, str], TaskID] = {}
        self.over = threading.Event()
        self.ticker = threading.Thread(target=self._tick, daemon=True)

    def show(
        self,
        text: str,
        done: int = 0,
        total: int | None = None,
        *,
        note: str = "",
        row: object = "",
    ) -> None:
        """Show the present work of a row, and how much of it is done, if that is known. Each `text`
        has its own time, which continues if the text returns, and restarts if nothing is done."""
        known = self.tasks.get(row)
        if known is None or self.bar.tasks[known].description != text:
            self.drop(row)
            if not done or (row, text) not in self.texts:
                self.texts[row, text] = self.bar.add_task(text, total=None, note="")
            self.tasks[row] = self.texts[row, text]
        task = self.tasks[row]
        note = note or (f"{done:,}/{total:,}" if total else "")
        self.bar.update(task, completed=done, total=total, note=note, visible=True)

    def drop(self, row: object) -> None:
        """Hide a row that is finished."""
        if row in self.tasks:
            self.bar.update(self.tasks[row], visible=False)

    def __enter__(self) -> "Display":
        self.bar.start()
        self.ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.ticker.join()
        self.bar.stop()

    def _tick(self) -> None:
        while self.bar.disable and not self.over.wait(PROGRESS_SECONDS):
            say(self.console, "; ".join(_in_words(t) for t in self.bar.tasks if t.visible))


def _in_words(task: Task) -> str:
    left = task.time_remaining
    times = [duration(task.elapsed or 0), *([f"{duration(float(left))} left"] if left else [])]
    return f"{task.description} {task.fields['note']}".rstrip() + f" ({', '.join(times)})"


class Stop:
    """Becomes true at the first Ctrl-C or SIGTERM, and the command stops; the second ends it.

    Python does not run a signal's handler while XLA compiles or computes. Its handler in C writes a
    byte to a pipe at once, and a thread that reads the pipe prints the answer."""

    def __init__(
        self, message: str = "stopping after the current step", *, idle: Callable[[], str] = str
    ) -> None:
        self.stopping, self.message = False, message
        self.idle = idle
        """Returns why nothing is lost if the program ends at once, or an empty string."""

    def __call__(self) -> bool:
        return self.stopping

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.stopping = True

    def _answer(self, pipe: int) -> None:
        """The thread: each byte is a signal's number, and zero ends the thread."""
        presses = 0
        while (number := os.read(pipe, 1)) not in (b"", b"\0"):
            if number[0] not in STOP_SIGNALS:
                continue
            self.stopping = True
            presses += 1
            why = "stopped" if presses > 1 else self.idle()
            line = why or f"{self.message}; press Ctrl-C again to stop at once"
            print(f"\narml: {line}", file=sys.stderr, flush=True)
            if why:
                if sys.stderr.isatty():
                    sys.stderr.write("\x1b[?25h")  # show the cursor, which a progress bar hides
                    sys.stderr.flush()
                os._exit(EXIT_INTERRUPTED)

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Listen for the two signals; outside the main thread this is impossible, and it does
        nothing."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        read, write = os.pipe()
        os.set_blocking(write, False)
        thread = threading.Thread(target=self._answer, args=(read,), daemon=True)
        thread.start()
        before = {number: signal.signal(number, self._handle) for number in STOP_SIGNALS}
        woken = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(woken)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.write(write, b"\0")
            thread.join()
            os.close(read)
            os.close(write)
