"""Histograms of the directions of a picture's edges [1]: features that need no training.

The functions take `numpy` or `jax.numpy` as `xp`, so that a program without JAX can use them.

[1] Dalal and Triggs, Histograms of Oriented Gradients for Human Detection, CVPR 2005.

Differences
- Cells do not share their pixels' votes with their neighbours.
- A picture of any size is divided into four by four cells.
"""

from types import ModuleType
from typing import Any

import numpy as np

EDGE_DIRECTIONS, SIDE_CELLS = 9, 4
"""The number of directions of a histogram, and of cells along a side."""
HISTOGRAM_SIZE = (SIDE_CELLS - 1) ** 2 * 4 * EDGE_DIRECTIONS
"""The length of the vector that describes a picture."""


def histograms(pictures: Any, xp: ModuleType) -> Any:
    """Maps floats `[n, height, width, channels]` to `[n, HISTOGRAM_SIZE]`: histograms of nine
    directions in four by four cells. Each block of two by two cells is normalised to a length of at
    most 1."""
    heights, widths = (_sides(n, pictures.dtype) for n in pictures.shape[1:3])
    down = xp.einsum("ij,njwc->niwc", heights[0], pictures, optimize=True)
    right = xp.einsum("ij,nhjc->nhic", widths[0], pictures, optimize=True)
    power = xp.square(down) + xp.square(right)
    # At each pixel, use the channel with the strongest edge.
    best = [part[..., 0] for part in (power, down, right)]
    for k in range(1, pictures.shape[3]):
        more = power[..., k] > best[0]
        best = [
            xp.where(more, part[..., k], old)
            for part, old in zip((power, down, right), best, strict=True)
        ]
    (power, down, right), level = best, best[2] == 0
    turn = xp.arctan(down / xp.where(level, 1, right))
    turn = xp.where(level, np.pi / 2, xp.where(turn < 0, turn + np.pi, turn))
    size, bins = xp.sqrt(power), turn * (EDGE_DIRECTIONS / np.pi)
    cells = []
    # The two nearest directions of a half turn share a vote.
    for k in range(EDGE_DIRECTIONS):
        shares = [xp.maximum(1 - xp.abs(bins - at), 0) for at in (k, k + EDGE_DIRECTIONS)]
        votes = size * (shares[0] + shares[1])
        rows = xp.einsum("ah,nhw->naw", heights[1], votes, optimize=True)
        cells.append(xp.einsum("bw,naw->nab", widths[1], rows, optimize=True)[..., None])
    whole = xp.concatenate(cells, -1)
    side = SIDE_CELLS - 1
    corners = [whole[:, i : i + side, j : j + side] for i in (0, 1) for j in (0, 1)]
    blocks = xp.concatenate(corners, -1)
    for _ in range(2):  # normalised again after large values are cut
        length = xp.sqrt(xp.sum(xp.square(blocks), -1, keepdims=True))
        blocks = xp.minimum(blocks / (length + 1e-3), 0.2)
    return blocks.reshape(len(pictures), HISTOGRAM_SIZE)


def _sides(n: int, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """For a side of `n` pixels: the matrix of slopes, and a mask of the pixels of each cell."""
    cells = [np.isin(np.arange(n), part) for part in np.array_split(np.arange(n), SIDE_CELLS)]
    return np.asarray(np.gradient(np.eye(n), axis=0), dtype), np.stack(cells).astype(dtype)
