"""A contact sheet: rows of pictures, each with a label."""

from collections.abc import Sequence

import cv2
import numpy as np
from jaxtyping import UInt8

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
