"""The terminal: options in, progress out, and a run that can be stopped without losing it."""

import contextlib
import io
import json
import re
import signal
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import tyro
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from arml.results.files import plain

INTERRUPTED = 130
"""The exit status of a command that was interrupted."""

PLAIN_SECONDS = 10.0
"""Seconds between two lines of progress where there is no terminal."""


def say(console: Console, text: str) -> None:
    """Print plain text, unwrapped: paths and commands must survive copying."""
    console.print(Text(text), soft_wrap=True)


def print_json(value: Any) -> None:
    """Print `value` as JSON and nothing else."""
    print(json.dumps(plain(value), indent=2, ensure_ascii=False))


class UsageError(ValueError):
    """A command line that cannot be understood."""


def parse(kind: type, arguments: Sequence[str], *, prog: str) -> Any:
    """An instance of the dataclass `kind` from command-line arguments, as tyro reads them.

    **Raises** `UsageError` in one line, and `SystemExit(0)` after `--help`.
    """
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(
                kind,
                args=list(arguments),
                prog=prog,
                config=(tyro.conf.DisallowNone, tyro.conf.PositionalMetavarFromFieldName),
            )
    except SystemExit as end:
        if not end.code:
            raise
        raise UsageError(f"{_one_line(said.getvalue())}; see `{prog} --help`") from None


def _one_line(box: str) -> str:
    """Tyro's message in one line. Tyro draws a box: a title, the message, and what it is about.
    Names of options are indented by four, and their descriptions by eight."""
    # Where the output is not UTF-8, the box has no sides.
    inside = [re.sub(r"^│|│$|[╰╯]", "", line).rstrip(" ─-") for line in box.splitlines()[1:]]
    parts: list[list[str]] = [[]]
    for line in textwrap.dedent("\n".join(inside)).splitlines():
        if line.strip():
            parts[-1].append(line)
        else:
            parts.append([])
    parts = [part for part in parts if part] or [["the options cannot be read"]]
    message, about = parts[0], [line for part in parts[1:] for line in part]
    text = " ".join(line.strip() for line in message)
    if text.startswith("Missing from"):
        names = [line.strip() for line in message if re.match(" {4}[^ ]", line)]
        return f"expected {' and '.join(names)}, got none: give {'them' if names[1:] else 'it'}"
    named = [line.strip() for line in about if re.match(" {4}[^ ]", line)]
    if found := re.match(r"Error parsing ([^ ]+): .*?(\[.*\]|'[^']*')$", text):
        expected = next((line for line in named if line.startswith(found[1])), found[1])
        return f"expected {expected}, got {found[2].strip('[]')}"
    if found := re.match(r"invalid choice ('.*') for argument '(.*)'. .* one of \((.*)\)", text):
        return f"expected {found[2]} to be one of {found[3].replace(chr(39), '')}, got {found[1]}"
    if found := re.match(r"Missing value for argument '(.*)'", text):
        return f"expected a value after {found[1]}, got none"
    if found := re.match(r"Unrecognized options: ([^ ,]+)", text):
        kind = "unknown option" if found[1].startswith("-") else "unexpected argument"
        close = [line.split()[0].rstrip(",") for line in named if line.startswith("--")][:3]
        hint = f"; did you mean {' or '.join(close)}?" if close and "Perhaps" in about[0] else ""
        return f"{kind} {found[1]}{hint}"
    return text.rstrip(".")


class Stop:
    """Turns the first Ctrl-C (or SIGTERM) into a wish to stop; the second ends the program."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self) -> bool:
        return self.asked

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        # The next one takes effect at once, even within compiled code.
        signal.signal(number, signal.SIG_DFL)

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Listen for the two signals; outside the main thread, where one cannot, do nothing."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(number, self._ask) for number in numbers]
        try:
            yield
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4g}"


class Display:
    """Shows a run as it goes: a bar on a terminal, a plain line every ten seconds elsewhere."""

    def __init__(self, console: Console, steps: int) -> None:
        self.console, self.steps = console, steps
        self.loss = self.validation = ""
        self.begun: tuple[float, int] | None = None
        self.spoken = 0.0
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f} {task.fields[said]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self.task = self.bar.add_task("compiling", total=steps, said="")

    def reading(self, what: str, done: int, total: int) -> None:
        """Images are being decoded."""
        self.bar.update(self.task, description=f"reading {what}", completed=done, total=total)

    def watch(self, step: int, record: Mapping[str, float]) -> None:
        """Step `step` is done."""
        if not record:
            # Before the first step: what follows is compiling.
            self.bar.reset(self.task, total=self.steps, completed=step, description="compiling")
            if self.bar.disable and step:
                self.console.print(f"resuming at step {step:,}", highlight=False)
            return
        now = time.monotonic()
        if "loss" in record:
            self.loss = f"loss {_number(record['loss'])}"
        if "validation" in record:
            self.validation = f"validation {_number(record['validation'])}"
        rate = 0.0
        if self.begun is None:
            # The first interval compiled: its time says nothing about the others'.
            self.begun = (now, step)
        else:
            rate = (step - self.begun[1]) / max(now - self.begun[0], 1e-9)
        pace = f"{rate:.3g}/s" if rate else ""
        said = "  ".join(filter(None, (pace, self.loss, self.validation)))
        self.bar.update(self.task, completed=step, description="training", said=said)
        if self.bar.disable and (now - self.spoken > PLAIN_SECONDS or step == self.steps):
            self.spoken = now
            left = f"  {(self.steps - step) / rate:.0f} s left" if rate else ""
            text = f"step {step:,} of {self.steps:,}  {said}{left}"
            self.console.print(text, highlight=False, soft_wrap=True)


@contextlib.contextmanager
def scoring() -> Iterator[Callable[[int, int], None]]:
    """A function that shows how many tasks are scored, on the error stream and only if it is a
    terminal: the output may be read by a program."""
    console = Console(stderr=True)
    bar = Progress(console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task("scoring", total=None)
    with bar:
        yield lambda done, total: bar.update(task, completed=done, total=total)


class TensorBoard:
    """Writes records as TensorBoard events.

    **Raises** `ValueError` at once if tensorboardX is not installed.
    """

    def __init__(self, folder: Path) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise ValueError(
                "expected the package tensorboardX for --tensorboard, found none: install "
                "'arml[tensorboard]', or leave the option out"
            ) from None
        self.make, self.folder = SummaryWriter, folder
        self.writer: Any = None

    def __call__(self, step: int, record: Mapping[str, float]) -> None:
        if self.writer is None:
            # What an earlier, killed process wrote after this step will be written again.
            self.writer = self.make(str(self.folder), purge_step=step + 1 if step else None)
        for name, value in record.items():
            if value is not None:
                self.writer.add_scalar(name, value, step)
        self.writer.flush()
