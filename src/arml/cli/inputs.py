"""The examples and the queries of `arml adapt`, `predict` and `evaluate`: pictures, tables with any
columns, and tables of numbers for learners of vectors.

Each kind has the same methods: `learn` from labelled examples, read `labelled` ones for a
predictor, and read `queries`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from arml.cli.console import Display, doubts, tell

THUMBNAIL = 96
"""Pixels a side of the pictures of a report."""
AT_ONCE = 256
"""Pictures between two answers."""
GRID = 4
"""Patches of a picture on a side."""
BLOCK = 10_000
"""Rows of a table between two answers."""
_SUFFIXES = (".csv", ".tsv", ".txt", ".xlsx")
"""Endings of tables; named here, too, so that pictures need not wait for the reader of tables."""


class Labelled(NamedTuple):
    """Labelled inputs."""

    names: list[str]
    """Files, or rows of a table."""
    x: Any
    y: Any
    """Labels as texts, or numbers for a regression."""


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
    """Whether a query that cannot be read is an error."""

    def __init__(self, learner: Any) -> None:
        self.learner = learner
        self.open = ExitStack()
        """Zips of queries, which stay open until the end."""

    def _read(self, pictures: Sequence[Any], bad: dict[int, str] | None = None) -> np.ndarray:
        from arml.predict.pictures import pixels_of

        what = "reading pictures"
        with doubts(), Display(Console(stderr=True), what) as display:

            def progress(done: int, total: int) -> None:
                display.show(what, done, total)

            found: np.ndarray = self.learner.read(pictures, progress=progress, bad=bad)
            if self.thumbnails is not None:
                small = pixels_of(pictures, THUMBNAIL, crop=1.0, bad={})
                self.thumbnails |= zip((one.where for one in pictures), small, strict=True)
        return found

    def labelled(self, predictor: Any, path: Path, target: str | None) -> Labelled:
        """The pictures of a folder or zip, and the names of their folders."""
        from arml.datasets.folders import open_source

        if target is not None:
            raise ValueError("pictures have no columns: leave --target out")
        with open_source(path) as source:
            x = self._read(source.pictures)
        _tell_left_out(source.left_out)
        if path.is_dir():
            for folder in sorted(path.glob("[!.]*/")):
                if not any(folder.iterdir()):
                    tell(f"the folder {folder} is empty: it is no class")
        _check_different(x, path, "pictures")
        return Labelled(source.files, x, source.labels)

    def learn(
        self, learner: Any, path: Path, target: str | None, group: str | None = None
    ) -> tuple[Any, list[str]]:
        """The predictor that a learner makes of labelled pictures, and their names."""
        examples, groups = self.labelled(None, path, target), None
        if group is not None:
            try:
                found = [re.search(group, name) for name in examples.names]
            except re.error as error:
                raise ValueError(f"--group {group!r} is no regular expression: {error}") from None
            pairs = zip(found, examples.y, strict=True)
            groups = [one and f"{label}: {one[one.lastindex or 0]}" for one, label in pairs]
            tell(f"{len({*groups} - {None})} groups of pictures, by {group!r} in their paths")
        return learner.adapt(examples.x, examples.y, groups=groups), examples.names

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

        parts = map(read, range(0, len(pictures), AT_ONCE))
        return Queries([one.where for one in pictures], parts, pictures=pictures, bad=bad)

    def decisive(self, predictor: Any, queries: Queries) -> list[str]:
        """For each picture the patch of a grid of `GRID` by `GRID`, on the pixels that the learner
        reads, without which its label is least probable; and the probabilities with and without.
        The patch has the picture's mean colour then."""
        from arml.predict.pictures import pixels_of

        reader, found = predictor.learner.pictures, []
        for place, picture in enumerate(queries.pictures):
            if place in queries.bad:
                found.append("")
                continue
            (pixels,) = pixels_of([picture], reader.size, crop=reader.crop)
            hidden = np.stack([pixels] * (1 + GRID**2))
            side = np.linspace(0, len(pixels), GRID + 1).astype(int)
            for patch in range(GRID**2):
                top, left = divmod(patch, GRID)
                part = np.s_[side[top] : side[top + 1], side[left] : side[left + 1]]
                hidden[(1 + patch, *part)] = pixels.mean(axis=(0, 1))
            chances = predictor.predict_proba(reader.convert(hidden))
            own = chances[:, chances[0].argmax()]
            top, left = divmod(int(own[1:].argmin()), GRID)
            where = f"row {top + 1} of {GRID}, column {left + 1} of {GRID}"
            found.append(f"{where} ({own[0]:.2f} to {own[1:].min():.2f})")
        return found


class TableInputs:
    """A table with any columns: numbers, dates, categories, missing cells."""

    def __init__(self, learner: Any) -> None:
        self.unknown: tuple[Any, list[int], Path] = {}, [], Path()

    def _read(self, predictor: Any, cells: dict[str, list[Any]], lines: Any, path: Path) -> Any:
        """The rows; the user is told of cells that are unlike the examples."""
        return predictor.read(cells, str(path), lines, tell)

    def labelled(self, predictor: Any, path: Path, target: str | None) -> Labelled:
        """The rows of a table, and the column `target`."""
        from arml.tables.kinds import missing
        from arml.tables.sheet import read_cells

        cells, lines = read_cells(path)
        texts = _column_of(cells, target or predictor.target, path)
        numbers = predictor.classes is None  # a class may be named NA, a number may not
        empty = [missing(text) if numbers else not text for text in texts]
        if gaps := np.flatnonzero(empty).tolist():
            kept = np.flatnonzero(np.logical_not(empty)).tolist()
            tell(f"left out {len(gaps)} rows without an answer, the first in row {lines[gaps[0]]}")
            cells = {name: [column[i] for i in kept] for name, column in cells.items()}
            texts, lines = [texts[i] for i in kept], [lines[i] for i in kept]
        y = _numbers(texts, lines, path) if numbers else texts
        return Labelled(_rows(lines), self._read(predictor, cells, lines, path), y)

    def learn(
        self, learner: Any, path: Path, target: str | None, **options: Any
    ) -> tuple[Any, list[str]]:
        """The predictor that a learner makes of a table, and the names of its rows. Rows whose
        target is empty are no examples."""
        from arml.predict.tables import learned_table
        from arml.tables.sheet import read_cells

        cells, lines = read_cells(path)
        if target is None:
            raise _no_column(target, cells, path)
        options["groups"] = options.pop("group", None)
        sheet = learned_table(learner, cells, lines, target, where=str(path), **options)
        tell(*sheet.predictor.remarks)
        own = {name: [column[i] for i in sheet.unknown] for name, column in cells.items()}
        self.unknown = own, [lines[i] for i in sheet.unknown], path
        return sheet.predictor, _rows([lines[i] for i in sheet.known])

    def unlabelled(self, predictor: Any) -> Queries | None:
        """The rows of the learned table whose target is empty; None if there are none."""
        return self._queries(predictor, *self.unknown) if self.unknown[1] else None

    def queries(self, predictor: Any, paths: Sequence[Path]) -> Queries:
        """The rows of a table. Columns that the predictor does not use because they tell the rows
        apart, or were left out by name, identify the answers."""
        from arml.tables.sheet import read_cells

        return self._queries(predictor, *read_cells(_single(paths)), paths[0])

    def _queries(self, predictor: Any, cells: Any, lines: list[int], path: Path) -> Queries:
        x = self._read(predictor, cells, lines, path)
        keys = {name: column for name, column in cells.items() if name in predictor.keys}
        return Queries(lines, self._blocks(x), keys)

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
        pass

    def _read(self, path: Path, target: str | None, columns: Sequence[str] | None) -> Any:
        from arml.tables.sheet import read_numbers

        return read_numbers(path, target, columns)

    def labelled(self, predictor: Any, path: Path, target: str | None) -> Labelled:
        """The rows of a table, and the column `target`."""
        target = target or predictor.target
        x, columns, texts, lines = self._read(path, target, predictor.columns)
        if texts is None:
            raise _no_column(target, columns, path)
        y = texts if predictor.classes is not None else _numbers(texts, lines, path)
        return Labelled(_rows(lines), x, y)

    def learn(self, learner: Any, path: Path, target: str | None) -> tuple[Any, list[str]]:
        """The predictor that a learner makes of a table, and the names of its rows."""
        x, columns, texts, lines = self._read(path, target, None)
        if texts is None:
            raise _no_column(target, columns, path)
        _check_different(x, path, "rows")
        numbers = learner.problem.kind == "regression"
        predictor = learner.adapt(x, _numbers(texts, lines, path) if numbers else texts)
        predictor.columns, predictor.target = columns, target
        return predictor, _rows(lines)

    def queries(self, predictor: Any, paths: Sequence[Path]) -> Queries:
        """The rows of a table."""
        x, _, _, lines = self._read(_single(paths), predictor.target, predictor.columns)
        return Queries(lines, [x])


Inputs = PictureInputs | TableInputs | VectorInputs
READERS: dict[str, type[PictureInputs] | type[TableInputs] | type[VectorInputs]] = {
    "pictures": PictureInputs,
    "tables": TableInputs,
    "vectors": VectorInputs,
}
"""The reader of each kind of inputs."""


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
    return READERS[learner.inputs](learner)


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


def _rows(lines: Sequence[int]) -> list[str]:
    return [f"row {line}" for line in lines]


def _single(paths: Sequence[Path]) -> Path:
    if len(paths) != 1:
        raise ValueError(f"a query is one table, got {len(paths)} files: give one")
    return paths[0]


def _column_of(cells: dict[str, list[Any]], target: str | None, path: Path) -> list[str]:
    """The column `target` as texts, which is taken out of the cells of a table."""
    from arml.tables.kinds import normal, text_of

    name = normal(target or "")
    if name not in cells:
        raise _no_column(target, cells, path)
    return ["" if cell is None else text_of(cell) for cell in cells.pop(name)]


def _no_column(target: str | None, columns: Iterable[str], path: Path) -> ValueError:
    wrong = "no column to predict was named" if target is None else f"no column {target!r}"
    return ValueError(f"{path}: {wrong}; name one with --target: {', '.join(columns)}")


def _numbers(texts: Sequence[str], lines: Sequence[int], path: Path) -> np.ndarray:
    """The targets of a regression."""
    from arml.tables.kinds import targets_in

    return targets_in("target", texts, str(path), lines)[0]
