"""Vectors that a frozen image model makes of pictures, and their folders on disk.

The model is an ONNX file, which onnxruntime runs. It has one picture input `[n, 3, h, w]` or
`[n, h, w, 3]` of floats or bytes, whose size may be fixed or free. Its output is `[n, d]`, or
`[n, d, h, w]`, which is averaged over places.

On disk a family is a folder with `vectors.npy`, float32 `[n, d]` in order of class and then of
picture, and `features.json`, which is written last. It has the classes, the counts, the source and
the model of the vectors, and a SHA-256 of them.
"""

import hashlib
from collections.abc import Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from jaxtyping import Float32, UInt8

from arml.datasets.folders import (
    ImageFamily,
    Parts,
    Progress,
    family_name,
    open_source,
    write_pictures,
)
from arml.results.files import (
    Count,
    Json,
    JsonView,
    Text,
    checksum,
    digest_of,
    read_as,
    read_json,
    write_json,
)

PHOTOS = Path(str(files("arml") / "data" / "photos" / "efficientnet-lite0.onnx"))
"""The model of photographs that the package carries: see its licence beside it."""
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and deviation of ImageNet's channels, for pixels in [0, 1]."""
SAW = "arml.saw"
"""Key of a model's metadata for the data that it was trained on."""
EXTERNAL = b"\n\x08location\x12"
"""The key in an ONNX file before the name of another file with its weights."""
BATCH = 32
SIZE = 224
TYPES: dict[str, type[np.generic]] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(uint8)": np.uint8,
}


class Extractor:
    """A frozen model, ready to run. `about` says everything on which its vectors depend, as plain
    data.

    **Arguments**

    - `size`: pixels a side; if None, the size that the model states, or else 224.
    - `mean`, `std`: one number a channel: pixels in [0, 1] minus the mean, divided by the
      deviation. Unused if the model takes bytes.
    - `unit`: scale every vector to the same length, the root of its dimension, so that entries are
      about 1.
    - `crop`: cut off a part of a picture's longer side: see `arml.datasets.decode.cropped`.
    - `saw`: the data that the model was trained on, if its file does not say it.
    - `threads`: compute one batch; 0 for all cores.

    **Raises** `ValueError` in one line for a file that is not such a model.
    """

    def __init__(
        self,
        model: Path | str,
        *,
        size: int | None = None,
        mean: tuple[float, ...] = IMAGENET[0],
        std: tuple[float, ...] = IMAGENET[1],
        unit: bool = True,
        crop: bool = False,
        saw: str | None = None,
        threads: int = 0,
    ) -> None:
        if min(std) <= 0:
            raise ValueError(f"expected --std above 0, got {std}")
        self.path = Path(model)
        self._open(threads)
        (found,) = self._session.get_inputs()
        self._input, self.kind = found.name, TYPES[found.type]
        self.channels_first = found.shape[1] == 3
        sides = found.shape[2:] if self.channels_first else found.shape[1:3]
        stated = {side for side in sides if isinstance(side, int) and side > 0}
        self.size = size or min(stated, default=SIZE)
        """Pixels a side of the pictures that it reads."""
        if stated - {self.size} or not 4 <= self.size <= 1024:
            raise ValueError(
                f"{self.path}: expected square pictures of 4 to 1024 px, got a model for {sides} "
                f"and --size {size}: change --size, or export another"
            )
        self._output = self._session.get_outputs()[0].name
        self.crop, self._unit = crop, unit
        floats = self.kind != np.uint8
        self.mean, self.std = mean if floats else None, std if floats else None
        self.rank = 2
        """Dimensions of the model's output: 4 if it has places, which are averaged."""
        self.dimension = self(np.zeros((1, self.size, self.size, 3), np.uint8)).shape[1]
        known = self._session.get_modelmeta().custom_metadata_map.get(SAW)
        self.about: Json = {
            "model": self.path.name,
            "sha256": self._sha256,
            "size": self.size,
            "mean": self.mean,
            "std": self.std,
            "output": self._output,
            "unit": unit,
            "crop": crop,
            "dimension": self.dimension,
            "saw": saw or known or "unknown",
        }

    def _open(self, threads: int) -> None:
        """Read the model, and check its input."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = threads
        try:
            data = self.path.read_bytes()
            if EXTERNAL in data:
                raise ValueError("one with weights in another file: save it as one file")
            # Any: onnxruntime has no types.
            self._session: Any = onnxruntime.InferenceSession(
                data, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime's errors share no class of their own
            raise ValueError(
                f"{self.path}: expected an ONNX model, got: {_brief(error)}"
            ) from error
        self._sha256 = hashlib.sha256(data).hexdigest()
        inputs = [(one.type, one.shape) for one in self._session.get_inputs()]
        kind, shape = inputs[0]
        if (
            len(inputs) > 1
            or kind not in TYPES
            or len(shape) != 4
            or 3 not in (shape[1], shape[3])
            or (isinstance(shape[0], int) and shape[0] > 1)
        ):
            raise ValueError(
                f"{self.path}: expected a model with one input of any number of pictures, "
                f"[n, 3, h, w] or [n, h, w, 3], of floats or bytes, got {inputs}: export another"
            )
        self.batch = BATCH if not isinstance(shape[0], int) else 1
        """How many pictures it takes at once."""

    def __call__(self, pictures: UInt8[np.ndarray, "n h w 3"]) -> Float32[np.ndarray, "n d"]:
        """The vectors of RGB pictures of `size` pixels a side.

        **Raises** `ValueError` if the model fails, or its output is of another shape or not finite.
        """
        starts = range(0, len(pictures), self.batch)
        return np.concatenate([self._vectors(pictures[i : i + self.batch]) for i in starts])

    def _vectors(self, x: np.ndarray) -> np.ndarray:
        if self.mean is not None:
            x = x.astype(np.float32) / 255 - np.asarray(self.mean, np.float32)
            x = (x / np.asarray(self.std, np.float32)).astype(self.kind)
        x = np.ascontiguousarray(x.transpose(0, 3, 1, 2) if self.channels_first else x)
        try:
            (y,) = self._session.run([self._output], {self._input: x})
        except Exception as error:  # onnxruntime's errors share no class of their own
            raise ValueError(f"the model failed on a batch: {_brief(error)}") from error
        if y.ndim not in (2, 4) or y.dtype.kind != "f":
            raise ValueError(
                f"expected an output [n, d] or [n, d, h, w] of floats, got {list(y.shape)} of "
                f"{y.dtype} from {self._output!r}: export the model without its last layers"
            )
        self.rank = y.ndim
        vectors = y.astype(np.float32)
        if y.ndim == 4:
            vectors = vectors.mean(axis=(2, 3) if self.channels_first else (1, 2))
        if not np.all(np.isfinite(vectors)):
            raise ValueError(
                "expected finite features, got NaN or infinity: check --mean and --std"
            )
        if self._unit:
            length = np.linalg.norm(vectors, axis=1, keepdims=True) / vectors.shape[1] ** 0.5
            vectors = vectors / np.maximum(length, np.float32(1e-12))
        return vectors.astype(np.float32)


def _brief(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def remade(about: JsonView, model: Path | str | None = None) -> Extractor:
    """The extractor that `about` describes, from the file `model`, or the model that ships.

    **Raises** `ValueError` in one line if that file is another model.
    """
    path = PHOTOS if model is None else Path(model)
    digest = digest_of(path) if path.is_file() else "none"
    if digest != about["sha256"]:
        got = f"a file with {digest[:12]}..." if model is not None else "no --model"
        raise ValueError(
            f"expected the model {about['model']} that made the learner's features (SHA-256 "
            f"{about['sha256'][:12]}...), got {got}: give it with --model"
        )
    options = {name: about[name] for name in ("size", "unit", "saw")}
    options["crop"] = about.get("crop", False)  # older files lack it
    if about["mean"] is not None:
        options |= {"mean": tuple(about["mean"]), "std": tuple(about["std"])}
    return Extractor(path, **options)


# --- features on disk

INDEX, VECTORS = "features.json", "vectors.npy"


class Features(TypedDict):
    """`features.json`."""

    family: Text
    place: Count
    classes: list[Text]
    counts: list[Count]
    source: Text
    split: Parts | None
    extractor: Json
    vectors: Text


def write_features(
    extractor: Extractor,
    path: Path,
    folder: Path,
    *,
    place: int = 0,
    progress: Progress = lambda what, done, total: None,
) -> tuple[Json, bool]:
    """Write the features of a folder or zip of pictures in `folder`, unless they are there.

    `place` is the place of the family among those that are used together: tasks draw families by
    place.

    **Returns** the index, and whether there was anything to do.

    **Raises** `ValueError` or `RunError` in one line: a folder with other features, a picture that
    cannot be read, a model that fails, or a full disk.
    """
    with open_source(path) as source:
        content: Json = {
            "family": family_name(path),
            "place": place,
            "classes": list(source.classes),
            "counts": [len(members) for members in source.classes.values()],
            "source": source.digest(),
            "split": source.split,
            "extractor": extractor.about,
        }
        if (folder / INDEX).exists():
            if checksum({**_index(folder), "vectors": ""}) == checksum({**content, "vectors": ""}):
                return content, False
            raise ValueError(
                f"{folder}: expected a new folder, or the same pictures, model and options as "
                "before, got features of others: name another --out, or remove it"
            )

        write_pictures(
            folder / VECTORS,
            source.pictures,
            (len(source.pictures), extractor.dimension),
            size=extractor.size,
            crop=extractor.crop,
            kind="<f4",
            convert=extractor,
            progress=partial(progress, content["family"]),
        )
    content["vectors"] = digest_of(folder / VECTORS)
    write_json(folder / INDEX, content)
    return content, True


def feature_folders(paths: Sequence[str | Path]) -> list[Path]:
    """The folders of families at or directly below `paths`, in order of place; empty if there are
    none."""
    found: list[Path] = []
    for path in map(Path, paths):
        here = [path] if (path / INDEX).is_file() else [p.parent for p in path.glob(f"*/{INDEX}")]
        found += sorted(here, key=lambda folder: (_index(folder)["place"], folder.name))
    return found


def load_features(paths: Sequence[str | Path]) -> tuple[list[ImageFamily], Json]:
    """The families in folders that `arml features` made, in order of place; and the model that made
    their vectors.

    **Raises** `ValueError` in one line: no features, an altered file, two models or two families of
    one name.
    """
    for path in paths:
        if not feature_folders([path]):
            raise ValueError(
                f"{path}: expected a folder that `arml features` made, found none: run it first"
            )
    families: dict[str, ImageFamily] = {}
    makers: dict[str, Json] = {}
    for folder in feature_folders(paths):
        family, maker = _loaded(folder)
        if family.name in families:
            raise ValueError(
                f"{folder}: expected one family {family.name!r}, got two: leave one out"
            )
        families[family.name] = family
        makers[checksum(maker)] = maker
    if len(makers) > 1:
        raise ValueError(
            "expected features of one model with one set of options, got "
            f"{' and '.join(str(maker['model']) for maker in makers.values())}: make them alike"
        )
    (maker,) = makers.values()
    return [*families.values()], maker


def _loaded(folder: Path) -> tuple[ImageFamily, Json]:
    index, path = _index(folder), folder / VECTORS
    classes, counts, split = index["classes"], index["counts"], index["split"]
    if not path.is_file() or digest_of(path) != index["vectors"]:
        raise _altered(path)
    vectors = np.load(path, mmap_mode="r", allow_pickle=False)
    if len(vectors) != sum(counts) or len(classes) != len(counts):
        raise _altered(folder / INDEX)
    made = checksum([index["vectors"], classes, counts, split])
    family = ImageFamily(index["family"], tuple(classes), vectors, np.asarray(counts), made, split)
    return family, index["extractor"]


def _index(folder: Path) -> Features:
    path = folder / INDEX
    return read_as(Features, read_json(path), str(path), f"remove {folder}, and make it again")


def _altered(path: Path) -> ValueError:
    return ValueError(
        f"{path}: it was altered or cut short: remove the folder {path.parent}, and run `arml "
        "features` again"
    )
