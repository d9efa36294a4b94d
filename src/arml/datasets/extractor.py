"""A frozen image model in an ONNX file, as a function from pictures to vectors.

The model has one picture input `[n, 3, h, w]` or `[n, h, w, 3]` of floats or bytes, whose batch and
size may be fixed or free. Its output is `[n, d]`, or `[n, d, h, w]`, which is averaged over places.
onnxruntime runs it.
"""

import hashlib
import os
import re
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32, UInt8

from arml.results.files import Json, JsonView, digest_of

PHOTOS = Path(str(files("arml") / "data" / "photos" / "efficientnet-lite0.onnx"))
"""The model of photographs that the package carries: see its licence beside it."""
DEFAULT = Path(str(files("arml") / "data" / "extractors" / "starter-protonet.onnx"))
"""The small model of drawings that the package carries."""
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and deviation of ImageNet's channels, for pixels in [0, 1]."""
SAW = "arml.saw"
"""Key of a model's metadata for the data that it was trained on."""
BATCH = 32
SIZE = 224
TYPES: dict[str, type[np.generic]] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(uint8)": np.uint8,
}


@dataclass(frozen=True)
class Preparation:
    """Operations on a picture before the model, and on the vector after it."""

    size: int | None = None
    """Pixels a side; if None, the size that the model states, or else 224."""
    mean: tuple[float, ...] = IMAGENET[0]
    """One number a channel, which is subtracted from pixels in [0, 1]; unused if the model takes
    bytes."""
    std: tuple[float, ...] = IMAGENET[1]
    """One number a channel, by which pixels are then divided; unused if the model takes bytes."""
    output: str | None = None
    """The name of the model's output; the first output if None."""
    unit: bool = True
    """Scale every vector to the same length, the root of its dimension, so that entries are about
    1."""
    crop: bool = False
    """Cut off a part of a picture's longer side: see `arml.datasets.decode.cropped`."""


class PictureInput(NamedTuple):
    """The input of a model."""

    name: str
    kind: type[np.generic]
    """The type of its numbers."""
    channels_first: bool
    """Whether its pictures are `[n, 3, h, w]`."""
    batch: int | None
    """The number of pictures that the model takes at once; None if it takes any."""
    size: int
    """Pixels a side."""


class Extractor:
    """A model, ready to run. `about` says everything on which its vectors depend, as plain data."""

    def __init__(
        self,
        model: Path | str,
        prepare: Preparation | None = None,
        *,
        saw: str | None = None,
        threads: int = 0,
    ) -> None:
        """`threads` are those that compute one batch; 0 for all cores.

        **Raises** `ValueError` in one line for a file that is not such a model."""
        prepare = prepare or Preparation()
        path = Path(model)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ValueError(
                f"{path}: expected an ONNX model, got: {error.strerror}; check the path"
            ) from error
        _check_channels(prepare)
        self.path = path
        self._session = _session(path, data, threads)
        self.input = _picture_input(path, self._session.get_inputs(), prepare.size)
        self.size = self.input.size
        """Pixels a side of the pictures that it reads."""
        self.crop = prepare.crop
        """Whether these lose the ends of their longer side."""
        self._output = _output_name(path, self._session.get_outputs(), prepare.output)
        self._prepare = prepare
        self.rank = 2
        """Dimensions of the model's output: 4 if it has places, which are averaged."""
        known = self._session.get_modelmeta().custom_metadata_map.get(SAW)
        self.dimension = self(np.zeros((1, self.size, self.size, 3), np.uint8)).shape[1]
        self.about: Json = {
            "model": path.name,
            "sha256": _digest(path, data),
            **asdict(prepare),
            "size": self.size,
            "output": self._output,
            "dimension": self.dimension,
            "saw": saw or known or "unknown",
        }
        if self.input.kind == np.uint8:
            self.about |= {"mean": None, "std": None}

    @property
    def normalisation(self) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None, Any]:
        """Mean and deviation of each channel, None if the model takes bytes; and the type of the
        numbers that it takes."""
        kind = self.input.kind
        if kind == np.uint8:
            return None, None, kind
        return self._prepare.mean, self._prepare.std, kind

    def __call__(self, pictures: UInt8[np.ndarray, "n h w 3"]) -> Float32[np.ndarray, "n d"]:
        """The vectors of RGB pictures of `size` pixels a side.

        **Raises** `ValueError` if the model fails, or its output is of another shape or not finite.
        """
        step = self.input.batch or BATCH
        parts = [self._batch(pictures[i : i + step]) for i in range(0, len(pictures), step)]
        return np.concatenate(parts)

    def _batch(self, pictures: np.ndarray) -> np.ndarray:
        n = len(pictures)
        if self.input.batch:
            lacking = self.input.batch - n
            pictures = np.concatenate([pictures, np.repeat(pictures[:1], lacking, axis=0)])
        x, (mean, std, kind) = pictures, self.normalisation
        if mean is not None:
            x = x.astype(np.float32) / 255 - np.asarray(mean, np.float32)
            x = (x / np.asarray(std, np.float32)).astype(kind)
        x = np.ascontiguousarray(x.transpose(0, 3, 1, 2) if self.input.channels_first else x)
        try:
            (y,) = self._session.run([self._output], {self.input.name: x})
        except Exception as error:  # onnxruntime's errors share no class of their own
            raise ValueError(f"the model failed on a batch: {_brief(error)}") from error
        return self._vectors(np.asarray(y))[:n]

    def _vectors(self, y: np.ndarray) -> np.ndarray:
        if y.ndim not in (2, 4) or y.dtype.kind != "f":
            raise ValueError(
                f"expected an output [n, d] or [n, d, h, w] of floats, got {list(y.shape)} of "
                f"{y.dtype} from {self._output!r}: name another with --output, or export the model "
                "without its last layers"
            )
        self.rank = y.ndim
        vectors = y.astype(np.float32)
        if y.ndim == 4:
            vectors = vectors.mean(axis=(2, 3) if self.input.channels_first else (1, 2))
        if not np.all(np.isfinite(vectors)):
            raise ValueError(
                "expected finite features, got NaN or infinity: check --mean and --std"
            )
        if self._prepare.unit:
            length = np.linalg.norm(vectors, axis=1, keepdims=True) / vectors.shape[1] ** 0.5
            vectors = vectors / np.maximum(length, np.float32(1e-12))
        return vectors.astype(np.float32)


def remade(about: JsonView, model: Path | str | None = None) -> Extractor:
    """The extractor that `about` describes, from the file `model`, or the model that ships.

    **Raises** `ValueError` in one line if that file is another model.
    """
    path = Path(model) if model is not None else _shipped(about["sha256"])
    options = {name: about[name] for name in ("output", "unit")}
    options["crop"] = about.get("crop", False)  # older files lack it
    if about["mean"] is not None:
        options |= {"mean": tuple(about["mean"]), "std": tuple(about["std"])}
    digest = _digest(path, path.read_bytes()) if path.is_file() else "none"
    if digest != about["sha256"]:
        got = f"a file with {digest[:12]}..." if model is not None else "no --model"
        raise ValueError(
            f"expected the model {about['model']} that made the learner's features (SHA-256 "
            f"{about['sha256'][:12]}...), got {got}: give it with --model"
        )
    # A model that states its size accepts that size.
    return Extractor(path, Preparation(size=about["size"], **options), saw=about["saw"])


def _shipped(sha256: str) -> Path:
    """The model of the package with this digest; the default if there is none."""
    made = (path for path in (PHOTOS, DEFAULT) if digest_of(path).hexdigest() == sha256)
    return next(made, DEFAULT)


def _check_channels(prepare: Preparation) -> None:
    for name, values in (("mean", prepare.mean), ("std", prepare.std)):
        if len(values) != 3 or not np.all(np.isfinite(values)):
            raise ValueError(
                f"expected --{name} as three numbers, one for each channel, got {values}: change it"
            )
    if min(prepare.std) <= 0:
        raise ValueError(f"expected --std above 0, got {prepare.std}: raise it")


LOCATION = re.compile(rb"\n\x08location\x12([\x80-\xff]*[\x00-\x7f])")
"""Where a model names a file with some of its weights (`TensorProto.external_data`): the key, then
the length of the file's name, in groups of seven bits."""


def _digest(path: Path, data: bytes) -> str:
    """SHA-256 of a model, and of the weights that it keeps in other files."""
    digest, names = hashlib.sha256(data), set[bytes]()
    for found in LOCATION.finditer(data):
        length = sum((byte & 127) << 7 * i for i, byte in enumerate(found[1]))
        names.add(data[found.end() : found.end() + length])
    for name in sorted(names):
        other = path.parent / os.fsdecode(name)
        if b"\0" not in name and other.is_file():
            digest.update(digest_of(other).digest())
    return digest.hexdigest()


def _session(path: Path, data: bytes, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    try:
        # By its path: the weights of a large model may be in a file beside it.
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        kind = "an empty file" if not data else _brief(error)
        raise ValueError(f"{path}: expected an ONNX model, got: {kind}") from error


def _brief(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _picture_input(path: Path, inputs: list[Any], size: int | None) -> PictureInput:
    wanted = f"{path}: expected a model with one input of pictures, [n, 3, h, w] or [n, h, w, 3]"
    if len(inputs) != 1:
        named = ", ".join(f"{i.name} {i.shape}" for i in inputs)
        raise ValueError(f"{wanted}, got {len(inputs)} inputs ({named}): export another")
    (found,) = inputs
    shape = [s if isinstance(s, int) and s > 0 else None for s in found.shape]
    if found.type not in TYPES:
        raise ValueError(f"{wanted}, of floats or bytes, got {found.type}: export another")
    if len(shape) != 4 or 3 not in (shape[1], shape[3]):
        raise ValueError(f"{wanted}, got {found.shape}: export the model with its channels named")
    first = shape[1] == 3
    height, width = shape[2:] if first else shape[1:3]
    fixed = height or width
    if (height or fixed) != (width or fixed):
        raise ValueError(f"{wanted} that is square, got {found.shape}: export another")
    if fixed and size not in (None, fixed):
        raise ValueError(
            f"{path}: the model takes pictures of {fixed} px, got --size {size}: leave it out"
        )
    if size is not None and not 4 <= size <= 1024:
        raise ValueError(f"size must be from 4 to 1024 px, got {size}: change --size")
    return PictureInput(found.name, TYPES[found.type], first, shape[0], fixed or size or SIZE)


def _output_name(path: Path, outputs: list[Any], wanted: str | None) -> str:
    names = [str(output.name) for output in outputs]
    if wanted is not None and wanted not in names:
        raise ValueError(
            f"{path}: expected one of the outputs {', '.join(names)}, got {wanted!r}: change "
            "--output"
        )
    return wanted or names[0]
