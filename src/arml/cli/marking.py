"""`arml evaluate` of a predictor: the predictions of labelled queries, in the terminal."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console

from arml.cli.console import command, print_json, say, tell, upright
from arml.cli.errors import UsageError
from arml.cli.inputs import check_kind, check_pictures
from arml.cli.tables import column_of, in_order, is_table, numbers, of_tables, read_by
from arml.results.files import Json
from arml.results.folder import MARKS, thumbnail

if TYPE_CHECKING:
    from arml.predict.predictor import Predictor

PICTURES = 24
"""Mistakes that are kept with their pictures."""


def marks_of(files: Sequence[Path | int], chances: np.ndarray, classes: np.ndarray) -> list[str]:
    """Lines about queries that lie in folders with the names of the classes; none about others."""
    labels = [Path(str(file)).parent.name for file in files]
    if not {*labels} <= {str(label) for label in classes}:
        return []
    from arml.predict.inputs import places_of
    from arml.predict.reliability import Evaluation

    first, *rest = Evaluation(classes, places_of(labels, classes), chances).lines(
        [*map(str, files)]
    )
    return [f"the queries' folders have the names of the classes: {first}", *rest]


def evaluate_predictor(
    folder: Path,
    query: Path,
    *,
    target: str | None,
    model: Path | None,
    out: Path | None,
    json: bool,
) -> int:
    """Score a saved predictor on labelled queries, and keep the results for `arml report`."""
    from arml.predict.learner import load_predictor
    from arml.results.files import read_json, write_json
    from arml.results.folder import WHAT

    if not query.exists():
        raise UsageError(f"expected labelled queries at {query}, found nothing: check the path")
    table = is_table(query)
    predictor = load_predictor(folder)
    check_kind(predictor, table, str(query), folder.name)
    if not table:
        check_pictures((query,), target, labelled=True)
    found = _table(predictor, query, target) if table else _pictures(predictor, query, model)
    made = read_json(folder / "config.json")["sha256"]
    content = {"what": WHAT, "predictor": made, "query": query.name, **found}
    out = out or folder / MARKS
    write_json(out, content)
    if json:
        print_json(content)
        return 0
    console = Console()
    _show(console, content)
    say(console, f"written to {out}")
    if out == folder / MARKS and predictor.classes is not None:
        say(console, f"next: {command('report', str(folder), '--out', 'report.html')}")
    return 0


def _pictures(predictor: "Predictor", query: Path, model: Path | None) -> Json:
    """The marks of labelled pictures, and the worst mistakes with their pictures."""
    from arml.datasets.folders import labelled_images
    from arml.predict.inputs import picture_reader

    reader = picture_reader(predictor, model)
    assert reader is not None  # `check_kind` was called
    pixels, source = labelled_images(query, size=reader.size, crop=reader.crop)
    x = reader.read(pixels)
    warn_of_known(equal_to_known(x, predictor.x), len(x), "pictures")
    return _marks(predictor, x, source.labels, source.files, pixels)


def _table(predictor: Any, query: Path, target: str | None) -> Json:
    """The marks of the rows of a table, or the error of a regression."""
    from arml.tables.sheet import read_cells, read_numbers

    target = target or predictor.target
    cells, lines = read_cells(query)
    answers = column_of(cells, target, query)
    x: Any
    if of_tables(predictor):
        x = read_by(predictor, cells, lines, query)
        warn_of_known(equal_to_known(x.values, predictor.values), len(x.values), "rows")
    else:
        table = read_numbers(query, target=target)
        x = in_order(table.x, table.columns, predictor.columns, query)
        warn_of_known(equal_to_known(x, predictor.x), len(x), "rows")
    if predictor.classes is not None:
        return _marks(predictor, x, answers, [f"row {line}" for line in lines], None)
    y = np.array(numbers(answers, lines, query))
    errors = np.square(np.asarray(predictor.predict(x)).reshape(len(y)) - y)
    return {"n": len(y), "mse": float(errors.mean()), "variance": float(y.var())}


def _marks(
    predictor: Any,
    x: Any,
    labels: Sequence[str],
    names: Sequence[str],
    pixels: np.ndarray | None,
) -> Json:
    marks = predictor.evaluate(x, labels)
    worst = []
    for place in marks.mistakes[:PICTURES]:
        chances, own = marks.probabilities[place], marks.labels[place]
        worst.append(
            {
                "name": str(names[place]),
                "label": str(marks.classes[own]),
                "predicted": str(marks.classes[chances.argmax()]),
                "probability": float(chances.max()),
                "own": float(chances[own]),
                "picture": None if pixels is None else thumbnail(pixels[place]),
            }
        )
    from arml.predict.models import LEARNER, WORDS

    by = "" if of_tables(predictor) or predictor.model == LEARNER else WORDS[predictor.model]
    return {**marks.as_json(), "mistakes": worst, "by": by}


def equal_to_known(x: np.ndarray, support: np.ndarray) -> int:
    """How many queries equal examples that a predictor learned from."""
    examples = {row.tobytes() for row in np.ascontiguousarray(support)}
    return sum(row.tobytes() in examples for row in np.ascontiguousarray(x, support.dtype))


def warn_of_known(same: int, n: int, what: str) -> None:
    """Warn of `same` of `n` queries that equal examples. Rows of a table can be equal by chance."""
    if same:
        tell(
            f"warning: {same} of {n} {what} equal examples that the predictor learned from; "
            "if they are the same cases, the score is better than for new ones: leave them out"
        )


def _show(console: Console, content: Json) -> None:
    """Print the accuracy, the classes, the confusions and the worst mistakes."""
    if "mse" in content:
        say(
            console,
            f"root mean squared error {content['mse'] ** 0.5:.4g}, in the unit of the target, on "
            f"{content['n']} rows; if every answer were the mean of the targets, it would be "
            f"{content['variance'] ** 0.5:.4g}",
        )
        return
    from arml.report.page import accuracies, accuracy_of, confusion
    from arml.results.files import read_as
    from arml.results.folder import Marked

    marked = read_as(Marked, content, "marks", "")
    say(console, accuracy_of(marked))
    console.print(upright(accuracies(marked)))
    console.print(upright(confusion(marked)))
    for one in marked.mistakes[:5]:
        say(
            console,
            f"{one.name}: labelled {one.label}, predicted as {one.predicted} "
            f"({one.probability:.0%})",
        )
