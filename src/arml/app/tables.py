"""The tab of tables: rows with a value in the chosen column are the examples; the others, whose
cell is empty there, are predicted."""

import base64
import binascii
import csv
import io
import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from arml.app.pictures import Limits
from arml.predict.base import LearnerBase
from arml.predict.reliability import digits_of
from arml.predict.tables import LabelledTable, learned_table
from arml.results.files import Json
from arml.tables.kinds import NUMBER, missing
from arml.tables.sheet import cells_of, cells_of_file

Kind = Literal["classes", "numbers"]
_KINDS: dict[str, Kind] = {"classification": "classes", "regression": "numbers"}
LEVEL = 0.9
"""Of the intervals of numbers."""
_FEW = 10
"""A column of numbers with more different values than this is predicted as numbers."""


def prediction_of(learner: LearnerBase) -> Kind | None:
    """The kind of prediction of a learner of tables; None for another learner."""
    problem = learner.problem
    return _KINDS[problem.kind] if problem.inputs == "tables" else None


class Request(NamedTuple):
    """A table that the page sent, and what was learned from it."""

    cells: dict[str, list[Any]]
    lines: list[int]
    sheet: LabelledTable

    @property
    def inputs(self) -> dict[str, list[Any]]:
        """The columns but the target."""
        return {k: cells for k, cells in self.cells.items() if k != self.sheet.predictor.target}


def read_table(content: object) -> Json:
    """A file that was dropped, by its `name` and its `data`: `header`, `rows`, and both as `csv`.

    **Raises** `ValueError` in one line for a file that is no table.
    """
    given: Mapping[str, Any] = content if isinstance(content, dict) else {}
    try:
        data = base64.b64decode(given["data"], validate=True)
    except (KeyError, TypeError, ValueError, binascii.Error):
        raise ValueError("the file is not in base64: use the page") from None
    cells, lines = cells_of_file(data, str(given.get("name"))[:80])
    rows = [["" if c[i] is None else str(c[i]) for c in cells.values()] for i in range(len(lines))]
    return {"csv": _csv([*cells], rows), "header": [*cells], "rows": rows}


def columns(content: object, limits: Limits) -> Json:
    """The columns of a table: for each its `name`, how many cells are `empty`, and the `kind` of
    prediction that its values suggest. `target` is the column that is likely to be predicted: one
    whose empty cells are the last or first rows, else the last one with gaps, else the last.

    **Raises** `ValueError` in one line for anything but a table.
    """
    cells, lines = _cells(content, limits)
    n = len(lines)
    found, order = [], []
    for place, (name, column) in enumerate(cells.items()):
        empty = np.array([missing(cell) for cell in column])
        known = [str(cell).strip() for cell in column if not missing(cell)]
        numbers = len(set(known)) > _FEW and all(map(NUMBER.fullmatch, known))
        kind = "numbers" if numbers else "classes"
        found.append({"name": name, "empty": int(empty.sum()), "kind": kind})
        block = int(np.sum(empty[1:] != empty[:-1])) == 1
        order.append((block, 0 < len(known) < n, place, name))
    return {"rows": n, "columns": found, "target": max(order)[-1]}


def predicted(learners: Mapping[Kind, Any], content: object, limits: Limits) -> Json:
    """The predictions for the rows without a value: `header` and `rows` of a table of answers, the
    same as `csv`, and a `remark` on how the table was read.

    **Raises** `ValueError` in one line for a request that cannot be answered.
    """
    request = _request(learners, content, limits)
    predictor, known, unknown = request.sheet
    said: list[str] = []
    if not unknown:
        raise ValueError(f"no row has an empty cell in {predictor.target!r}: add rows to predict")
    cells = {name: [column[i] for i in unknown] for name, column in request.inputs.items()}
    x = predictor.read(cells, "the table", [request.lines[i] for i in unknown], said.append)
    if predictor.classes is None:
        each = np.stack([predictor.predict(x), *predictor.interval(x, LEVEL)], axis=1)
        more, digits = [f"low {LEVEL:.0%}", f"high {LEVEL:.0%}"], digits_of(predictor.y)
        answers = [[f"{number:.{digits}g}" for number in row] for row in each]
    else:
        more, chances = ["probability"], predictor.predict_proba(x)
        best = zip(chances.argmax(axis=1), chances.max(axis=1), strict=True)
        answers = [[str(predictor.classes[k]), f"{p:.4f}"] for k, p in best]
    header = [str(predictor.target), *more, *cells]
    rows = [
        [*answer, *(str(column[i]) for column in cells.values())]
        for i, answer in enumerate(answers)
    ]
    of = "" if predictor.classes is None else f" of {len(predictor.classes)} classes"
    remarks = [f"learned from {len(known)} rows{of}", *predictor.remarks, *said]
    remark = " ".join(f"{one[0].upper()}{one[1:]}." for one in remarks)
    return {"header": header, "rows": rows, "csv": _csv(header, rows), "remark": remark}


def checked(learners: Mapping[Kind, Any], content: object, limits: Limits) -> Json:
    """How well the examples predict each other (`summary`), and the `columns` that matter: the
    `name` of each, and how many times less probable the right answers are without it (`factor`);
    the largest first.

    **Raises** `ValueError` in one line for a request that cannot be answered.
    """
    predictor = _request(learners, content, limits).sheet.predictor
    drops = sorted(predictor.matter().items(), key=lambda drop: -drop[1])
    factors = [{"name": name, "factor": math.exp(min(drop, 50.0))} for name, drop in drops]
    return {"summary": str(predictor.reliability()), "columns": factors}


def example_table(seed: int) -> Json:
    """A table of trees, some of them without a name: `csv`."""
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
    return {"csv": _csv(["height", "leaf", "bark", "tree"], rows)}


def _csv(header: list[str], rows: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue()


def _cells(content: object, limits: Limits) -> tuple[dict[str, list[Any]], list[int]]:
    text = content.get("csv") if isinstance(content, dict) else None
    if not isinstance(text, str) or not text.strip():
        raise ValueError("no table: paste one with a header, or drop a file")
    cells, lines = cells_of(text, "the table")
    for name, n, most in (
        ("rows", len(lines), limits.rows),
        ("columns", len(cells), limits.columns),
    ):
        if n > most:
            raise ValueError(f"at most {most} {name} are allowed, got {n}: use arml adapt")
    return cells, lines


def _request(learners: Mapping[Kind, Any], content: object, limits: Limits) -> Request:
    cells, lines = _cells(content, limits)
    given: Mapping[str, Any] = content if isinstance(content, dict) else {}
    target, learner = given.get("target"), learners.get(given.get("kind"))  # type: ignore[arg-type]
    if not isinstance(target, str) or len(cells) < 2:
        raise ValueError(f"expected a column to predict, and other columns, got {target!r:.80}")
    if learner is None:
        raise ValueError(f"expected {' or '.join(learners)} to predict, got {given.get('kind')!r}")
    return Request(cells, lines, learned_table(learner, cells, lines, target))
