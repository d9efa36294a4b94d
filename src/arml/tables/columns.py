"""Columns of a table as numbers: numbers, dates, categories and gaps, whatever their names.

`as_table` takes any frame, mapping or array. `Schema` says what each column is, from the cells of
the labelled rows alone, and turns cells into one matrix of numbers. `Reader` measures the columns
of the training rows (means, frequent categories, the columns that predict best), and makes the
cells that a learner takes. Whoever leaves rows out makes a new `Reader` of the rows that stay,
because it depends on their labels.
"""

import datetime
import decimal
import math
import re
import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

Cell = Any
"""A text, a number, a date, or a missing value."""
Cells = Sequence[Cell] | np.ndarray
"""Of one column; an array if all are numbers."""
Table = Mapping[str, Cells]
"""Cells by the name of their column."""
Values = Float[np.ndarray, "n columns"]
"""Numbers, days or places of categories; NaN where a cell is missing."""
Dates = Literal["dmy", "mdy", "ymd"]
"""The order of day, month and year."""
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
"""A decimal number. Python's own `float` also reads 0_5, nan and infinity."""
GROUPED = re.compile(r"[+-]?\d[\d.]*,[\d.,]*", re.ASCII)
"""A number with a comma, which may be a decimal sign or separate thousands."""
MISSING = frozenset(("", "?", "na", "n/a", "nan", "nat", "null", "<na>", "<null>", "."))
"""Texts that stand for a missing cell, in small letters."""
LARGEST = float(np.finfo(np.float32).max)
LEVELS = 12
"""The most columns of a category: its most frequent values have one each."""
FREE = 5
"""A column of texts is a category if it has at most so many different values, or each value at
least twice on average."""
COUNTED = 8
"""Rows from which a column that counts them is recognised."""
KEY = re.compile(r"(.*[ _.-])?(id|ids|idx|index|key|nr|no|row|rows|rownum|rownames)", re.IGNORECASE)
"""Names of columns that number their rows."""
ONE, EMPTY = "has one value in all rows", "is empty"
UNINFORMATIVE = (ONE, EMPTY)
"""Reasons to leave out a column that nobody would miss."""
WIDTHS = (4, 8, 16, 32, 64)
"""Empty columns fill a table up to one of these widths, so that few programs are compiled. The last
is the bound."""
CLEAR = ("%d.%m.%Y", "%d %B %Y", "%d %b %Y", "%B %d, %Y", "%b %d, %Y", "%d-%b-%Y")
"""Forms of dates that can be read in one way, beside ISO 8601 and 2024/05/31."""
ORDERS: dict[str, tuple[str, ...]] = {
    "dmy": ("%d/%m/%Y", "%d-%m-%Y", "%d/%m/%y", "%d.%m.%y"),
    "mdy": ("%m/%d/%Y", "%m-%d-%Y", "%m/%d/%y", "%m.%d.%y"),
    "ymd": ("%y/%m/%d", "%y-%m-%d", "%y.%m.%d"),
}
"""Forms of dates that depend on the order."""
CLOCKS = ("", " %H:%M", " %H:%M:%S")
"""Forms of the time after a date."""
EPOCH = datetime.datetime(1970, 1, 1)


@dataclass(frozen=True)
class Column:
    """What one column is."""

    name: str
    kind: Literal["number", "date", "category"]
    order: str = ""
    """Of day, month and year in its dates."""
    texts: tuple[str, ...] = ()
    """The values of a category."""

    def read(
        self, cells: Cells, where: str, lines: Sequence[int] | None
    ) -> Float[np.ndarray, " n"]:
        """Its cells as numbers, days since 1970, or places among `texts`: -1 for an unknown value.

        **Raises** `ValueError` for a cell of another kind.
        """
        if self.kind == "category":
            place = {text: float(i) for i, text in enumerate(self.texts)}
            return _converted(cells, lambda cell: place.get(text_of(cell), -1.0))[0]
        values, odd = numbers(cells) if self.kind == "number" else _days(cells, self.order)
        if odd is not None:
            raise ValueError(
                f"{where}: {cells[odd]!r} in column {self.name!r}{_row(odd, lines)} is no "
                f"{self.kind}, unlike the examples: correct it, or leave it empty"
            )
        return values


@dataclass(frozen=True)
class Schema:
    """The columns of a table that can be used, and why others are not."""

    columns: tuple[Column, ...]
    left_out: dict[str, str] = field(default_factory=dict)
    """By the name of a column that is not used, the reason."""

    def read(
        self, table: Table, where: str = "the table", lines: Sequence[int] | None = None
    ) -> Values:
        """The cells of the columns as numbers. `where` and `lines` are what errors call the table
        and its rows.

        **Raises** `ValueError` in one line for a column that is not there, or a cell of another
        kind than those of the examples.
        """
        for column in self.columns:
            if column.name not in table:
                raise ValueError(
                    f"{where}: no column {column.name!r}, which the examples have; add it, or "
                    f"rename one of {', '.join(table)}"
                )
        read = [column.read(table[column.name], where, lines) for column in self.columns]
        return np.stack(read, axis=1)

    def remarks(self) -> list[str]:
        """Which columns are not used, and why."""
        by_reason: dict[str, list[str]] = {}
        for name, reason in self.left_out.items():
            by_reason.setdefault(reason, []).append(name)
        return [f"not used: {', '.join(names)} ({reason})" for reason, names in by_reason.items()]

    def unknown(self, table: Table) -> dict[str, list[str]]:
        """By the name of a category, its values in these rows that no example has."""
        found = {
            c.name: sorted({text_of(v) for v in table[c.name] if not missing(v)} - {*c.texts})
            for c in self.columns
            if c.kind == "category"
        }
        return {name: values for name, values in found.items() if values}


class Reader(NamedTuple):
    """How training rows measure their columns. A column of numbers or dates becomes one column of
    the learner's. A category becomes one column for each of its frequent values, or a single one if
    it has two values, to which an unknown value is missing."""

    owners: Int[np.ndarray, " kept"]
    """The place of the table's column from which each of the learner's columns is made."""
    level: Int[np.ndarray, " kept"]
    """The value of a category that each stands for, by its place; -1 for numbers."""
    other: Int[np.ndarray, " kept"]
    """The other value of a category of two; -1 for other columns."""
    middle: Float[np.ndarray, " columns"]
    """Subtracted from each number in 64 bits, which is then divided by `unit`: 32 bits cannot hold
    small differences of large numbers."""
    unit: Float[np.ndarray, " columns"]
    total: int
    """How many columns there would be without a bound."""

    def __call__(self, values: Values) -> Float[np.ndarray, "n kept 3"]:
        """Value, whether it is there, and kind (1 for a category) of each cell."""
        scaled = np.clip((values - self.middle) / self.unit, -1e6, 1e6)[:, self.owners]
        values = values[:, self.owners]
        there, category = ~np.isnan(values), self.level >= 0
        known = there & ((self.other < 0) | (values == self.level) | (values == self.other))
        value = np.where(category, values == self.level, np.where(there, scaled, 0))
        return np.stack([value, known, there & category], axis=-1).astype(np.float32)


def reader(schema: Schema, values: Values, y: np.ndarray) -> Reader:
    """The measures of training rows, whose labels or targets are `y`.

    If there are more columns than the bound, those are kept whose variance the labels explain best.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a column may be empty
        middle, spread = (np.nan_to_num(f(values, axis=0)) for f in (np.nanmean, np.nanstd))
        flat = spread <= 1e-12 * np.nan_to_num(np.nanmax(np.abs(values), axis=0, initial=0))
    made: list[tuple[int, int, int]] = []
    for place, (column, cells) in enumerate(zip(schema.columns, values.T, strict=True)):
        if column.kind != "category":
            made.append((place, -1, -1))
            continue
        counts = Counter(cells[cells >= 0].astype(int).tolist())
        levels = sorted(sorted(counts, key=lambda level: (-counts[level], level))[:LEVELS]) or [0]
        if len(levels) < 3:
            made.append((place, levels[-1], levels[0]))
        else:
            made += [(place, level, -1) for level in levels]
    owners, level, other = np.array(made).T
    whole = Reader(owners, level, other, middle, np.where(flat, 1.0, spread), len(made))
    if len(made) <= WIDTHS[-1]:
        return whole
    best = np.sort(np.argsort(-_explained(whole(values), y), kind="stable")[: WIDTHS[-1]])
    return whole._replace(owners=owners[best], level=level[best], other=other[best])


def _explained(x: Float[np.ndarray, "n columns 3"], y: np.ndarray) -> Float[np.ndarray, " columns"]:
    """How well the labels explain each column: the F statistic, with gaps at the mean."""
    from sklearn.feature_selection import f_classif, f_regression  # rare, and slow to load

    there = x[..., 1] > 0
    mean = np.sum(x[..., 0], axis=0, where=there) / np.maximum(there.sum(axis=0), 1)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # columns may be constant
        found = f_regression if y.dtype.kind == "f" else f_classif
        return np.nan_to_num(found(np.where(there, x[..., 0], mean), y)[0])


def width_of(columns: int) -> int:
    """The width to which so many columns are filled up."""
    return next(width for width in WIDTHS if width >= columns)


def schema_of(
    table: Table,
    y: np.ndarray | None = None,
    *,
    where: str = "the table",
    lines: Sequence[int] | None = None,
    dates: Dates | None = None,
    keep: Sequence[str] = (),
) -> Schema:
    """What the columns of labelled rows are.

    Left out are columns with one value, texts that differ in every row, and columns that count the
    rows: in a sorted file these give the class away, and say nothing about new rows. If nothing
    else is there, columns that count stay.

    **Arguments**

    - `y`: the labels as places (integers), or the targets (floats). For targets a column counts
      rows only if its steps are one, because functions are often sampled in order.
    - `where`, `lines`: what errors call the table, and its rows.
    - `dates`: the order of day, month and year in dates such as 03/04/2020.
    - `keep`: columns that are used even if they count the rows.

    **Raises** `ValueError` in one line for a column that is neither, for dates that can be read in
    two ways, and for a table in which no column has two different values.
    """
    columns, left_out, counting = [], {}, []
    classes = y is None or y.dtype.kind != "f"
    for name, cells in table.items():
        column = _column(name, cells, where, lines, dates)
        if isinstance(column, str):
            left_out[name] = column
            continue
        columns.append(column)
        if name not in keep and _counts(column, column.read(cells, where, lines), classes):
            counting.append(column)
    if not columns:
        n = len(next(iter(table.values()), ()))
        if n < 2:
            raise ValueError(f"{where}: expected two or more examples, got {n}: add rows")
        why = "; ".join(dict.fromkeys(f"{name!r} {reason}" for name, reason in left_out.items()))
        raise ValueError(f"{where}: no column can be used: {why}: add columns")
    if len(counting) < len(columns):
        columns = [column for column in columns if column not in counting]
        left_out |= {column.name: "counts the rows" for column in counting}
    return Schema(tuple(columns), left_out)


def as_table(x: Any) -> dict[str, Cells]:
    """The columns of a frame or series (pandas, polars, Arrow, and others that `narwhals` knows), a
    mapping, or an array `[n, columns]` (NaN is a missing cell).

    **Raises** `ValueError` in one line for anything but a table.
    """
    import narwhals as nw

    if isinstance(x, Mapping):
        pairs = [(name, _cells(cells)) for name, cells in x.items()]
    elif isinstance(frame := _frame(x), nw.Series):
        pairs = [(frame.name if frame.name is not None else "0", _of_series(frame))]
    elif frame is not None:
        pairs = [(name, _of_series(frame.get_column(name))) for name in frame.columns]
    else:
        array = np.asarray(x)
        if array.ndim != 2 or array.dtype.kind in "cV":
            raise ValueError(
                f"expected a table [n, columns], got shape {list(array.shape)} of {array.dtype}: "
                "give a data frame, a mapping of columns, or an array"
            )
        pairs = [(i, _cells(column)) for i, column in enumerate(array.T)]
    table: dict[str, Cells] = {}
    for name, cells in pairs:
        if (text := normal(str(name))) in table:
            raise ValueError(f"several columns are named {text!r}: rename or remove one")
        table[text] = cells
    lengths = sorted({len(cells) for cells in table.values()})
    if len(lengths) != 1:
        found = f"the lengths {lengths}" if lengths else "none"
        raise ValueError(
            f"expected one or more columns of inputs, all of one length, got {found}: check the "
            "table"
        )
    return table


def _frame(x: Any) -> Any:
    """The frame or series as narwhals wraps it; None for anything else."""
    import narwhals as nw
    from narwhals.exceptions import DuplicateError

    try:
        wrapped = nw.from_native(x, allow_series=True, pass_through=True)
    except DuplicateError:
        raise ValueError("several columns have the same name: rename or remove one") from None
    if isinstance(wrapped, nw.LazyFrame):
        wrapped = wrapped.collect()
    return wrapped if isinstance(wrapped, nw.DataFrame | nw.Series) else None


def _of_series(series: Any) -> Cells:
    import narwhals as nw

    dtype = series.dtype
    if dtype.is_numeric() and not dtype.is_decimal():
        values = series.to_list() if series.null_count() else series.to_numpy()
        return np.asarray([math.nan if missing(v) else v for v in values], np.float64)
    if dtype.is_nested() or isinstance(dtype, nw.Binary):
        raise ValueError(f"column {series.name!r} has cells of {dtype}: give one value in each")
    return _cells(series.to_list())


def _cells(cells: Any) -> Cells:
    """Cells as a list, or as an array if they are numbers."""
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "iuf":
        return cells.astype(np.float64)
    if (frame := _frame(cells)) is not None:
        return _of_series(frame)
    return cells.tolist() if isinstance(cells, np.ndarray) else list(cells)


def missing(cell: Cell) -> bool:
    """Whether the cell is empty."""
    if isinstance(cell, str):
        return cell.strip().lower() in MISSING
    try:
        return cell is None or bool(cell != cell)  # NaN and NaT differ from themselves
    except TypeError:  # pandas' NA equals nothing, not even itself
        return True


def normal(text: str) -> str:
    """A text without blanks at its ends, its letters in one form: file systems write others."""
    return unicodedata.normalize("NFC", text.strip())


def text_of(cell: Cell) -> str:
    """A cell of a category as text: the number 1.0 is the text 1."""
    if isinstance(cell, float | np.floating) and float(cell).is_integer():
        return str(int(cell))
    return normal(cell if isinstance(cell, str) else str(cell))


def number(cell: Cell) -> float | None:
    """The cell as a number, a duration in seconds; None if it is not one, or too large for 32
    bits."""
    value = math.nan
    if isinstance(cell, str):
        value = float(cell) if NUMBER.fullmatch(cell := cell.strip()) else math.nan
    elif isinstance(cell, datetime.timedelta):
        value = cell.total_seconds()
    elif isinstance(cell, int | float | decimal.Decimal | np.number) and not isinstance(cell, bool):
        try:
            value = float(cell)
        except (OverflowError, TypeError):  # a large integer, a complex number
            return None
    return value if abs(value) <= LARGEST else None


def _converted(
    cells: Cells, convert: Callable[[Cell], float | None]
) -> tuple[Float[np.ndarray, " n"], int | None]:
    """The converted cells, NaN where one is missing, and the place of the first that `convert`
    refuses; None if there is none."""
    values = np.full(len(cells), np.nan)
    for place, cell in enumerate(cells):
        if missing(cell):
            continue
        if (value := convert(cell)) is None:
            return values, place
        values[place] = value
    return values, None


def numbers(cells: Cells) -> tuple[Float[np.ndarray, " n"], int | None]:
    """The cells as numbers, NaN where one is missing, and the place of the first that is no number;
    None if all are."""
    if isinstance(cells, np.ndarray):
        odd = np.flatnonzero(np.abs(cells) > LARGEST)
        return cells, int(odd[0]) if len(odd) else None
    return _converted(cells, number)


def _days(cells: Cells, order: str) -> tuple[Float[np.ndarray, " n"], int | None]:
    """The cells as days since 1970, as `numbers`."""
    return _converted(cells, lambda cell: _day(cell, order))


def _day(cell: Cell, order: str) -> float | None:
    """Days since 1970 in UTC of a date; None if it is none."""
    text = str(cell).strip()
    forms = (date + clock for date in (*CLEAR, *ORDERS.get(order, ())) for clock in CLOCKS)
    for form in (None, *forms):
        try:
            if form is None:
                when = datetime.datetime.fromisoformat(text.replace("/", "-"))
            else:
                when = datetime.datetime.strptime(text, form)
        except ValueError:
            continue
        if when.tzinfo is not None:
            when = when.astimezone(datetime.UTC).replace(tzinfo=None)
        return float((when - EPOCH).total_seconds() / 86_400)
    return None


def _order(name: str, cells: Cells, where: str, dates: Dates | None) -> str | None:
    """The order of a column of dates; None for other cells."""
    known = [cell for cell in cells if not missing(cell)]
    readings: dict[tuple[float | None, ...], str] = {}
    for order in (dates,) if dates else ORDERS:
        days = tuple(_converted(known, partial(_day, order=order))[0].tolist())
        if not any(map(math.isnan, days)):
            readings.setdefault(days, order)
    if len(readings) > 1:
        example = next(c for c in known if _day(c, "dmy") != _day(c, "mdy") or _day(c, "ymd"))
        raise ValueError(
            f"{where}: the dates of column {name!r}, such as {example!r}, can be read in the "
            f"orders {' and '.join(readings.values())}: choose one with --dates (dates=...), or "
            "write them as 2024-05-31"
        )
    return next(iter(readings.values()), None)


def _row(place: int, lines: Sequence[int] | None) -> str:
    return f" of row {lines[place] if lines is not None else place + 1}"


def _column(
    name: str, whole: Cells, where: str, lines: Sequence[int] | None, dates: Dates | None
) -> Column | str:
    """What a column with these cells is, or why it cannot be used."""
    values, odd = numbers(whole)
    if odd is None:
        return _varied(Column(name, "number"), values)
    strange = whole[odd]
    number_like = isinstance(strange, int | float | np.number) and not isinstance(strange, bool)
    if isinstance(whole, np.ndarray) or number_like:
        raise ValueError(
            f"{where}: {strange} in column {name!r}{_row(odd, lines)} is not finite, or too "
            "large: correct it, or leave it empty"
        )
    if (order := _order(name, whole, where, dates)) is not None:
        return _varied(Column(name, "date", order), _days(whole, order)[0])
    cells = [cell for cell in whole if not missing(cell)]
    counts = Counter(map(text_of, cells))
    if len(counts) < 2:
        return ONE
    grouped = [text for text in counts if GROUPED.fullmatch(text)]
    if grouped and all(text in grouped or NUMBER.fullmatch(text) for text in counts):
        raise ValueError(
            f"{where}: {grouped[0]!r} in column {name!r} may have a decimal comma or separate "
            "thousands: write 1234.5"
        )
    if len(counts) > max(FREE, len(cells) / 2):
        if sum(number(cell) is not None for cell in cells) > len(cells) / 2:
            raise ValueError(
                f"{where}: {strange!r} in column {name!r}{_row(odd, lines)} is no number, "
                "unlike most of its cells: correct it, or leave it empty"
            )
        return "texts that differ in nearly every row"
    if len(counts) == len(cells) and sum(" " in text for text in counts) > len(counts) / 2:
        return "texts that differ in every row"
    return Column(name, "category", texts=tuple(sorted(counts)))


def _varied(column: Column, values: Float[np.ndarray, " n"]) -> Column | str:
    known = values[~np.isnan(values)]
    if not len(known):
        return EMPTY
    if known.std() <= 1e-12 * np.abs(known).max():
        return ONE
    return column


def _counts(column: Column, values: Float[np.ndarray, " n"], classes: bool) -> bool:
    """Whether a column numbers the rows: whole numbers or dates that grow with the row, or a key by
    its name."""
    if column.kind == "category" or len(values) < FREE or (column.kind == "date" and not classes):
        return False
    whole = column.kind == "date" or bool(np.all(values == np.round(values)))
    steps = np.diff(values)
    if whole and len(values) >= COUNTED and (np.all(steps > 0) or np.all(steps < 0)):
        return classes or bool(np.all(np.abs(steps) == 1))
    return bool(whole and KEY.fullmatch(column.name) and len(np.unique(values)) == len(values))
