"""Photographs: a few of each class, and the features of a network that was trained on ImageNet.

    learner = arml.load("photos")
    predictor = learner.adapt(["a.jpg", "b.jpg", "c.jpg"], ["oak", "oak", "elm"])
    predictor.predict(["new.jpg"])

The network is frozen, so nothing is trained: a picture becomes a vector once, and the classifier is
a formula of the examples' vectors: see `arml.predict.head`.
"""

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32, Int, UInt8
from PIL import Image

from arml.datasets.archives import Member
from arml.datasets.decode import Crop, cropped, decode, resize, rgb
from arml.datasets.features import PHOTOS, Extractor, extractor_of, remade
from arml.datasets.folders import default_folder
from arml.predict.base import PredictorBase, softmax
from arml.predict.files import PHOTOGRAPHS, SUPPORT, check_free, read_config, write_config
from arml.predict.head import Head, Weights, fit_head, unit_roots
from arml.predict.inputs import (
    checked_array,
    checked_labels,
    joined_groups,
    joined_labels,
    weighted,
)
from arml.results.files import (
    Json,
    RunError,
    atomically,
    checksum,
    read_arrays,
    write_arrays,
)

if TYPE_CHECKING:
    from arml.core.episodes import Problem

SMALL = 32
"""Pixels a side of the pictures that `starter` reads."""
SAMPLED = 15
"""How many pictures are looked at to tell whether they are grey."""
GREY = 8
"""Pictures whose channels differ by less, in the mean, are grey: most such are drawings."""

Progress = Callable[[int, int], object]
"""Called with how many of how many pictures have been embedded."""


class Frozen(NamedTuple):
    """The facts about a frozen network, where other learners have `Portable`."""

    inputs: Json
    """The network."""
    families: tuple[str, ...]
    """Its training data."""
    dimension: int
    """Of its vectors."""
    temperature: float = 1.0

    @property
    def problem(self) -> "Problem":
        """The kind of tasks: vectors of any number of classes."""
        from arml.core.episodes import Problem  # it loads JAX, which takes a second

        return Problem("classification", (self.dimension,), 5, 5, 15)


class PhotoLearner:
    """Learns to tell a person's own classes from a few photographs of each.

    Wherever it takes pictures, these are a list of files (paths), of Pillow's pictures, or of
    arrays `[h, w, 3]` of any sizes, or one array `[n, h, w, 3]`; bytes, or floats in [0, 1]. It
    also takes their vectors `[n, d]`, as `embed` returns them.

    **Arguments**

    - `model`: a frozen ONNX model of pictures; the package's own, EfficientNet-Lite0, if not given.
    - `options`: `output`, `pool`, `size`, `mean`, `std` and `crop` of the model, if they are not
      those of `preprocessor_config.json` or assumed: see `arml.datasets.features.Extractor`.
    """

    def __init__(self, model: Path | str | Extractor | None = None, **options: Any) -> None:
        if isinstance(model, Extractor):
            self.extractor = model
        else:
            path = PHOTOS if model is None else model
            self.extractor = extractor_of(path, options, unit=False, crop=True, threads=1)
        about = self.extractor.about
        self.portable = Frozen(about, (str(about["saw"]),), self.extractor.dimension)

    @property
    def problem(self) -> "Problem":
        """The kind of tasks."""
        return self.portable.problem

    @property
    def name(self) -> str:
        """Of the model."""
        return "photos" if self.extractor.path == PHOTOS else self.extractor.path.name

    def adapt(
        self, x: object, y: object, sample_weight: object = None, *, groups: object = None
    ) -> "PhotoPredictor":
        """Learn a task from labelled pictures.

        **Arguments**

        - `sample_weight`: how much each picture counts `[n]`. With a weight of 2 it counts as if
          it came twice, and with 0 it is left out.
        - `groups`: a value for each picture; those with the same are left out together wherever
          pictures are, such as several of one animal.

        **Raises** `ValueError` for pictures that cannot be read, and for labels of fewer than two
        classes.
        """
        vectors, labels, *more = weighted(self.embed(x), y, sample_weight, groups)
        if not len(vectors):
            raise ValueError("no pictures: give some examples")
        classes, places = checked_labels(labels, len(vectors))
        return PhotoPredictor(self, vectors, places, classes, *more)

    def embed(self, x: Any, progress: Progress | None = None) -> Float32[np.ndarray, "n d"]:
        """The vectors of pictures, computed on all cores. Those of files are kept in the cache
        folder by the files' content.

        **Raises** `ValueError` for a picture that cannot be read.
        """
        dimension = self.extractor.dimension
        if len(getattr(x, "shape", ())) == 2:
            what = "pictures [n, h, w, 3], or their vectors,"
            return checked_array(x, (dimension,), what).astype(np.float32)
        pictures, parts = _listed(x), []
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for part in pool.map(self._embedded, pictures, range(len(pictures))):
                parts.append(part)
                if progress is not None:
                    progress(len(parts), len(pictures))
        return np.stack(parts) if parts else np.zeros((0, dimension), np.float32)

    def _embedded(self, picture: Any, place: int) -> Float32[np.ndarray, " d"]:
        where, content = _content(picture, place)
        if not isinstance(content, bytes):
            return self._vector(where, content)
        kept = self.cache / f"{hashlib.sha256(content).hexdigest()}.npy"
        try:
            vector = np.load(kept, allow_pickle=False)
            if vector.shape == (self.extractor.dimension,) and vector.dtype == np.float32:
                return vector
        except (OSError, ValueError, EOFError):
            pass  # not there, or damaged: it is made again
        vector = self._vector(where, content)
        try:
            kept.parent.mkdir(parents=True, exist_ok=True)
            atomically(kept, lambda file: np.save(file, vector))
        except (OSError, RunError):
            pass  # a cache that cannot be written costs time alone
        return vector

    def _vector(self, where: str, content: bytes | np.ndarray) -> Float32[np.ndarray, " d"]:
        size, crop = self.extractor.size, self.extractor.crop
        return self.extractor(_sized(where, content, size, crop)[None])[0]

    @cached_property
    def cache(self) -> Path:
        """The folder of the vectors of files."""
        return default_folder() / "photos" / checksum(self.extractor.about)[:16]

    def __reduce__(self) -> tuple[object, ...]:
        return _again, (self.extractor.about, self.extractor.path)

    def __deepcopy__(self, memo: object) -> "PhotoLearner":
        return self  # it never changes

    def __repr__(self) -> str:
        return f"PhotoLearner({self.extractor.summary}; trained on {self.extractor.about['saw']})"


def _again(about: Json, path: Path) -> PhotoLearner:
    """A learner that was pickled; where its model is another one, it is refused."""
    return PhotoLearner(remade(about, path, threads=1))


class PhotoPredictor(PredictorBase):
    """A task that was learned from photographs; `x` are the vectors `[n, d]` of the examples."""

    classes: np.ndarray
    pictures = True

    def __init__(
        self,
        learner: PhotoLearner,
        x: Float32[np.ndarray, "n d"],
        y: Int[np.ndarray, " n"],
        classes: np.ndarray,
        sample_weight: Weights = None,
        groups: Int[np.ndarray, " n"] | None = None,
    ) -> None:
        self.learner, self.x, self.y, self.classes = learner, x, y, classes
        self.sample_weight, self.groups, path = sample_weight, groups, learner.extractor.path
        self.frozen = None if path == PHOTOS else path
        self.portable = learner.portable

    @cached_property
    def head(self) -> Head:
        """The classifier of vectors."""
        return self._fitted(np.arange(len(self.y)))

    def _fitted(self, kept: np.ndarray) -> Head:
        """The classifier of some of the examples."""
        more = self.sample_weight, self._same, self.groups
        parts = [None if part is None else part[kept] for part in more]
        # One temperature for large folds: it changes no label, and costs ten fits.
        left_out = len(kept) == len(self.y) or len(kept) <= 200
        return fit_head(self.x[kept], self.y[kept], len(self.classes), *parts, left_out=left_out)

    def read(self, x: Any) -> Float32[np.ndarray, "n d"]:
        """The vectors of pictures."""
        return self.learner.embed(x)

    def _outputs(self, inputs: Any) -> Float[np.ndarray, "n classes"]:
        return np.asarray(self.head.logits(inputs))

    def _refit(self, train: np.ndarray, test: np.ndarray) -> dict[str, np.ndarray]:
        logits = self._fitted(train).logits(self.x[test])
        return {self.model: softmax(logits.astype(np.float64))}

    def outside(self, x: Any, chances: np.ndarray) -> Bool[np.ndarray, " n"]:
        """Whether each picture may belong to none of the classes: its novelty is above 1."""
        return self.novelty(x) > 1

    def embedding(self, x: object) -> Float[np.ndarray, "n d"]:
        """The vectors in which the head compares pictures."""
        return np.asarray(unit_roots(self.learner.embed(x)))

    def novelty(self, x: object) -> Float[np.ndarray, " n"]:
        """How far each picture is from all classes: see `arml.predict.head`. Above 1 it may belong
        to none of them, as about 5% of the pictures of known classes do."""
        return np.asarray(self.head.answers(self.learner.embed(x))[1])

    def add(self, x: object, y: object) -> "PhotoPredictor":
        """A predictor that has learned from these pictures, too; they may be of new classes."""
        more, weight = self.learner.embed(x), self.sample_weight
        labels = joined_labels(self.classes[self.y], y, len(more))
        weight = None if weight is None else np.concatenate([weight, np.ones(len(more))])
        groups = joined_groups(self.groups, len(more))
        return self.learner.adapt(np.concatenate([self.x, more]), labels, weight, groups=groups)

    def to_onnx(self, path: Path | str, model: Path | str | None = None) -> None:
        """Write it as one ONNX file with the network inside, which takes pictures of any size and
        runs without this package (extra `onnx`). `model` is ignored: the network is at hand.

        **Raises** `RunError` if it cannot be written.
        """
        import jax.numpy as jnp

        from arml.predict.onnx import write_predictor

        given = self.problem, self.classes, self.learner.extractor
        write_predictor(Path(path), lambda x: self.head.answers(x, jnp), *given)

    def save(self, folder: Path | str) -> None:
        """Write it as a folder: the vectors and labels of its examples, not the pictures.

        **Raises** `RunError` if it cannot be written, or if the folder holds something else.
        """
        folder, support = Path(folder), {"x": self.x, "y": self.y}
        more = {"sample_weight": self.sample_weight, "groups": self.groups}
        support |= {name: array for name, array in more.items() if array is not None}
        check_free(folder, predictor=True)
        content = {
            "extractor": self.learner.extractor.about,
            "classes": self.classes.tolist(),
            "support": write_arrays(folder / SUPPORT, support),
        }
        write_config(folder, PHOTOGRAPHS, content)

    def __repr__(self) -> str:
        shown = ", ".join(map(str, self.classes[:5])) + (", ..." if len(self.classes) > 5 else "")
        return f"PhotoPredictor({len(self.x)} photographs of {len(self.classes)} classes: {shown})"


def load_photo_predictor(folder: Path, model: Path | str | None = None) -> PhotoPredictor:
    """A predictor that was saved. `model` is its ONNX model, if it is not one that ships.

    **Raises** `RunError` for a folder that is none or was altered; `ValueError` for another model.
    """
    content = read_config(folder, PHOTOGRAPHS)
    arrays = read_arrays(folder / SUPPORT, content["support"])
    learner = PhotoLearner(remade(content["extractor"], model, threads=1))
    return PhotoPredictor(learner, classes=np.asarray(content["classes"]), **arrays)


# The choice between `photos` and `starter`.


def starter_if_better(
    predictor: PhotoPredictor, pictures: Any, labels: Any
) -> tuple[Any | None, str]:
    """The predictor of `starter` if it predicts the examples better than `predictor`, else None;
    and the reason in words. `starter` was trained on grey drawings and is tried on grey pictures.
    With one example of each class none can be left out, and `starter` is chosen.
    """
    pictures = _listed(pictures)
    sampled = small_pictures(pictures[:: max(1, -(-len(pictures) // SAMPLED))])
    spread = np.mean(np.ptp(sampled.astype(np.int16), axis=3), axis=(1, 2))
    if np.median(spread) > GREY:
        return None, "a network that was trained on photographs"
    # By name: colours need no JAX, which takes a second to load.
    load = import_module("arml.predict.learner").load
    groups = predictor.groups
    starter = load("starter").adapt(small_pictures(pictures), labels, groups=groups)
    starter = starter.using(starter.models[-1])
    if np.bincount(predictor.y).max() == 1:
        return starter, "the pictures are grey like drawings, and starter was trained on such"
    likely = {"photos": _likelihood(predictor), "starter": _likelihood(starter)}
    best, other = sorted(likely, key=lambda name: -likely[name])
    return starter if best == "starter" else None, (
        f"the pictures are grey like drawings, and {best} gives the labels of left-out examples "
        f"more probability, {likely[best]:.0%} against {likely[other]:.0%}"
    )


def _likelihood(predictor: PredictorBase) -> float:
    """The geometric mean probability of the labels of examples that were left out."""
    found: Any = predictor.reliability()
    own = found.probabilities[np.arange(len(found.labels)), found.labels]
    return float(np.exp(np.mean(np.log(np.maximum(own, 1e-9)))))


def small_pictures(x: object) -> UInt8[np.ndarray, "n size size 3"]:
    """Pictures of any size as `starter` reads them: `SMALL` pixels a side, stretched."""
    pictures = _listed(x)

    def one(place: int) -> np.ndarray:
        return _sized(*_content(pictures[place], place), SMALL)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return np.stack([*pool.map(one, range(len(pictures)))])


# Pictures of all kinds.


def _listed(x: Any) -> list[Any]:
    """Single pictures."""
    if isinstance(x, str | os.PathLike | bytes):
        raise ValueError("expected a list of pictures, got one: put it in a list")
    try:
        return list(x)
    except TypeError:
        raise ValueError(
            f"expected a list of pictures (files or arrays), got {type(x).__name__}"
        ) from None


def _content(picture: Any, place: int) -> tuple[str, bytes | np.ndarray]:
    """The name of a picture in messages, and the bytes of its file or its pixels `[h, w, 3]`."""
    where = f"picture {place + 1}"
    if isinstance(picture, bytes):
        return where, picture
    if isinstance(picture, str | os.PathLike):
        picture = Member(str(picture), Path(picture).read_bytes)
    if isinstance(picture, Member):
        try:
            return picture.where, picture.read()
        except OSError as error:
            raise ValueError(
                f"{picture.where}: expected a picture, got: {error.strerror}; check the path"
            ) from error
    if isinstance(picture, Image.Image):
        return where, rgb(picture, where)
    pixels = np.asarray(picture)
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    if pixels.ndim != 3 or pixels.shape[-1] not in (1, 3) or 0 in pixels.shape:
        raise ValueError(
            f"{where}: expected pixels [h, w, 3] or the path of a file, got "
            f"{type(picture).__name__} of shape {list(pixels.shape)}"
        )
    (pixels,) = checked_array(pixels[None], pixels.shape, where, pixels=True)
    if pixels.dtype != np.uint8:
        pixels = np.rint(pixels * 255).astype(np.uint8)
    return where, np.ascontiguousarray(np.broadcast_to(pixels, (*pixels.shape[:2], 3)))


def _sized(
    where: str, content: bytes | np.ndarray, size: int, crop: Crop = False
) -> UInt8[np.ndarray, "size size 3"]:
    if isinstance(content, bytes):
        return decode(content, size=size, where=where, crop=crop)
    return resize(cropped(content, crop), size)
