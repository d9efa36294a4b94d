"""Folders of small pictures for tests."""

from pathlib import Path

import cv2
import numpy as np


def pictures(folder: Path, seed: int, classes: int = 6) -> Path:
    """Classes of four noisy images, each class of another colour."""
    rng = np.random.default_rng(seed)
    for name in range(classes):
        (folder / f"class{name}").mkdir(parents=True)
        colour = rng.integers(0, 255, 3)
        for i in range(4):
            image = np.clip(colour + rng.normal(0, 8, (16, 16, 3)), 0, 255).astype(np.uint8)
            assert cv2.imwrite(str(folder / f"class{name}" / f"{i}.png"), image)
    return folder
