"""Photographs, whose vectors a frozen model makes, and small pictures, whose pixels a meta-trained
learner reads."""

from itertools import product
from pathlib import Path

import numpy as np

from arml.datasets.archives import Member
from arml.datasets.decode import SUFFIXES
from arml.photographs.reading import (
    FILES,
    PictureReader,
    as_image,
    content_of,
    pixels_of,
    single_pictures,
)
from arml.predict.base import Predictor, TaskLearner
from arml.predict.folds import NEAR
from arml.predict.inputs import checked_array
from arml.predict.kinds import Inputs, Queries, Shown
from arml.predict.reading import Bad, OnItem
from arml.results.files import Json

THUMBNAIL = 96
"""Pixels a side of the pictures of a report."""
GRID = 4
"""Patches of a picture on a side."""


class Pictures(Inputs):
    """Small pictures `[size, size, channels]`: a meta-trained learner reads their pixels."""

    axes = 3
    spatial = True
    like = "pictures"
    trained = True
    can = frozenset({"add", "interval", "learning_curve", "to_onnx"})
    one, many = "picture", "pictures"
    near = NEAR
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
        first = x[0] if isinstance(x, list | tuple) and x else x
        shape = getattr(first, "shape", ())
        files = (*FILES, np.ndarray) if first is not x else FILES
        if isinstance(first, files) and shape != problem.features:
            return reader_of(learner).read(x, progress, bad)
        return checked_array(x, problem.features, what, pixels=problem.spatial)

    def show(self, file: Member) -> Shown:
        return Shown(as_image(pixels_of([file], THUMBNAIL, crop=1.0, bad={})[0]))

    def decisive(self, predictor: Predictor, queries: Queries) -> list[str]:
        """For each picture the patch of a grid of `GRID` by `GRID`, on the pixels that the learner
        reads, without which its label is least probable; and the probabilities with and without.
        The patch has the picture's mean colour then."""
        reader, found = reader_of(predictor.learner), []
        for place, picture in enumerate(queries.files):
            if place in queries.bad:
                found.append("")
                continue
            (pixels,) = pixels_of([picture], reader.size, crop=reader.crop)
            hidden = np.stack([pixels] * (1 + GRID**2))
            parts = np.array_split(np.arange(len(pixels)), GRID)
            for patch, part in enumerate(product(parts, parts), 1):
                hidden[patch][np.ix_(*part)] = pixels.mean(axis=(0, 1))
            chances = predictor.predict_proba(reader.convert(hidden))
            own = chances[:, chances[0].argmax()]
            top, left = divmod(int(own[1:].argmin()), GRID)
            where = f"row {top + 1} of {GRID}, column {left + 1} of {GRID}"
            found.append(f"{where} ({own[0]:.2f} to {own[1:].min():.2f})")
        return found


class Photographs(Pictures):
    """Photographs `[h, w, 3]` of any size: a frozen model makes a vector of each. Meta-trained
    learners may read these vectors, too."""

    axes = 1
    spatial = False
    like = "vectors"
    trained = False
    can = frozenset({"add", "novelty", "learning_curve", "to_onnx"})

    def learner(self, model: Path | str | None = None, **options: object) -> TaskLearner:
        from arml.photographs.learner import PhotoLearner

        return PhotoLearner(model, **options)

    def opens(self, path: Path) -> bool:
        return path.suffix == ".onnx"

    def examples(self) -> tuple[list[object], list[str]]:
        draw, labels = np.random.default_rng(0), ["red", "green"] * 5
        colours = {"red": (200, 40, 40), "green": (40, 200, 40)}
        every = [draw.normal(colours[label], 20, (24, 24, 3)) for label in labels]
        return [one.clip(0, 255).astype(np.uint8) for one in every], labels

    def better(
        self, predictor: Predictor, x: object, labels: object
    ) -> tuple[Predictor | None, str]:
        from arml.photographs.starter import starter_if_better

        return starter_if_better(predictor, x, labels)

    def remade(self, facts: Json, model: Path | str | None) -> TaskLearner:
        from arml.datasets.features import remade
        from arml.photographs.learner import PhotoLearner

        return PhotoLearner(remade(facts, model, threads=1))


def reader_of(learner: TaskLearner) -> PictureReader:
    """How a learner of pictures makes its inputs of their pixels."""
    if (extractor := learner.extractor) is not None:
        return PictureReader(extractor.size, extractor, extractor.crop)
    return PictureReader(learner.problem.features[0], lambda pixels: pixels)
