"""Tables of the page: rows with a value in the chosen column are the examples; the others, whose
cell is empty there, are predicted."""

import csv
import io
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from arml.app.uploads import Limits
from arml.predict.learner import FewShotLearner, Learner
from arml.predict.reliability import digits_of
from arml.results.files import Json
from arml.tables.columns import NUMBER, missing
from arml.tables.predictor import TablePredictor, learned
from arml.tables.sheet import cells_of

Kind = Literal["classes", "numbers"]
KINDS: dict[str, Kind] = {"classification": "classes", "regression": "numbers"}
LEVEL = 0.8
"""Of the intervals of numbers."""
FEW = 10
"""A column of numbers with more different values than this is predicted as numbers."""


def kind_of(learner: Learner) -> Kind | None:
    """The kind of prediction of a learner of tables; None for another learner."""
    problem = learner.problem
    return KINDS[problem.kind] if len(problem.features) == 2 else None


class Asked(NamedTuple):
    """A table that the page sent, and the column and the rows to predict."""

    cells: dict[str, list[str]]
    target: str
    kind: Kind
    filled: list[int]
    """Places of the rows that are examples."""
    empty: list[int]
    """Places of the rows to predict."""


def columns(content: object, limits: Limits) -> Json:
    """The columns of a table: for each its `name`, how many cells are `empty`, and the `kind` of
    prediction that its values suggest.

    **Raises** `ValueError` in one line for anything but a table.
    """
    cells, n = _cells(content, limits)
    found = []
    for name, column in cells.items():
        known = [cell.strip() for cell in column if not missing(cell)]
        numbers = len(set(known)) > FEW and all(map(NUMBER.fullmatch, known))
        empty = len(column) - len(known)
        found.append({"name": name, "empty": empty, "kind": "numbers" if numbers else "classes"})
    return {"rows": n, "columns": found}


def predicted(learners: Mapping[Kind, FewShotLearner], content: object, limits: Limits) -> Json:
    """The predictions for the rows without a value: `header` and `rows` of a table of answers, the
    same as `csv`, and `said`, remarks on how the table was read.

    **Raises** `ValueError` in one line for a request that cannot be answered.
    """
    asked = _asked(content, limits)
    if not asked.empty:
        raise ValueError(
            f"expected rows to predict, whose cell in {asked.target!r} is empty, got none: add some"
        )
    predictor = _learned(learners, asked)
    x = {name: [cells[i] for i in asked.empty] for name, cells in _inputs(asked).items()}
    answers: list[list[str]]
    if predictor.classes is None:
        low, high = predictor.interval(x, LEVEL)
        each = np.stack([predictor.predict(x), low, high], axis=1)
        more = [f"{(1 - LEVEL) / 2:.0%} quantile", f"{(1 + LEVEL) / 2:.0%} quantile"]
        digits = digits_of(predictor.y)
        answers = [[f"{number:.{digits}g}" for number in row] for row in each]
    else:
        chances = predictor.predict_proba(x)
        more = ["probability"]
        labels = predictor.classes[chances.argmax(axis=1)]
        answers = [[str(k), f"{p:.4f}"] for k, p in zip(labels, chances.max(axis=1), strict=True)]
    header = [asked.target, *more, *x]
    rows = [[*answer, *(column[i] for column in x.values())] for i, answer in enumerate(answers)]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return {"header": header, "rows": rows, "csv": text.getvalue(), "said": _said(predictor, asked)}


def checked(learners: Mapping[Kind, FewShotLearner], content: object, limits: Limits) -> Json:
    """How well the examples predict each other (`said`), and the `columns` that matter: the `name`
    of each and its `loss`, in nats, when it is left out; the largest first.

    **Raises** `ValueError` in one line for a request that cannot be answered.
    """
    predictor = _learned(learners, _asked(content, limits))
    drops = sorted(predictor.matter().items(), key=lambda drop: -drop[1])
    said = str(predictor.reliability())
    return {"said": said, "columns": [{"name": name, "loss": drop} for name, drop in drops]}


def example(seed: int) -> Json:
    """A table of trees, some of them without a name: `csv`."""
    rng = np.random.default_rng(seed)
    kinds = {"oak": (25, 12, "rough"), "birch": (18, 5, "smooth"), "spruce": (32, 0.2, "rough")}
    lines = ["height,leaf,bark,tree"]
    for i in range(24):
        name = [*kinds][i % 3]
        height, leaf, bark = kinds[name]
        cells = [f"{rng.normal(height, 4):.1f}", f"{leaf * rng.lognormal(0, 0.4):.2g}", bark]
        if rng.uniform() < 0.2:
            cells[rng.integers(3)] = ""
        lines.append(",".join([*cells, name if i < 15 else ""]))
    return {"csv": "\n".join(lines) + "\n"}


def _cells(content: object, limits: Limits) -> tuple[dict[str, list[str]], int]:
    text = content.get("csv") if isinstance(content, dict) else None
    if not isinstance(text, str) or not text.strip():
        raise ValueError("expected a table with a header, got none: paste or drop one")
    text = text.lstrip("\ufeff \r\n")
    cells, places = cells_of(text, "the table")
    for name, most in (("rows", limits.rows), ("columns", limits.columns)):
        n = len(places) if name == "rows" else len(cells)
        if n > most:
            raise ValueError(f"expected at most {most} {name}, got {n}: use arml adapt")
    return cells, len(places)


def _asked(content: object, limits: Limits) -> Asked:
    cells, n = _cells(content, limits)
    given: Mapping[str, Any] = content if isinstance(content, dict) else {}
    target = given.get("target")
    kind = next((known for known in KINDS.values() if known == given.get("kind")), None)
    if not isinstance(target, str) or target not in cells or len(cells) < 2:
        raise ValueError(f"expected a column to predict, and other columns, got {target!r:.80}")
    if kind is None:
        raise ValueError(f"expected classes or numbers to predict, got {given.get('kind')!r:.80}")
    filled = [i for i in range(n) if not missing(cells[target][i])]
    if len(filled) < 2:
        raise ValueError(
            f"expected two or more rows with a value in {target!r}, got {len(filled)}: fill some"
        )
    empty = [i for i in range(n) if i not in set(filled)]
    return Asked(cells, target, kind, filled, empty)


def _inputs(asked: Asked) -> dict[str, list[str]]:
    return {name: column for name, column in asked.cells.items() if name != asked.target}


def _learned(learners: Mapping[Kind, FewShotLearner], asked: Asked) -> TablePredictor:
    learner = learners.get(asked.kind)
    if learner is None:
        raise ValueError(f"expected {' or '.join(learners)} to predict, got {asked.kind}")
    x = {name: [cells[i] for i in asked.filled] for name, cells in _inputs(asked).items()}
    texts = [asked.cells[asked.target][i].strip() for i in asked.filled]
    y: list[str] | list[float] = texts
    if asked.kind == "numbers":
        odd = [text for text in texts if not NUMBER.fullmatch(text)]
        if odd:
            raise ValueError(f"expected numbers in {asked.target!r}, got {odd[0]!r:.80}")
        y = [float(text) for text in texts]
    elif not 1 < len(set(texts)) <= max(len(texts) / 2, 2):
        raise ValueError(
            f"expected classes in {asked.target!r}, with two rows or more each, got "
            f"{len(set(texts))} different values in {len(texts)} rows: predict numbers, or add rows"
        )
    predictor = learned(learner.portable, x, y)
    predictor.target = asked.target
    return predictor


def _said(predictor: TablePredictor, asked: Asked) -> str:
    of = "" if predictor.classes is None else f" of {len(predictor.classes)} classes"
    said = [f"Learned from {len(asked.filled)} rows{of}; {len(asked.empty)} predicted."]
    said += [f"{one[0].upper()}{one[1:]}." for one in predictor.remarks]
    return " ".join(said)
