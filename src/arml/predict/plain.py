"""ProtoNet with Conv-4 in NumPy: predictions that load no JAX and compile nothing.

JAX takes more than a second to load, and compiles for each number of examples. To learn from a few
pictures and to predict some hundreds takes NumPy less. The mathematics is that of
`arml.algorithms.protonet` and `arml.nn.networks`; a test compares the answers.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from arml.core.problem import Problem
from arml.nn.edges import histograms
from arml.results.files import JsonView

EPSILON = 1e-3
"""Beside the variances, as in `arml.nn.normalisation`."""
BLOCKS = 4
EDGES = ".body.edges.value"
AT_ONCE = 128
"""Pictures embedded together: more take longer, because they leave the processor's cache."""
Statistics = list[tuple[np.ndarray, np.ndarray]]
"""The mean and the variance of each channel, of each block."""


class Block(NamedTuple):
    """A 3x3 convolution with its offset after normalisation."""

    kernel: Float[np.ndarray, "patch filters"]
    bias: Float[np.ndarray, " filters"]
    offset: Float[np.ndarray, " filters"]


class Plain(NamedTuple):
    """The learner."""

    blocks: tuple[Block, ...]
    scale: float
    edges: float | None = None
    """The weight of a picture's edges beside the other features; None without them."""

    def adapt(self, x: Float[np.ndarray, "n size size 3"], y: Int[np.ndarray, " n"]) -> "PlainTask":
        """Learn a task from its support set, of which no class is empty."""
        statistics = self._statistics(x)
        vectors = self._embedded(x, statistics)
        means = np.stack([vectors[y == k].mean(axis=0) for k in range(y.max() + 1)])
        return PlainTask(self, statistics, means)

    def _statistics(self, x: np.ndarray) -> Statistics:
        """Those of the support set: all of it at once."""
        found: Statistics = []
        for block in self.blocks:
            z = _convolved(x, block)
            mean = z.mean(axis=(0, 1, 2))
            found.append((mean, np.square(z - mean).mean(axis=(0, 1, 2))))
            x = _normalised(z, block, found[-1])
        return found

    def _embedded(self, x: np.ndarray, statistics: Statistics) -> Float[np.ndarray, "n d"]:
        parts = []
        for first in range(0, len(x), AT_ONCE):
            part = pictures = x[first : first + AT_ONCE]
            for block, found in zip(self.blocks, statistics, strict=True):
                part = _normalised(_convolved(part, block), block, found)
            features = part.reshape(len(part), -1)
            if self.edges is not None:
                beside = np.float32(self.edges) * histograms(pictures, np)
                features = np.concatenate([features, beside], axis=1)
            parts.append(features)
        return np.concatenate(parts)


class PlainTask(NamedTuple):
    """A learned task."""

    learner: Plain
    statistics: Statistics
    means: Float[np.ndarray, "classes d"]

    def vectors(self, x: Float[np.ndarray, "n size size 3"]) -> Float[np.ndarray, "n d"]:
        """The embedding of each input."""
        return self.learner._embedded(x, self.statistics)

    def logits(self, vectors: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n classes"]:
        """-s ||f(x) - c_k||^2."""
        away = np.stack([np.square(vectors - mean).sum(axis=1) for mean in self.means], axis=1)
        return -self.learner.scale * away


def plain(
    experiment: JsonView, problem: Problem, weights: Mapping[str, np.ndarray]
) -> Plain | None:
    """The learner of such a configuration with these weights; None if it is another kind."""
    algorithm, network = experiment.get("algorithm") or {}, experiment.get("network") or {}
    scale = weights.get(".scale", algorithm.get("scale"))
    names = [f".body.blocks[{i}]" for i in range(BLOCKS)]
    parts = ("layer.kernel", "layer.bias", "offset.value")
    wanted = {f"{name}.{part}" for name in names for part in parts}
    edges = weights.get(EDGES)
    if (
        algorithm.get("kind") != "protonet"
        or algorithm.get("metric", "squared") != "squared"
        or network.get("kind") != "conv4"
        or len(problem.features) != 3
        or scale is None
        or {*weights} - {".scale", EDGES} != wanted
    ):
        return None
    blocks = []
    for name in names:
        kernel, bias, offset = (np.asarray(weights[f"{name}.{part}"]) for part in parts)
        blocks.append(Block(kernel.reshape(-1, kernel.shape[-1]), bias, offset))
    return Plain(tuple(blocks), float(scale), None if edges is None else float(np.exp(edges)))


def _convolved(x: Float[np.ndarray, "n h w c"], block: Block) -> Float[np.ndarray, "n h w o"]:
    """The convolution of stride 1 that keeps the size, as one product with all patches."""
    n, h, w, c = x.shape
    padded = np.zeros((n, h + 2, w + 2, c), np.float32)
    padded[:, 1:-1, 1:-1] = x
    shifted = [padded[:, i : i + h, j : j + w] for i in range(3) for j in range(3)]
    patches = np.concatenate(shifted, axis=-1).reshape(-1, 9 * c)
    product: np.ndarray = patches @ block.kernel
    return product.reshape(n, h, w, -1) + block.bias


def _normalised(
    z: Float[np.ndarray, "n h w c"], block: Block, statistics: tuple[np.ndarray, np.ndarray]
) -> Float[np.ndarray, "n h2 w2 c"]:
    """Batch normalisation by the statistics, ReLU and the maximum of each 2x2 window."""
    n, h, w, c = z.shape
    windows = z[:, : h // 2 * 2, : w // 2 * 2].reshape(n, h // 2, 2, w // 2, 2, c)
    mean, variance = statistics
    highest = (windows.max(axis=(2, 4)) - mean) / np.sqrt(variance + np.float32(EPSILON))
    return np.maximum(highest + block.offset, 0)
