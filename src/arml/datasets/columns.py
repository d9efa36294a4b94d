"""Columns of a table as numbers: numbers, dates, categories and gaps, whatever their names.

A `Reader` is made from the labelled rows, and reads all other rows in the same way. A column of
numbers or dates becomes one column of the learner's. A category becomes one column for each of its
values, or a single one if it has two values. A missing cell stays missing. Texts that are not a
category raise an error, which names their column.
"""

import datetime
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from arml.datasets.own import NUMBER

Cell = Any
"""A text, a number, or None."""
Table = Mapping[str, Sequence[Cell]]
"""Cells by the name of their column."""
MISSING = frozenset(("", "?", "na", "n/a", "nan", "nat", "null", "<na>", "<null>", "."))
"""Texts that stand for a missing cell, in small letters."""
LEVELS = 12
"""The most columns of a category: its most frequent values have one each."""
GROUPED = re.compile(r"[+-]?\d[\d.]*,[\d.,]*", re.ASCII)
"""A number with a comma, which may be a decimal sign or separate thousands."""
LARGEST = float(np.finfo(np.float32).max)
"""The largest number of 32 bits."""
FREE = 5
"""A column of texts is a category if it has at most so many different values, or each value at
least twice on average."""
WIDTHS = (4, 8, 16, 32, 64)
"""Empty columns fill a table up to one of these widths, so that few programs are compiled. The last
is the bound."""


class Column(NamedTuple):
    """How one column is read."""

    name: str
    kind: Literal["number", "date", "category"]
    middle: float = 0.0
    """Subtracted from each number, which is then divided by `unit`: 32 bits cannot hold small
    differences of large numbers."""
    unit: float = 1.0
    levels: tuple[str, ...] = ()
    """The values of a category that have a column."""

    @property
    def width(self) -> int:
        """How many columns of the learner's it becomes."""
        return 1 if len(self.levels) < 3 else len(self.levels)

    def read(
        self, cells: Sequence[Cell], where: str, lines: Sequence[int] | None = None
    ) -> Float[np.ndarray, "n width 3"]:
        """Its cells: value, whether it is there, kind.

        **Raises** `ValueError` for a cell of another kind than the labelled cells.

        **Arguments**

        - `where`, `lines`: what errors call the table, and its rows.
        """
        x = np.zeros((len(cells), self.width, 3), np.float32)
        for row, cell in enumerate(cells):
            if missing(cell):
                continue
            x[row, :, 1] = 1
            if self.kind == "category":
                x[row, :, 2] = 1
                named = _text(cell)
                if self.width == 1:  # an unknown value is a missing one
                    x[row, 0, 1] = float(named in self.levels)
                    x[row, 0, 0] = float(named == self.levels[-1])
                else:
                    x[row, :, 0] = [float(named == level) for level in self.levels]
                continue
            value = number(cell) if self.kind == "number" else _date(cell)
            if value is None:
                place = f" of row {lines[row]}" if lines is not None else ""
                raise ValueError(
                    f"{where}: expected a {self.kind} in column {self.name!r}{place}, as in the "
                    f"examples, got {cell!r}: correct it, or leave it empty"
                )
            x[row, 0, 0] = np.clip((value - self.middle) / self.unit, -1e6, 1e6)
        return x


class Reader(NamedTuple):
    """How a table is read."""

    columns: tuple[Column, ...]
    kept: tuple[int, ...]
    """Which of the learner's columns are kept: all, or as many as the bound."""
    left_out: tuple[str, ...] = ()
    """Columns that have at most one value in the labelled rows, and so carry no information."""

    @property
    def width(self) -> int:
        """How many columns the learner gets; some may be empty."""
        return next(width for width in WIDTHS if width >= len(self.kept))

    @property
    def total(self) -> int:
        """How many there would be without a bound."""
        return sum(column.width for column in self.columns)

    @property
    def owners(self) -> tuple[str, ...]:
        """The name of the table's column from which each of the learner's columns is made."""
        names = [column.name for column in self.columns for _ in range(column.width)]
        return tuple(names[place] for place in self.kept)

    def __call__(
        self, table: Table, where: str = "the table", lines: Sequence[int] | None = None
    ) -> Float[np.ndarray, "n width 3"]:
        """The rows in the form that a learner takes.

        **Raises** `ValueError` in one line for a column that is not there, and as `Column.read`.
        """
        for column in self.columns:
            if column.name not in table:
                raise ValueError(
                    f"{where}: expected a column {column.name!r}, as in the examples, got "
                    f"{', '.join(table)}: add or rename it"
                )
        x = np.concatenate([c.read(table[c.name], where, lines) for c in self.columns], axis=1)
        x = x[:, list(self.kept)]
        return np.pad(x, ((0, 0), (0, self.width - x.shape[1]), (0, 0)))

    def unknown(self, table: Table) -> dict[str, list[str]]:
        """By the name of a category, its values in these rows that are none of its `levels`. They
        say nothing about a row."""
        found = {
            c.name: sorted(
                {_text(cell) for cell in table[c.name] if not missing(cell)} - {*c.levels}
            )
            for c in self.columns
            if c.kind == "category"
        }
        return {name: values for name, values in found.items() if values}

    def as_json(self) -> dict[str, Any]:
        """Plain data, for a file."""
        columns = [column._asdict() for column in self.columns]
        return {"columns": columns, "kept": list(self.kept), "left_out": list(self.left_out)}


def reader_of(value: Mapping[str, Any]) -> Reader:
    """The inverse of `Reader.as_json`."""
    columns = (Column(**{**c, "levels": tuple(c["levels"])}) for c in value["columns"])
    return Reader(tuple(columns), tuple(value["kept"]), tuple(value["left_out"]))


def reader(
    table: Table,
    y: np.ndarray,
    *,
    where: str = "the table",
    lines: Sequence[int] | None = None,
) -> Reader:
    """How to read tables like this one, whose rows have the labels or targets `y`.

    If there are more columns than the bound, those are kept whose variance the labels explain best:
    they tell the classes of the examples apart, or follow their numbers. `where` and `lines` are
    what errors call the table, and its rows.

    **Raises** `ValueError` in one line for a column of texts that are not a category, and for a
    table in which no column has two different values.
    """
    columns, left_out = [], []
    for name, cells in table.items():
        column = _column(name, cells, where, lines)
        if column is None:
            left_out.append(name)
        else:
            columns.append(column)
    if not columns:
        if len(y) < 2:
            raise ValueError(f"{where}: expected two or more examples, got {len(y)}: add rows")
        raise ValueError(
            f"{where}: expected a column whose values differ, got {len(table)} without: add columns"
        )
    whole = Reader(tuple(columns), ())
    kept: Sequence[int] = range(whole.total)
    if len(kept) > WIDTHS[-1]:
        x = np.concatenate([c.read(table[c.name], where) for c in columns], axis=1)
        kept = sorted(np.argsort(-_explained(x, y), kind="stable")[: WIDTHS[-1]].tolist())
    return Reader(tuple(columns), tuple(kept), tuple(left_out))


def missing(cell: Cell) -> bool:
    """Whether the cell is empty."""
    if isinstance(cell, str):
        return cell.strip().lower() in MISSING
    return cell is None or cell != cell  # NaN and NaT differ from themselves


def _text(cell: Cell) -> str:
    if isinstance(cell, str):
        return cell.strip()
    return f"{cell:g}" if isinstance(cell, float | np.floating) else str(cell)


def number(cell: Cell) -> float | None:
    """The cell as a number; None if it is not one, or too large for 32 bits."""
    value = math.nan
    if isinstance(cell, bool | int | float | np.bool_ | np.number) or (
        isinstance(cell, str) and NUMBER.fullmatch(cell.strip())
    ):
        value = float(cell)
    return value if abs(value) <= LARGEST else None


def _date(cell: Cell) -> float | None:
    """Days since 1970, of a date or ISO 8601 text (or 2024/05/31, or 31.05.2024)."""
    text = str(cell).strip()
    day, _, month_year = text.partition(".")
    if len(day) == 2 and len(month_year) == 7:
        text = f"{month_year[3:]}-{month_year[:2]}-{day}"
    try:
        when = datetime.datetime.fromisoformat(text.replace("/", "-"))
    except ValueError:
        return None
    return (when.replace(tzinfo=None) - datetime.datetime(1970, 1, 1)).total_seconds() / 86_400


def _column(
    name: str, whole: Sequence[Cell], where: str, lines: Sequence[int] | None
) -> Column | None:
    """How to read a column with these cells; None if they are all alike."""
    cells = [cell for cell in whole if not missing(cell)]
    kinds: tuple[tuple[Literal["number", "date"], Any], ...] = (
        ("number", number),
        ("date", _date),
    )
    for kind, read in kinds:
        values = [read(cell) for cell in cells]
        if cells and None not in values:
            numbers = np.asarray(values, np.float64)
            spread = float(numbers.std())
            if spread <= 1e-12 * float(np.abs(numbers).max()):
                return None
            return Column(name, kind, float(numbers.mean()), spread)
    counts = Counter(_text(cell) for cell in cells)
    if len(counts) < 2:
        return None
    grouped = [text for text in counts if GROUPED.fullmatch(text)]
    if grouped and all(text in grouped or NUMBER.fullmatch(text) for text in counts):
        raise ValueError(
            f"{where}: expected numbers such as 1234.5 in column {name!r}, got {grouped[0]!r}: "
            "write a point as the decimal sign, and no sign between thousands"
        )
    if len(counts) > max(FREE, len(cells) / 2):
        odd = next(_text(cell) for cell in cells if number(cell) is None)
        if sum(number(cell) is not None for cell in cells) > len(cells) / 2:
            row = next(i for i, cell in enumerate(whole) if cell is not None and _text(cell) == odd)
            place = f" in row {lines[row]}" if lines is not None else ""
            raise ValueError(
                f"{where}: expected a number in each cell of column {name!r}, got {odd!r}{place}: "
                "correct the cell, or empty it"
            )
        raise ValueError(
            f"{where}: expected numbers, dates or categories in column {name!r}, got "
            f"{len(counts)} different texts in {len(cells)} rows, such as {odd!r}: "
            "remove the column, or write its dates as 2024-05-31 and its numbers without % or $"
        )
    levels = sorted(counts, key=lambda level: (-counts[level], level))[:LEVELS]
    return Column(name, "category", levels=tuple(sorted(levels)))


def _explained(x: Float[np.ndarray, "n columns 3"], y: np.ndarray) -> Float[np.ndarray, " columns"]:
    """The share of each column's variance that the labels explain."""
    there = x[..., 1] > 0
    value = np.where(there, x[..., 0], np.nan)
    value = np.where(there, value - np.nanmean(value, axis=0), 0.0)
    total = np.maximum(np.sum(value**2, axis=0), 1e-12)
    if y.dtype.kind == "f":
        off = (y - y.mean())[:, None] * there
        share = np.sum(value * off, axis=0) ** 2 / np.maximum(np.sum(off**2, axis=0), 1e-12)
    else:
        share = sum(
            np.sum(value[y == k], axis=0) ** 2 / np.maximum(np.sum(there[y == k], axis=0), 1)
            for k in np.unique(y)
        )
    return np.asarray(share / total)
