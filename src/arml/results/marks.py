"""The predictions of labelled queries, kept in the predictor's folder for the report."""

import base64
from pathlib import Path

import msgspec
import numpy as np

from arml.results.files import RunError, read_json
from arml.results.schema import read_as

KEPT = "evaluated.json"
WHAT = "arml marks"
THUMBNAIL = 96
"""Pixels a side of a kept picture, at most."""


class Mistake(msgspec.Struct):
    """A query that was predicted as another class."""

    name: str
    label: str
    predicted: str
    probability: float
    own: float
    """The probability of its own label."""
    picture: str | None
    """A small PNG in base64."""


class Marked(msgspec.Struct):
    """The content of `evaluated.json` of a classifier."""

    predictor: str
    """The checksum of the predictor's configuration."""
    query: str
    n: int
    accuracy: float
    low: float
    high: float
    classes: list[str]
    by_class: dict[str, float]
    confusion: list[list[int]]
    mistakes: list[Mistake]
    by: str = ""
    """The means that predicted, if it is not the learner."""


def read_marks(folder: Path) -> Marked:
    """The marks of a predictor.

    **Raises** `RunError` if there are none, or if they are damaged, those of a regression, or those
    of another predictor that was saved in this folder before.
    """
    path = folder / KEPT
    advice = f"run `arml evaluate {folder} --query LABELLED` first"
    if not path.is_file():
        raise RunError(f"expected {KEPT} in the predictor's folder {folder}, found none; {advice}")
    content = read_json(path)
    if "mse" in content:
        raise RunError(
            f"{path}: expected marks of a classifier, got a regression, which has no page: "
            "its error is in this file"
        )
    marked = read_as(Marked, content, str(path), advice)
    if marked.predictor != read_json(folder / "config.json").get("sha256"):
        raise RunError(f"{path} is of another predictor, which was saved there before; {advice}")
    return marked


def thumbnail(picture: np.ndarray) -> str:
    """A picture `[h, w, 3]` in bytes as a small PNG in base64."""
    import cv2

    scale = THUMBNAIL / max(picture.shape[:2])
    if scale < 1:
        picture = cv2.resize(picture, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    return png(picture)


def png(picture: np.ndarray) -> str:
    """A picture `[h, w, 3]` in bytes as a PNG in base64."""
    import cv2

    return base64.b64encode(cv2.imencode(".png", picture[..., ::-1])[1].tobytes()).decode()
