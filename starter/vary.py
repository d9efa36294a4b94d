"""The written variation of each sample: what makes two pictures of one class differ.

Every number here is part of the set's definition. Each sample draws from a generator seeded with
its own name, so a class or sample that is added changes no other.
"""

import hashlib

import cv2
import numpy as np

SIDE = 32
"""Pixels of a finished sample."""
CANVAS = 128
"""Pixels of a shape before it is varied."""
EXTENT = 84
"""The longer side of a shape on its canvas."""
SHAPE_LEVELS = 16
TEXTURE_LEVELS = 32
"""Grey levels that are kept: a third of the bytes, and nothing that an eye can see."""


def generator(*name: str | int) -> np.random.Generator:
    """Random numbers that depend on the sample's name alone."""
    digest = hashlib.sha256("/".join(map(str, name)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16]))


def fitted(mask: np.ndarray) -> np.ndarray | None:
    """A shape's coverage (uint8) cut out, scaled to `EXTENT` and centred; None if it is empty."""
    rows, columns = (np.flatnonzero(mask.max(axis)) for axis in (1, 0))
    if not len(rows):
        return None
    cut = mask[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    ratio = EXTENT / max(cut.shape)
    height, width = (max(1, round(side * ratio)) for side in cut.shape)
    small = cv2.resize(cut, (width, height), interpolation=cv2.INTER_AREA)
    canvas = np.zeros((CANVAS, CANVAS), np.uint8)
    top, left = (CANVAS - height) // 2, (CANVAS - width) // 2
    canvas[top : top + height, left : left + width] = small
    return canvas


def likeness(one: np.ndarray, other: np.ndarray) -> float:
    """The correlation of two shapes, made coarse so that a hair's breadth does not count."""
    return float(coarse(one) @ coarse(other))


def coarse(shape: np.ndarray) -> np.ndarray:
    """A shape as a vector of length one: `coarse(a) @ coarse(b)` is their correlation."""
    small = cv2.resize(shape, (CANVAS // 4,) * 2, interpolation=cv2.INTER_AREA)
    vector = small.astype(np.float64).ravel()
    vector -= vector.mean()
    return vector / np.linalg.norm(vector)


def stroked(shape: np.ndarray, radius: int) -> np.ndarray:
    """A shape that grows by `radius` on every side, or shrinks unless it is too thin."""
    if not radius:
        return shape
    disc = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * abs(radius) + 1,) * 2)
    if radius > 0:
        return cv2.dilate(shape, disc)
    less = cv2.erode(shape, disc)
    return less if less.sum() >= THIN * shape.sum() else shape


def drawn(shape: np.ndarray, *, rng: np.random.Generator) -> np.ndarray:
    """A shape on paper: stroke, turn, lean, size and place vary, and which of the two is darker."""
    shape = stroked(shape, int(rng.integers(*STROKE)))
    angle = np.deg2rad(rng.uniform(-TURN, TURN))
    scale = rng.uniform(*SCALE)
    lean = rng.uniform(-LEAN, LEAN)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    matrix = scale * turn @ np.array([[1.0, lean], [0.0, 1.0]])
    centre = np.full(2, (CANVAS - 1) / 2)
    shift = centre - matrix @ centre + rng.uniform(-PLACE, PLACE, 2) * CANVAS
    moved = cv2.warpAffine(
        shape, np.column_stack([matrix, shift]), (CANVAS, CANVAS), flags=cv2.INTER_LINEAR
    )
    coverage = cv2.resize(moved, (SIDE, SIDE), interpolation=cv2.INTER_AREA) / 255
    dark, light = rng.uniform(*INK), rng.uniform(*PAPER)
    ink, paper = (dark, light) if rng.random() < DARK else (light, dark)
    return levels(paper + (ink - paper) * coverage, SHAPE_LEVELS)


STROKE = (-1, 4)
"""Pixels of the canvas by which a shape grows on every side, the last excluded."""
THIN = 0.6
"""The least of a shape's coverage that is left when it shrinks; a finer one is left as it is."""
TURN = 15.0
"""Degrees, either way."""
SCALE = (0.8, 1.1)
LEAN = 0.15
"""Horizontal shear, either way."""
PLACE = 0.05
"""Shift, either way, as a part of the side."""
INK = (0.0, 60.0)
"""Grey of the darker of shape and paper, ..."""
PAPER = (195.0, 255.0)
"""... and of the lighter."""
DARK = 0.9
"""How often the ink is darker than the paper."""


def cropped(texture: np.ndarray, *, rng: np.random.Generator) -> np.ndarray:
    """A window of a tiling grey texture: place, turn, size and light vary."""
    angle = np.deg2rad(rng.uniform(-TILT, TILT))
    scale = rng.uniform(*WINDOW) / SIDE
    matrix = scale * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    middle = rng.uniform(0, AREA, 2)
    shift = middle - matrix @ np.full(2, (SIDE - 1) / 2)
    # Twice as fine and then averaged, so that a window larger than the sample does not alias.
    fine = np.column_stack([matrix / 2, shift - matrix @ np.full(2, 0.25)])
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    window = cv2.warpAffine(
        texture.astype(np.float32),
        fine,
        (2 * SIDE, 2 * SIDE),
        flags=flags,
        borderMode=cv2.BORDER_WRAP,
    )
    window = cv2.resize(window, (SIDE, SIDE), interpolation=cv2.INTER_AREA)
    across = np.linspace(-1, 1, SIDE)
    slope = rng.uniform(-LIGHT, LIGHT, 2)
    light = slope[0] * across[:, None] + slope[1] * across[None]
    gain = rng.uniform(*GAIN)
    middle_grey = np.clip(gain * window.mean() + rng.uniform(*OFFSET), *MIDDLE)
    relit = gain * (window - window.mean()) + middle_grey + light
    return levels(relit, TEXTURE_LEVELS)


AREA = 8.0
"""Pixels of the texture, from its corner, within which a sample has its middle."""
TILT = 15.0
"""Degrees, either way."""
WINDOW = (32.0, 44.0)
"""Pixels of the texture along one side of a sample."""
LIGHT = 25.0
"""Grey levels that light adds from the middle to an edge, at most."""
GAIN = (1.6, 2.6)
"""Factor on grey: the textures are of a dark place."""
OFFSET = (-50.0, 50.0)
"""Grey levels added, ..."""
MIDDLE = (60.0, 195.0)
"""... but the mean stays within these, so that not much is cut off at black and white."""


def levels(grey: np.ndarray, count: int) -> np.ndarray:
    """The nearest of `count` even grey levels, uint8."""
    step = 255 / (count - 1)
    return np.rint(np.rint(np.clip(grey, 0, 255) / step) * step).astype(np.uint8)
