"""Residual networks for pictures: ResNet-12 [1, 2] and the wide residual network WRN-28-10 [4].

Both end in the mean over positions, so they accept pictures of any size. Convolutions are fast
where tasks adapt the kernels (`arml.nn.convolve`).

[1] Oreshkin, Rodriguez and Lacoste, TADAM, NeurIPS 2018: ResNet-12.
[2] Lee, Maji, Ravichandran and Soatto, Meta-Learning with Differentiable Convex Optimization, CVPR
    2019; code kjunelee/MetaOptNet: filters of 64, 160, 320 and 640, LeakyReLU, DropBlock.
[3] Ghiasi, Lin and Le, DropBlock, NeurIPS 2018.
[4] Zagoruyko and Komodakis, Wide Residual Networks, BMVC 2016.

Differences
- Normalisation takes the statistics of the current data, as in Conv-4, never running averages.
- Scales and offsets of normalisation are meta-learned and shared by all tasks.
- In [2] the dropped share rises over the first 40,000 steps. Here it is constant.
- A layer with stride two computes all positions and keeps every second one (two in WRN-28-10).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree
from msgspec import Meta

from arml.core.checks import Options, Size
from arml.core.episodes import Problem
from arml.core.inner import Shared
from arml.nn.convolution import max_pool
from arml.nn.networks import (
    BaseNetwork,
    Body,
    Conv2d,
    Plain,
    Statistics,
    conv2d,
    linear,
    picture_shape,
)
from arml.nn.normalisation import batch_norm, moments

T = TypeVar("T")
LEAKY_SLOPE = 0.1
"""The slope of LeakyReLU below zero."""
leaky = jax.nn.initializers.variance_scaling(2 / (1 + LEAKY_SLOPE**2), "fan_out", "normal")
_he = jax.nn.initializers.variance_scaling(2.0, "fan_out", "normal")


class Norm(eqx.Module):
    """Batch normalisation with a scale and an offset for each channel."""

    scale: Shared
    offset: Shared

    @classmethod
    def of(cls, channels: int) -> "Norm":
        """A normalisation with scales of one and offsets of zero."""
        ones, zeros = jnp.ones(channels, jnp.float32), jnp.zeros(channels, jnp.float32)
        return cls(Shared(ones), Shared(zeros))

    def __call__(
        self, x: Float[Array, "n h w c"], statistics: Statistics = None
    ) -> tuple[Float[Array, "n h w c"], Statistics]:
        """The normalised `x`, and the statistics that it used: those of `x` if None."""
        statistics = moments(x) if statistics is None else statistics
        unit = batch_norm(x, jnp.zeros_like(self.offset.value), statistics=statistics)
        return self.scale.value * unit + self.offset.value, statistics


class Drop(eqx.Module):
    """Sets numbers to zero in training, and scales the others up to keep the mean: single numbers
    (dropout), or squares of `size` by `size` pixels of a channel (DropBlock [3]).

    Without a key nothing is dropped. `with_drops` gives keys to a network for one task.
    """

    rate: float = eqx.field(static=True)
    """The expected share of numbers that are dropped."""
    size: int = eqx.field(static=True, default=1)
    key: PRNGKeyArray | None = None

    def __call__(self, x: Float[Array, "n h w c"]) -> Float[Array, "n h w c"]:
        if self.key is None or not self.rate:
            return x
        n, h, w, c = x.shape
        size = min(self.size, h, w)
        places = (h - size + 1, w - size + 1)
        # [3], Eq. (1): whole squares inside the picture.
        rate = self.rate * h * w / (size**2 * places[0] * places[1])
        corners = jax.random.bernoulli(self.key, rate, (n, *places, c))
        around = ((0, 0), (size - 1, size - 1), (size - 1, size - 1), (0, 0))
        padded, square, strides = jnp.pad(corners, around), (1, size, size, 1), (1, 1, 1, 1)
        kept = ~jax.lax.reduce_window(padded, False, jax.lax.bitwise_or, square, strides, "VALID")
        return jnp.where(kept, x / jnp.mean(kept, dtype=x.dtype).clip(1e-3), 0)


def _is_drop(node: object) -> bool:
    return isinstance(node, Drop)


def with_drops(learner: T, key: PRNGKeyArray) -> T:
    """The learner with networks that drop numbers by this key, for one training task."""
    count = sum(map(_is_drop, jax.tree.leaves(learner, is_leaf=_is_drop)))
    keys = iter(jax.random.split(key, count) if count else ())
    dropping: T = jax.tree.map(
        lambda node: replace(node, key=next(keys)) if _is_drop(node) else node,
        learner,
        is_leaf=_is_drop,
    )
    return dropping


class ResBlock(eqx.Module):
    """The sum of three 3x3 convolutions and of a 1x1 shortcut, each normalised, then LeakyReLU, a
    2x2 max-pool and a `drop`. A `film` acts before the last LeakyReLU."""

    layers: tuple[Conv2d, ...]
    norms: tuple[Norm, ...]
    """The normalisation of each of the `layers`."""
    drop: Drop
    film: Callable[[Array], Array] | None = None

    @classmethod
    def drawn(cls, inputs: int, filters: int, drop: Drop, *, key: PRNGKeyArray) -> "ResBlock":
        """A block with kernels as in [2]. The last layer is the shortcut."""
        shapes = ((inputs, 3), (filters, 3), (filters, 3), (inputs, 1))
        pairs = zip(shapes, jax.random.split(key, 4), strict=True)
        layers = tuple(conv2d(c, filters, side, init=leaky, key=k) for (c, side), k in pairs)
        return cls(layers, tuple(Norm.of(filters) for _ in layers), drop)

    def __call__(
        self, x: Float[Array, "n h w inputs"], statistics: Statistics = None
    ) -> tuple[Float[Array, "n h2 w2 filters"], Statistics]:
        given: PyTree = [None] * 4 if statistics is None else statistics
        shortcut, last = self.norms[3](self.layers[3](x), given[3])
        used = []
        for i in range(3):
            x, own = self.norms[i](self.layers[i](x), given[i])
            x = jax.nn.leaky_relu(x, LEAKY_SLOPE) if i < 2 else x + shortcut
            used.append(own)
        x = jax.nn.leaky_relu(x if self.film is None else self.film(x), LEAKY_SLOPE)
        return self.drop(max_pool(x)), (*used, last)


class WideBlock(eqx.Module):
    """The sum of two 3x3 convolutions, each after a normalisation and ReLU, and of the input or its
    1x1 convolution. A `drop` is between the two convolutions."""

    layers: tuple[Conv2d, ...]
    """Two layers, and a third as the shortcut if the numbers of channels differ."""
    norms: tuple[Norm, Norm]
    drop: Drop
    stride: int = eqx.field(static=True)

    @classmethod
    def drawn(
        cls, inputs: int, filters: int, stride: int, drop: Drop, *, key: PRNGKeyArray
    ) -> "WideBlock":
        """A block with He's kernels."""
        shapes = [(inputs, 3), (filters, 3), *([(inputs, 1)] if inputs != filters else [])]
        pairs = zip(shapes, jax.random.split(key, len(shapes)), strict=True)
        layers = tuple(conv2d(c, filters, side, init=_he, key=k) for (c, side), k in pairs)
        return cls(layers, (Norm.of(inputs), Norm.of(filters)), drop, stride)

    def __call__(
        self, x: Float[Array, "n h w inputs"], statistics: Statistics = None
    ) -> tuple[Float[Array, "n h2 w2 filters"], Statistics]:
        first, second = (None, None) if statistics is None else statistics
        step = self.stride
        z, first = self.norms[0](x, first)
        z = jax.nn.relu(z)
        shortcut = self.layers[2](z[:, ::step, ::step]) if len(self.layers) > 2 else x
        z, second = self.norms[1](self.layers[0](z)[:, ::step, ::step], second)
        z = shortcut + self.layers[1](self.drop(jax.nn.relu(z)))
        return z, (first, second)


class _Pool(eqx.Module):
    """The mean over positions. If there is a `norm`, normalisation and ReLU come first."""

    norm: Norm | None = None

    def __call__(
        self, x: Float[Array, "n h w c"], statistics: Statistics = None
    ) -> tuple[Float[Array, "n c"], Statistics]:
        if self.norm is not None:
            x, statistics = self.norm(x, statistics)
            x = jax.nn.relu(x)
        return jnp.mean(x, axis=(1, 2)), statistics


@dataclass(frozen=True)
class ResidualOptions(Options):
    """Options that ResNet-12 and WRN-28-10 share."""

    normalisation: Literal["batch", "support"] = "batch"
    """Statistics: those of the current batch (transductive, as in the papers) or of the support
    set."""
    drop: Annotated[float, Meta(ge=0, le=0.9)] = 0.0
    """Share of the numbers that are dropped in training."""
    weights: str = ""
    """File of weights that the network begins with: safetensors, or a PyTorch state."""

    def net(
        self, blocks: PyTree, units: int, problem: Problem, *, key: PRNGKeyArray
    ) -> BaseNetwork:
        """The network with these blocks and a linear head."""
        head = linear(units, problem.outputs, key=key)
        return BaseNetwork(Body(blocks=tuple(blocks), normalisation=self.normalisation), head)


@dataclass(frozen=True)
class ResNet12Options(ResidualOptions):
    """ResNet-12: four residual blocks of three convolutions, with 12.4 million weights."""

    filters: tuple[Size, Size, Size, Size] = (64, 160, 320, 640)
    """Channels of the blocks."""
    block: Size = 5
    """Side of the squares that the last two blocks drop (DropBlock). The first two drop single
    numbers."""

    def build(self, problem: Problem, *, key: PRNGKeyArray) -> BaseNetwork:
        channels = picture_shape(problem, "a residual network")[2]
        *keys, head_key = jax.random.split(key, 5)
        sizes, squares = (channels, *self.filters[:3]), (1, 1, self.block, self.block)
        blocks = [
            ResBlock.drawn(inputs, filters, Drop(self.drop, square), key=k)
            for inputs, filters, square, k in zip(sizes, self.filters, squares, keys, strict=True)
        ]
        return self.net([*blocks, _Pool()], self.filters[3], problem, key=head_key)


@dataclass(frozen=True)
class WideResNetOptions(ResidualOptions):
    """WRN-28-10: twelve blocks of two convolutions, in three groups, with 36.5 million weights."""

    width: Size = 10
    """Factor on the groups' channels, which are 16, 32 and 64 for a factor of 1."""
    blocks: Size = 4
    """Blocks of a group: a depth of 6 blocks + 4 layers."""

    def build(self, problem: Problem, *, key: PRNGKeyArray) -> BaseNetwork:
        channels = picture_shape(problem, "a residual network")[2]
        first_key, head_key, *keys = jax.random.split(key, 2 + 3 * self.blocks)
        blocks: list[PyTree] = [Plain(conv2d(channels, 16, init=_he, key=first_key))]
        inputs = 16
        for group in range(3):
            filters = 2 ** (4 + group) * self.width
            for i in range(self.blocks):
                stride = 2 if group and not i else 1
                drop, k = Drop(self.drop), keys[group * self.blocks + i]
                blocks.append(WideBlock.drawn(inputs, filters, stride, drop, key=k))
                inputs = filters
        return self.net([*blocks, _Pool(Norm.of(inputs))], inputs, problem, key=head_key)
