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
PLACE = Path("node_modules") / "onnxruntime-web" / "dist"
"""Where npm puts them."""


def check_runtime(runtime: Path) -> None:
    """Raise `ValueError` for a folder without the files of onnxruntime-web."""
    missing = [name for name in (SCRIPT, CODE, MACHINE) if not (runtime / name).is_file()]
    if missing:
        raise ValueError(
            f"expected onnxruntime-web in {runtime}, found no {missing[0]}: run `npm install "
            "onnxruntime-web` here, or name its folder dist with --runtime"
        )


def write_page(
    predictor: "Predictor | PhotoPredictor",
    folder: Path,
    runtime: Path = PLACE,
    model: Path | None = None,
) -> None:
    """Write the page of a predictor of pictures.

    **Arguments**

    - `runtime`: the folder `dist` of the npm package onnxruntime-web.
    - `model`: the frozen model of a learner on features, if it is not the one that ships.

    **Raises** `ValueError` for a predictor of something else, for a runtime that is not there, and
    as `Predictor.to_onnx`; `RunError` if the folder cannot be written.
    """
    if isinstance(predictor, PhotoPredictor):
        check_runtime(runtime)
        _write_page(folder, runtime, _of_photographs(predictor))
        return
    pictures = predictor.problem.inputs == "pictures" or predictor.portable.inputs is not None
    if predictor.classes is None or not pictures:
        raise ValueError(
            "only a predictor of pictures can become a page, and this is none: use `arml predict`"
        )
    check_runtime(runtime)
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "model.onnx"
        predictor.to_onnx(file, model)
        parts = {"onnx": _text(file), "classes": [str(label) for label in predictor.classes]}
    _write_page(folder, runtime, parts)


def _of_photographs(predictor: PhotoPredictor) -> Json:
    """The network, and the vectors of the examples: the page itself learns from them."""
    from arml.predict.onnx import write_vectors

    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "model.onnx"
        write_vectors(file, predictor.learner.extractor)
        network = _text(file)
    vectors = predictor.x.astype("<f4").tobytes()
    return {
        "onnx": network,
        "classes": [str(label) for label in predictor.classes],
        "vectors": base64.b64encode(vectors).decode(),
        "labels": predictor.y.tolist(),
        "temperature": predictor.head.temperature,
        "bound": predictor.bound,
    }


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
