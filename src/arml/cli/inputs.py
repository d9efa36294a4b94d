"""Pictures and tables that `arml adapt` and `arml predict` read."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from arml.cli.console import tell
from arml.cli.errors import UsageError
from arml.predict.eye import Eye

if TYPE_CHECKING:
    from arml.datasets.columns import Reader
    from arml.predict.learner import FewShotLearner
    from arml.predict.predictor import Predictor
    from arml.predict.quick import QuickLearner, QuickPredictor

    Owner = FewShotLearner | QuickLearner | Predictor | QuickPredictor

SHOWN = 5
"""Unknown values of a column that are named."""
Queries = tuple[Sequence[Path | int], Iterable[np.ndarray]]
"""The names of inputs to predict (files, or lines of a table), and the inputs in batches."""


def check_there(*paths: Path) -> None:
    """Raise `UsageError` for a path where nothing is."""
    for path in paths:
        if not path.exists():
            raise UsageError(f"expected files at {path}, found nothing: check the path")


def check_places(out: Path | None, save: Path | None, *read: Path) -> None:
    """Raise `ValueError` if the answers or the predictor cannot be written there, or if the answers
    would replace a file that the command reads, or one that is no CSV file."""
    from arml.predict.shared import check_free

    if out is not None and out.is_dir():
        raise UsageError(f"expected a CSV file for --out, got the folder {out}: name a file")
    if out is not None and out.exists():
        if any(path.exists() and out.samefile(path) for path in read):
            raise UsageError(
                f"expected a file for --out that the command does not read, got {out}: name another"
            )
        if out.suffix.lower() != ".csv":
            raise UsageError(
                f"expected a new file or a CSV file for --out, got {out}, which would be replaced: "
                "name another"
            )
    for place in (out, save):
        check_writable(place)
    if save is not None:
        check_free(save, predictor=True)


def check_writable(place: Path | None) -> None:
    """Raise `UsageError` if no file or folder may be made at a place, before any work."""
    if place is None:
        return
    nearest = next(path for path in (place, *place.absolute().parents) if path.exists())
    if not os.access(nearest, os.W_OK):
        raise UsageError(f"expected a place to write {place.name}, got {place}: name another")


def check_kind(owner: "Owner", table: bool, given: str, name: str) -> None:
    """Raise `UsageError` if a learner of pictures is given a table, or a learner of tables anything
    else."""
    pictures = len(owner.problem.features) == 3 or owner.portable.inputs is not None
    if pictures and table:
        raise UsageError(
            f"expected pictures, because {name} reads pictures, got the table {given}: name "
            "folders or images, or use the learner tables"
        )
    if not pictures and not table:
        raise UsageError(
            f"expected one CSV file, because {name} reads tables, got {given}: name a CSV file (a "
            "spreadsheet program saves one), or use the learner starter for pictures"
        )


def check_pictures(query: Sequence[Path], target: str | None, *, labelled: bool = False) -> None:
    """Raise `UsageError` for a table among pictures to predict, and for the name of a column; also
    for a zip, unless its pictures are `labelled` by folders."""
    if target is not None:
        raise UsageError("expected no --target, because pictures have no columns: leave it out")
    for path in query:
        if path.suffix.lower() == ".csv":
            raise UsageError(
                f"expected pictures to predict, because the learner reads pictures, got the table "
                f"{path}: name folders or images"
            )
        if path.suffix.lower() == ".zip" and not labelled:
            raise UsageError(
                f"expected images or folders to predict, got the zip {path}: unpack it, and name "
                "its folder"
            )


def numbers(texts: Sequence[str], lines: Sequence[int], path: Path) -> list[float]:
    """The targets of a regression. `lines` are those of the file."""
    from arml.datasets.columns import number

    found = [number(text) for text in texts]
    for line, text, value in zip(lines, texts, found, strict=True):
        if value is None:
            raise ValueError(
                f"{path}: expected numbers to predict, got {text!r} in row {line}: choose another "
                "--target, or the learner tables, which predicts classes"
            )
    return [value for value in found if value is not None]


def column_of(cells: dict[str, list[str]], target: str | None, path: Path) -> list[str]:
    """The column `target`, which is taken out of the cells of a table."""
    if target not in cells:
        raise ValueError(
            f"{path}: expected a column {target!r}, got {', '.join(cells)}: add it, or name "
            "another with --target"
        )
    return [text.strip() for text in cells.pop(target)]


def in_order(
    x: np.ndarray, found: Sequence[str], columns: Sequence[str] | None, path: Path
) -> np.ndarray:
    """The columns of a query table in the order of the support table's, if that is known."""
    if columns is None:
        return x
    if sorted(found) != sorted(columns):
        raise ValueError(
            f"{path}: expected the columns of the support table, {', '.join(columns)}, got "
            f"{', '.join(found)}: rename or remove some"
        )
    return x[:, [found.index(name) for name in columns]]


def query_table(
    query: Sequence[Path], target: str | None, columns: Sequence[str] | None
) -> tuple[np.ndarray, Sequence[int]]:
    """The inputs of the query table, and the line of each."""
    from arml.datasets.own import read_table

    table = read_table(_single(query), target=target)
    return in_order(table.x, table.columns, columns, query[0]), table.lines


def adapted_table(
    learner: "FewShotLearner", path: Path, target: str, query: Sequence[Path]
) -> tuple["Predictor", list[str], list[str]]:
    """The predictor that a learner of tables makes of a CSV file, the names of its examples, and
    remarks for the user.

    **Raises** `ValueError` for a table that cannot be learned, or does not go with the queries.
    """
    from arml.datasets.columns import missing
    from arml.datasets.own import read_cells
    from arml.predict.tables import learned, remarks

    cells, lines = read_cells(path)
    texts = column_of(cells, target, path)
    for line, text in zip(lines, texts, strict=True):
        if missing(text):
            raise ValueError(
                f"{path}: expected a {target} in each row of the examples, got none in row {line}: "
                "fill it, or move the row to the queries"
            )
    y: list[float] | list[str] = texts
    if learner.problem.kind == "regression":
        y = numbers(texts, lines, path)
    elif len(set(texts)) > max(len(texts) / 2, 2):
        raise ValueError(
            f"{path}: expected classes in {target!r}, got {len(set(texts))} different values in "
            f"{len(texts)} rows: give more rows, or use the learner tables-regression for numbers"
        )
    predictor = learned(learner.portable, cells, y, where=str(path), lines=lines)
    predictor.target = target
    for file in query:
        rows, places = query_cells([file])
        predictor.reader(rows, str(file), places)
    return predictor, [f"row {line}" for line in lines], remarks(predictor.reader, target)


def read_by(
    reader: "Reader", cells: dict[str, list[str]], lines: Sequence[int], path: Path
) -> np.ndarray:
    """The rows as inputs. The user is told of values that are not among the examples."""
    x = reader(cells, str(path), lines)
    for name, values in reader.unknown(cells).items():
        more = f" and {len(values) - SHOWN} more" if len(values) > SHOWN else ""
        tell(
            f"{path}: the predictor knows nothing about these values of the column {name!r}, so "
            f"the other columns decide: {', '.join(values[:SHOWN])}{more}"
        )
    return x


def query_cells(query: Sequence[Path]) -> tuple[dict[str, list[str]], list[int]]:
    """The cells of the query table by column, and the line of each row."""
    from arml.datasets.own import read_cells

    return read_cells(_single(query))


def _single(query: Sequence[Path]) -> Path:
    if len(query) != 1:
        raise UsageError(f"expected one CSV file as the query, got {len(query)} files: give one")
    return query[0]


def pictures_of(eye: Eye, query: Sequence[Path]) -> Queries:
    """The files of the pictures to predict, and the pictures in batches."""
    from arml.datasets.folders import decoded, image_files

    files = image_files(query)
    tell_left_out(query)
    return files, (eye.read(some) for some in decoded(files, size=eye.size))


def tell_left_out(paths: Sequence[Path]) -> None:
    """Name the files below these folders that are no pictures."""
    from arml.datasets.folders import other_files

    if others := other_files(paths):
        n = f"{len(others)} files" if len(others) > 1 else "one file"
        tell(
            f"left out {n} whose name has no ending of a picture that can be read: "
            f"{', '.join(map(str, others[:3]))}{', ...' if len(others) > 3 else ''}"
        )


def rows_of(
    predictor: "Predictor | QuickPredictor", query: Sequence[Path], target: str | None
) -> Queries:
    """The lines of the table to predict, and its inputs as one batch."""
    if predictor.reader is not None:
        cells, places = query_cells(query)
        return places, iter([read_by(predictor.reader, cells, places, query[0])])
    x, lines = query_table(query, target, predictor.columns)
    return lines, iter([x])
