"""A contact sheet: rows of pictures, each with a label."""

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
from jaxtyping import UInt8

from arml.datasets.folders import ImageFamily
from arml.datasets.splits import PARTS
from arml.datasets.store import Store
from arml.results.files import write_bytes

GAP = 4
LABEL = 170
"""Pixels of the labels' column."""
LEAST = 64
"""Pixels a side of a picture on the sheet: smaller ones are enlarged."""


def contact_sheet(
    rows: Sequence[tuple[str, UInt8[np.ndarray, "columns size size 3"]]],
) -> UInt8[np.ndarray, "height width 3"]:
    """Draw rows of a label and pictures; all rows have the same number of pictures."""
    columns, size = rows[0][1].shape[:2]
    scale = -(-LEAST // size)
    side = size * scale + GAP
    sheet = np.full((len(rows) * side + GAP, LABEL + columns * side, 3), 255, np.uint8)
    for number, (label, pictures) in enumerate(rows):
        top = number * side + GAP
        text = (GAP, top + side // 2)
        cv2.putText(sheet, label, text, cv2.FONT_HERSHEY_SIMPLEX, 0.4, (0, 0, 0), 1, cv2.LINE_AA)
        for column, picture in enumerate(pictures):
            left = LABEL + column * side
            large = picture.repeat(scale, axis=0).repeat(scale, axis=1)
            sheet[top : top + large.shape[0], left : left + large.shape[1]] = large
    return sheet


def some(family: ImageFamily, number: int) -> UInt8[np.ndarray, "number size size 3"]:
    """Pictures that are spread over the classes, and over the pictures of each class."""
    chosen = [i * len(family.classes) // number for i in range(number)]
    return family.images[[family.first[c] + i % family.counts[c] for i, c in enumerate(chosen)]]


def write_sheet(store: Store, path: Path, *, columns: int) -> None:
    """Write a PNG with a row for each family and part.

    **Raises** `RunError` if it cannot be written.
    """
    parts = {part: {f.name: f for f in store.part(part)} for part in PARTS}
    rows = [
        (f"{name}, {part}", some(parts[part][name], columns))
        for name in store.families
        for part in PARTS
    ]
    sheet = contact_sheet(rows)
    write_bytes(path, cv2.imencode(".png", sheet[..., ::-1])[1].tobytes())
