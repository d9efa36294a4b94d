"""Base networks, which tasks adapt. Each maps a whole set of inputs to outputs, `[n, *features] ->
[n, outputs]`, and is a pytree whose arrays are its parameters: a body of blocks and a linear head.

If a network normalises, `net(x)` uses the statistics of `x` itself. `net.given(x)` returns the
function that predicts after adaptation to a task with the support inputs `x`; the network decides
whether that function uses them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, DTypeLike, Float, PRNGKeyArray

from arml.core.checks import at_least
from arml.core.episodes import Problem
from arml.core.inner import Shared
from arml.nn.convolution import convolve, max_pool
from arml.nn.edges import LENGTH, histograms
from arml.nn.normalisation import batch_norm, moments

Statistics = tuple[Array, Array] | None
"""Mean and variance of each channel; None for a block that does not normalise."""
Block = Callable[..., tuple[Array, Statistics]]
"""A layer with its activation. `block(x, statistics)` normalises a whole set with the statistics,
or with those of `x` if None, and returns its output and the statistics that it used."""
EDGES = 4.0
"""Weight of the edges at first: their distances are then about those of the other features."""
Initialiser = Callable[[PRNGKeyArray, tuple[int, ...], DTypeLike], Array]
glorot = jax.nn.initializers.glorot_uniform()
he = jax.nn.initializers.he_normal()


def truncated_normal(sd: float) -> Initialiser:
    """Normal with standard deviation `sd`, cut at two of them: TensorFlow's `truncated_normal`,
    which the authors' code uses."""

    def init(key: PRNGKeyArray, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        return sd * jax.random.truncated_normal(key, -2.0, 2.0, shape, dtype)

    return init


def uniform(limit: float) -> Initialiser:
    """Uniform between `-limit` and `limit`: with 1 / sqrt(fan-in), PyTorch's usual weights."""

    def init(key: PRNGKeyArray, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        return jax.random.uniform(key, shape, dtype, -limit, limit)

    return init


class Linear(eqx.Module):
    """`x @ weight + bias`, weight `[inputs, outputs]`; `arml.linear` makes one.

        arml.Linear(jnp.ones((2, 3)), jnp.zeros(3))(jnp.ones((4, 2)))

    It maps `[n, inputs]` to `[n, outputs]`.
    """

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"]

    def __call__(self, x: Float[Array, "*n inputs"]) -> Float[Array, "*n outputs"]:
        return x @ self.weight + self.bias


def linear(
    inputs: int, outputs: int, *, init: Initialiser = glorot, bias: float = 0.0, key: PRNGKeyArray
) -> Linear:
    """A `Linear` with weights from `init` and one constant bias.

        layer = arml.linear(2, 3, key=jax.random.key(0))

    `init(key, shape, dtype)` draws the weights: Glorot's if not given.
    """
    return Linear(init(key, (inputs, outputs), jnp.float32), jnp.full(outputs, bias, jnp.float32))


class MLP(eqx.Module):
    """Fully connected layers with ReLU between them: a part of other modules."""

    layers: tuple[Linear, ...]

    def __call__(self, x: Float[Array, "*n features"]) -> Float[Array, "*n outputs"]:
        for layer in self.layers[:-1]:
            x = jax.nn.relu(layer(x))
        return self.layers[-1](x)


def mlp(sizes: tuple[int, ...], *, init: Initialiser = glorot, key: PRNGKeyArray) -> MLP:
    """An `MLP` with layer widths `sizes`, inputs first and outputs last."""
    keys = jax.random.split(key, len(sizes) - 1)
    pairs = zip(sizes[:-1], sizes[1:], keys, strict=True)
    return MLP(tuple(linear(i, o, init=init, key=k) for i, o, k in pairs))


class Convolution(eqx.Module):
    """A 3x3 convolution of stride 1 that keeps the size."""

    kernel: Float[Array, "3 3 inputs filters"]
    bias: Float[Array, " filters"]

    def __call__(self, x: Float[Array, "n h w inputs"]) -> Float[Array, "n h w filters"]:
        return convolve(x, self.kernel) + self.bias


class Film(eqx.Module):
    """Scales and shifts each unit before its activation. The inner loop does not change it."""

    scale: Shared
    shift: Shared

    def __call__(self, z: Float[Array, "n *space units"]) -> Float[Array, "n *space units"]:
        return self.scale.value * z + self.shift.value


class DenseBlock(eqx.Module):
    """A dense layer and ReLU; `film` between them, if there is one."""

    layer: Callable[[Array], Array]
    film: Callable[[Array], Array] | None = None

    def __call__(
        self, x: Float[Array, "n inputs"], statistics: Statistics = None
    ) -> tuple[Float[Array, "n units"], None]:
        z = self.layer(x)
        return jax.nn.relu(z if self.film is None else self.film(z)), None


class ConvBlock(eqx.Module):
    """3x3 convolution, batch normalisation, ReLU, 2x2 max-pool; `film` before the ReLU, if any.

    The offset of the normalisation is meta-learned and shared by all tasks; there is no scale.
    """

    layer: Callable[[Array], Array]
    offset: Shared
    film: Callable[[Array], Array] | None = None

    def __call__(
        self, x: Float[Array, "n h w inputs"], statistics: tuple[Array, Array] | None = None
    ) -> tuple[Float[Array, "n h2 w2 filters"], tuple[Array, Array]]:
        """Returns the block's output and the statistics that it used (those of `x` if None)."""
        z = self.layer(x)
        statistics = moments(z) if statistics is None else statistics
        # Normalisation without a scale and ReLU never decrease, so pooling first gives the same
        # numbers from a quarter of the elements. (With `film`, this order is its definition.)
        z = batch_norm(max_pool(z), self.offset.value, statistics=statistics)
        return jax.nn.relu(z if self.film is None else self.film(z)), statistics


class Body(eqx.Module):
    """Everything but the head: blocks, `[n, *features] -> [n, units]`.

    `normalisation="batch"` is transductive, as in the papers: queries are normalised by their own
    batch. `"support"` takes the statistics of the support set: then a prediction depends on no
    other query.
    """

    blocks: tuple[Block, ...]
    normalisation: Literal["batch", "support"] = eqx.field(static=True)
    edges: Shared | None = None
    """The logarithm of the weight of a picture's edges, which are features beside those of the last
    block; None for none."""

    def run(
        self, x: Float[Array, "n *features"], statistics: tuple[Statistics, ...] | None = None
    ) -> tuple[Float[Array, "n units"], tuple[Statistics, ...]]:
        """The input of the head, and the statistics that each block used: `statistics`, or those of
        `x` if None."""
        used, inputs = [], x
        for i, block in enumerate(self.blocks):
            x, taken = block(x, None if statistics is None else statistics[i])
            used.append(taken)
        features = x.reshape(len(x), -1)
        if self.edges is not None:
            beside = jnp.exp(self.edges.value) * histograms(inputs, jnp)
            features = jnp.concatenate([features, beside], axis=1)
        return features, tuple(used)

    def __call__(self, x: Float[Array, "n *features"]) -> Float[Array, "n units"]:
        return self.run(x)[0]

    def given(self, x: Float[Array, "support *features"]) -> Callable[[Array], Array]:
        """The function for the queries of a task with the support inputs `x`."""
        return self.embedded(x)[1]

    def embedded(
        self, x: Float[Array, "support *features"]
    ) -> tuple[Float[Array, "support units"], Callable[[Array], Array]]:
        """What `given` makes of the support inputs themselves, and `given`: by one run, through
        which the gradient then goes back once."""
        features, statistics = self.run(x)
        if self.normalisation == "batch":
            return features, self
        return features, lambda query: self.run(query, statistics)[0]


class BaseNetwork(eqx.Module):
    """A body and a linear head: Conv-4, or a multi-layer perceptron."""

    body: Body
    head: Callable[[Array], Array]

    def __call__(self, x: Float[Array, "n *features"]) -> Float[Array, "n outputs"]:
        return self.head(self.body(x))

    def given(self, x: Float[Array, "support *features"]) -> Callable[[Array], Array]:
        """The function that predicts for a task with the support inputs `x`."""
        body = self.body.given(x)
        return lambda query: self.head(body(query))


def conv_block(inputs: int, filters: int, *, key: PRNGKeyArray) -> ConvBlock:
    """A block with a Glorot-uniform kernel, and zeros for the biases and the offset."""
    zeros = jnp.zeros(filters, jnp.float32)
    kernel = glorot(key, (3, 3, inputs, filters), jnp.float32)
    return ConvBlock(Convolution(kernel, zeros), Shared(zeros))


def perceptron(
    sizes: tuple[int, ...], *, init: Initialiser = glorot, key: PRNGKeyArray
) -> BaseNetwork:
    """Dense blocks of widths `sizes`, inputs first and outputs last."""
    *hidden, head = mlp(sizes, init=init, key=key).layers
    return BaseNetwork(Body(tuple(map(DenseBlock, hidden)), "batch"), head)


@dataclass(frozen=True)
class MLPOptions:
    """The base network of the 2-D regression: hidden layers of 40."""

    hidden: tuple[int, ...] = (40, 40)
    """Width of each hidden layer."""
    init: Literal["authors", "he"] = "authors"
    """Initial weights: the authors' truncated normal of .01, or He's."""

    def check(self) -> None:
        """Raise `ValueError` if a width is invalid. Without hidden layers the network is linear."""
        at_least(self, ("hidden",), 1)

    def build(self, problem: Problem, *, key: PRNGKeyArray) -> BaseNetwork:
        if len(problem.features) != 1:
            raise ValueError(
                f"an MLP reads vectors, but these tasks have inputs of shape {problem.features}; "
                "use the network conv4"
            )
        init = {"authors": truncated_normal(0.01), "he": he}[self.init]
        return perceptron((*problem.features, *self.hidden, problem.outputs), init=init, key=key)


@dataclass(frozen=True)
class Conv4Options:
    """The base network of the image tasks. Its kernels are Glorot-uniform and its biases zero, as
    in the reference codes of MAML and the methods after it."""

    filters: int = 32
    """Channels of each block."""
    normalisation: Literal["batch", "support"] = "batch"
    """Statistics: those of the current batch (transductive, as in the papers) or of the support
    set."""
    edges: bool = False
    """Histograms of a picture's edges beside the features of the last block, with a learned
    weight."""

    def check(self) -> None:
        """Raise `ValueError` if an option is invalid."""
        at_least(self, ("filters",), 1)

    def build(self, problem: Problem, *, key: PRNGKeyArray) -> BaseNetwork:
        if len(problem.features) != 3 or min(problem.features[:2]) < 16:
            raise ValueError(
                "Conv-4 halves its images four times, so it needs inputs of shape (height, width, "
                f"channels) of at least 16 px; these tasks have {problem.features}"
            )
        height, width, channels = problem.features
        *keys, head_key = jax.random.split(key, 5)
        sizes = (channels, *(self.filters,) * 3)
        blocks = tuple(conv_block(c, self.filters, key=k) for c, k in zip(sizes, keys, strict=True))
        units = (height // 16) * (width // 16) * self.filters
        weight = None
        if self.edges:
            units, weight = units + LENGTH, Shared(jnp.log(jnp.float32(EDGES)))
        head = linear(units, problem.outputs, key=head_key)
        return BaseNetwork(Body(blocks, self.normalisation, weight), head)
