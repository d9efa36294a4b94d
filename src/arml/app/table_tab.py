"""The tab of tables. Rows with a value in the chosen column are the examples. Rows with an empty
cell there are predicted. A function raises `ValueError` in one line for an invalid request."""

import math
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from arml.app.picture_tab import Limits
from arml.predict.answers import free_name, labels_of, numbers_of
from arml.predict.base import Predictor, TaskLearner
from arml.predict.inputs import missing
from arml.predict.kinds import Asked, Queries, inputs_of
from arml.results.files import Json, csv_text, read_as
from arml.tables.kinds import NUMBER_CELL, text_of
from arml.tables.sheet import Most, Sheet, sheet_of, sheet_of_file

INTERVAL_LEVEL = 0.9
"""The level of the intervals of predicted numbers."""
_MAX_CLASSES_OF_NUMBERS = 10
"""A column of numbers with more distinct values than this is predicted as numbers."""


class SentTable(msgspec.Struct):
    """A request: a table and the column to predict, or a file and its name."""

    csv: str = ""
    target: str = ""
    kind: str = ""
    name: str = ""
    data: bytes = b""
    """The file, in base64."""


def read_table(content: object, limits: Limits) -> Json:
    """The `header` and `rows` of a file, both also as `csv`, and a `remark` on the way in which the
    file was read, for example on a guessed encoding."""
    sent = _read(content)
    sheet = sheet_of_file(sent.data, sent.name[:80], most=_most(limits))
    rows = [["" if cell is None else text_of(cell) for cell in row] for row in _rows(sheet)]
    header = [*sheet.cells]
    return {
        "csv": csv_text([header, *rows]),
        "header": header,
        "rows": rows,
        "remark": sheet.remark,
    }


def columns(content: object, limits: Limits) -> Json:
    """The columns of a table: the `name` of each, the number of its `empty` cells, and the `kind`
    of prediction that its values suggest. `target` is the column that the user probably wants to
    predict: one whose empty cells are the last or the first rows, or else the last column with
    empty cells, or else the last column."""
    sheet = _pasted(_read(content), limits)
    n = len(sheet.lines)
    found, order = [], []
    for place, (name, column) in enumerate(sheet.cells.items()):
        empty = np.array([missing(cell) for cell in column])
        known = [str(cell).strip() for cell in column if not missing(cell)]
        many = len(set(known)) > _MAX_CLASSES_OF_NUMBERS
        kind = "numbers" if many and all(map(NUMBER_CELL.fullmatch, known)) else "classes"
        found.append({"name": name, "empty": int(empty.sum()), "kind": kind})
        block = int(np.sum(empty[1:] != empty[:-1])) == 1
        order.append((block, 0 < len(known) < n, place, name))
    return {"rows": n, "columns": found, "target": max(order)[-1]}


def predicted(learners: Mapping[str, TaskLearner], content: object, limits: Limits) -> Json:
    """The predictions for the rows without a value: `header` and `rows` of a table, both as `csv`,
    and a `remark` on the way in which the table was read."""
    said: list[str] = []
    predictor, _, sheet, queries = _learned(learners, content, limits, said)
    target, answers = str(predictor.target), list[tuple[str, ...]]()
    if queries is None:
        raise ValueError(f"no row has an empty cell in {target!r}: add rows to predict")
    _, _, unknown = sheet.answered(target, predictor.classes is None)
    if predictor.classes is None:
        numbers = numbers_of(predictor, queries.batches, INTERVAL_LEVEL)
        more, answers = [*numbers][1:], [*zip(*numbers.values(), strict=True)]
    else:
        found = labels_of(predictor, queries, [*map(str, unknown.lines)])
        more = ["probability"]
        answers = [(one.label, one.shown) for one in found]
    header = [target, *(free_name(name, [target, *unknown.cells]) for name in more)]
    header += unknown.cells
    rows = [[*answer, *row] for answer, row in zip(answers, _rows(unknown), strict=True)]
    of = "" if predictor.classes is None else f" of {len(predictor.classes)} classes"
    remarks = [f"learned from {len(predictor.y)} rows{of}", *said]
    remark = " ".join(f"{one[0].upper()}{one[1:]}." for one in remarks)
    return {"header": header, "rows": rows, "csv": csv_text([header, *rows]), "remark": remark}


def checked(learners: Mapping[str, TaskLearner], content: object, limits: Limits) -> Json:
    """How well the examples predict each other (`summary`, several lines), and how much each of
    the `columns` matters: its `name`, and the `factor` by which the right answers are less probable
    without it. The largest factor is first."""
    said: list[str] = []
    predictor, names, _, _ = _learned(learners, content, limits, said)
    drops = predictor.matter().items() if predictor.can("matter") else ()
    factors = [{"name": name, "factor": math.exp(min(drop, 50.0))} for name, drop in drops]
    summary = "\n".join([*predictor.reliability().lines(names), *said])
    return {"summary": summary, "columns": factors}


def example_table(seed: int) -> Json:
    """A table of trees as `csv`. The names of some trees are missing."""
    rng = np.random.default_rng(seed)
    kinds = {"oak": (25, 12, "rough"), "birch": (18, 5, "smooth"), "spruce": (32, 0.2, "rough")}
    rows = []
    for i in range(24):
        name = [*kinds][i % 3]
        height, leaf, bark = kinds[name]
        cells = [f"{rng.normal(height, 4):.1f}", f"{leaf * rng.lognormal(0, 0.4):.2g}", bark]
        if rng.uniform() < 0.2:
            cells[rng.integers(3)] = ""
        rows.append([*cells, name if i < 15 else ""])
    return {"csv": csv_text([["height", "leaf", "bark", "tree"], *rows])}


def _rows(sheet: Sheet) -> list[tuple[Any, ...]]:
    return [*zip(*sheet.cells.values(), strict=True)]


def _read(content: object) -> SentTable:
    return read_as(SentTable, content, "the request", "use the page")


def _pasted(sent: SentTable, limits: Limits) -> Sheet:
    if not sent.csv.strip():
        raise ValueError("no table: paste one with a header, or drop a file")
    return sheet_of(sent.csv, "the table", _most(limits))


def _most(limits: Limits) -> Most:
    return Most(limits.rows, limits.columns, book=limits.rows * limits.columns)


def _learned(
    learners: Mapping[str, TaskLearner], content: object, limits: Limits, said: list[str]
) -> tuple[Predictor, list[str], Sheet, Queries | None]:
    """The predictor, the names of the examples, the table, and the rows to predict. Remarks
    are added to `said`."""
    sent = _read(content)
    sheet, learner = _pasted(sent, limits), learners.get(sent.kind)
    if len(sheet.cells) < 2:
        raise ValueError(
            f"expected a column to predict, and other columns, got {sent.target!r:.80}"
        )
    if learner is None:
        raise ValueError(f"expected {' or '.join(learners)} to predict, got {sent.kind!r}")
    asked = Asked(target=sent.target, tell=lambda *lines: said.extend(lines))
    predictor, names = inputs_of(learner).learn_rows(learner, sheet, asked)
    return predictor, names, sheet, asked.unlabelled
