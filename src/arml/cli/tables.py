"""Tables that `arml adapt`, `predict` and `evaluate` read."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from arml.cli.console import tell
from arml.cli.errors import UsageError
from arml.cli.inputs import Queries

if TYPE_CHECKING:
    from arml.predict.learner import FewShotLearner
    from arml.tables.predictor import Read, TablePredictor

SHOWN = 5
"""Unknown values of a column that are named."""
BLOCK = 10_000
"""Rows predicted between two reports of progress."""
SUFFIXES = (".csv", ".tsv", ".txt", ".xlsx")
"""Endings of tables; named here, too, so that pictures need not wait for the reader of tables."""


def is_table(*paths: Path) -> bool:
    """Whether the only path is a file that holds a table."""
    return [path.suffix.lower() in SUFFIXES for path in paths] == [True]


def of_tables(owner: Any) -> bool:
    """Whether it is a learner or predictor of tables with any columns."""
    from arml.predict.photos import PhotoLearner, PhotoPredictor

    # Their problem would load JAX, which photographs do not need.
    if isinstance(owner, PhotoLearner | PhotoPredictor):
        return False
    return len(owner.problem.features) == 2


def numbers(cells: Sequence[Any], lines: Sequence[int], path: Path) -> list[float]:
    """The targets of a regression. `lines` are those of the file."""
    from arml.tables.columns import number

    found = [number(cell) for cell in cells]
    for line, cell, value in zip(lines, cells, found, strict=True):
        if value is None:
            raise ValueError(
                f"{path}: {cell!r} in row {line} is no number to predict: choose another --target, "
                "or the learner tables, which predicts classes"
            )
    return [value for value in found if value is not None]


def column_of(cells: dict[str, list[Any]], target: str | None, path: Path) -> list[str]:
    """The column `target` as texts, which is taken out of the cells of a table."""
    from arml.tables.columns import normal, text_of

    name = normal(target or "")
    if name not in cells:
        raise ValueError(
            f"{path}: no column {target!r} among {', '.join(cells)}: add it, or name another with "
            "--target"
        )
    return ["" if cell is None else text_of(cell) for cell in cells.pop(name)]


def in_order(
    x: np.ndarray, found: Sequence[str], columns: Sequence[str] | None, path: Path
) -> np.ndarray:
    """The columns of a query table in the order of the support table's, if that is known."""
    if columns is None:
        return x
    if sorted(found) != sorted(columns):
        raise ValueError(
            f"{path}: its columns {', '.join(found)} are not those of the support table, "
            f"{', '.join(columns)}: rename or remove some"
        )
    return x[:, [found.index(name) for name in columns]]


def query_table(
    query: Sequence[Path], target: str | None, columns: Sequence[str] | None
) -> tuple[np.ndarray, Sequence[int]]:
    """The numbers of the query table, and the line of each row."""
    from arml.tables.sheet import read_numbers

    table = read_numbers(_single(query), target=target)
    return in_order(table.x, table.columns, columns, query[0]), table.lines


def adapted_table(
    learner: "FewShotLearner",
    path: Path,
    target: str,
    without: Sequence[str],
    query: Sequence[Path],
) -> tuple["TablePredictor", list[str]]:
    """The predictor that a learner of tables makes of a file, and the names of its examples.

    **Raises** `ValueError` for a table that cannot be learned, or does not go with the queries.
    """
    from arml.tables.predictor import learned
    from arml.tables.sheet import read_cells

    cells, lines = read_cells(path)
    texts = column_of(cells, target, path)
    for line, text in zip(lines, texts, strict=True):
        if not text:
            raise ValueError(
                f"{path}: the {target} of row {line} is empty: fill it, or move the row to the "
                "queries"
            )
    y: list[float] | list[str] = texts
    if learner.problem.kind == "regression":
        y = numbers(texts, lines, path)
    elif len(set(texts)) > max(len(texts) / 2, 2):
        raise ValueError(
            f"{path}: {target!r} has {len(set(texts))} different values in {len(texts)} rows, too "
            "many for classes: give more rows, or use the learner tables-regression for numbers"
        )
    predictor = learned(learner.portable, cells, y, where=str(path), lines=lines, without=without)
    predictor.target = target
    tell(*predictor.remarks)
    for file in query:
        rows, places = query_cells([file])
        predictor.read(rows, str(file), places)
    return predictor, [f"row {line}" for line in lines]


def read_by(
    predictor: "TablePredictor", cells: dict[str, list[Any]], lines: Sequence[int], path: Path
) -> "Read":
    """The rows as a predictor reads them. The user is told of values that are not among the
    examples."""
    x = predictor.read(cells, str(path), lines)
    for name, values in predictor.schema.unknown(cells).items():
        more = f" and {len(values) - SHOWN} more" if len(values) > SHOWN else ""
        tell(
            f"{path}: the predictor knows nothing about these values of the column {name!r}, so "
            f"the other columns decide: {', '.join(values[:SHOWN])}{more}"
        )
    return x


def query_cells(query: Sequence[Path]) -> tuple[dict[str, list[Any]], list[int]]:
    """The cells of the query table by column, and the line of each row."""
    from arml.tables.sheet import read_cells

    return read_cells(_single(query))


def _single(query: Sequence[Path]) -> Path:
    if len(query) != 1:
        raise UsageError(f"a query is one table, got {len(query)} files: give one")
    return query[0]


def rows_of(predictor: Any, query: Sequence[Path], target: str | None) -> Queries:
    """The lines of the table to predict, its rows, and the columns that identify them: those that
    the predictor does not use because they tell the rows apart, or were left out."""
    if not of_tables(predictor):
        x, lines = query_table(query, target, predictor.columns)
        return Queries(lines, iter([x]))
    cells, lines = query_cells(query)
    read = read_by(predictor, cells, lines, query[0])
    keys = {name: column for name, column in cells.items() if name in predictor.keys}
    return Queries(lines, _blocks(read), keys)


def _blocks(read: "Read") -> "Iterator[Read]":
    """Parts of many rows, with a report of how many are predicted."""
    n = len(read.values)
    for first in range(0, n, BLOCK):
        if first:
            tell(f"{first:,} of {n:,} rows predicted")
        yield type(read)(read.values[first : first + BLOCK])
