"""Tables with any columns, and tables of numbers for learners of vectors and of functions."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from arml.predict.base import Predictor, TaskLearner
from arml.predict.inputs import Bad, OnItem, checked_array
from arml.predict.kinds import Asked, Inputs, Labelled, Queries, check_different, is_table
from arml.tables.kinds import targets_in
from arml.tables.sheet import Sheet, numbers_of, read_sheet

if TYPE_CHECKING:
    from arml.tables.predictor import ParsedRows, TablePredictor

BLOCK_ROWS = 10_000
"""Rows of a table that are predicted at once."""


class Vectors(Inputs):
    """Vectors of numbers: arrays `[n, d]`, or the rows of a table."""

    trained = True
    can = frozenset({"add", "interval", "learning_curve", "to_onnx"})
    one, many = "row", "tables of numbers"
    cells = ()
    asks: ClassVar[tuple[str, ...]] = ("sheet",)
    advice = (
        "name a CSV file (a spreadsheet program saves one), or use the learner photos for pictures"
    )

    def fits(self, path: Path) -> bool:
        return is_table(path)

    def read(
        self, learner: TaskLearner, x: object, what: str, progress: OnItem | None, bad: Bad | None
    ) -> np.ndarray:
        return checked_array(x, learner.problem.features, what)

    def labelled(
        self, learner: TaskLearner, path: Path, asked: Asked, predictor: Predictor | None = None
    ) -> Labelled:
        known, y = _answered(learner, path, asked, predictor)
        return _rows(known), numbers_of(known, predictor.columns if predictor else None)[0], y

    def learn(self, learner: TaskLearner, path: Path, asked: Asked) -> tuple[Predictor, list[str]]:
        known, y = _answered(learner, path, asked, None)
        x, columns = numbers_of(known)
        check_different(x, path, "rows")
        predictor = learner.adapt(x, y)
        predictor.columns, predictor.target = columns, asked.target
        return predictor, _rows(known)

    def queries(self, predictor: Predictor, paths: Sequence[Path], asked: Asked) -> Queries:
        sheet = sheet_at(asked, *paths).without(predictor.target)
        return Queries(sheet.lines, [numbers_of(sheet, predictor.columns)[0]])


class Functions(Vectors):
    """Functions: the inputs `[n, d]` of a regression."""


class Tables(Vectors):
    """Tables with any columns: numbers, dates, categories, missing cells. A learner sees a column
    and facts about its cell."""

    axes = 2
    plain = False
    many = "tables"
    like = "tables"
    tab = "tables"
    can = frozenset({"add", "interval", "matter", "learning_curve"})
    asks = (
        *("sheet", "columns", "without", "keep", "dates", "group", "matter"),
        *("fill_down", "category", "order"),
    )

    @property
    def predictor(self) -> type["TablePredictor"]:
        from arml.tables.predictor import TablePredictor

        return TablePredictor

    def labelled(
        self, learner: TaskLearner, path: Path, asked: Asked, predictor: Predictor | None = None
    ) -> Labelled:
        known, y = _answered(learner, path, asked, predictor)
        return _rows(known), _parsed(_of_table(predictor), known, asked), y

    def learn(self, learner: TaskLearner, path: Path, asked: Asked) -> tuple[Predictor, list[str]]:
        return self.learn_rows(learner, sheet_at(asked, path), asked)

    def learn_rows(
        self, learner: TaskLearner, sheet: Sheet, asked: Asked
    ) -> tuple[Predictor, list[str]]:
        from arml.tables.predictor import learned_table

        predictor, known, unknown = learned_table(
            learner, sheet, asked.target, groups=asked.group, **asked.columns
        )
        asked.tell(*sheet.remark.splitlines(), *predictor.remarks)
        asked.unlabelled = self._queries(predictor, unknown, asked) if unknown.lines else None
        return predictor, _rows(known)

    def queries(self, predictor: Predictor, paths: Sequence[Path], asked: Asked) -> Queries:
        """The rows of a table. Columns that the predictor does not use because they tell the rows
        apart, or were left out by name, identify the answers."""
        return self._queries(_of_table(predictor), sheet_at(asked, *paths), asked)

    def _queries(self, predictor: "TablePredictor", sheet: Sheet, asked: Asked) -> Queries:
        rows = _parsed(predictor, sheet, asked)
        keys = {name: column for name, column in sheet.cells.items() if name in predictor.keys}

        def blocks() -> Iterator["ParsedRows"]:
            n = len(rows)
            with asked.watch("predicting rows") as show:
                for first in range(0, n, BLOCK_ROWS):
                    show(first, n)
                    yield rows[first : first + BLOCK_ROWS]

        return Queries(sheet.lines, blocks(), keys)

    def decisive(self, predictor: Predictor, queries: Queries) -> list[str]:
        """The column of each row whose cell matters most: see `TablePredictor.decisive`."""
        return [text for batch in queries.batches for text in _of_table(predictor).decisive(batch)]


def _of_table(predictor: Predictor | None) -> "TablePredictor":
    from arml.tables.predictor import TablePredictor

    assert isinstance(predictor, TablePredictor)
    return predictor


def sheet_at(asked: Asked, *paths: Path) -> Sheet:
    """The table of one file; a guess at its encoding is reported to the user."""
    if len(paths) != 1:
        raise ValueError(f"a query is one table, got {len(paths)} files: give one")
    sheet = read_sheet(paths[0], asked.sheet)
    asked.tell(*sheet.remark.splitlines())
    return sheet._replace(remark="")


def _rows(sheet: Sheet) -> list[str]:
    return [f"row {line}" for line in sheet.lines]


def _parsed(predictor: "TablePredictor", sheet: Sheet, asked: Asked) -> "ParsedRows":
    """The rows; cells that are unlike the examples are reported to the user."""
    return predictor.read(sheet.cells, where=sheet.where, lines=sheet.lines, tell=asked.tell)


def tell_unanswered(unknown: Sheet, asked: Asked) -> None:
    """Name the number of rows without an answer to the user, if there are any."""
    if gaps := unknown.lines:
        rows = "rows" if len(gaps) > 1 else "row"
        asked.tell(f"left out {len(gaps)} {rows} without an answer, the first in row {gaps[0]}")


def _answered(
    learner: TaskLearner, path: Path, asked: Asked, predictor: Predictor | None
) -> tuple[Sheet, Any]:
    """The rows with a cell in the target's column, without it, and the classes or numbers there.
    A message to the user names rows without an answer."""
    sheet, numbers = sheet_at(asked, path), learner.problem.kind == "regression"
    target = asked.target or (predictor.target if predictor else None)
    y, known, unknown = sheet.answered(target, numbers)
    tell_unanswered(unknown, asked)
    return known, targets_in("target", y, sheet.where, known.lines)[0] if numbers else y
