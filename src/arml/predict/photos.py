"""Photographs: a few of each class, and the features of a network that was trained on ImageNet.

    learner = arml.load("photos")
    predictor = learner.adapt(["a.jpg", "b.jpg", "c.jpg"], ["oak", "oak", "elm"])
    predictor.predict(["new.jpg"])

The network is frozen, so nothing is trained: a picture becomes a vector once, and the head below is
a formula of the examples' vectors. With v the features of a picture,

    z       = sign(v) sqrt|v|, scaled to length 1                                            [1]
    u       = z - the mean z of the examples
    S       = the examples' scatter around the means m_k of their classes / (n - classes + NU)
    w_k     = (I + S / SHRINKAGE)^-1 m_k,  divided by sqrt(m_k . (I + S / SHRINKAGE)^-1 m_k)
    p(k|u)  = softmax of  u . w_k / (|u| T)

That is the cosine to the class means, in the metric of a regularised Mahalanobis distance [2, 3].
With one example of each class S is 0, and it is the cosine of centred vectors. Unlike logistic
regression and distances, it does not prefer classes that have more examples.

The temperature T maximises the likelihood of examples that were left out, with a prior around
`TEMPERATURE` that counts as much as a few examples.

[1] Arandjelovic and Zisserman, Three Things Everyone Should Know to Improve Object Retrieval,
    CVPR 2012: the square root of features.
[2] Bateni, Goyal, Masrani, Wood and Sigal, Improved Few-Shot Visual Classification, CVPR 2020.
[3] Friedman, Regularized Discriminant Analysis, JASA 1989.
"""

import copyreg
import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Int, UInt8
from PIL import Image

from arml.datasets.archives import Member
from arml.datasets.decode import cropped, decode, resize, rgb
from arml.datasets.features import PHOTOS, Extractor
from arml.datasets.folders import default_folder
from arml.predict.inputs import checked_labels, joined_labels, places_of
from arml.predict.places import CONFIG, PHOTOGRAPHS, check_free
from arml.results.files import (
    Json,
    RunError,
    atomically,
    checksum,
    one_blas_thread,
    read_arrays,
    read_json,
    write_arrays,
    write_json,
)

if TYPE_CHECKING:
    from arml.core.episodes import Problem
    from arml.predict.reliability import Evaluation, Reliability

SHRINKAGE = 0.005
"""The variance of the metric in every direction, beside that of the examples."""
NU = 4
"""Degrees of freedom that the metric's prior counts as much as."""
TEMPERATURE = 0.11
"""The temperature without examples that can be left out."""
WEIGHT = 5.0
"""The precision of the prior of log T."""
TEMPERATURES = np.geomspace(0.02, 0.6, 52)
FOLDS = 10
NEAR = 0.05
"""Pictures are copies if their distance is below this share of the median distance."""
SMALL = 32
"""Pixels a side of the pictures that `starter` reads."""
SAMPLED = 15
"""How many pictures are looked at to tell whether they are grey."""
GREY = 8
"""Pictures whose channels differ by less, in the mean, are grey: most such are drawings."""
SUPPORT = "support.safetensors"

Progress = Callable[[int, int], object]
"""Is told how many of how many pictures have been embedded."""


class Head(NamedTuple):
    """The classifier of the module's docstring."""

    middle: Float[np.ndarray, " d"]
    """The mean of the examples' `unit_roots`."""
    weights: Float[np.ndarray, "d classes"]
    temperature: float

    def logits(self, vectors: Any, xp: Any = np) -> Any:
        """The log-odds `[n, classes]` of vectors `[n, d]`; with `jax.numpy` as `xp` it can be
        traced."""
        u = unit_roots(vectors, xp) - xp.asarray(self.middle, np.float32)
        length = xp.maximum(xp.sqrt(xp.sum(u * u, axis=1, keepdims=True)), np.float32(1e-9))
        return u @ xp.asarray(self.weights / self.temperature, np.float32) / length


def unit_roots(vectors: Any, xp: Any = np) -> Any:
    """Square roots of features with their signs, scaled to length 1."""
    roots = xp.sign(vectors) * xp.sqrt(xp.abs(vectors))
    length = xp.sqrt(xp.sum(roots * roots, axis=1, keepdims=True))
    return roots / xp.maximum(length, np.float32(1e-9))


def fit_head(
    x: Float[np.ndarray, "n d"], y: Int[np.ndarray, " n"], ways: int, folds: bool = True
) -> Head:
    """The head of labelled vectors; without `folds` its temperature is that of the prior."""
    z = unit_roots(np.asarray(x, np.float32))
    with one_blas_thread():
        middle, weights = _fitted(z, y, ways)
        temperature = TEMPERATURE
        if folds:
            temperature = _temperature([_left_out(z, y, ways, *fold) for fold in _folds(y)])
    return Head(middle, weights, temperature)


def _fitted(z: np.ndarray, y: np.ndarray, ways: int) -> tuple[np.ndarray, np.ndarray]:
    middle = z.mean(axis=0)
    means = np.stack([z[y == k].mean(axis=0) for k in range(ways)]) - middle
    rows = (z - middle - means[y]) / np.sqrt(max(len(z) - ways, 0) + NU)
    # (I + R'R / s)^-1 = I - R' (s I + R R')^-1 R: a system of as many equations as examples.
    inverse = np.linalg.solve(SHRINKAGE * np.eye(len(rows)) + rows @ rows.T, rows)
    mapped = means - (means @ rows.T) @ inverse
    squared = np.sum(mapped * means, axis=1, keepdims=True)
    return middle, (mapped / np.sqrt(np.maximum(squared, 1e-12))).T


def _left_out(
    z: np.ndarray, y: np.ndarray, ways: int, train: np.ndarray, test: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    head = Head(*_fitted(z[train], y[train], ways), 1.0)
    u = z[test] - head.middle
    return u @ head.weights / np.linalg.norm(u, axis=1, keepdims=True).clip(1e-9), y[test]


def _folds(y: Int[np.ndarray, " n"]) -> list[tuple[np.ndarray, np.ndarray]]:
    """The places to learn from and to predict, for each of at most `FOLDS` folds with equal shares
    of each class. A class with one example is always learned from."""
    counts, fold = np.bincount(y), np.zeros(len(y), int)
    for k in range(len(counts)):
        # Of a class with two examples each is alone in a fold.
        fold[y == k] = np.arange(counts[k]) % FOLDS
    fold[counts[y] == 1] = -1
    places = np.arange(len(y))
    return [(places[fold != f], places[fold == f]) for f in range(fold.max() + 1)]


def _temperature(parts: Sequence[tuple[np.ndarray, np.ndarray]]) -> float:
    if not parts:
        return TEMPERATURE
    cosines, labels = (np.concatenate(each) for each in zip(*parts, strict=True))
    logits = cosines[None] / TEMPERATURES[:, None, None]
    top = logits.max(axis=2, keepdims=True)
    logs = logits - top - np.log(np.exp(logits - top).sum(axis=2, keepdims=True))
    gain = logs[:, np.arange(len(labels)), labels].sum(axis=1)
    prior = WEIGHT / 2 * np.square(np.log(TEMPERATURES / TEMPERATURE))
    return float(TEMPERATURES[np.argmax(gain - prior)])


class Frozen(NamedTuple):
    """The facts about a frozen network, where other learners have `Portable`."""

    inputs: Json
    """The network."""
    families: tuple[str, ...]
    """Its training data."""
    novelty: bool = True
    """It has a measure of novelty."""
    temperature: float = 1.0


class PhotoLearner:
    """Learns to tell a person's own classes from a few photographs of each.

    Wherever it takes pictures, these are a list of files (paths), of Pillow's pictures, or of
    arrays `[h, w, 3]` of any sizes, or one array `[n, h, w, 3]`; bytes, or floats in [0, 1]. It
    also takes their vectors `[n, d]`, as `embed` returns them.

    **Arguments**

    - `model`: a frozen ONNX model of pictures; the package's own, EfficientNet-Lite0, if not given.
    """

    def __init__(self, model: Path | str | None = None) -> None:
        path = PHOTOS if model is None else model
        self.extractor = Extractor(path, unit=False, crop=True, threads=1)
        about = self.extractor.about
        self.portable = Frozen(about, (str(about["saw"]),))

    @cached_property
    def problem(self) -> "Problem":
        """The kind of tasks: vectors of any number of classes."""
        from arml.core.episodes import Problem  # it loads JAX, which takes a second

        return Problem("classification", (self.extractor.dimension,), 5, 5, 15)

    @property
    def name(self) -> str:
        """Of the model."""
        return "photos" if self.extractor.path == PHOTOS else self.extractor.path.name

    def adapt(self, x: object, y: object) -> "PhotoPredictor":
        """Learn a task from labelled pictures.

        **Raises** `ValueError` for pictures that cannot be read, and for labels of fewer than two
        classes.
        """
        vectors = self.embed(x)
        if not len(vectors):
            raise ValueError("expected one or more pictures, got none: give some examples")
        classes, places = checked_labels(y, len(vectors))
        return PhotoPredictor(self, vectors, places, classes)

    def embed(self, x: Any, progress: Progress | None = None) -> Float32[np.ndarray, "n d"]:
        """The vectors of pictures, computed on all cores. Those of files are kept in the cache
        folder by the files' content.

        **Raises** `ValueError` for a picture that cannot be read.
        """
        vectors = _as_vectors(x, self.extractor.dimension)
        if vectors is not None:
            return vectors
        pictures, done = _listed(x), 0
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            parts = []
            for part in pool.map(self._embedded, pictures, range(len(pictures))):
                parts.append(part)
                done += 1
                if progress is not None:
                    progress(done, len(pictures))
        return np.stack(parts) if parts else np.zeros((0, self.extractor.dimension), np.float32)

    def _embedded(self, picture: Any, place: int) -> Float32[np.ndarray, " d"]:
        picture = _opened(picture, place)
        if not isinstance(picture, Member):
            pixels = _pixels(picture, place)
            return self.extractor(resize(cropped(pixels), self.extractor.size)[None])[0]
        try:
            data = picture.read()
        except OSError as error:
            raise ValueError(
                f"{picture.where}: expected a picture, got: {error.strerror}; check the path"
            ) from error
        kept = self.kept_in / f"{hashlib.sha256(data).hexdigest()}.npy"
        try:
            vector = np.load(kept, allow_pickle=False)
            if vector.shape == (self.extractor.dimension,) and vector.dtype == np.float32:
                return vector
        except (OSError, ValueError, EOFError):
            pass  # not there, or damaged: it is made again
        pixels = decode(data, size=self.extractor.size, where=picture.where, crop=True)
        vector = self.extractor(pixels[None])[0]
        try:
            kept.parent.mkdir(parents=True, exist_ok=True)
            atomically(kept, lambda file: np.save(file, vector))
        except (OSError, RunError):
            pass  # a cache that cannot be written costs time alone
        return vector

    @cached_property
    def kept_in(self) -> Path:
        """The folder of the vectors of files."""
        return default_folder() / "photos" / checksum(self.extractor.about)[:16]

    def __repr__(self) -> str:
        return f"PhotoLearner({self.name}; trained on {self.extractor.about['saw']})"


class PhotoPredictor:
    """A task that was learned from photographs. `classes` are its labels in order; `x` are the
    vectors `[n, d]` of the examples, and `y` the places of their labels."""

    model = "learner"
    models = ("learner",)
    """The models that can predict: there is one."""
    columns = target = reader = None

    def __init__(
        self,
        learner: PhotoLearner,
        x: Float32[np.ndarray, "n d"],
        y: Int[np.ndarray, " n"],
        classes: np.ndarray,
    ) -> None:
        self.learner, self.x, self.y, self.classes = learner, x, y, classes

    @property
    def problem(self) -> "Problem":
        """The kind of tasks of the learner."""
        return self.learner.problem

    @property
    def portable(self) -> Frozen:
        """The facts about the network."""
        return self.learner.portable

    @cached_property
    def head(self) -> Head:
        """The classifier of vectors."""
        return fit_head(self.x, self.y, len(self.classes))

    def predict(self, x: object, none: str | None = None) -> np.ndarray:
        """The label of each picture `[n]`.

        **Arguments**

        - `none`: the label of pictures that are farther from every class than 95% of the examples
          are when these are left out: see `novelty`.

        **Raises** `ValueError` for pictures that cannot be read.
        """
        vectors = self.learner.embed(x)
        labels = self.classes[self.head.logits(vectors).argmax(axis=1)]
        if none is None:
            return labels
        return np.where(self.novelty(vectors) > 1, none, labels.astype(object))

    def predict_proba(self, x: object) -> Float[np.ndarray, "n classes"]:
        """The probability of each class, columns in the order of `classes`. **Raises** `ValueError`
        as `predict`."""
        return _softmax(self.head.logits(self.learner.embed(x)).astype(np.float64))

    def evaluate(self, x: object, y: object) -> "Evaluation":
        """How pictures are predicted whose labels `y` are known. **Raises** `ValueError` as
        `predict`, and for a label that is not among `classes`."""
        from arml.predict.reliability import Evaluation

        chances = self.predict_proba(x)
        return Evaluation(self.classes, places_of(y, self.classes), chances)

    def reliability(self) -> "Reliability":
        """How well each example is predicted from the others, and which look mislabelled."""

        def refit(train: np.ndarray, test: np.ndarray) -> dict[str, np.ndarray]:
            # One temperature for small folds: it changes no label, and costs ten fits.
            head = fit_head(self.x[train], self.y[train], len(self.classes), len(train) <= 200)
            return {self.model: _softmax(head.logits(self.x[test]).astype(np.float64))}

        from arml.predict.reliability import classification_reliability, copies_of

        groups = copies_of(self.x, self.y, NEAR)
        return classification_reliability(refit, self.y, self.classes, groups, model=self.model)

    def using(self, model: str) -> "PhotoPredictor":
        """The same, as other predictors have it. **Raises** `ValueError` for another model."""
        if model not in self.models:
            raise ValueError(f"no model {model!r} predicts photographs, only the learner")
        return self

    def embedding(self, x: object) -> Float[np.ndarray, "n d"]:
        """The vectors in which the head compares pictures."""
        vectors: Float[np.ndarray, "n d"] = unit_roots(self.learner.embed(x))
        return vectors

    def reading(self) -> None:
        """It has no graph."""

    trace = reading

    def novelty(self, x: object) -> Float[np.ndarray, " n"]:
        """How far each picture is from the nearest class mean: one minus the cosine, as a share of
        the distance below which 95% of the examples are when they are left out. Pictures above 1
        may belong to none of the classes."""
        return _away(self.x, self.y, self.learner.embed(x)) / self.bound

    @cached_property
    def bound(self) -> float:
        """The distance from the nearest class mean that has a novelty of 1."""
        parts = [_away(self.x[a], self.y[a], self.x[b]) for a, b in _folds(self.y)]
        if parts:
            return float(np.quantile(np.concatenate(parts), 0.95))
        # One example of each class: the median distance between classes. About 4% of the pictures
        # of known classes are farther.
        z = unit_roots(self.x)
        return float(np.median(1 - (z @ z.T)[np.triu_indices(len(z), 1)]))

    def add(self, x: object, y: object) -> "PhotoPredictor":
        """A predictor that has learned from these pictures, too; they may be of new classes."""
        more = self.learner.embed(x)
        labels = joined_labels(self.classes[self.y], y, len(more))
        return self.learner.adapt(np.concatenate([self.x, more]), labels)

    def to_onnx(self, path: Path | str, model: Path | str | None = None) -> None:
        """Write it as one ONNX file with the network inside, which takes pictures of any size and
        runs without this package (extra `onnx`). `model` is ignored: the network is at hand.

        **Raises** `RunError` if it cannot be written.
        """
        import jax.numpy as jnp

        from arml.predict.onnx import write_predictor

        head = self.head
        given = self.problem, self.classes, self.learner.extractor
        write_predictor(Path(path), lambda x: head.logits(x, jnp), *given)

    def save(self, folder: Path | str) -> None:
        """Write it as a folder: the vectors and labels of its examples, not the pictures.

        **Raises** `RunError` if it cannot be written, or if the folder holds something else.
        """
        folder = Path(folder)
        check_free(folder, predictor=True)
        folder.mkdir(parents=True, exist_ok=True)
        content: Json = {
            "what": PHOTOGRAPHS,
            "format": 1,
            "extractor": self.learner.extractor.about,
            "classes": self.classes.tolist(),
            "support": write_arrays(folder / SUPPORT, {"x": self.x, "y": self.y}),
        }
        write_json(folder / CONFIG, {**content, "sha256": checksum(content)})

    def __repr__(self) -> str:
        shown = ", ".join(map(str, self.classes[:5])) + (", ..." if len(self.classes) > 5 else "")
        return f"PhotoPredictor({len(self.x)} photographs of {len(self.classes)} classes: {shown})"


def is_photo_predictor(folder: Path | str) -> bool:
    """Whether `PhotoPredictor.save` wrote a folder."""
    try:
        return bool(read_json(Path(folder) / CONFIG).get("what") == PHOTOGRAPHS)
    except RunError:
        return False


def load_photo_predictor(folder: Path | str, model: Path | str | None = None) -> PhotoPredictor:
    """A predictor that was saved. `model` is its ONNX model, if it is not one that ships.

    **Raises** `RunError` for a folder that is none or was altered; `ValueError` for another model.
    """
    folder = Path(folder)
    content = read_json(folder / CONFIG)
    stated = content.pop("sha256", None)
    if content.get("what") != PHOTOGRAPHS or content.get("format") != 1:
        raise RunError(f"{folder}: expected a predictor of photographs of this version of arml")
    if stated != checksum(content):
        raise RunError(f"{folder / CONFIG} was altered or cut short: save the predictor again")
    arrays = read_arrays(folder / SUPPORT, content["support"])
    learner = PhotoLearner(model)
    about, wanted = learner.extractor.about, content["extractor"]
    if about["sha256"] != wanted["sha256"]:
        raise ValueError(
            f"{folder}: its pictures were read by the model {wanted['model']}, not by "
            f"{about['model']}: give that model with --model"
        )
    return PhotoPredictor(learner, arrays["x"], arrays["y"], np.asarray(content["classes"]))


def sampled(pictures: Any) -> Any:
    """At most `SAMPLED` of a sequence of pictures, evenly: enough to tell whether they are grey."""
    return pictures[:: max(1, -(-len(pictures) // SAMPLED))]


def mostly_grey(pictures: Iterable[UInt8[np.ndarray, "h w 3"]]) -> bool:
    """Whether most of the pictures have no colour, as drawings and characters have none. The
    learner `starter` was trained on such and may be better there."""
    spread = [float(np.mean(np.ptp(p.astype(np.int16), axis=2))) for p in pictures]
    return float(np.median(spread)) <= GREY


def starter_is_better(predictor: PhotoPredictor, starter: Callable[[], Any]) -> tuple[bool, str]:
    """Whether the learner `starter` predicts grey examples better than `predictor`, and the reason
    in words. With one example of each class none can be left out, and `starter` is chosen.

    **Arguments**

    - `starter`: gives its predictor of the same examples.
    """
    if np.bincount(predictor.y).max() == 1:
        return True, "starter was trained on such"
    found = {"photos": predictor, "starter": starter()}
    likely = {name: _left_out_likelihood(each) for name, each in found.items()}
    better = likely["starter"] > likely["photos"]
    best, other = ("starter", "photos") if better else ("photos", "starter")
    given = f"{np.exp(likely[best]):.0%} against {np.exp(likely[other]):.0%}"
    return better, f"{best} gives the labels of left-out examples more probability, {given}"


def starter_if_better(
    predictor: PhotoPredictor, pictures: Any, labels: Any
) -> tuple[Any | None, str]:
    """The predictor of `starter` if it predicts the examples better than `predictor`, else None;
    and the reason in words. It is tried on grey pictures alone."""
    if not mostly_grey(small_pictures(sampled(pictures))):
        return None, "a network that was trained on photographs"
    # By name: colours need no JAX, which takes a second to load.
    load = import_module("arml.predict.learner").load
    starter: Any = load("starter").adapt(small_pictures(pictures), labels)
    starter = starter.using(starter.models[-1])
    better, reason = starter_is_better(predictor, lambda: starter)
    return starter if better else None, f"the pictures are grey like drawings, and {reason}"


def _left_out_likelihood(predictor: Any) -> float:
    """The mean log-probability of the labels of examples that were left out."""
    found = predictor.reliability()
    own = found.probabilities[np.arange(len(found.labels)), found.labels]
    return float(np.mean(np.log(np.maximum(own, 1e-9))))


def small_pictures(x: object) -> UInt8[np.ndarray, "n size size 3"]:
    """Pictures of any size as `starter` reads them: `SMALL` pixels a side, stretched."""
    return np.stack(
        [
            decode(opened.read(), size=SMALL, where=opened.where)
            if isinstance(opened := _opened(picture, place), Member)
            else resize(_pixels(opened, place), SMALL)
            for place, picture in enumerate(_listed(x))
        ]
    )


def _away(x: np.ndarray, y: np.ndarray, vectors: np.ndarray) -> Float[np.ndarray, " n"]:
    """One minus the cosine to the nearest class mean."""
    z = unit_roots(x)
    means = np.stack([z[y == k].mean(axis=0) for k in np.unique(y)])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    return np.maximum(1 - (unit_roots(vectors) @ means.T).max(axis=1), 0)


def _softmax(logits: np.ndarray) -> np.ndarray:
    chances = np.exp(logits - logits.max(axis=1, keepdims=True, initial=-np.inf))
    return chances / chances.sum(axis=1, keepdims=True)


def _as_vectors(x: Any, dimension: int) -> Float32[np.ndarray, "n d"] | None:
    """Vectors `[n, d]`, checked; None for anything else."""
    if not hasattr(x, "shape") or len(x.shape) != 2:
        return None
    vectors = np.asarray(x, np.float32)
    if vectors.shape[1] != dimension:
        raise ValueError(
            f"expected pictures, or their vectors [n, {dimension}], got an array of shape "
            f"{list(vectors.shape)}: give pictures as [n, h, w, 3]"
        )
    if not np.all(np.isfinite(vectors)):
        raise ValueError("expected finite vectors, got NaN or infinity: drop these rows")
    return vectors


def _opened(picture: Any, place: int) -> Any:
    """A file as `Member`; anything else as it is."""
    if isinstance(picture, bytes):
        return Member(f"picture {place + 1}", lambda: picture)
    if isinstance(picture, str | os.PathLike):
        return Member(str(picture), Path(picture).read_bytes)
    return picture


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


def _pixels(picture: Any, place: int) -> UInt8[np.ndarray, "h w 3"]:
    """The pixels of an array or of Pillow's picture as bytes of three channels."""
    if isinstance(picture, Image.Image):
        return rgb(picture, f"picture {place + 1}")
    array = np.asarray(picture)
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim != 3 or array.shape[-1] not in (1, 3) or 0 in array.shape:
        raise ValueError(
            f"picture {place + 1}: expected pixels [h, w, 3] or the path of a file, got "
            f"{type(picture).__name__} of shape {list(array.shape)}"
        )
    if array.dtype != np.uint8:
        floats = np.asarray(array, np.float32)
        if not (np.all(np.isfinite(floats)) and floats.min() >= 0 and floats.max() <= 1):
            raise ValueError(
                f"picture {place + 1}: expected pixels as bytes, or floats from 0 to 1: divide by "
                "255, or pass bytes"
            )
        array = np.rint(floats * 255).astype(np.uint8)
    return np.ascontiguousarray(np.broadcast_to(array, (*array.shape[:2], 3)))


def _packed(predictor: PhotoPredictor) -> tuple[Any, ...]:
    learner = predictor.learner.extractor.path
    model = None if learner == PHOTOS else learner
    return _unpacked, (model, predictor.x, predictor.y, predictor.classes)


def _unpacked(model: Path | None, *task: Any) -> PhotoPredictor:
    return PhotoPredictor(PhotoLearner(model), *task)


copyreg.pickle(PhotoPredictor, _packed)
