"""Kinds whose inputs are strings: the contents of files, or the cells of one column of a table."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from arml.datasets.archives import Member
from arml.datasets.folders import LabelledFiles
from arml.predict.base import Predictor, TaskLearner
from arml.predict.inputs import Bad
from arml.predict.kinds import Asked, Inputs, Labelled, Queries, Shown, is_table
from arml.predict.together import told
from arml.tables.inputs import sheet_at, tell_unanswered
from arml.tables.kinds import normal, text_of
from arml.tables.sheet import Sheet, decoded

_EXCERPT_LENGTH = 200
_SHOWN_COLUMNS = 5
_VARIANTS = "because many are nearly the same as another of their class"


@dataclass(frozen=True, kw_only=True)
class ColumnOptions:
    """The option of `arml adapt` for kinds whose inputs may be a column of a table."""

    text: str | None = None
    """Column of a table that holds the texts, or your own kind of strings; by default the one with
    the longest cells. For texts, columns of three words or more come first."""


class StringInputs(Inputs):
    """A kind whose inputs are strings, such as sequences or formulas. They come as files with the
    endings in `suffixes`, or as one column of a table. For all else see `arml.Inputs`.

        class Sequences(arml.StringInputs):
            one, many, suffixes, dimension = "sequence", "sequences", (".seq",), 16

            def vector(self, content, where):
                pairs = [a + b for a, b in zip(content, content[1:])]
                return np.array([pairs.count(a + b) for a in "ACGT" for b in "ACGT"])

        arml.register("inputs", "sequences", Sequences)
        arml.adapt("sequences", ["ACGTACGT", "ACGAACGA", "GGGTGGGT"], ["a", "a", "b"])

    `arml adapt sequences --support genes.csv --target family` learns from the column with the
    longest cells, or from the one that `--text` names.
    """

    cells = ("text", "bytes", "path", "file")
    asks = (*Inputs.asks, "sheet")
    options = ColumnOptions

    def content(self, item: object, place: int) -> tuple[str, str]:
        """The name of an input, and the string, which is a `str` itself or the content of a
        file."""
        where, found = f"{self.one} {place + 1}", item
        if not isinstance(item, str):
            where, found = super().content(item, place)
        if isinstance(found, bytes):
            found = self.decoded(found, where)
        if isinstance(found, str) and re.search("[\ud800-\udfff]", found):
            raise ValueError(
                f"{where}: expected a {self.one}, got a lone surrogate, which is no character: "
                "decode it again"
            )
        if not isinstance(found, str) or not found.strip():
            got = "an empty one" if isinstance(found, str) else type(found).__name__
            raise ValueError(f"{where}: expected a {self.one}, got {got}")
        return where, found

    def decoded(self, data: bytes, where: str) -> str:
        """The string in a file. **Raises** `ValueError` with the name `where` if there is none."""
        return decoded(data, where, "save it as UTF-8")[0]

    def show(self, file: Member) -> Shown:
        try:
            text = " ".join(self.content(file, 0)[1].split())
        except ValueError:
            return Shown()
        return Shown(text=text[:_EXCERPT_LENGTH] + "..." * (len(text) > _EXCERPT_LENGTH))

    # Files and tables.

    def suits(self, cells: Sequence[str]) -> bool:
        """Whether a column with these cells is preferred to longer ones."""
        return True

    def variants(self, x: np.ndarray, labels: Sequence[str]) -> bool:
        """Whether many inputs are variants of another one of their class."""
        return False

    def sign(self, source: LabelledFiles, x: np.ndarray) -> str:
        return _VARIANTS if self.variants(x, source.labels) else ""

    def is_table(self, path: Path) -> bool:
        """Whether the file is a table, of which one column holds the inputs."""
        return is_table(path) and path.suffix.lower() not in self.suffixes

    def fits(self, path: Path) -> bool:
        known = (*self.suffixes, ".zip", ".tar")
        return path.is_dir() or is_table(path) or path.suffix.lower() in known

    def labelled(
        self, learner: TaskLearner, path: Path, asked: Asked, predictor: Predictor | None = None
    ) -> Labelled:
        if not self.is_table(path):
            return super().labelled(learner, path, asked, predictor)
        target = asked.target or (predictor.target if predictor else None)
        y, known, unknown = sheet_at(asked, path).answered(target, numbers=False)
        tell_unanswered(unknown, asked)
        column = self._column(known, asked, predictor)
        return self._of_rows(learner, known, column, y, asked)

    def _of_rows(
        self, learner: TaskLearner, sheet: Sheet, column: str, y: Sequence[str], asked: Asked
    ) -> Labelled:
        files, bad = self._rows(sheet, column), Bad()
        x = self._read(learner, files, asked, None if asked.strict else bad)
        return self._kept(Path(sheet.where), [one.where for one in files], x, y, bad, asked)

    def learn(self, learner: TaskLearner, path: Path, asked: Asked) -> tuple[Predictor, list[str]]:
        if not self.is_table(path):
            return super().learn(learner, path, asked)
        return self.learn_rows(learner, sheet_at(asked, path), asked)

    def learn_rows(
        self, learner: TaskLearner, sheet: Sheet, asked: Asked
    ) -> tuple[Predictor, list[str]]:
        y, known, unknown = sheet.answered(asked.target, numbers=False)
        asked.tell(*sheet.remark.splitlines())
        column, groups = self._column(known, asked), None
        names, x, labels = self._of_rows(learner, known, column, y, asked)
        if asked.group is not None:
            every = _cells(known, asked.group, "--group")
            together = {f"row {n}": cell for n, cell in zip(known.lines, every, strict=True)}
            groups = [together[name] or None for name in names]
        elif self.variants(x, labels):
            remedy = "if so, name a column with --group that has the same value for those of one "
            asked.tell(told(self.many, _VARIANTS, f"{remedy}source, such as a thread"))
        predictor = learner.adapt(x, labels, groups=groups)
        predictor.columns, predictor.target = (column,), asked.target
        if unknown.lines:
            asked.unlabelled = self._answering(predictor, unknown, asked)
        return predictor, names

    def queries(self, predictor: Predictor, paths: Sequence[Path], asked: Asked) -> Queries:
        if not any(map(self.is_table, paths)):
            return super().queries(predictor, paths, asked)
        return self._answering(predictor, sheet_at(asked, *paths).without(predictor.target), asked)

    def _answering(self, predictor: Predictor, sheet: Sheet, asked: Asked) -> Queries:
        """The rows of a table; the answers repeat its other columns."""
        column = self._column(sheet, asked, predictor)
        keys = sheet.without(column).cells
        return self._asking(predictor, sheet.lines, self._rows(sheet, column), asked, keys)

    def _column(self, sheet: Sheet, asked: Asked, predictor: Predictor | None = None) -> str:
        """The column of inputs: the predictor's; or the named one, or the one with the longest
        cells of those that suit, of which the user is told."""
        if predictor is not None and predictor.columns:
            (own,) = predictor.columns
            if own not in sheet.cells:
                raise ValueError(
                    f"{sheet.where}: no column {own!r}, which the examples have; rename one of "
                    f"{', '.join(sheet.cells)}"
                )
            return own
        found, more = asked.columns.get("text"), ""
        if found is None:
            others = [name for name in sheet.cells if name != asked.group]
            if not others:
                raise ValueError(f"{sheet.where}: no column beside the one to predict")
            filled = {name: [*filter(None, _cells(sheet, name, "--text"))] for name in others}
            suited = [name for name in others if filled[name] and self.suits(filled[name])]
            found, *rest = sorted(suited or others, key=lambda name: -len("".join(filled[name])))
            if rest:
                dots = ", ..." if len(rest) > _SHOWN_COLUMNS else ""
                more = f" (--text names another: {', '.join(rest[:_SHOWN_COLUMNS])}{dots})"
        _cells(sheet, found, "--text")
        asked.tell(f"the {self.many} are in the column {found!r}{more}")
        return normal(found)

    def _rows(self, sheet: Sheet, column: str) -> list[Member]:
        """The cells of a column, each as a file."""
        cells = zip(sheet.lines, _cells(sheet, column, "--text"), strict=True)
        ending = "".join(self.suffixes[-1:])
        return [
            Member(f"row {n}", partial(str.encode, cell), f"row-{n}{ending}") for n, cell in cells
        ]


def _cells(sheet: Sheet, column: str, named: str) -> list[str]:
    """A column as strings. None and NaN become empty strings."""
    name = normal(column)
    if name not in sheet.cells:
        known = ", ".join(sheet.cells)
        raise ValueError(f"{sheet.where}: no column {column!r}; name one with {named}: {known}")
    return ["" if cell is None or cell != cell else text_of(cell) for cell in sheet.cells[name]]
