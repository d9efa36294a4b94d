"""A page that predicts pictures without a server: one folder with model, runtime and page.

A browser opens `index.html` from the folder or from a web server, and needs no network. The runtime
is the WebAssembly of onnxruntime-web, copied from the folder in which npm installed it.
"""

import base64
import json
from functools import partial
from importlib.resources import files
from pathlib import Path

import numpy as np

from arml.predict.base import Predictor
from arml.predict.encoded import EncodedPredictor
from arml.predict.files import packed
from arml.predict.kinds import inputs_of
from arml.results.files import Json, write_bytes, write_text

RUNTIME_SCRIPT = "ort.wasm.min.js"
RUNTIME_MODULE, RUNTIME_WASM = "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm"
"""Files of onnxruntime-web: its interface, the loader of the WebAssembly, and the WebAssembly."""


def check_runtime(runtime: Path) -> None:
    """Raise `ValueError` if the folder does not have the files of onnxruntime-web."""
    names = (RUNTIME_SCRIPT, RUNTIME_MODULE, RUNTIME_WASM)
    missing = [name for name in names if not (runtime / name).is_file()]
    if missing:
        raise ValueError(
            f"expected onnxruntime-web in {runtime}, found no {missing[0]}: run `npm install "
            "onnxruntime-web` here, or name its folder dist with --runtime"
        )


def write_offline_page(predictor: Predictor, folder: Path, runtime: Path) -> None:
    """Write a page for a predictor of pictures. `runtime` is the folder `dist` of the npm package
    onnxruntime-web.

    **Raises** `ValueError` for any other predictor, for a missing runtime, and in the cases of
    `Predictor.to_onnx`; `RunError` if the folder cannot be written.
    """
    if predictor.classes is None or inputs_of(predictor.learner).tab != "pictures":
        raise ValueError(
            "only a predictor of pictures can become a page; for this one use `arml predict`"
        )
    predictor.need("to_onnx")
    check_runtime(runtime)
    parts: Json = {"classes": [str(label) for label in predictor.classes]}
    if isinstance(predictor, EncodedPredictor):
        models = packed(partial(_write_models, predictor))
        weight = predictor.sample_weight
        parts |= {
            "head": {name: _floats(part) for name, part in predictor.head._asdict().items()},
            "vectors": _floats(predictor.x),
            "labels": predictor.y.tolist(),
            "weight": (np.ones(len(predictor.y)) if weight is None else weight).tolist(),
            "prior": predictor.prior if isinstance(predictor.prior, str) else "",
        }
    else:
        models = packed(lambda place: predictor.to_onnx(place / "onnx"))
    parts |= {name: _text(data) for name, data in models.items()}
    code = {"mjs": _text((runtime / RUNTIME_MODULE).read_bytes())}
    code["wasm"] = _text((runtime / RUNTIME_WASM).read_bytes())
    for page in (files("arml.app") / "offline").iterdir():
        write_bytes(folder / page.name, page.read_bytes())
    write_bytes(folder / RUNTIME_SCRIPT, (runtime / RUNTIME_SCRIPT).read_bytes())
    write_text(folder / "runtime.js", f"window.ARML_RUNTIME = {json.dumps(code)};\n")
    write_text(folder / "model.js", f"window.ARML_MODEL = {json.dumps(parts)};\n")


def _write_models(predictor: EncodedPredictor, folder: Path) -> None:
    """Write three ONNX models: the network, the fitted head, and a function that fits the head
    again from the vectors of all examples when the user teaches a class."""
    import jax
    import jax.numpy as jnp

    from arml.predict.head import Head, fit_metric, traced_factor
    from arml.predict.onnx import (
        ANY_HEIGHT,
        ANY_PICTURES,
        ANY_QUERIES,
        ANY_WIDTH,
        vectors_of,
        write,
    )

    def floats(*shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, np.float32)

    def answer(vectors: jax.Array, *parts: jax.Array) -> tuple[jax.Array, ...]:
        logits, novelty = Head(*parts).answers(vectors, jnp)
        return jax.nn.softmax(logits), novelty

    def fitted(vectors: jax.Array, member: jax.Array, weight: jax.Array) -> tuple[jax.Array, ...]:
        return fit_metric(vectors, member, weight, traced_factor, jnp)[:4]

    extractor = predictor.learner.extractor
    assert extractor is not None, "a predictor of photographs has one"
    vectors = partial(vectors_of, extractor=extractor)
    write(folder / "onnx", vectors, {"pictures": ANY_PICTURES}, ["vectors"])
    n, k, rank, d = ANY_QUERIES, ANY_HEIGHT, ANY_WIDTH, predictor.x.shape[1]
    parts = floats(d), floats(d, k), floats(k), floats(rank, d), floats(1), floats(1), floats(k)
    inputs = {"vectors": floats(n, d), **dict(zip(Head._fields, parts, strict=True))}
    write(folder / "answer", answer, inputs, ["probabilities", "novelty"])
    examples = {"vectors": floats(n, d), "member": floats(n, k), "weight": floats(n)}
    write(folder / "fit", fitted, examples, Head._fields[:4])


def _floats(array: object) -> str:
    """An array as base64 of 32-bit floats."""
    return _text(np.asarray(array, "<f4").tobytes())


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
