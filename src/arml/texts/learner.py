"""Texts: a few of each class, the vectors of a frozen encoder, and the words."""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Float32
from sklearn.feature_extraction.text import HashingVectorizer

from arml.predict.encoded import EncodedLearner, EncodedPredictor
from arml.predict.inputs import EXAMPLES
from arml.predict.kinds import named_kind
from arml.results.files import Json
from arml.texts.encoder import Encoder, encoder_of
from arml.texts.head import BLOCKS, HASHED, features, fit_text_head

_COUNTED = {"binary": True, "norm": None, "dtype": np.float32}
HASHES = (
    HashingVectorizer(n_features=BLOCKS[0], **_COUNTED),
    HashingVectorizer(n_features=BLOCKS[1], analyzer="char_wb", ngram_range=(2, 5), **_COUNTED),
)
"""Of words, and of n-grams of two to five characters within words."""
WITHOUT = "the words of the texts alone: pip install 'arml[texts]' adds their meaning"


class TextLearner(EncodedLearner):
    """Learns to tell a person's own classes from a few texts of each.

    Wherever it takes texts, these are a list of texts or of files (paths: `pathlib.Path`).

    **Arguments**

    - `encoder`: makes vectors of the meaning of texts; None for the words alone.
    - `path`: the file of its model, if it has one.
    """

    def __init__(self, encoder: Encoder | None, path: Path | str | None = None) -> None:
        super().__init__(named_kind("texts"))
        self.encoder, self._path = encoder, path
        self.families = (str(self.facts["model"]),)

    @property
    def dimension(self) -> int:
        return HASHED + (self.encoder.dimension if self.encoder else 0)

    @property
    def facts(self) -> Json:
        """Everything on which the vectors depend, as plain data."""
        encoder = self.encoder.facts if self.encoder else {"model": "none"}
        return {**encoder, "hashed": [*BLOCKS]}

    @property
    def notes(self) -> list[str]:
        return [f"texts: {WITHOUT if self.encoder is None else self.facts['model']}"]

    @property
    def predictor(self) -> "type[TextPredictor]":
        return TextPredictor

    def encode(self, content: Any, where: str, doubts: list[str]) -> Float32[np.ndarray, " d"]:
        (found,) = self.vectors([content])
        return np.asarray(found)

    def vectors(self, texts: list[str]) -> Float32[np.ndarray, "n d"]:
        """The vectors of texts, which are not kept."""
        parts: list[np.ndarray] = [one.transform(texts).toarray() for one in HASHES]
        if self.encoder is not None:
            found = self.encoder(texts)
            found /= np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-9)
            parts.insert(0, found)
        return np.concatenate(parts, axis=1)

    def __reduce__(self) -> tuple[object, ...]:
        return remade_learner, (self.facts, self._path)


def remade_learner(facts: Json, path: Path | str | None) -> TextLearner:
    """The learner of a predictor that was saved. **Raises** `ValueError` where its encoder is not
    there, or is another one."""
    if facts["model"] == "none":
        return TextLearner(None)
    if "version" not in facts and path is None:
        raise ValueError(f"its encoder is {facts['model']}: give that file with --model")
    options = {} if "version" in facts else {"pool": facts["pool"]}
    learner = TextLearner(encoder_of(path, **options), path)
    if learner.facts != facts:
        wanted = f"{facts['model']} {str(facts.get('version', facts.get('sha256')))[:12]}"
        raise ValueError(
            f"expected the encoder {wanted} of its texts, got {learner.facts['model']}: "
            + ("install that version of the package" if "version" in facts else "name that file")
        )
    return learner


class TextPredictor(EncodedPredictor):
    """A task that was learned from texts; `x` are the vectors `[n, d]` of the examples."""

    learner: TextLearner
    fit_head = staticmethod(fit_text_head)
    prior = EXAMPLES

    def embedding(self, x: object) -> Float[np.ndarray, "n d"]:
        """The vectors in which the classifier compares texts."""
        return features(self.learner.read(x), self.head.rarity)
