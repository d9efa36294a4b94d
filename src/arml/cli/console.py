"""The terminal: options are read, and text, JSON and TensorBoard events are written."""

import contextlib
import dataclasses
import inspect
import io
import json
import re
import shlex
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from arml.cli.errors import UsageError
from arml.core.plugins import as_options
from arml.report.table import Table as Rows
from arml.results.extras import extra
from arml.results.files import plain

T = TypeVar("T")
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

    **Raises** `UsageError` in one line, and `SystemExit(0)` after `--help`.
    """
    said = io.StringIO()
    asks = {"-h", "--help"} & {*arguments}
    try:
        with (
            contextlib.redirect_stderr(said),
            # Tyro colours its messages where the standard output is a terminal.
            _unwrapped(kind) if asks else contextlib.redirect_stdout(said),
        ):
            return tyro.cli(
                kind,
                args=list(arguments),
                prog=prog,
                config=(tyro.conf.DisallowNone, tyro.conf.PositionalMetavarFromFieldName),
            )
    except SystemExit as end:
        if not end.code:
            raise
        raise UsageError(f"{_one_line(said.getvalue(), arguments)}; see `{prog} --help`") from None


@contextlib.contextmanager
def _unwrapped(kind: Any) -> Iterator[None]:
    """Join the lines of the paragraphs in a dataclass's docstrings while its help is printed. Tyro
    keeps the breaks before lines that are indented or begin with a sign, and breaks the text again
    at the terminal's width.
    """
    import docstring_parser

    before: list[tuple[Any, str, Any]] = []

    def change(of: Any, name: str, value: Any) -> None:
        before.append((of, name, getattr(of, name)))
        setattr(of, name, value)

    def unwrap(kind: Any) -> None:
        found: dict[str, str] = {}
        for base in reversed(kind.__mro__[:-1]):
            for one in docstring_parser.parse_from_object(base).params:
                found[one.arg_name] = " ".join((one.description or "").split())
        paragraphs = inspect.cleandoc(kind.__doc__ or "").split("\n\n")
        change(kind, "__doc__", "\n\n".join(" ".join(text.split()) for text in paragraphs))
        for field in dataclasses.fields(kind):
            if dataclasses.is_dataclass(field.default):
                unwrap(type(field.default))
            elif told := found.get(field.name):
                change(field, "metadata", MappingProxyType({**field.metadata, "help": told}))

    unwrap(kind)
    try:
        yield
    finally:
        for of, name, value in reversed(before):
            setattr(of, name, value)


def _one_line(box: str, arguments: Sequence[str]) -> str:
    """Tyro's message about the arguments in one line. Tyro draws a box: a title, the message, and
    its subject. Names of options are indented by four, and their descriptions by eight."""
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
        for word in arguments:
            # A missing option that was given with a typing error.
            close = get_close_matches(word, [name.split()[0] for name in names], 1, 0.8)
            if close and word.startswith("--"):
                return f"unknown option {word}; did you mean {close[0]}?"
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
