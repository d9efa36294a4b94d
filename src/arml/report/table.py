"""One table, three renderers: Markdown, the terminal, and HTML (`templates/blocks.html`).

A cell is text with an optional second line, and a value to sort by. Nothing here knows the meaning
of the numbers.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from rich.console import Group
from rich.table import Table as Grid
from rich.text import Text


@dataclass(frozen=True)
class Cell:
    """One cell."""

    text: str = ""
    small: str = ""
    """A second line, smaller."""
    kind: str = ""
    """The name of its style on a page."""
    value: float | str | None = None
    """The value that it is sorted by."""


@dataclass(frozen=True)
class Column:
    """The heading of a column."""

    title: str
    small: str = ""
    brief: bool = False
    """Whether Markdown leaves out the second lines of its cells."""


@dataclass(frozen=True)
class Line:
    """A row: its name, and a cell for each other column; missing ones are empty."""

    name: str
    cells: tuple[Cell, ...]
    note: str = ""
    kind: str = ""
    code: bool = False
    """Whether the name is a word to type."""


BESIDE = {"floor": "best possible", "simple": "for comparison"}
"""Kinds of lines that are no recipes, and the words for them."""


@dataclass(frozen=True)
class Table:
    """Rows under their headings, the first of which is that of the rows' names."""

    title: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    caption: str = ""
    kind: str = ""
    sections: tuple[int, ...] = field(default=())
    """Columns (without the first) before which the terminal draws a rule."""


def markdown(table: Table) -> str:
    """The table in Markdown, without its caption."""
    head = [column.title for column in table.columns]
    rule = ["---", *["---:"] * (len(head) - 1)]
    body = []
    for line in table.lines:
        name = f"`{line.name}`" if line.code else line.name
        cells = [
            cell.text if column.brief or not cell.small else f"{cell.text}, {cell.small}"
            for cell, column in zip(line.cells, table.columns[1:], strict=False)
        ]
        body.append([f"*{name}*" if line.kind in BESIDE else name, *cells])
    whole = [row + [""] * (len(head) - len(row)) for row in [head, rule, *body]]
    return "\n".join(map(line_of, whole))


def line_of(cells: Iterable[str]) -> str:
    """One line of a Markdown table."""
    escaped = (text.replace("|", "\\|").replace("\n", " ") for text in cells)
    return f"| {' | '.join(escaped)} |"


def terminal(table: Table) -> Group:
    """The table for a terminal, turned on its side, so that many columns fit."""
    rows = [line for line in table.lines if line.kind not in BESIDE]
    beside = [(line, BESIDE[line.kind]) for line in table.lines if line.kind in BESIDE]
    notes = [
        table.caption,
        *(f"{what} ({line.name}): {line.cells[0].text}" for line, what in beside),
    ]
    grid = Grid()
    grid.add_column("", no_wrap=True)
    for line in rows:
        # A break after the problem keeps columns narrow.
        grid.add_column(Text(line.name.replace("/", "/\n")), justify="right", overflow="fold")
    for index, column in enumerate(table.columns[1:]):
        if index in table.sections:
            grid.add_section()
        # Text, not str: a family's name may look like markup.
        cells = (_drawn(line.cells[index]) for line in rows)
        grid.add_row(Text(column.title), *cells)
    # Beside the grid, because the title and the caption of a grid are wrapped at its width.
    return Group(Text(table.title, style="bold"), grid, *map(Text, notes))


def _drawn(cell: Cell) -> Text:
    return Text(_plain(cell), style="dim" if cell.kind == "soft" else "")


def _plain(cell: Cell) -> str:
    if cell.small.startswith("±"):
        return f"{cell.text.rstrip('%')} {cell.small}"
    return f"{cell.text}, {cell.small}" if cell.small else cell.text
