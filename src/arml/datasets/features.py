"""Vectors of pictures, computed by a frozen image model, and their folders on disk.

The model is an ONNX file: one of torchvision or timm, DINOv2, the image tower of CLIP or a whole
CLIP. It has one picture input `[n, 3, h, w]` or `[n, h, w, 3]` of floats or bytes, whose sizes may
be fixed or free; an input of texts gets a constant. Its output is `[n, d]`; or tokens `[n, t, d]`,
of which the first or the mean is taken; or `[n, d, h, w]`, whose mean over positions is taken. Its
weights may be in a second file beside it. If `preprocessor_config.json` is there, as in Hugging
Face's repositories, it states how pictures are prepared.

On disk a family is a folder with `vectors.npy`, float32 `[n, d]` in order of class and then of
picture, and `features.json`, which is written last. It has the classes, the counts, the source and
the model of the vectors, and a SHA-256 of them.
"""

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, TypedDict

import numpy as np
from jaxtyping import Float32, UInt8

from arml.datasets.decode import LOG, Crop
from arml.datasets.folders import (
    ImageFamily,
    Parts,
    Progress,
    family_name,
    open_source,
    quiet,
    write_pictures,
)
from arml.results.files import (
    Count,
    Json,
    JsonView,
    Text,
    brief,
    checksum,
    digest_of,
    read_as,
    read_json,
    write_json,
)
from arml.results.machine import extra

PHOTOS_MODEL = Path(str(files("arml") / "data" / "photos" / "efficientnet-lite0.onnx"))
"""The package's model of photographs; its licence is beside it."""
IMAGENET_CHANNELS = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and deviation of ImageNet's channels, for pixels in [0, 1]."""
TRAINING_DATA_KEY = "arml.saw"
"""Key of a model's metadata for the data that it was trained on."""
EXTERNAL_WEIGHTS = re.compile(rb"\n\x08location\x12([\x01-\x7f])")
"""The key in an ONNX file before the length and the name of another file with its weights."""

_PICTURE_TYPES: dict[str, type[np.generic]] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(uint8)": np.uint8,
}
TEXT_TYPES = {"tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": np.bool_}
PREPROCESSOR_CONFIG = "preprocessor_config.json"
Pool = Literal["cls", "mean", "none"]
"""The first token, the mean over tokens or positions, or all numbers."""


class Extractor:
    """A frozen model, ready to run. `about` has everything on which its vectors depend, as plain
    data; `summary` has it in a line, with the assumptions.

    **Arguments**

    - `output`: the name of the output, or of a value inside the model (extra `onnx`); if None, the
      embedding of CLIP, or else the first.
    - `pool`: the vector of an output with tokens or positions. If None, the mean over positions; of
      tokens the class token, or their mean if their number is a square and leaves none for it.
    - `size`: pixels a side; if None, the size that the model states, or else 224.
    - `mean`, `std`: one number for each channel: pixels in [0, 1] minus the mean, divided by the
      deviation; if None, ImageNet's. Unused if the model takes bytes.
    - `unit`: scale every vector to the root of its dimension: entries are then about 1.
    - `crop`: see `arml.datasets.decode.cropped`.
    - `bgr`: the model takes blue first.
    - `saw`: the training data of the model, if its file does not state them.
    - `threads`: compute one batch; 0 for all cores.

    **Raises** `ValueError` in one line for any other file.
    """

    def __init__(
        self,
        model: Path | str,
        *,
        output: str | None = None,
        pool: Pool | None = None,
        size: int | None = None,
        mean: tuple[float, ...] | None = None,
        std: tuple[float, ...] | None = None,
        unit: bool = True,
        crop: Crop = False,
        bgr: bool = False,
        saw: str | None = None,
        threads: int = 0,
    ) -> None:
        if std is not None and min(std) <= 0:
            raise ValueError(f"expected --std above 0, got {std}")
        self.path, self.crop, self._unit, self.pool = Path(model), crop, unit, pool
        self._bgr = bgr
        self._open(output, threads)
        stated = {side for side in self._sides if isinstance(side, int) and side > 0}
        self.size = size or min(stated, default=224)
        """Pixels a side of the pictures that it reads."""
        if stated - {self.size} or not 4 <= self.size <= 1024:
            raise ValueError(
                f"{self.path}: expected square pictures of 4 to 1024 px, got a model for "
                f"{self._sides} and --size {size}: change --size, or export another"
            )
        floats = self.kind != np.uint8
        self.mean = (mean or IMAGENET_CHANNELS[0]) if floats else None
        self.std = (std or IMAGENET_CHANNELS[1]) if floats else None
        self.dimension = self(np.zeros((1, self.size, self.size, 3), np.uint8)).shape[1]
        metadata, rank = self._session.get_modelmeta().custom_metadata_map, len(self.shape)
        self.about: Json = {
            "model": self.path.name,
            "sha256": self._sha256,
            "size": self.size,
            "mean": self.mean,
            "std": self.std,
            "output": self.output,
            # Older files lack it, and have no output of rank 3.
            **({} if (rank, self.pool) in ((2, "none"), (4, "mean")) else {"pool": self.pool}),
            "unit": unit,
            "crop": crop,
            **({"bgr": True} if bgr else {}),
            "dimension": self.dimension,
            "saw": saw or metadata.get(TRAINING_DATA_KEY) or "unknown",
        }
        parts = [f"pictures of {self.size} px{' (assumed: --size)' * (not size and not stated)}"]
        if self.mean is not None and self.std is not None:
            shown = ("/".join(f"{v:g}" for v in each) for each in (self.mean, self.std))
            assumed = " (ImageNet's, assumed: --mean, --std)" * (None in (mean, std))
            parts.append(f"mean {next(shown)}, deviation {next(shown)}{assumed}")
        shape = ", ".join(["n", *map(str, self.shape[1:])])
        taken = f", --pool {self.pool}" * (rank > 2)
        self.summary = (
            f"{self.path.name}: {'; '.join(parts)}; output {self.output!r} [{shape}]{taken}"
        )
        self.doubt = ""
        """A warning that the output may be the wrong one, with a better one; or empty."""
        imagenet = (1000, 1001, 21841, 21842, 21843)  # numbers of its classes
        if output is None and rank == 2 and self.dimension in imagenet:
            before = _before(self.path, self.output) or "VALUE, one inside it (extra onnx)"
            self.doubt = (
                f"{self.path.name}: its {self.dimension:,} numbers look like the scores of "
                "ImageNet's classes; the values before them suit other classes better: "
                f"--output {before}"
            )

    def _open(self, output: str | None, threads: int) -> None:
        if not self.path.is_file():
            raise ValueError(f"no ONNX model at {self.path}: check the path")
        try:
            data, outside = read_model(self.path)
            self._session = session_of(data, outside, threads)
            names = [one.name for one in self._session.get_outputs()]
            if output is not None and output not in names:
                inside = _with_output(data, output, names)
                self._session = session_of(inside, outside, threads)
        except Exception as error:  # onnxruntime's errors share no class of their own
            raise ValueError(
                f"{self.path}: expected an ONNX model, got: {brief(error, 200)}"
            ) from error
        self._sha256 = _digest(data, outside)
        # The name of CLIP's embedding.
        self.output = output or ("image_embeds" if "image_embeds" in names else names[0])
        inputs = self._session.get_inputs()
        pictures = [one for one in inputs if one.type in _PICTURE_TYPES and _of_pictures(one.shape)]
        texts = [one for one in inputs if one.type in TEXT_TYPES]
        if len(pictures) != 1 or len(pictures) + len(texts) != len(inputs):
            got = [(one.type, one.shape) for one in inputs]
            raise ValueError(
                f"{self.path}: expected a model with one input of pictures, [n, 3, h, w] or "
                f"[n, h, w, 3], of floats or bytes, got {got}: export another"
            )
        (found,) = pictures
        shape, self.input, self.kind = found.shape, found.name, _PICTURE_TYPES[found.type]
        self.channels_first = shape[1] == 3 or shape[3] != 3
        self._sides = shape[2:] if self.channels_first else shape[1:3]
        self.fixed = isinstance(shape[0], int)
        self.batch = max(shape[0], 1) if self.fixed else 32
        """The number of pictures that it takes at once; `fixed` if it takes only this number."""
        self.texts: dict[str, np.ndarray] = {}
        """Constants for the inputs of texts."""
        for one in texts:
            shape = [n if isinstance(n, int) else 1 for n in one.shape]
            self.texts[one.name] = np.ones(shape, TEXT_TYPES[one.type])

    def __call__(self, pictures: UInt8[np.ndarray, "n h w 3"]) -> Float32[np.ndarray, "n d"]:
        """The vectors of RGB pictures of `size` pixels a side. **Raises** `ValueError` if the model
        fails, or its output is of another shape or not finite."""
        starts = range(0, len(pictures), self.batch)
        return np.concatenate([self._vectors(pictures[i : i + self.batch]) for i in starts])

    def _vectors(self, pictures: np.ndarray) -> np.ndarray:
        n, x = len(pictures), pictures
        if self.fixed:
            x = np.concatenate([x, np.repeat(x[:1], self.batch - n, axis=0)])
        x = np.ascontiguousarray(self.prepared(x))
        try:
            (y,) = self._session.run([self.output], {self.input: x, **self.texts})
        except Exception as error:  # onnxruntime's errors share no class of their own
            raise ValueError(f"the model failed on a batch: {brief(error, 200)}") from error
        shape = list(y.shape)
        if y.ndim not in (2, 3, 4) or y.dtype.kind != "f" or len(y) != len(x):
            raise ValueError(
                f"expected an output [n, d], [n, tokens, d] or [n, d, h, w] of floats, got {shape} "
                f"of {y.dtype} from {self.output!r}: name another with --output"
            )
        self.shape, self.type = shape, y.dtype
        if self.pool is None:
            square = y.ndim == 3 and math.isqrt(shape[1]) ** 2 == shape[1]
            self.pool = "none" if y.ndim == 2 else "mean" if y.ndim == 4 or square else "cls"
        if (y.ndim == 2 and self.pool != "none") or (y.ndim == 4 and self.pool == "cls"):
            raise ValueError(
                f"--pool {self.pool} is for tokens, and the output {self.output!r} is {shape}: "
                "leave it out"
            )
        with np.errstate(invalid="ignore"):
            vectors: np.ndarray = self.pooled(y[:n])
        if not np.all(np.isfinite(vectors)):
            raise ValueError(
                "expected finite features, got NaN or infinity: check --mean and --std"
            )
        return vectors.astype(np.float32)

    def prepared(self, x: Any, xp: Any = np) -> Any:
        """Pixels `[n, size, size, 3]` as the model takes them; `xp` is NumPy or `jax.numpy`."""
        if self._bgr:
            x = xp.concatenate([x[..., 2:], x[..., 1:2], x[..., :1]], axis=-1)
        if self.mean is not None:
            x = x.astype(np.float32) / 255 - np.asarray(self.mean, np.float32)
            x = x / np.asarray(self.std, np.float32)
        order = (0, 3, 1, 2) if self.channels_first else (0, 1, 2, 3)
        return xp.transpose(x, order).astype(self.kind)

    def pooled(self, y: Any, xp: Any = np) -> Any:
        """The vectors `[n, d]` of an output `[n, d]`, `[n, tokens, d]` or `[n, d, h, w]`."""
        y = y.astype(np.float32)
        if self.pool == "none":
            y = xp.reshape(y, (y.shape[0], -1))
        elif self.pool == "cls":
            y = y[:, 0]
        else:
            y = y.mean(axis=1 if y.ndim == 3 else (2, 3) if self.channels_first else (1, 2))
        if self._unit:
            length = xp.linalg.norm(y, axis=1, keepdims=True) / y.shape[1] ** 0.5
            y = y / xp.maximum(length, np.float32(1e-12))
        return y


def read_model(path: Path) -> tuple[bytes, dict[str, bytes]]:
    """An ONNX file, and the files with its weights by their names in it. They are in its folder, or
    in that of the file to which it links. **Raises** `ValueError` for a name that leads elsewhere,
    and for a missing file."""
    data, outside = path.read_bytes(), dict[str, bytes]()
    for found in EXTERNAL_WEIGHTS.finditer(data):
        name = data[found.end() : found.end() + found[1][0]].decode(errors="replace")
        if name not in outside:
            file = (path.parent / name).resolve()
            homes = (path.parent.resolve(), path.resolve().parent)
            if ".." in Path(name).parts or not any(file.is_relative_to(home) for home in homes):
                raise ValueError(f"one with weights in {name!a}, outside of its folder")
            if not file.is_file():
                raise ValueError(f"one whose weights are in {name!a}: put that file beside it")
            outside[name] = file.read_bytes()
    return data, outside


def session_of(data: bytes, outside: Mapping[str, bytes], threads: int) -> Any:
    """The session of ONNX Runtime, which has no types, for what `read_model` returned."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, threads
    lengths = [len(weights) for weights in outside.values()]
    options.add_external_initializers_from_files_in_memory([*outside], [*outside.values()], lengths)
    return onnxruntime.InferenceSession(data, options, ["CPUExecutionProvider"])


def folders_of(model: Path) -> list[Path]:
    """The folders in which the other files of a model may be: its own, and the one above if that is
    named onnx."""
    return [model.parent, *([model.parent.parent] if model.parent.name == "onnx" else [])]


def _digest(data: bytes, outside: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256(data)
    for weights in outside.values():
        digest.update(weights)
    return digest.hexdigest()


def extractor_of(model: Path | str, given: JsonView, **otherwise: Any) -> Extractor:
    """The model with the options that were `given` (those that are not None), others from
    `preprocessor_config.json` in its folder (or above, if the folder is named onnx), and the rest
    from `otherwise`. **Raises** `ValueError` as `Extractor`, and for a configuration that cannot be
    read."""
    path = Path(model)
    given = {name: value for name, value in given.items() if value is not None}
    files = (folder / PREPROCESSOR_CONFIG for folder in folders_of(path))
    file = next(filter(Path.is_file, files), None)
    try:
        stated, doubts = _prepared(read_json(file)) if file and path != PHOTOS_MODEL else ({}, [])
    except (TypeError, ValueError, KeyError, AttributeError, ZeroDivisionError) as error:
        raise ValueError(
            f"{file}: expected a preparation of pictures, got another file ({error}): remove it"
        ) from error
    found = Extractor(path, **{**otherwise, **stated, **given})
    if used := [name for name in stated if name not in given]:
        found.summary += f"; {', '.join(used)} from {PREPROCESSOR_CONFIG}"
        found.summary += "".join(f", {doubt}" for doubt in doubts)
    return found


def _prepared(stated: JsonView) -> tuple[Json, list[str]]:
    """The options in Hugging Face's `preprocessor_config.json`; and in words the fields that it
    lacks, with the values that are used, and those that are ignored."""
    stated = {name: value for name, value in stated.items() if value is not None}
    lacking = []

    def field(name: str, usual: Any, shown: str = "") -> Any:
        if name not in stated:
            lacking.append(f"{name} ({shown or str(usual).lower()})")
        return stated.get(name, usual)

    def edge(value: Any) -> int:
        if isinstance(value, dict):
            sides = {int(v) for k, v in value.items() if k in ("height", "width", "shortest_edge")}
            if len(sides) != 1:
                raise ValueError(f"{value} is not the size of a square")
            (value,) = sides
        return int(value)

    # (factor x - offset - mean) / deviation, for bytes x
    factor, offset, mean, std = 1.0, 0.0, [0.0] * 3, [1.0] * 3
    if field("do_rescale", True):
        factor = float(stated.get("rescale_factor", 1 / 255))
        offset = float(stated.get("rescale_offset", False))
    bgr = bool(stated.get("do_flip_channel_order", False))
    # The processors that may swap channels have no such step.
    if field("do_normalize", "do_flip_channel_order" not in stated):
        mean = field("image_mean", IMAGENET_CHANNELS[0], "ImageNet's")
        std = field("image_std", IMAGENET_CHANNELS[1], "ImageNet's")
    if stated.get("include_top", False):  # EfficientNet's, once more
        std = [a * b for a, b in zip(std, stated["image_std"], strict=True)]
    found: Json = {
        "mean": tuple((offset + float(m)) / (255 * factor) for m in mean),
        "std": tuple(float(s) / (255 * factor) for s in std),
        "crop": False,
        **({"bgr": True} if bgr else {}),
    }
    centre = field("do_center_crop", False) and "crop_size" in stated
    inner = stated["crop_size"] if centre else stated.get("size")
    whole = field("size", inner, "crop_size" if centre else "the model's")
    if inner is not None:
        found["size"] = edge(inner)
        part = float(stated.get("crop_pct", 1))  # ConvNeXt's, for small pictures only, and others'
        share = min(edge(inner) / edge(whole) * part, 1.0)
        if centre or (part < 1 and edge(inner) < 384):
            stretched = isinstance(whole, dict) and "height" in whole
            found["crop"] = [share, share] if stretched else share
    doubts = [f"which lacks {', '.join(lacking)}"] if lacking else []
    if not stated.get("do_resize", True):
        doubts.append("but pictures are resized, despite do_resize")
    return found, doubts


def _with_output(data: bytes, output: str, names: Sequence[str]) -> bytes:
    """The model with one more output: a value inside it."""
    onnx = extra("onnx", "onnx", "outputs inside of models")
    model = onnx.load_from_string(data)
    inside = [name for node in model.graph.node for name in node.output]
    if output not in inside:
        close = get_close_matches(output, inside, 3)
        raise ValueError(
            f"one without the output {output!r}: name one of {', '.join([*names, *close])}"
        )
    model.graph.output.append(onnx.ValueInfoProto(name=output))
    return bytes(model.SerializeToString())


def _before(path: Path, output: str) -> str | None:
    """The input of the last matrix product before the output; None if there is none, or the extra
    `onnx` is missing."""
    try:
        onnx = extra("onnx", "onnx", "a look into models")
    except ValueError:
        return None
    nodes = onnx.load(str(path), load_external_data=False).graph.node
    made = {name: node for node in nodes for name in node.output}
    node = made.get(output)
    while node is not None and node.op_type in ("Add", "Softmax", "Identity", "Cast"):
        node = next((made[name] for name in node.input if name in made), None)
    return node.input[0] if node is not None and node.op_type in ("Gemm", "MatMul") else None


def _of_pictures(shape: Sequence[Any]) -> bool:
    return len(shape) == 4 and (3 in (shape[1], shape[3]) or isinstance(shape[1], str | None))


def remade(about: JsonView, model: Path | str | None = None, threads: int = 0) -> Extractor:
    """The extractor that `about` describes, from the file `model`, or from the package's model.
    **Raises** `ValueError` in one line if that file is another model."""
    path = PHOTOS_MODEL if model is None else Path(model)
    digest = _digest(*read_model(path)) if path.is_file() else "none"
    if digest != about["sha256"]:
        got = f"a file with {digest[:12]}..." if model is not None else "no --model"
        raise ValueError(
            f"expected the model {about['model']} that made the learner's features (SHA-256 "
            f"{about['sha256'][:12]}...), got {got}: give it with --model"
        )
    options = {name: about[name] for name in ("size", "unit", "saw", "output")}
    # Older files lack these.
    options |= {"crop": about.get("crop", False), "pool": about.get("pool"), "threads": threads}
    options |= {"bgr": about.get("bgr", False)}
    if about["mean"] is not None:
        options |= {"mean": tuple(about["mean"]), "std": tuple(about["std"])}
    return Extractor(path, **options)


# --- features on disk

_INDEX_FILE, _VECTORS_FILE = "features.json", "vectors.npy"


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
    extractor: Extractor, path: Path, folder: Path, *, place: int = 0, progress: Progress = quiet
) -> tuple[Json, bool]:
    """Write the features of a folder or zip of pictures in `folder`, unless they are there. `place`
    is the index of the family, by which tasks draw it.

    **Returns** the content of `features.json`, and whether it was written. **Raises** `ValueError`
    or `RunError` in one line: a folder with other features, a picture that cannot be read, a model
    that fails, or a full disk.
    """
    vectors = folder / _VECTORS_FILE
    with open_source(path) as source:
        for remark in source.remarks:
            LOG.warning(remark)
        if source.left_out:
            LOG.warning("%s: left out %d files that are not pictures", path, len(source.left_out))
        content: Json = {
            "family": family_name(path),
            "place": place,
            "classes": list(source.classes),
            "counts": [*source.counts.values()],
            "source": source.digest(),
            "split": source.split,
            "extractor": extractor.about,
        }
        if (folder / _INDEX_FILE).exists():
            known, other = _index(folder), {"vectors": "", "place": place}
            if checksum({**known, **other}) == checksum({**content, **other}):
                if known["place"] != place:
                    write_json(folder / _INDEX_FILE, {**known, "place": place})
                return content, False
            raise ValueError(
                f"{folder}: expected a new folder, or the same pictures, model and options as "
                "before, got features of others: name another --out, or remove it"
            )
        write_pictures(
            vectors,
            source.pictures,
            size=extractor.size,
            crop=extractor.crop,
            convert=extractor,
            progress=partial(progress, content["family"]),
        )
    content["vectors"] = digest_of(vectors)
    write_json(folder / _INDEX_FILE, content)
    return content, True


def _index(folder: Path) -> Features:
    path = folder / _INDEX_FILE
    return read_as(Features, read_json(path), str(path), f"remove {folder}, and make it again")


def feature_folders(path: str | Path) -> dict[Path, Features]:
    """The folders of families at or directly below `path`, in order of their `place`, with the
    content of `features.json`; empty if there are none."""
    path = Path(path)
    here = (
        [path]
        if (path / _INDEX_FILE).is_file()
        else [p.parent for p in path.glob(f"*/{_INDEX_FILE}")]
    )
    found = {folder: _index(folder) for folder in here}
    return dict(sorted(found.items(), key=lambda one: (one[1]["place"], one[0].name)))


def load_features(paths: Sequence[str | Path]) -> tuple[list[ImageFamily], Json]:
    """The families in folders of `arml features`, in order of their `place`; and their model.
    **Raises** `ValueError` in one line: no features, an altered file, two models or two families of
    one name."""
    families: dict[str, ImageFamily] = {}
    makers: dict[str, Json] = {}
    for path in paths:
        found = feature_folders(path)
        if not found:
            raise ValueError(
                f"{path}: expected a folder that `arml features` made, found none: run it first"
            )
        for folder, index in found.items():
            name = index["family"]
            if name in families:
                raise ValueError(f"{folder}: expected one family {name!r}, got two: leave one out")
            families[name] = _loaded(folder, index)
            makers[checksum(index["extractor"])] = index["extractor"]
    if len(makers) > 1:
        raise ValueError(
            "expected features of one model with one set of options, got "
            f"{' and '.join(str(maker['model']) for maker in makers.values())}: make them alike"
        )
    (maker,) = makers.values()
    return [*families.values()], maker


def _loaded(folder: Path, index: Features) -> ImageFamily:
    path, split = folder / _VECTORS_FILE, index["split"]
    classes, counts = index["classes"], index["counts"]
    if path.is_file() and digest_of(path) == index["vectors"] and len(classes) == len(counts):
        vectors = np.load(path, mmap_mode="r", allow_pickle=False)
        if len(vectors) == sum(counts):
            about = np.asarray(counts), checksum([index["vectors"], classes, counts, split]), split
            return ImageFamily(index["family"], tuple(classes), vectors, *about)
    raise ValueError(
        f"{folder}: it was altered or cut short: remove it, and run `arml features` again"
    )
