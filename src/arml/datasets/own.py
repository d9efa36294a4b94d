"""Tables of cells: CSV files with a header, as spreadsheets write them."""

import csv
import io
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
"""A decimal number. Python's own `float` also reads 0_5, nan and infinity."""
DELIMITERS = ",;\t"
"""The characters between cells: spreadsheets copy cells with tabs, and save them with semicolons
where the decimal sign is a comma."""
COMMA = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?", re.ASCII)
"""A number with a decimal comma."""
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+", re.ASCII)
"""A number whose comma may also separate its thousands: 1,234."""
POINTS = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+", re.ASCII)
"""A number whose point may also separate its thousands, where decimal signs are commas: 1.234."""


class Table(NamedTuple):
    """The columns of numbers of a CSV file, and its target column."""

    x: Float[np.ndarray, "n columns"]
    columns: tuple[str, ...]
    target: list[str] | None
    """The texts of the target column; None if the file has no such column."""
    lines: list[int]
    """The line of the file at which each row begins; the header is on line 1."""


def read_cells(path: Path) -> tuple[dict[str, list[str]], list[int]]:
    """The cells of a CSV file with a header, by column, and the line at which each row begins. The
    delimiter is the comma, the semicolon or the tab: that which is most frequent in the header.

    **Raises** `ValueError` in one line for a file that is not such a table.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            text = file.read()
    except OSError as error:
        raise ValueError(
            f"{path}: expected a CSV file, got: {error.strerror or error}; check the path"
        ) from error
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: expected a CSV file in UTF-8, got other bytes at place {error.start}: save "
            "it as CSV in UTF-8"
        ) from error
    return cells_of(text, str(path))


def cells_of(text: str, where: str) -> tuple[dict[str, list[str]], list[int]]:
    """`read_cells` of a text, which errors call `where`."""
    delimiter = max(DELIMITERS, key=text.partition("\n")[0].count)
    lines, rows = _rows(io.StringIO(text, newline=""), where, delimiter)
    if len(rows) < 2:
        found = "the header alone" if rows else "none"
        raise ValueError(f"{where}: expected a header and one or more rows, got {found}: add rows")
    header = [name.strip() for name in rows[0]]
    for line, row in zip(lines[1:], rows[1:], strict=True):
        if len(row) != len(header):
            raise ValueError(
                f"{where}: expected {len(header)} cells in each row, as in the header, got "
                f"{len(row)} in row {line}: correct this row"
            )
    columns: dict[str, list[str]] = {}
    for place, name in enumerate(header):
        cells = [row[place] for row in rows[1:]]
        if not name and not any(map(str.strip, cells)):
            continue  # spreadsheets add empty columns
        if not name:
            raise ValueError(
                f"{where}: expected a name for each column, got none for column {place + 1}, with "
                f"{cells[0]!r} in its first row: name it, or remove it if it numbers the rows"
            )
        if name in columns:
            raise ValueError(
                f"{where}: expected a name of its own for each column, got {name!r} twice: rename "
                "or remove one"
            )
        columns[name] = cells
    sure = delimiter == ";"
    read = {name: _with_points(cells, sure=sure) for name, cells in columns.items()}
    if any(read[name] is not columns[name] for name in read):  # the file has decimal commas
        for name, cells in columns.items():
            _check_points(cells, name, where)
    return read, lines[1:]


def _check_points(cells: list[str], name: str, where: str) -> None:
    """Raise `ValueError` if the points of a column may separate thousands: all of them, or beside
    decimal commas any."""
    points = [cell for cell in map(str.strip, cells) if "." in cell]
    grouped = [cell for cell in points if POINTS.fullmatch(cell)]
    commas = any(COMMA.fullmatch(cell.strip()) for cell in cells)
    if grouped and (commas or len(grouped) == len(points)):
        raise ValueError(
            f"{where}: expected decimal commas in column {name!r}, as elsewhere in this file, got "
            f"{grouped[0]!r}, whose point may separate thousands: write it without a point, or "
            "with a comma if it is a fraction"
        )


def _with_points(cells: list[str], *, sure: bool) -> list[str]:
    """The cells of a column with a point in the place of a decimal comma.

    **Arguments**

    - `sure`: whether each comma is a decimal one. If not, a column stays as it is if all of its
      commas may separate thousands.
    """
    commas = [cell for cell in map(str.strip, cells) if COMMA.fullmatch(cell)]
    if not commas or (not sure and all(map(THOUSANDS.fullmatch, commas))):
        return cells
    return [cell.replace(",", ".") if COMMA.fullmatch(cell.strip()) else cell for cell in cells]


def read_table(path: Path, *, target: str | None = None) -> Table:
    """A CSV file with a header. Every column except `target` must have numbers.

    **Raises** `ValueError` in one line for a file that is not such a table.
    """
    cells, lines = read_cells(path)
    columns = tuple(name for name in cells if name != target)
    x = np.empty((len(lines), len(columns)), np.float32)
    for place, column in enumerate(columns):
        for number, cell in enumerate(cells[column]):
            if not NUMBER.fullmatch(cell.strip()):
                raise ValueError(
                    f"{path}: expected a number in column {column!r} of row {lines[number]}, got "
                    f"{cell!r}; remove the column or fill it"
                )
            with np.errstate(over="ignore"):  # a number that is too large becomes infinity
                x[number, place] = float(cell)
    labels = [cell.strip() for cell in cells[target]] if target in cells else None
    return Table(x, columns, labels, lines)


def _rows(text: Iterable[str], where: str, delimiter: str) -> tuple[list[int], list[list[str]]]:
    """The rows of a CSV file that are not blank, and the lines at which they begin, from 1."""
    lines, rows, line = [], [], 1
    reader = csv.reader(text, strict=True, delimiter=delimiter)
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                lines.append(line)
                rows.append(row)
            line = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(
            f"{where}: expected a CSV file, got: {error} (from line {line}): check the quotes there"
        ) from error
    return lines, rows
