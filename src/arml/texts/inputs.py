"""Reads texts from files (`.txt`, `.md`, `.eml`) and from a column of a table."""

import html
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from email import message_from_bytes
from email.policy import default
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from arml.datasets.archives import Member
from arml.predict.base import Predictor, TaskLearner
from arml.predict.inputs import Bad
from arml.predict.kinds import Asked, Inputs, Labelled, Queries, Shown, is_table
from arml.results.files import Json
from arml.tables.inputs import sheet_at
from arml.tables.kinds import normal, text_of
from arml.tables.sheet import Sheet, decoded
from arml.texts.encoder import encoder_of, tokenizer_of

MAX_PARTS = 40
"""The largest number of parts among which `--matter` finds the one that matters most."""
_EXCERPT_LENGTH = 200


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """The option of `arml adapt texts`."""

    text: str | None = None
    """Column of a table that holds the texts, for the learner texts; by default the longest."""


class Texts(Inputs):
    """Texts: mails, reviews, notes, requests."""

    one, many = "text", "texts"
    suffixes = (".eml", ".md", ".txt")
    cells = ("text", "bytes", "path", "file")
    asks = ("prior", "strict", "sort_into", "report", "group", "matter", "sheet")
    options = TextOptions
    tab = "tables"
    advice = "name a table with a column of texts, or folders of .txt, .md or .eml files"

    # One text.

    def content(self, item: object, place: int) -> tuple[str, str]:
        """The name of a text and the text, which is a `str` itself or the content of a file."""
        where, found = f"text {place + 1}", item
        if not isinstance(item, str):
            where, found = super().content(item, place)
        if isinstance(found, bytes):
            mail = where.lower().endswith(".eml")
            found = _mail(found, where) if mail else decoded(found, where, "save it as UTF-8")[0]
        if not isinstance(found, str) or not found.strip():
            got = "an empty one" if isinstance(found, str) else type(found).__name__
            raise ValueError(f"{where}: expected a text, got {got}")
        return where, found

    def holds(self, x: Any) -> bool:
        several = isinstance(x, Collection) and not isinstance(x, str | Mapping) and len(x) > 0
        return several and getattr(x, "ndim", 1) == 1 and all(isinstance(one, str) for one in x)

    def show(self, file: Member) -> Shown:
        try:
            text = " ".join(self.content(file, 0)[1].split())
        except ValueError:
            return Shown()
        return Shown(text=text[:_EXCERPT_LENGTH] + "..." * (len(text) > _EXCERPT_LENGTH))

    def examples(self) -> tuple[list[object], list[str]]:
        things = ("the parcel", "my order", "the blue lamp", "this book", "the second box")
        late = [f"{thing} has not arrived yet, where is it?" for thing in things]
        good = [f"{thing} came today and is lovely, thank you!" for thing in things]
        return [*late, *good], ["late"] * len(late) + ["good"] * len(good)

    # Learners. They are imported here because scikit-learn is slow to load.

    def learner(self, model: Path | str | None = None, **options: Any) -> TaskLearner:
        from arml.texts.learner import TextLearner

        if odd := {*options} - {"pool"}:
            raise ValueError(f"--{sorted(odd)[0]} is for models of pictures: leave it out")
        return TextLearner(encoder_of(model, **options), model)

    def opens(self, path: Path) -> bool:
        return path.suffix == ".onnx" and tokenizer_of(path) is not None

    def remade(self, facts: Json, model: Path | str | None) -> TaskLearner:
        from arml.texts.learner import remade_learner

        return remade_learner(facts, model)

    # Files and tables.

    def is_table(self, path: Path) -> bool:
        """Whether the file is a table, of which one column holds the texts."""
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
        y, known, _ = sheet_at(asked, path).answered(target, numbers=False)
        return self._of_rows(learner, known, _column(known, asked, predictor), y, asked)

    def _of_rows(
        self, learner: TaskLearner, sheet: Sheet, column: str, y: Sequence[str], asked: Asked
    ) -> Labelled:
        files, bad = _rows(sheet, column), Bad()
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
        column, groups = _column(known, asked), None
        names, x, labels = self._of_rows(learner, known, column, y, asked)
        if asked.group is not None:
            every = _cells(known, asked.group, "--group")
            together = {f"row {n}": cell for n, cell in zip(known.lines, every, strict=True)}
            groups = [together[name] or None for name in names]
        predictor = learner.adapt(x, labels, groups=groups)
        predictor.columns, predictor.target = (column,), asked.target
        asked.tell(*sheet.remark.splitlines(), f"the texts are in the column {column!r}")
        if unknown.lines:
            asked.unlabelled = self._answering(predictor, unknown, asked)
        return predictor, names

    def queries(self, predictor: Predictor, paths: Sequence[Path], asked: Asked) -> Queries:
        if not any(map(self.is_table, paths)):
            return super().queries(predictor, paths, asked)
        return self._answering(predictor, sheet_at(asked, *paths).without(predictor.target), asked)

    def _answering(self, predictor: Predictor, sheet: Sheet, asked: Asked) -> Queries:
        """The rows of a table; the answers repeat its other columns."""
        column = _column(sheet, asked, predictor)
        keys = sheet.without(column).cells
        return self._asking(predictor, sheet.lines, _rows(sheet, column), asked, keys)

    def without_parts(self, learner: Any, file: Member) -> tuple[np.ndarray, list[str]]:
        """A part is one word, or several words of a long text."""
        words = self.content(file, 0)[1].split()
        parts = [some for some in np.array_split(np.arange(len(words)), MAX_PARTS) if len(some)]
        left = [" ".join(np.delete(np.array(words, object), some)) for some in parts]
        said = [" ".join(words[i] for i in some) for some in parts]
        return learner.vectors([" ".join(words), *left]), said


def _cells(sheet: Sheet, column: str, named: str) -> list[str]:
    """A column as texts. None and NaN become empty texts."""
    name = normal(column)
    if name not in sheet.cells:
        known = ", ".join(sheet.cells)
        raise ValueError(f"{sheet.where}: no column {column!r}; name one with {named}: {known}")
    return ["" if cell is None or cell != cell else text_of(cell) for cell in sheet.cells[name]]


def _column(sheet: Sheet, asked: Asked, predictor: Predictor | None = None) -> str:
    """The column of texts: that of the predictor, the named one, or that with the longest cells."""
    named = asked.columns.get("text")
    if predictor is not None and predictor.columns:
        (named,) = predictor.columns
    if named is not None:
        _cells(sheet, named, "--text")
        return normal(named)
    others = [name for name in sheet.cells if name != asked.group]
    if not others:
        raise ValueError(f"{sheet.where}: no column of texts beside the one to predict")
    return max(others, key=lambda name: sum(map(len, _cells(sheet, name, "--text"))))


def _rows(sheet: Sheet, column: str) -> list[Member]:
    """The cells of a column, each as a file."""
    cells = zip(sheet.lines, _cells(sheet, column, "--text"), strict=True)
    return [Member(f"row {n}", partial(str.encode, text), f"row-{n}.txt") for n, text in cells]


def _mail(data: bytes, where: str) -> str:
    """The subject and the text of a mail. The tags of HTML are removed."""
    mail = message_from_bytes(data, policy=default)
    body = mail.get_body(("plain", "html"))
    try:
        text = "" if body is None else str(body.get_content())
    except (LookupError, ValueError) as error:  # an unknown encoding
        raise ValueError(f"{where}: its text cannot be decoded: {error}") from error
    if body is not None and body.get_content_subtype() == "html":
        text = html.unescape(re.sub(r"(?s)<(script|style).*?</\1>|<[^>]*>", " ", text))
    return f"{mail['subject'] or ''}\n{text}".strip()
