"""The learner of texts. It uses the vectors of a frozen encoder, and the words."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from jaxtyping import Float, Float32

from arml.predict.encoded import EncodedLearner, EncodedPredictor
from arml.predict.head import fit_head
from arml.predict.inputs import PRIOR_OF_EXAMPLES
from arml.predict.kinds import named_kind
from arml.results.files import Json
from arml.tables.words import counts_of
from arml.texts.encoder import MAX_CHARACTERS, Encoder, encoder_of
from arml.texts.head import COUNT_BASE, HASH_BUCKETS, TERM_SLOTS, TEXT_RULE, axes_of

WITHOUT_ENCODER = "only their words are used: pip install 'arml[texts]' adds their meaning"


class TextLearner(EncodedLearner):
    """Learns a user's own classes from a few texts of each.

    Texts are given as a list of `str`, or of files (`pathlib.Path`).

    **Arguments**

    - `encoder`: makes vectors of the meaning of texts; None to use only the words.
    - `path`: the file of its model, if it has one.
    """

    def __init__(self, encoder: Encoder | None, path: Path | str | None = None) -> None:
        super().__init__(named_kind("texts"))
        self.encoder, self.path, self.predictor = encoder, path, TextPredictor
        self.families = (str(self.facts["model"]),)

    @property
    def dimension(self) -> int:
        return TERM_SLOTS + (self.encoder.dimension if self.encoder else 0)

    @property
    def facts(self) -> Json:
        """Everything on which the vectors depend, as plain data."""
        encoder = self.encoder.facts if self.encoder else {"model": "none"}
        return {**encoder, "hashed": [HASH_BUCKETS, TERM_SLOTS]}

    @property
    def notes(self) -> list[str]:
        return [f"texts: {WITHOUT_ENCODER if self.encoder is None else self.facts['model']}"]

    def encode(self, content: object, where: str, doubts: list[str]) -> Float32[np.ndarray, " d"]:
        text = str(content)
        if len(text) > MAX_CHARACTERS:
            doubts.append(f"{where}: only its first {MAX_CHARACTERS:,} characters are read")
        return self.vectors([text])[0]

    def vectors(self, texts: list[str]) -> Float32[np.ndarray, "n d"]:
        """The vectors of texts, without a cache."""
        texts = [text[:MAX_CHARACTERS] for text in texts]
        counts = counts_of(texts, HASH_BUCKETS)
        slots = np.zeros((len(texts), TERM_SLOTS), np.float32)
        for row, (start, end) in enumerate(pairwise(counts.indptr)):
            found = counts.indices[start:end] * COUNT_BASE + np.minimum(
                counts.data[start:end], COUNT_BASE - 1
            )
            slots[row, : min(end - start, TERM_SLOTS)] = np.sort(found)[:TERM_SLOTS]
        parts = [slots]
        if self.encoder is not None:
            meaning = self.encoder(texts)
            meaning /= np.maximum(np.linalg.norm(meaning, axis=1, keepdims=True), 1e-9)
            parts.insert(0, meaning)
        return np.concatenate(parts, axis=1)


def remade_learner(facts: Json, path: Path | str | None) -> TextLearner:
    """The learner of a saved predictor. **Raises** `ValueError` if its encoder is missing, or is
    not the same."""
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
    """A task that was learned from texts. `x` holds the vectors `[n, d]` of the examples."""

    learner: TextLearner
    fit_head = staticmethod(partial(fit_head, rule=TEXT_RULE))
    prior = PRIOR_OF_EXAMPLES

    def _prepared(self, kept: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        weight = np.ones(len(self.y)) if self.sample_weight is None else self.sample_weight
        return axes_of(self.x[kept], weight[kept]).places

    def embedding(self, x: object) -> Float[np.ndarray, "n d"] | None:
        """The vectors of the meaning of texts; None without an encoder."""
        return self.learner.read(x)[:, :-TERM_SLOTS] if self.learner.encoder else None
