"""Photographs: a few of each class, and the features of a network that was trained on ImageNet.

    learner = arml.load("photos")
    predictor = learner.adapt(["a.jpg", "b.jpg", "c.jpg"], ["oak", "oak", "elm"])
    predictor.predict(["new.jpg"])

The network is frozen, so nothing is trained: a picture becomes a vector once, and the classifier is
a formula of the examples' vectors: see `arml.predict.head`.
"""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Float32

from arml.datasets.features import PHOTOS, Extractor, extractor_of, remade
from arml.datasets.folders import default_folder
from arml.photographs.reading import (
    LOG,
    Bad,
    OnPicture,
    PictureReader,
    content_of,
    each,
    single_pictures,
    sized,
)
from arml.predict.base import ArrayPredictor, LearnerBase, softmax
from arml.predict.files import PHOTOGRAPHS, SUPPORT, check_free, read_checked, write_checked
from arml.predict.head import Head, fit_head, unit_roots
from arml.predict.inputs import checked_array, checked_labels, weighted
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


class PhotoLearner(LearnerBase):
    """Learns to tell a person's own classes from a few photographs of each.

    Wherever it takes pictures, these are a list of files (paths), of Pillow's pictures, or of
    arrays `[h, w, 3]` of any sizes, or one array `[n, h, w, 3]`; bytes, or floats in [0, 1]. It
    also takes their vectors `[n, d]`, as `read` returns them.

    **Arguments**

    - `model`: a frozen ONNX model of pictures; the package's own, EfficientNet-Lite0, if not given.
    - `options`: `output`, `pool`, `size`, `mean`, `std` and `crop` of the model, if they are not
      those of `preprocessor_config.json` or assumed: see `arml.datasets.features.Extractor`.
    """

    inputs = "pictures"

    def __init__(self, model: Path | str | Extractor | None = None, **options: Any) -> None:
        if isinstance(model, Extractor):
            self.extractor = model
        else:
            path = PHOTOS if model is None else model
            self.extractor = extractor_of(path, options, unit=False, crop=True, threads=1)
        self.families = (str(self.extractor.about["saw"]),)

    @property
    def problem(self) -> "Problem":
        """The kind of tasks: vectors of any number of classes."""
        from arml.core.episodes import Problem  # it loads JAX, which takes a second

        return Problem("classification", (self.extractor.dimension,), 5, 5, 15)

    @property
    def pictures(self) -> PictureReader:
        return PictureReader(self.extractor.size, self.extractor, self.extractor.crop)

    def adapt(  # type: ignore[override]
        self, x: Any, y: Any, sample_weight: Any = None, *, groups: Any = None
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
        vectors, labels, weight, groups = weighted(self.read(x), y, sample_weight, groups)
        if not len(vectors):
            raise ValueError("no pictures: give some examples")
        classes, places = checked_labels(labels, len(vectors))
        return PhotoPredictor(self, vectors, places, classes, weight, groups)

    def read(
        self,
        x: Any,
        what: str = "pictures [n, h, w, 3], or their vectors,",
        progress: OnPicture | None = None,
        bad: Bad | None = None,
    ) -> Float32[np.ndarray, "n d"]:
        """The vectors of pictures, computed on all cores. Those of files are kept in the cache
        folder by the files' content. `bad` gets the problems of pictures that cannot be read, whose
        vectors are 0.

        **Raises** `ValueError` for such a picture without `bad`.
        """
        dimension = self.extractor.dimension
        if len(getattr(x, "shape", ())) == 2:
            return checked_array(x, (dimension,), what).astype(np.float32)
        blank = np.zeros(dimension, np.float32)
        return each(self._vector, single_pictures(x), blank, progress, bad)

    def _vector(self, picture: Any, place: int) -> Float32[np.ndarray, " d"]:
        where, content = content_of(picture, place)
        kept, doubts = None, list[str]()
        if isinstance(content, bytes):
            kept = self.cache / f"{hashlib.sha256(content).hexdigest()}.npy"
            with suppress(OSError, ValueError, EOFError):  # not there, or damaged: it is made again
                vector = np.load(kept, allow_pickle=False)
                if vector.shape == (self.extractor.dimension,) and vector.dtype == np.float32:
                    return vector
        pixels = sized(where, content, self.extractor.size, self.extractor.crop, doubts.append)
        vector = self.extractor(pixels[None])[0]
        for doubt in doubts:
            LOG.warning(doubt)
        if kept is not None and not doubts:  # a doubt is said again
            with suppress(OSError, RunError):  # a cache that cannot be written costs time alone
                kept.parent.mkdir(parents=True, exist_ok=True)
                atomically(kept, lambda file: np.save(file, vector))
        return vector

    @cached_property
    def cache(self) -> Path:
        """The folder of the vectors of files."""
        return default_folder() / "photos" / checksum(self.extractor.about)[:16]

    @property
    def notes(self) -> list[str]:
        if self.extractor.path == PHOTOS:
            return []
        return [self.extractor.summary, *filter(None, [self.extractor.doubt])]

    def __reduce__(self) -> tuple[object, ...]:
        return _again, (self.extractor.about, self.extractor.path)

    def __repr__(self) -> str:
        return f"PhotoLearner({self.extractor.summary}; trained on {self.extractor.about['saw']})"


def _again(about: Json, path: Path) -> PhotoLearner:
    """A learner that was pickled; where its model is another one, it is refused."""
    return PhotoLearner(remade(about, path, threads=1))


class PhotoPredictor(ArrayPredictor):
    """A task that was learned from photographs; `x` are the vectors `[n, d]` of the examples."""

    classes: np.ndarray
    learner: PhotoLearner

    @cached_property
    def head(self) -> Head:
        """The classifier of vectors."""
        return self._fitted(np.arange(len(self.y)))

    def _fitted(self, kept: np.ndarray) -> Head:
        """The classifier of some of the examples."""
        more = self.sample_weight, self._same, self.groups
        weight, same, groups = (None if part is None else part[kept] for part in more)
        # One temperature for large folds: it changes no label, and costs ten fits.
        left_out = len(kept) == len(self.y) or len(kept) <= 200
        given = self.x[kept], self.y[kept], len(self.classes), weight, same, groups
        return fit_head(*given, left_out=left_out)

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
        return np.asarray(unit_roots(self.learner.read(x)))

    def novelty(self, x: object, errors: str = "raise") -> Float[np.ndarray, " n"]:
        """How far each picture is from all classes: see `arml.predict.head`. Above 1 it may belong
        to none of them, as about 5% of the pictures of known classes do. `errors` as in
        `predict`."""
        inputs, bad = self._reading(x, errors)
        found = np.array(self.head.answers(inputs)[1])
        found[bad] = np.nan
        return found

    def _traced(self) -> Callable[[Any], Any]:
        import jax.numpy as jnp

        return lambda x: self.head.answers(x, jnp)

    def save(self, folder: Path | str) -> None:
        """Write it as a folder: the vectors and labels of its examples, not the pictures.

        **Raises** `RunError` if it cannot be written, or if the folder holds something else.
        """
        folder = Path(folder)
        check_free(folder, predictor=True)
        content = {
            "extractor": self.learner.extractor.about,
            "classes": self.classes.tolist(),
            "support": write_arrays(folder / SUPPORT, self.support),
        }
        write_checked(folder, PHOTOGRAPHS, content)

    def __repr__(self) -> str:
        shown = ", ".join(map(str, self.classes[:5])) + (", ..." if len(self.classes) > 5 else "")
        return f"PhotoPredictor({len(self.x)} photographs of {len(self.classes)} classes: {shown})"


def load_photo_predictor(folder: Path, model: Path | str | None = None) -> PhotoPredictor:
    """A predictor that was saved. `model` is its ONNX model, if it is not one that ships.

    **Raises** `RunError` for a folder that is none or was altered; `ValueError` for another model.
    """
    content = read_checked(folder, PHOTOGRAPHS)
    arrays: Any = read_arrays(folder / SUPPORT, content["support"])
    learner = PhotoLearner(remade(content["extractor"], model, threads=1))
    return PhotoPredictor(learner, classes=np.asarray(content["classes"]), **arrays)
