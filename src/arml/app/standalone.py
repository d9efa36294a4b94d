"""A page that predicts pictures without a server: model, runtime and page in one folder.

`index.html` is opened from the folder itself or from any web server, without a network. The runtime
is onnxruntime-web's WebAssembly, which is copied from where npm put it.
"""

import base64
import json
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from arml.predict.photos import PhotoPredictor
from arml.results.files import Json, write_bytes, write_text

if TYPE_CHECKING:
    from arml.predict.predictor import Predictor

SCRIPT, CODE, MACHINE = (
    "ort.wasm.min.js",
    "ort-wasm-simd-threaded.mjs",
    "ort-wasm-simd-threaded.wasm",
)
"""Files of onnxruntime-web: its interface, the loader of the machine code, and the machine code."""
_PLACE = Path("node_modules") / "onnxruntime-web" / "dist"
"""Where npm puts them."""


def check_runtime(runtime: Path) -> None:
    """Raise `ValueError` for a folder without the files of onnxruntime-web."""
    missing = [name for name in (SCRIPT, CODE, MACHINE) if not (runtime / name).is_file()]
    if missing:
        raise ValueError(
            f"expected onnxruntime-web in {runtime}, found no {missing[0]}: run `npm install "
            "onnxruntime-web` here, or name its folder dist with --runtime"
        )


def write_offline_page(
    predictor: "Predictor | PhotoPredictor",
    folder: Path,
    runtime: Path = _PLACE,
) -> None:
    """Write the page of a predictor of pictures.

    **Arguments**

    - `runtime`: the folder `dist` of the npm package onnxruntime-web.

    **Raises** `ValueError` for a predictor of something else, for a runtime that is not there, and
    as `Predictor.to_onnx`; `RunError` if the folder cannot be written.
    """
    if isinstance(predictor, PhotoPredictor):
        check_runtime(runtime)
        _write_page(folder, runtime, _of_photographs(predictor))
        return
    if predictor.classes is None or predictor.learner.inputs != "pictures":
        raise ValueError(
            "only a predictor of pictures can become a page, and this is none: use `arml predict`"
        )
    check_runtime(runtime)
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "model.onnx"
        predictor.to_onnx(file)
        parts = {"onnx": _text(file), "classes": [str(label) for label in predictor.classes]}
    _write_page(folder, runtime, parts)


def _of_photographs(predictor: PhotoPredictor) -> Json:
    """The network, the fitted head, a function that answers by it, one that fits it anew, and the
    vectors of the examples, which the page learns from when a class is taught."""
    import jax
    import jax.numpy as jnp

    from arml.predict import onnx
    from arml.predict.head import Head, fit_metric, traced_factor

    n, k, rank, d = onnx.QUERIES, onnx.HEIGHT, onnx.WIDTH, predictor.x.shape[1]
    shapes = dict(zip(Head._fields, ((d,), (d, k), (k,), (rank, d), (1,), (1,)), strict=True))

    def answer(vectors: jax.Array, *parts: jax.Array) -> tuple[jax.Array, ...]:
        logits, novelty = Head(*parts).answers(vectors, jnp)
        return jax.nn.softmax(logits), novelty

    def fitted(vectors: jax.Array, member: jax.Array, weight: jax.Array) -> tuple[jax.Array, ...]:
        return fit_metric(vectors, member, weight, traced_factor, jnp)[:4]

    examples = {"vectors": (n, d), "member": (n, k), "weight": (n,)}
    with tempfile.TemporaryDirectory() as place:
        network, answers, fits = (Path(place) / name for name in ("network", "answer", "fit"))
        onnx.write_vectors(network, predictor.learner.extractor)
        outputs = ("probabilities", "novelty")
        onnx.write_function(answers, answer, {"vectors": (n, d), **shapes}, outputs)
        onnx.write_function(fits, fitted, examples, Head._fields[:4])
        files = {"onnx": _text(network), "answer": _text(answers), "fit": _text(fits)}
    weight = predictor.sample_weight
    return {
        **files,
        "classes": [str(label) for label in predictor.classes],
        "head": {name: _floats(part) for name, part in predictor.head._asdict().items()},
        "vectors": _floats(predictor.x),
        "labels": predictor.y.tolist(),
        "weight": np.ones(len(predictor.y)).tolist() if weight is None else weight.tolist(),
    }


def _floats(array: object) -> str:
    """An array as base64 of 32-bit floats."""
    return base64.b64encode(np.asarray(array, "<f4").tobytes()).decode()


def _write_page(folder: Path, runtime: Path, parts: Json) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for page in (files("arml.app") / "offline").iterdir():
        write_bytes(folder / page.name, page.read_bytes())
    write_bytes(folder / SCRIPT, (runtime / SCRIPT).read_bytes())
    code = {"mjs": _text(runtime / CODE), "wasm": _text(runtime / MACHINE)}
    write_text(folder / "runtime.js", f"window.ARML_RUNTIME = {json.dumps(code)};\n")
    write_text(folder / "model.js", f"window.ARML_MODEL = {json.dumps(parts)};\n")


def _text(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
