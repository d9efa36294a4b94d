"""Columns of a table as numbers: numbers, dates, categories and gaps, whatever their names.

`as_table` takes any frame, mapping or array. A `Schema` says what each column is, from the cells of
the labelled rows only, and parses cells into one matrix of numbers. A `ColumnEncoder` is fitted to
the training rows (means, frequent categories, the columns that predict best), and makes the cells
that a learner takes. It depends on labels, so it is fitted again when rows are left out.
"""

import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
from jaxtyping import Float, Int

from arml.tables.kinds import (
    ALLOWED_LEVELS,
    KEEP_HINT,
    MAX_LEVELS,
    NO_VALUES,
    ONE_VALUE,
    TOTAL_NAME,
    AnyColumn,
    Category,
    Cells,
    Column,
    Dates,
    Declared,
    Number,
    OddCells,
    Origin,
    Text,
    UnusedColumn,
    column_of,
    missing,
    named_cells,
    normal,
    text_of,
)

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_Table = Mapping[str, Cells]
"""Cells by the name of their column."""
Values = Float[np.ndarray, "n columns"]
"""Numbers, days or indices of categories; NaN where a cell is missing."""
MIN_COUNTED_ROWS = 8
"""Rows from which a column that counts them is recognised."""
ROW_NUMBER_NAME = re.compile(
    r"(.*[ _.-]|.*[a-z](?=I))?(?i:ids?|idx|index|key|rownum|rownames)"
    r"|(?i:unnamed: 0|samples?|rows?|#|((lfd|s|sr|id|row)[. ]*)?(no\.?|nr\.?|number|nummer))"
    r"|(?i:(case|order|patient|subject|customer|client|account|ticket|invoice|serial|fall|barcode)"
    r"([ _.-]?(no\.?|nr\.?|number|nummer))?)|.*[a-zäöüß]([ _-]?Nr\.?|[ _-][Nn]ummer|nummer)"
)
"""Names of columns that number their rows."""
MIN_DISTINCT = 0.9
"""Share of different values from which such a column does so: a row may be there twice."""
MIN_RANK_CORRELATION = 0.9
"""Rank correlation with the row's index from which a column rises or falls with the rows."""
MAX_VON_NEUMANN = 0.7
"""Mean squared difference of neighbours, in variances, up to which rows are like those before them:
independent rows have 2, with a standard deviation of 0.45 for twenty rows."""
EXPECTED_REASONS = (ONE_VALUE, NO_VALUES)
"""Reasons to leave out a column that need no remark."""
TABLE_WIDTHS = (4, 8, 16, 32, 64)
"""Empty columns fill a table up to one of these widths, so that few programs are compiled."""


@dataclass(frozen=True)
class Schema:
    """The columns of a table that can be used, and why others are not. `print` shows how each is
    parsed."""

    columns: tuple[AnyColumn, ...]
    left_out: dict[str, str] = field(default_factory=dict)
    """The columns that are not used: the reason by the column's name."""
    hints: tuple[str, ...] = ()
    """Remarks on the examples for the user, a line each."""
    clock: AnyColumn | None = None
    """The column by which the rows are ordered in time, which may be one that is not used."""

    def parse(
        self,
        table: _Table,
        where: str = "the table",
        lines: Sequence[int] | None = None,
        tell: Callable[[str], object] = lambda line: None,
    ) -> Values:
        """The cells of the columns as numbers. `where` and `lines` are what messages call the table
        and its rows. `tell` gets a line for each column in which a cell cannot be parsed, so that
        it is missing, or is a value that no example has.

        **Raises** `ValueError` in one line for a column that is not there.
        """
        values = np.empty((len(next(iter(table.values()), ())), len(self.columns)))
        for place, column in enumerate(self.columns):
            if column.name not in table:
                raise ValueError(
                    f"{where}: no column {column.name!r}, which the examples have; add it, or "
                    f"rename one of {', '.join(table)}"
                )
            values[:, place], odd = column.parse(table[column.name])
            if odd:
                cells = named_cells(column.name, table[column.name], odd, lines)
                unseen = isinstance(column, Category)
                unit = column.unit if isinstance(column, Number) else ""
                what = f"not a {column.kind}{unit and f' with the unit {unit!r}'}"
                what = "a value that no example has" if unseen else what
                tell(f"{where}: {cells} is {what}, so the other columns decide")
        return values

    def widened(self, table: _Table) -> "Schema":
        """The same columns, whose categories without an order also have the values of this
        table."""
        columns: list[AnyColumn] = []
        for column in self.columns:
            if isinstance(column, Category) and not column.ordered:
                cells = table.get(column.name, ())
                new = {text_of(cells[i]) for i in column.parse(cells)[1]}
                column = msgspec.structs.replace(column, texts=(*column.texts, *sorted(new)))
            columns.append(column)
        return replace(self, columns=tuple(columns))

    @property
    def texts(self) -> list[int]:
        """The indices of the columns of free texts."""
        return [i for i, column in enumerate(self.columns) if isinstance(column, Text)]

    def words(self, table: _Table) -> "tuple[csr_array, ...]":
        """The counts of words in each column of free texts."""
        from arml.tables.words import MAX_LETTERS, counts_of  # rare, and slow to load

        columns = [table[self.columns[i].name] for i in self.texts]
        return tuple(
            counts_of(["" if missing(c) else text_of(c)[:MAX_LETTERS] for c in each])
            for each in columns
        )

    def remarks(self) -> list[str]:
        """Which columns are not used and why, and the hints."""
        by_reason: dict[str, list[str]] = {}
        for name, reason in self.left_out.items():
            by_reason.setdefault(reason, []).append(name)
        lines = [f"not used: {', '.join(names)} ({reason})" for reason, names in by_reason.items()]
        marked = [f"{c.name} ({c.about()})" for c in self.columns if c.example]
        return [*lines, *([f"read as numbers: {', '.join(marked)}"] if marked else []), *self.hints]

    def __str__(self) -> str:
        known = {column.name: column.about() for column in self.columns}
        reasons = {name: f"not used: {reason}" for name, reason in self.left_out.items()}
        return "\n".join(f"{name}: {about}" for name, about in (known | reasons).items())


class ColumnEncoder(NamedTuple):
    """How columns become those of a learner. A column of numbers or dates becomes one. A category
    becomes one for each of its frequent values, or a single one if it has two values, to which an
    unknown value is missing. Free texts become none; if nothing else is there, a constant."""

    owners: Int[np.ndarray, " kept"]
    """The index of the table's column from which each of the learner's columns is made."""
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


def encoder(
    schema: Schema, values: Values, y: np.ndarray, most: float = TABLE_WIDTHS[-1]
) -> ColumnEncoder:
    """The encoder that is fitted to training rows, whose labels or targets are `y`.

    If there are more columns than `most`, those are kept whose variance the labels explain best.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a column may be empty
        middle, spread = (np.nan_to_num(f(values, axis=0)) for f in (np.nanmean, np.nanstd))
        flat = spread <= 1e-12 * np.nan_to_num(np.nanmax(np.abs(values), axis=0, initial=0))
    made: list[tuple[int, int, int]] = []
    unit = np.where(flat, 1.0, spread)
    for place, (column, cells) in enumerate(zip(schema.columns, values.T, strict=True)):
        if isinstance(column, Text):
            unit[place] = np.inf
        elif not isinstance(column, Category) or column.ordered:
            made.append((place, -1, -1))
        else:
            counts = Counter(cells[cells >= 0].astype(int).tolist())
            often = sorted(counts, key=lambda level: (-counts[level], level))[:MAX_LEVELS]
            levels = sorted(often) or [0]
            few = [(place, levels[-1], levels[0])]
            made += few if len(levels) < 3 else [(place, level, -1) for level in levels]
    owners, level, other = np.array(made or [(0, -1, -1)]).T
    whole = ColumnEncoder(owners, level, other, middle, unit, len(made))
    if len(made) <= most:
        return whole
    best = np.sort(np.argsort(-_explained(whole(values), y), kind="stable")[: int(most)])
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
    """The width to which this many columns are filled up."""
    return next(width for width in TABLE_WIDTHS if width >= columns)


def schema_of(
    table: _Table,
    y: np.ndarray | None = None,
    *,
    where: str = "the table",
    lines: Sequence[int] | None = None,
    dates: Dates | None = None,
    keep: Sequence[str] = (),
) -> Schema:
    """The schema of labelled rows.

    Left out are columns with one value, names that differ in every row, and columns that number the
    rows: whole numbers under the name of a key that all differ, and those from 0 or 1 that rise by
    one. And, where classes come in blocks, columns that rise or fall with the rows, or that counted
    them in another order: these may reveal the class, and do not help with new rows. If nothing
    else is there, such columns stay.

    **Arguments**

    - `y`: the labels as places (integers), or the targets (floats).
    - `where`, `lines`: what errors call the table, and its rows.
    - `dates`: the order of day, month and year in dates such as 03/04/2020.
    - `keep`: columns that are used although a rule here leaves them out.

    **Raises** `ValueError` in one line for cells that are unlike the others of their column, for
    dates that can be read in two ways, and for a table in which no column has two different values.
    """
    origin = Origin(where, lines, dates, keep)
    columns: list[Any] = []
    left_out, counting = dict[str, str](), dict[str, str]()
    hints, errors = list[str](), list[str]()
    for name, cells in table.items():
        try:
            column, own = column_of(name, cells, origin)
        except UnusedColumn as unused:
            left_out[name] = str(unused)
            continue
        except OddCells as error:
            errors.append(str(error))
            continue
        values = column.parse(cells)[0]
        known = values[~np.isnan(values)]
        if name not in keep and known.std() <= 1e-12 * np.abs(known).max():
            left_out[name] = ONE_VALUE
            continue
        free = isinstance(column, Text)
        if name not in keep and not free and (reason := _counts(column, values, y, lines)):
            counting[name] = reason + KEEP_HINT
        columns.append(column)
        hints += own
    if errors:
        raise ValueError(
            f"{where}: {'; '.join(errors)}, unlike most cells there: correct or empty them, leave "
            "the column out (--without), or use it as a category (--keep)"
        )
    if not columns:
        n = len(next(iter(table.values()), (() if y is None else y)))
        if n < 2:
            raise ValueError(f"{where}: expected two or more examples, got {n}: add rows")
        why = "; ".join(f"{name!r} {why}" for name, why in left_out.items()) or "none is left"
        raise ValueError(f"{where}: no column can be used: {why}: add columns")
    if len(counting) < len(columns):
        columns = [column for column in columns if column.name not in counting]
        left_out |= counting
    wandering = _wanders([c for c in columns if isinstance(c, Number)], table, y)
    return Schema(tuple(columns), left_out, (*hints, *wandering, *sums(table, lines)))


def _wanders(columns: Sequence[Number], table: _Table, y: np.ndarray | None) -> list[str]:
    """A hint if the rows are sorted by class, and in some columns a row is like the one before
    (von Neumann's ratio, within classes): they may have been recorded one after the other."""
    if y is None or y.dtype.kind == "f":
        return []
    found, same = [], y[1:] == y[:-1]
    if len(y) < 2 * MIN_COUNTED_ROWS or np.mean(~same) > 1 / MIN_COUNTED_ROWS:
        return []
    for column in columns:
        values = column.parse(table[column.name])[0]
        if np.isnan(values).any():
            continue
        mean = np.bincount(y, values) / np.maximum(np.bincount(y), 1)
        spread = np.mean((values - mean[y]) ** 2)
        if np.mean(np.diff(values)[same] ** 2) < MAX_VON_NEUMANN * spread:
            found.append(repr(column.name))
    return [
        "the rows are sorted by class, and neighbours are alike in "
        f"{', '.join(found)}: if they were recorded one after the other, the check is too "
        "optimistic; record each class more than once, and name the recordings with --group"
    ] * bool(found)


def sums(table: _Table, lines: Sequence[int] | None) -> list[str]:
    """A hint for each last cell of a column that seems to name a sum of other rows."""
    return [
        f"{named_cells(name, cells, [len(cells) - 1], lines)} seems to sum up other rows: "
        "remove it if so"
        for name, cells in table.items()
        if len(cells) > 1 and isinstance(cells[-1], str) and TOTAL_NAME.fullmatch(cells[-1].strip())
    ]


def _counts(
    column: Column, values: np.ndarray, y: np.ndarray | None, lines: Sequence[int] | None
) -> str:
    """Why a column numbers the rows; empty if it does not."""
    n = len(values)
    if isinstance(column, Number) and n >= ALLOWED_LEVELS and np.all(values == np.round(values)):
        if ROW_NUMBER_NAME.fullmatch(column.name) and len(np.unique(values)) >= MIN_DISTINCT * n:
            return "is a row number, judging by its name"
        # Rows of a file may lie between the examples.
        offsets = [values - place for place in (np.arange(n), np.subtract(lines or 0, 2))]
        if n >= MIN_COUNTED_ROWS and any(np.ptp(off) == 0 and off[0] in (0, 1) for off in offsets):
            return "counts the rows"
    known = ~np.isnan(values)
    if y is None or y.dtype.kind == "f" or known.sum() < MIN_COUNTED_ROWS:
        return ""
    values, y = values[known], y[known]
    if np.array_equal(np.sort(values) - values.min(), np.arange(len(y))) and _in_blocks(
        y[np.argsort(values)]
    ):
        return "counts the rows, which were sorted by class"
    if _in_blocks(y) and _rises(values, y):
        return "rises or falls with the rows, which are sorted by class"
    return ""


def _in_blocks(y: np.ndarray) -> bool:
    """Whether the class changes from row to row at most half as often as in a random order."""
    shares = np.unique(y, return_counts=True)[1] / len(y)
    return bool(np.sum(y[1:] != y[:-1]) <= len(y) * (1 - np.sum(shares**2)) / 2)


def _rises(values: np.ndarray, y: np.ndarray) -> bool:
    """Whether the ranks of a column are correlated with the row indices, both over all rows and
    within each class: a column that only differs between classes does not count."""
    from scipy.stats import rankdata

    for group in (np.zeros_like(y), y):
        mean = np.maximum(np.bincount(group), 1)
        pair = rankdata(values), np.arange(len(y))
        rank, place = (x - (np.bincount(group, x) / mean)[group] for x in pair)
        if not np.sum(rank * place) ** 2 > MIN_RANK_CORRELATION**2 * np.sum(rank**2) * np.sum(
            place**2
        ):
            return False
    return True


def as_table(x: Any) -> dict[str, Cells]:
    """The columns of a frame or series (pandas, polars, Arrow, and others that `narwhals` knows), a
    mapping, or an array `[n, columns]` (NaN is a missing cell).

    **Raises** `ValueError` in one line for anything but a table.
    """
    import narwhals as nw

    pairs: Iterable[tuple[Any, Any]]
    if isinstance(x, Mapping):
        pairs = x.items()
    elif isinstance(frame := _frame(x), nw.Series):
        pairs = [(frame.name if frame.name is not None else "0", frame)]
    elif frame is not None:
        pairs = [(name, frame.get_column(name)) for name in frame.columns]
    else:
        array = x if isinstance(x, np.ma.MaskedArray) else np.asarray(x)
        if array.ndim != 2 or array.dtype.kind in "cV":
            raise ValueError(
                f"expected a table [n, columns], got shape {list(array.shape)} of {array.dtype}: "
                "give a data frame, a mapping of columns, or an array; for files or other inputs "
                "load their learner, as in arml.load('photos', estimator)"
            )
        pairs = enumerate(array.T)
    table: dict[str, Cells] = {}
    for name, given in pairs:
        if (text := normal(str(name))) in table:
            raise ValueError(f"several columns are named {text!r}: rename or remove one")
        table[text] = cells = _cells(given)
        for row, cell in enumerate([] if isinstance(cells, np.ndarray) else cells):
            if isinstance(cell, list | tuple | Mapping | Set | np.ndarray | bytes):
                odd = f"column {text!r} has a {type(cell).__name__} in row {row + 1}"
                raise ValueError(f"{odd}: give one value in each cell")
    lengths = sorted({len(cells) for cells in table.values()})
    if len(lengths) != 1:
        found = f"the lengths {lengths}" if lengths else "none"
        what = "one or more columns of inputs, all of one length"
        raise ValueError(f"expected {what}, got {found}: check the table")
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


def _cells(cells: Any) -> Cells:
    """Cells as a list, or as an array if they are numbers; a single cell is one row."""
    import narwhals as nw

    if isinstance(cells, np.ma.MaskedArray):
        cells = cells.tolist()  # with None where it is masked
    if (series := _frame(cells)) is not None:
        if isinstance(series, nw.DataFrame):
            names = ", ".join(map(str, series.columns))
            raise ValueError(f"expected one column, got a frame of {names}: choose one of them")
        dtype = series.dtype
        if isinstance(dtype, nw.Categorical | nw.Enum):
            ordered = isinstance(dtype, nw.Enum) and nw.is_ordered_categorical(series)
            return Declared(series.to_list(), dtype.categories if ordered else ())  # type: ignore[union-attr]
        if dtype.is_numeric() and not dtype.is_decimal():
            return np.asarray(series.cast(nw.Float64).to_numpy(), np.float64)
        cells = series.to_list()
    if (values := getattr(cells, "categories", None)) is not None:  # pandas' own array
        return Declared(cells, values if cells.ordered else ())
    if isinstance(cells, str | bytes | Mapping | Set) or not isinstance(cells, Iterable):
        return [cells]
    if getattr(cells, "dtype", None) is None:
        return list(cells)
    array = np.atleast_1d(np.asarray(cells))
    if array.dtype.kind in "iuf" and array.ndim == 1:
        return array.astype(np.float64)
    if array.dtype.kind in "mM":
        array = array.astype(f"{array.dtype.kind}8[us]")  # nanoseconds would be integers
    return array.tolist()
