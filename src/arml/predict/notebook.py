"""A predictor and its accuracy as a notebook shows them."""

import html
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from arml.results.marks import png

SHOWN = 6
"""Pictures of a class."""


def as_html(said: str, x: np.ndarray, y: np.ndarray, classes: np.ndarray | None) -> str:
    """A heading and a table of the classes; for regression the heading alone.

    **Arguments**

    - `said`: one line about the predictor.
    """
    heading = f"<p><code>{html.escape(said)}</code></p>"
    if classes is None:
        return heading
    rows = []
    for k, label in enumerate(classes):
        own = x[y == k]
        pictures = ["".join(map(_picture, own[:SHOWN]))] if x.ndim == 4 else []
        rows.append([html.escape(str(label)), str(len(own)), *pictures])
    return heading + _table(("class", "examples", "")[: 2 + (x.ndim == 4)], rows)


def confusion_html(
    said: str, classes: np.ndarray, by_class: Mapping[Any, float], confusion: np.ndarray
) -> str:
    """A line about predictions, and a table of the accuracy of each class and of how often it was
    predicted as each class."""
    names = [html.escape(str(label)) for label in classes]
    rows = []
    for name, label, counts in zip(names, classes.tolist(), confusion, strict=True):
        share = by_class.get(label)
        rows.append(
            [name, "" if share is None else f"{share:.0%}", *(str(n or "") for n in counts)]
        )
    return f"<p>{html.escape(said)}</p>{_table(('labelled', 'accuracy', *names), rows)}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells in HTML."""
    lines = ["".join(f"<th>{name}</th>" for name in head)]
    lines += ["".join(f"<td>{cell}</td>" for cell in row) for row in rows]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _picture(picture: np.ndarray) -> str:
    """A picture `[h, w, 3]`, bytes or floats in [0, 1], as an element that holds its own data."""
    pixels = picture if picture.dtype == np.uint8 else np.rint(255 * picture).astype(np.uint8)
    return f'<img src="data:image/png;base64,{png(pixels)}" width="48" height="48" alt="">'
