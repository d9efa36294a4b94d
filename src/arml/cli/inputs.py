"""The examples and the queries of `arml adapt`, `predict` and `evaluate`: pictures, tables with any
columns, and tables of numbers for learners of vectors.

Each kind has the same methods: `learn` from labelled examples, read `labelled` ones for a
predictor, read `queries`, and name the part of each that is `decisive`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from arml.cli.console import Display, doubts, tell

THUMBNAIL = 96
"""Pixels a side of the pictures of a report."""
AT_ONCE = 256
"""Pictures between two answers."""
_FEW = 2_000
"""Pictures up to which all are read before anything is predicted."""
GRID = 4
"""Patches of a picture on a side."""
BLOCK = 10_000
"""Rows of a table between two answers."""
_SUFFIXES = (".csv", ".tsv", ".txt", ".xlsx")
"""Endings of tables; named here, too, so that pictures need not wait for the reader of tables."""


Labelled = tuple[list[str], Any, Any]
"""Names (files, or rows of a table), inputs, and labels as texts, or numbers of a regression."""


class Queries(NamedTuple):
    """Inputs to predict."""

    names: Sequence[str | int]
    """Files, or lines of a table."""
    batches: Iterable[Any]
    """The inputs in batches."""
    keys: Mapping[str, Sequence[Any]] = {}
    """Columns of a table that name its rows, for the answers."""
    pictures: Sequence[Any] = ()
    """The files of pictures."""
    bad: Mapping[int, str] = {}
    """The problems of pictures that cannot be read, which are known when the batches are read."""


def is_table(path: Path) -> bool:
    """Whether a path names a table."""
    return path.suffix.lower() in _SUFFIXES


class PictureInputs:
    """Pictures in folders and zips."""

    thumbnails: dict[str, Any] | None = None
    """Small pixels of what was read, by name, if they are wanted."""
    strict = False
    """Whether a picture that cannot be read is an error."""

    def __init__(self, learner: Any) -> None:
        self.learner = learner
        self.open = ExitStack()
        """Zips of queries, which stay open until these are answered."""

    def _read(self, pictures: Sequence[Any], bad: dict[int, str] | None = None) -> np.ndarray:
        from arml.photographs.reading import pixels_of

        what = "reading pictures"
        with doubts(), Display(Console(stderr=True), what) as display:
            found: np.ndarray = self.learner.read(
                pictures, progress=partial(display.show, what), bad=bad
            )
            if self.thumbnails is not None:
                small = pixels_of(pictures, THUMBNAIL, crop=1.0, bad={})
                self.thumbnails |= zip((one.where for one in pictures), small, strict=True)
        return found

    def labelled(self, predictor: Any, path: Path, target: str | None) -> Labelled:
        """The pictures of a folder or zip that can be read, and the names of their folders."""
        from arml.datasets.folders import open_source
        from arml.tables.kinds import alike

        if target is not None:
            raise ValueError("pictures have no columns: leave --target out")
        bad: dict[int, str] = {}
        with open_source(path) as source:
            x = self._read(source.pictures, None if self.strict else bad)
        kept = [place for place in range(len(x)) if place not in bad]
        names, labels = ([each[place] for place in kept] for each in (source.files, source.labels))
        if bad:
            each = ", ".join(f"{source.files[place]} ({bad[place]})" for place in bad)
            tell(f"left out {len(bad)} of {len(x)} pictures, which cannot be read: {each}")
        if gone := sorted({*source.labels} - {*labels}):
            raise ValueError(
                f"{path}: no picture of {', '.join(gone)} can be read: replace these pictures, or "
                "remove the folder"
            )
        _tell_left_out(source.left_out)
        tell(*source.remarks, *alike(labels, "classes"))
        if path.is_dir():
            for folder in sorted(path.glob("[!.]*/")):
                if not any(folder.iterdir()):
                    tell(f"the folder {folder} is empty: it is no class")
        _check_different(x[kept], path, "pictures")
        return names, x[kept], labels

    def learn(
        self, path: Path, target: str | None, group: str | None = None
    ) -> tuple[Any, list[str]]:
        """The predictor of labelled pictures, and their names."""
        (names, x, y), groups = self.labelled(None, path, target), None
        if group is not None:
            try:
                found = [re.search(group, name) for name in names]
            except re.error as error:
                raise ValueError(f"--group {group!r} is no regular expression: {error}") from None
            if not any(found):
                raise ValueError(
                    f"--group {group!r} is found in the path of no picture, such as {names[0]}"
                )
            pairs = zip(found, y, strict=True)
            groups = [one and f"{label}: {one[one.lastindex or 0]}" for one, label in pairs]
            tell(f"{len({*groups} - {None})} groups of pictures, by {group!r} in their paths")
        return self.learner.adapt(x, y, groups=groups), names

    def queries(self, predictor: Any, paths: Sequence[Path]) -> Queries:
        """The pictures among and below these paths."""
        from arml.datasets.folders import pictures_of

        pictures, others = pictures_of(paths, self.open)
        _tell_left_out(others)
        bad: dict[int, str] = {}

        def read(first: int) -> np.ndarray:
            own: dict[int, str] = {}
            found = self._read(pictures[first : first + AT_ONCE], None if self.strict else own)
            bad.update((first + place, problem) for place, problem in own.items())
            return found

        parts: Iterable[Any] = map(read, range(0, len(pictures), AT_ONCE))
        if len(pictures) <= _FEW:  # so that one that cannot be read is named before other work
            parts = list(parts)
        return Queries([one.where for one in pictures], parts, pictures=pictures, bad=bad)

    def decisive(self, predictor: Any, queries: Queries) -> list[str]:
        """For each picture the patch of a grid of `GRID` by `GRID`, on the pixels that the learner
        reads, without which its label is least probable; and the probabilities with and without.
        The patch has the picture's mean colour then."""
        from arml.photographs.reading import pixels_of

        reader, found = predictor.learner.pictures, []
        for place, picture in enumerate(queries.pictures):
            if place in queries.bad:
                found.append("")
                continue
            (pixels,) = pixels_of([picture], reader.size, crop=reader.crop)
            hidden = np.stack([pixels] * (1 + GRID**2))
            parts = np.array_split(np.arange(len(pixels)), GRID)
            for patch, part in enumerate(product(parts, parts), 1):
                hidden[patch][np.ix_(*part)] = pixels.mean(axis=(0, 1))
            chances = predictor.predict_proba(reader.convert(hidden))
            own = chances[:, chances[0].argmax()]
            top, left = divmod(int(own[1:].argmin()), GRID)
            where = f"row {top + 1} of {GRID}, column {left + 1} of {GRID}"
            found.append(f"{where} ({own[0]:.2f} to {own[1:].min():.2f})")
        return found


class TableInputs:
    """A table with any columns: numbers, dates, categories, missing cells."""

    def __init__(self, learner: Any) -> None:
        self.learner = learner
        self.unknown: Any = None

    def labelled(self, predictor: Any, path: Path, target: str | None) -> Labelled:
        """The rows of a table, and the column `target`."""
        y, known = _answered(_sheet(path), target or predictor.target, self.learner)
        return _rows(known), _parsed(predictor, known), y

    def learn(self, path: Path, target: str | None, **options: Any) -> tuple[Any, list[str]]:
        """The predictor of a table, and the names of its rows. Rows whose target is empty are no
        examples."""
        from arml.tables.predictor import learned_table

        options["groups"] = options.pop("group", None)
        predictor, known, self.unknown = learned_table(
            self.learner, _sheet(path), target, **options
        )
        tell(*predictor.remarks)
        return predictor, _rows(known)

    def unlabelled(self, predictor: Any) -> Queries | None:
        """The rows of the learned table whose target is empty; None if there are none."""
        some = self.unknown is not None and self.unknown.lines
        return self._queries(predictor, self.unknown) if some else None

    def queries(self, predictor: Any, paths: Sequence[Path]) -> Queries:
        """The rows of a table. Columns that the predictor does not use because they tell the rows
        apart, or were left out by name, identify the answers."""
        return self._queries(predictor, _sheet(*paths))

    def _queries(self, predictor: Any, sheet: Any) -> Queries:
        x = _parsed(predictor, sheet)
        keys = {name: column for name, column in sheet.cells.items() if name in predictor.keys}
        return Queries(sheet.lines, self._blocks(x), keys)

    def decisive(self, predictor: Any, queries: Queries) -> list[str]:
        """For each row the column whose cell matters most: see `TablePredictor.decisive`."""
        return [text for batch in queries.batches for text in predictor.decisive(batch)]

    def _blocks(self, x: Any) -> Iterator[Any]:
        n = len(x.values)
        with Display(Console(stderr=True), "predicting rows") as display:
            for first in range(0, n, BLOCK):
                display.show("predicting rows", first, n)
                yield type(x)(x.values[first : first + BLOCK])


class VectorInputs:
    """A table of numbers, the inputs of a learner of vectors."""

    def __init__(self, learner: Any) -> None:
        self.learner = learner

    def labelled(self, predictor: Any, path: Path, target: str | None) -> Labelled:
        """The rows of a table, and the column `target`."""
        from arml.tables.sheet import numbers_of

        y, known = _answered(_sheet(path), target or predictor.target, self.learner)
        return _rows(known), numbers_of(known, predictor.columns)[0], y

    def learn(self, path: Path, target: str | None) -> tuple[Any, list[str]]:
        """The predictor of a table, and the names of its rows."""
        from arml.tables.sheet import numbers_of

        y, known = _answered(_sheet(path), target, self.learner)
        x, columns = numbers_of(known)
        _check_different(x, path, "rows")
        predictor = self.learner.adapt(x, y)
        predictor.columns, predictor.target = columns, target
        return predictor, _rows(known)

    def queries(self, predictor: Any, paths: Sequence[Path]) -> Queries:
        """The rows of a table."""
        from arml.tables.sheet import numbers_of

        sheet = _sheet(*paths).without(predictor.target)
        return Queries(sheet.lines, [numbers_of(sheet, predictor.columns)[0]])


Inputs = PictureInputs | TableInputs | VectorInputs
_KINDS: dict[str, type[PictureInputs | TableInputs | VectorInputs]] = {
    "pictures": PictureInputs,
    "tables": TableInputs,
    "vectors": VectorInputs,
}


def inputs_of(learner: Any, paths: Sequence[Path], name: str) -> Inputs:
    """How a learner of this `name` reads its inputs.

    **Raises** `ValueError` if the paths hold tables and it reads pictures, or the reverse.
    """
    pictures = learner.inputs == "pictures"
    for path in (path for path in paths if is_table(path) == pictures):
        if pictures:
            raise ValueError(
                f"{path} is a table, and {name} reads pictures: name folders or images, or use the "
                "learner tables"
            )
        raise ValueError(
            f"{path} is no table, and {name} reads tables: name a CSV file (a spreadsheet program "
            "saves one), or use the learner photos for pictures"
        )
    return _KINDS[learner.inputs](learner)


def _check_different(x: np.ndarray, path: Path, what: str) -> None:
    if len(x) > 1 and not np.any(x != x[0]):
        raise ValueError(
            f"{path}: all {len(x)} {what} are identical: they cannot tell the classes apart"
        )


def _tell_left_out(others: Sequence[object]) -> None:
    """Name the files that are no pictures."""
    if others:
        n = f"{len(others)} files" if len(others) > 1 else "one file"
        tell(
            f"left out {n} whose name has no ending of a picture that can be read: "
            f"{', '.join(map(str, others[:3]))}{', ...' if len(others) > 3 else ''}"
        )


def _sheet(*paths: Path) -> Any:
    """The table of one file; the user is told how its letters were read, if that is a guess."""
    from arml.tables.sheet import read_sheet

    if len(paths) != 1:
        raise ValueError(f"a query is one table, got {len(paths)} files: give one")
    sheet = read_sheet(paths[0])
    tell(*filter(None, [sheet.remark]))
    return sheet


def _rows(sheet: Any) -> list[str]:
    return [f"row {line}" for line in sheet.lines]


def _parsed(predictor: Any, sheet: Any) -> Any:
    """The rows; the user is told of cells that are unlike the examples."""
    return predictor.read(sheet.cells, sheet.where, sheet.lines, tell)


def _answered(sheet: Any, target: str | None, learner: Any) -> tuple[Any, Any]:
    """The classes or numbers in the column `target`, and the other columns of these rows; the user
    is told of rows without an answer."""
    from arml.tables.kinds import targets_in

    numbers = learner.problem.kind == "regression"
    y, known, unknown = sheet.answered(target, numbers)
    if gaps := unknown.lines:
        rows = "rows" if len(gaps) > 1 else "row"
        tell(f"left out {len(gaps)} {rows} without an answer, the first in row {gaps[0]}")
    return targets_in("target", y, sheet.where, known.lines)[0] if numbers else y, known
