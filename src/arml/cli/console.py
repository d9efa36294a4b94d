"""The terminal: options are read, and text, JSON and TensorBoard events are written."""

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from arml.core.registry import as_options
from arml.report.tables import Table as Rows
from arml.results.files import extra, plain

T = TypeVar("T")
CONFIG = (tyro.conf.DisallowNone, tyro.conf.PositionalMetavarFromFieldName)
"""How tyro reads every command."""
ROWS = 20
"""Rows of a report's table that are printed; the file has all."""


def say(console: Console, *lines: str) -> None:
    """Print plain lines without breaks of our own, so that paths and commands can be copied."""
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def tell(*lines: str) -> None:
    """`say` on the standard error stream, which is for people where a program reads the output."""
    say(Console(stderr=True), *lines)


def command(*words: str) -> str:
    """A command of this program to copy, with the plug-ins that were given."""
    return shlex.join(["arml", *words, *as_options()])


def grid(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left: Sequence[int] = (0,),
    **style: Any,
) -> Table:
    """A table for the terminal; the columns that are not `left` are aligned to the right. All cells
    are plain text, because a name may look like markup."""
    table = Table(**{"title_style": "bold", **style})
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="left" if place in left else "right")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def upright(table: Rows) -> Table:
    """A table of a report for the terminal: its first rows, their names in the first column."""
    rows = [(line.name, *(cell.text for cell in line.cells)) for line in table.lines[:ROWS]]
    if len(table.lines) > ROWS:
        rows.append((f"and {len(table.lines) - ROWS} more",))
    return grid([column.title for column in table.columns], rows, title=table.title)


def print_json(value: object) -> None:
    """Print `value` as JSON and nothing else."""
    print(json.dumps(plain(value), indent=2, ensure_ascii=False))


def parse(kind: type[T], arguments: Sequence[str], *, prog: str) -> T:
    """An instance of the dataclass `kind` from command-line arguments, as tyro reads them.

    **Raises** `SystemExit`: with status 0 after `--help`, and with 2 after tyro has printed what is
    wrong.
    """
    return tyro.cli(kind, args=list(arguments), prog=prog, config=CONFIG)


class TensorBoard:
    """Writes records as TensorBoard events.

    **Raises** `ValueError` at once if tensorboardX is not installed.
    """

    def __init__(self, folder: Path) -> None:
        self.make = extra("tensorboardX", "tensorboard", "--tensorboard").SummaryWriter
        self.folder = folder
        self.writer: Any = None

    def __call__(self, step: int, record: Mapping[str, float | None]) -> None:
        if self.writer is None:
            # A killed process may have written events after this step: they are replaced.
            self.writer = self.make(str(self.folder), purge_step=step + 1 if step else None)
        for name, value in record.items():
            if value is not None:
                self.writer.add_scalar(name, value, step)
        self.writer.flush()
