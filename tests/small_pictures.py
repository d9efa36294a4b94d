"""Folders of small pictures for tests."""

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

COLOURS = ((220, 30, 30), (30, 30, 220), (30, 220, 30))
"""Red, blue and green."""


def blob(colour: Sequence[int], seed: int = 0) -> np.ndarray:
    """A picture of one colour with some noise."""
    noise = np.random.default_rng(seed).normal(0, 12, (40, 60, 3))
    return np.clip(np.asarray(colour) + noise, 0, 255).astype(np.uint8)


def coloured(folder: Path, *names: str, n: int, seed: int = 0) -> Path:
    """Classes of `n` pictures in shades, the first of red, the second blue, the third green."""
    rng = np.random.default_rng(seed)
    for name, colour in zip(names, COLOURS, strict=False):
        (folder / name).mkdir(parents=True)
        for i in range(n):
            picture = blob(np.multiply(colour, rng.uniform(0.5, 1)), seed + i)
            assert cv2.imwrite(str(folder / name / f"{i}.png"), picture[..., ::-1])
    return folder


def pictures(
    folder: Path, seed: int, classes: int = 6, *, counts: Sequence[int] = (), size: int = 16
) -> Path:
    """Classes of four noisy images, or of these counts, each class of another colour."""
    rng = np.random.default_rng(seed)
    for name, count in enumerate(counts or [4] * classes):
        (folder / f"class{name}").mkdir(parents=True)
        colour = rng.integers(0, 255, 3)
        for i in range(count):
            image = np.clip(colour + rng.normal(0, 8, (size, size, 3)), 0, 255).astype(np.uint8)
            assert cv2.imwrite(str(folder / f"class{name}" / f"{i}.png"), image)
    return folder
