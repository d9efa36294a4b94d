"""Folders of small pictures for tests."""

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np


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
