"""Reads texts from files (`.txt`, `.md`, `.eml`) and from a column of a table."""

import html
import os
import re
from collections.abc import Collection, Mapping, Sequence
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from typing import Any

import numpy as np

from arml.datasets.archives import Member
from arml.predict.base import TaskLearner
from arml.results.files import Json
from arml.tables.cells import StringInputs
from arml.tables.kinds import Text
from arml.texts.encoder import MAX_CHARACTERS, encoder_of, tokenizer_of

MAX_PARTS = 40
"""The largest number of parts among which `--matter` finds the one that matters most."""
MAX_SHOWN = 80
"""Characters of a part that are shown."""


class Texts(StringInputs):
    """Texts: mails, reviews, notes, requests."""

    one, many = "text", "texts"
    suffixes = (".eml", ".md", ".txt")
    asks = (*StringInputs.asks, "matter")
    tab = "tables"
    advice = "name a table with a column of texts, or folders of .txt, .md or .eml files"

    # One text.

    def decoded(self, data: bytes, where: str) -> str:
        mail = where.lower().endswith(".eml")
        return _mail(data, where) if mail else super().decoded(data, where)

    def holds(self, x: Any) -> bool:
        several = isinstance(x, Collection) and not isinstance(x, str | Mapping) and len(x) > 0
        texts = several and getattr(x, "ndim", 1) == 1 and all(isinstance(one, str) for one in x)
        return texts and not all(map(os.path.isfile, x))

    def examples(self) -> tuple[list[object], list[str]]:
        things = ("the parcel", "my order", "the blue lamp", "this book", "the second box")
        late = [f"{thing} has not arrived yet, where is it?" for thing in things]
        good = [f"{thing} came today and is lovely, thank you!" for thing in things]
        return [*late, *good], ["late"] * len(late) + ["good"] * len(good)

    # Several texts.

    def suits(self, cells: Sequence[str]) -> bool:
        return Text.suits(cells)

    def variants(self, x: np.ndarray, labels: Sequence[str]) -> bool:
        from arml.texts.variants import has_variants

        return has_variants(x, labels)

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

    def without_parts(self, learner: Any, file: Member) -> tuple[np.ndarray, list[str]]:
        """A part is one word, or several words of a long text."""
        words = self.content(file, 0)[1][:MAX_CHARACTERS].split()
        parts = [some for some in np.array_split(np.arange(len(words)), MAX_PARTS) if len(some)]
        left = [" ".join(np.delete(np.array(words, object), some)) for some in parts]
        said = [" ".join(words[i] for i in some) for some in parts]
        said = [one if len(one) <= MAX_SHOWN else f"{one[:MAX_SHOWN]}..." for one in said]
        return learner.vectors([" ".join(words), *left]), said


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
