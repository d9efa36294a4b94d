"""Photographs, which a frozen model turns into vectors, and small pictures, whose pixels a
meta-trained learner reads."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np

from arml.datasets.archives import Member
from arml.datasets.decode import SUFFIXES, Crop, captured
from arml.datasets.features import remade
from arml.datasets.folders import LabelledFiles
from arml.photographs.learner import PhotoLearner
from arml.photographs.reading import (
    PICTURE_TYPES,
    as_image,
    content_of,
    pixels_of,
    single_pictures,
)
from arml.predict.base import Predictor, TaskLearner
from arml.predict.folds import NEAR_DUPLICATE_DISTANCE
from arml.predict.head import unit_roots
from arml.predict.inputs import Bad, OnItem, checked_array
from arml.predict.kinds import Inputs, Shown
from arml.predict.loading import load
from arml.predict.reliability import Reliability
from arml.predict.together import together_in_space, together_in_time
from arml.results.files import Json

THUMBNAIL_PIXELS = 96
"""The side of the pictures in a report, in pixels."""
PATCH_GRID = 4
"""The number of patches along a side of a picture."""
_PICTURES_LOOKED_AT = 15
"""The largest number of pictures that are checked for grey."""
MAX_GREY_DIFFERENCE = 8
"""If the channels of a picture differ by less on average, it is grey, and most likely a drawing."""


class Pictures(Inputs):
    """Small pictures `[size, size, channels]`: a meta-trained learner reads their pixels."""

    axes = 3
    spatial = True
    like = "pictures"
    trained = True
    can = frozenset({"add", "interval", "learning_curve", "to_onnx"})
    one, many = "picture", "pictures"
    near = NEAR_DUPLICATE_DISTANCE
    suffixes = tuple(sorted(SUFFIXES))
    cells = ("bytes", "image", "path", "file")
    asks = ("prior", "strict", "sort_into", "report", "group", "matter")
    tab = "pictures"
    advice = "name folders or images, or use the learner tables"

    def content(self, item: object, place: int) -> tuple[str, object]:
        return content_of(item, place)

    def items(self, x: object) -> list[object]:
        return single_pictures(x)

    def read(
        self, learner: TaskLearner, x: object, what: str, progress: OnItem | None, bad: Bad | None
    ) -> np.ndarray:
        problem = learner.problem
        if isinstance(x, Iterator) or getattr(getattr(x, "dtype", None), "kind", "") in ("O", "U"):
            x = list(x)  # type: ignore[call-overload]
        several = x if isinstance(x, list | tuple) and x else [x]
        files = (*PICTURE_TYPES, np.ndarray) if several is x else PICTURE_TYPES
        shapes = {getattr(one, "shape", ()) for one in several}
        if isinstance(several[0], files) and shapes != {problem.features}:
            size, crop = frame_of(learner)
            pixels = pixels_of(x, size, crop=crop, progress=progress, bad=bad)
            return pixels if learner.extractor is None else learner.extractor(pixels)
        return checked_array(x, problem.features, what, pixels=problem.spatial)

    def show(self, file: Member) -> Shown:
        return Shown(as_image(pixels_of([file], THUMBNAIL_PIXELS, crop=1.0, bad={})[0]))

    def sign(self, source: LabelledFiles, x: np.ndarray) -> str:
        said = "because they were taken in the same second"
        together = together_in_time(list(map(captured, source.pictures)), source.labels)
        return said if together else ""

    def without_parts(self, learner: TaskLearner, file: Member) -> tuple[np.ndarray, list[str]]:
        """A part is a patch of a `PATCH_GRID` by `PATCH_GRID` grid on the pixels that the learner
        reads. The mean colour of the picture replaces it."""
        size, crop = frame_of(learner)
        (pixels,) = pixels_of([file], size, crop=crop)
        hidden = np.stack([pixels] * (1 + PATCH_GRID**2))
        parts = np.array_split(np.arange(len(pixels)), PATCH_GRID)
        for patch, part in enumerate(product(parts, parts), 1):
            hidden[patch][np.ix_(*part)] = pixels.mean(axis=(0, 1))
        every = range(1, PATCH_GRID + 1)
        said = [
            f"row {i} of {PATCH_GRID}, column {j} of {PATCH_GRID}" for i in every for j in every
        ]
        return hidden if learner.extractor is None else learner.extractor(hidden), said


class Photographs(Pictures):
    """Photographs `[h, w, 3]` of any size: a frozen model turns each into a vector. Meta-trained
    learners may also read these vectors."""

    axes = 1
    spatial = False
    like = "vectors"
    trained = False
    can = frozenset({"add", "novelty", "learning_curve", "to_onnx"})

    def learner(self, model: Path | str | None = None, **options: object) -> TaskLearner:
        return PhotoLearner(model, **options)

    def opens(self, path: Path) -> bool:
        return path.suffix == ".onnx"

    def sign(self, source: LabelledFiles, x: np.ndarray) -> str:
        said = "because many look like another of their class"
        found = super().sign(source, x)
        return said if not found and together_in_space(unit_roots(x), source.labels) else found

    def examples(self) -> tuple[list[object], list[str]]:
        draw, labels = np.random.default_rng(0), ["red", "green"] * 5
        colours = {"red": (200, 40, 40), "green": (40, 200, 40)}
        every = [draw.normal(colours[label], 20, (24, 24, 3)) for label in labels]
        return [one.clip(0, 255).astype(np.uint8) for one in every], labels

    def better(
        self, predictor: Predictor, x: object, labels: object
    ) -> tuple[Predictor | None, str]:
        """The predictor of `starter`, if it predicts the examples better, or if no example can be
        left out because classes have one example or copies of one. It was trained on grey drawings,
        and is tried on grey pictures only."""
        pictures = single_pictures(x)
        sampled = pixels_of(pictures[:: max(1, -(-len(pictures) // _PICTURES_LOOKED_AT))])
        spread = np.mean(np.ptp(sampled.astype(np.int16), axis=3), axis=(1, 2))
        if np.median(spread) > MAX_GREY_DIFFERENCE:
            return None, "a network that was trained on photographs"
        starter = load("starter").adapt(pixels_of(pictures), labels, groups=predictor.groups)
        starter = starter.using(starter.models[-1])
        likely = {}
        for name, one in (("photos", predictor), ("starter", starter)):
            found = one.reliability()
            assert isinstance(found, Reliability)
            if not len(found.labels):
                reason = "the pictures are grey like drawings, and starter was trained on drawings"
                return starter, reason
            own = found.probabilities[np.arange(len(found.labels)), found.labels]
            likely[name] = np.exp(np.mean(np.log(np.maximum(own, 1e-9))))  # their geometric mean
        best, other = sorted(likely, key=lambda name: -likely[name])
        return starter if best == "starter" else None, (
            f"the pictures are grey like drawings, and {best} gives the labels of left-out "
            f"examples more probability, {likely[best]:.0%} against {likely[other]:.0%}"
        )

    def remade(self, facts: Json, model: Path | str | None) -> TaskLearner:
        return PhotoLearner(remade(facts, model, threads=1))


def frame_of(learner: TaskLearner) -> tuple[int, Crop]:
    """The side in pixels of the pictures that a learner reads, and how they are cropped before."""
    found = learner.extractor
    return (learner.problem.features[0], False) if found is None else (found.size, found.crop)
