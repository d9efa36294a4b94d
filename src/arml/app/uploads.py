"""Requests of the page, checked before they are used: counts, bytes, pixels and types."""

import base64
import binascii
import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image

from arml.datasets.decode import decode

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF")
NAME_LENGTH = 60
"""Characters of a class's name."""
HIGHEST = 1e6
"""Heights of points are within plus and minus this."""


@dataclass(frozen=True)
class Limits:
    """Limits of one request."""

    pictures: int = 200
    """Pictures, all classes and queries together."""
    megabytes: int = 64
    """Size of the request: base64, so a third more than the files."""
    megapixels: int = 40
    """Pixels of one picture: a small file can have many."""
    points: int = 200
    """Points of a function."""
    rows: int = 2_000
    """Rows of a table, examples and queries together."""
    columns: int = 200
    """Columns of a table."""


def read_pictures(
    texts: Sequence[Any], names: list[str], *, size: int, limits: Limits, crop: bool = False
) -> UInt8[np.ndarray, "n size size 3"]:
    """Pictures in base64 as bytes of `size x size` pixels; `names` are for the errors.

    **Raises** `ValueError` in one line for a file that is no picture, or is too large.
    """
    if len(texts) > limits.pictures:
        raise ValueError(
            f"expected at most {limits.pictures} pictures, got {len(texts)}: leave some out"
        )
    pictures = []
    for text, name in zip(texts, names, strict=True):
        try:
            data = base64.b64decode(text, validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise ValueError(f"{name}: expected a picture in base64") from None
        _check_pixels(data, name, limits)
        pictures.append(decode(data, size=size, where=name, crop=crop))
    return np.stack(pictures) if pictures else np.zeros((0, size, size, 3), np.uint8)


def _check_pixels(data: bytes, name: str, limits: Limits) -> None:
    """Refuse a picture by its header, before any of it is unpacked."""
    try:
        with warnings.catch_warnings():
            # Pillow warns of large pictures; we refuse smaller ones than it does.
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:
                width, height = image.size
    except Image.DecompressionBombError:
        width, height = 2**20, 2**20
    except (OSError, ValueError, SyntaxError):
        raise ValueError(
            f"{name}: expected a PNG, JPEG, WebP, BMP or TIFF picture, got something else: save it "
            "as one of these"
        ) from None
    if width * height > limits.megapixels * 1e6:
        raise ValueError(
            f"{name}: expected a picture of at most {limits.megapixels} megapixels, got more: "
            "make it smaller"
        )


def read_classes(content: object) -> tuple[list[str], list[Any], list[str]]:
    """The labels, pictures and names for errors of the labelled pictures that the page sent.

    **Raises** `ValueError` in one line for classes without a name or a picture of their own.
    """
    labels: list[str] = []
    texts: list[Any] = []
    classes = _list(content, "classes")
    names = [item.get("name") if isinstance(item, dict) else None for item in classes]
    for name, item in zip(names, classes, strict=True):
        if not isinstance(name, str) or not 0 < len(name.strip()) <= NAME_LENGTH:
            raise ValueError(
                f"expected a name of 1 to {NAME_LENGTH} letters for each class, got {name!r:.80}"
            )
        if names.count(name) > 1:
            raise ValueError(
                f"expected different names of the classes, got {name!r} twice: rename one"
            )
        pictures = _list(item, "pictures")
        if not pictures:
            raise ValueError(f"expected at least one picture of {name!r}, got none: add one")
        labels += [name] * len(pictures)
        texts += pictures
    return labels, texts, [f"a picture of {label!r}" for label in labels]


def read_queries(content: object) -> list[Any]:
    """The pictures to predict, as the page sent them.

    **Raises** `ValueError` if there is none.
    """
    queries = _list(content, "queries")
    if not queries:
        raise ValueError("expected at least one picture to predict, got none: add one")
    return queries


def read_labels(content: object, n: int) -> list[str | None]:
    """The label of each of `n` queries, None where it is not known.

    **Raises** `ValueError` for other labels.
    """
    if not isinstance(content, dict) or content.get("labels") is None:
        return [None] * n
    labels = _list(content, "labels")
    if len(labels) != n or not all(label is None or isinstance(label, str) for label in labels):
        raise ValueError(f"expected {n} labels, texts or null, got others: send one for each query")
    return labels


def read_points(
    content: object, *, low: float, high: float, limits: Limits
) -> Float[np.ndarray, "n 3"]:
    """The points (x1, x2, height) of a function.

    **Raises** `ValueError` in one line for other points.
    """
    points = _list(content, "points")
    if not 0 < len(points) <= limits.points:
        raise ValueError(f"expected 1 to {limits.points} points, got {len(points)}")
    for point in points:
        if not (isinstance(point, list) and len(point) == 3 and all(map(_is_number, point))):
            raise ValueError(f"expected three numbers a point, got {point!r:.80}")
        if not all(low <= x <= high for x in point[:2]):
            raise ValueError(
                f"expected x1 and x2 from {low:g} to {high:g}, got {point[0]:g} and {point[1]:g}"
            )
        if abs(point[2]) > HIGHEST:
            raise ValueError(f"expected heights within ±{HIGHEST:g}, got {point[2]:g}")
    return np.asarray(points, np.float32)


def _is_number(value: object) -> bool:
    # Compared, not converted: a whole number of 400 digits is no float.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _list(content: object, name: str) -> list[Any]:
    value = content.get(name) if isinstance(content, dict) else None
    if not isinstance(value, list):
        raise ValueError(f"expected a list of {name}, got {type(value).__name__}")
    return value
