"""A predictor and its accuracy as a notebook shows them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from arml.results.folder import png
from arml.results.scores import table_html

SHOWN = 6
"""Pictures of a class."""


def as_html(said: str, x: np.ndarray, y: np.ndarray, classes: np.ndarray | None) -> str:
    """A heading and a table of the classes; for regression the heading alone.

    **Arguments**

    - `said`: one line about the predictor.
    """
    if classes is None:
        return table_html((), (), line=said, code=True)
    rows: list[list[str | list[str]]] = []
    for k, label in enumerate(classes):
        own = x[y == k]
        pictures = [[_picture(one) for one in own[:SHOWN]]] if x.ndim == 4 else []
        rows.append([str(label), str(len(own)), *pictures])
    head = ("class", "examples", "")[: 2 + (x.ndim == 4)]
    return table_html(head, rows, line=said, code=True)


def confusion_html(
    said: str, classes: np.ndarray, by_class: Mapping[Any, float], confusion: np.ndarray
) -> str:
    """A line about predictions, and a table of the accuracy of each class and of how often it was
    predicted as each class."""
    names = [str(label) for label in classes]
    rows = []
    for name, label, counts in zip(names, classes.tolist(), confusion, strict=True):
        share = by_class.get(label)
        told = "" if share is None else f"{share:.0%}"
        rows.append([name, told, *(str(n or "") for n in counts)])
    return table_html(("labelled", "accuracy", *names), rows, line=said)


def _picture(picture: np.ndarray) -> str:
    """A picture `[h, w, 3]`, bytes or floats in [0, 1], as a PNG in base64."""
    return png(picture if picture.dtype == np.uint8 else np.rint(255 * picture).astype(np.uint8))
