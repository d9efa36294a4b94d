"""Base networks, which tasks adapt. Each maps a set of inputs to outputs, `[n, *features] ->
[n, outputs]`, and is a pytree of its parameters: a body of blocks and a linear head.

If a network normalises, `net(x)` uses the statistics of `x` itself. `net.given(x)` returns the
function that predicts after adaptation to a task with the support inputs `x`; the network decides
whether that function uses them.

`network` makes a base network from your own blocks and head. A method that modulates units
(MUMOMAML, TADAM, `arml`) acts on the blocks' outputs. MT-Net and LLAMA act on all
`Linear` and `Conv2d` layers in the network.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, DTypeLike, Float, PRNGKeyArray, PyTree

from arml.core.checks import Options, Size
from arml.core.episodes import Problem
from arml.core.inner import Shared
from arml.core.learner import Normalising
from arml.nn.convolution import convolve, max_pool
from arml.nn.normalisation import batch_norm, moments

Statistics = Any
"""Mean and variance of each channel, or several such pairs; None for a block that does not
normalise."""
_Block = Callable[..., tuple[Array, Statistics]]
"""A layer with its activation. `block(x, statistics)` normalises the set `x` with the statistics,
or with those of `x` if None, and returns its output and the statistics that it used."""
N = TypeVar("N")
"""A network."""
Initialiser = Callable[[PRNGKeyArray, tuple[int, ...], DTypeLike], Array]
glorot = jax.nn.initializers.glorot_uniform()
he = jax.nn.initializers.he_normal()
truncated_normal = jax.nn.initializers.truncated_normal
"""Normal with a given standard deviation, cut at two deviations as in the authors' code."""


def uniform(limit: float) -> Initialiser:
    """Uniform between `-limit` and `limit`. PyTorch's default is a limit of 1 / sqrt(fan-in)."""

    def init(key: PRNGKeyArray, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        return jax.random.uniform(key, shape, dtype, -limit, limit)

    return init


class Linear(eqx.Module):
    """`x @ weight + bias`, weight `[inputs, outputs]`; `arml.nn.linear` makes one.

        arml.nn.Linear(jnp.ones((2, 3)), jnp.zeros(3))(jnp.ones((4, 2)))

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

        layer = arml.nn.linear(2, 3, key=jax.random.key(0))

    `init(key, shape, dtype)` draws the weights: Glorot's if not given.
    """
    return Linear(init(key, (inputs, outputs), jnp.float32), jnp.full(outputs, bias, jnp.float32))


class MLP(eqx.Module):
    """Fully connected layers with ReLU between them. Other modules use it as a part."""

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


class Conv2d(eqx.Module):
    """A convolution of stride 1 that keeps the size of its images; `arml.nn.conv2d` makes one.

    It is fast where tasks adapt its kernel (`arml.nn.convolve`).
    """

    kernel: Float[Array, "kh kw inputs filters"]
    bias: Float[Array, " filters"]

    def __call__(self, x: Float[Array, "n h w inputs"]) -> Float[Array, "n h w filters"]:
        return convolve(x, self.kernel) + self.bias


def conv2d(
    inputs: int, filters: int, window: int = 3, *, init: Initialiser = glorot, key: PRNGKeyArray
) -> Conv2d:
    """A `Conv2d` with a window of `window` by `window` and a bias of zero.

        layer = arml.nn.conv2d(3, 32, key=jax.random.key(0))
        layer(jnp.ones((2, 8, 8, 3)))

    It maps `[n, h, w, inputs]` to `[n, h, w, filters]`.
    """
    kernel = init(key, (window, window, inputs, filters), jnp.float32)
    return Conv2d(kernel, jnp.zeros(filters, jnp.float32))


class Film(eqx.Module):
    """Scales and shifts each unit before its activation. The inner loop does not change it."""

    scale: Shared
    shift: Shared

    def __call__(self, z: Float[Array, "n *space units"]) -> Float[Array, "n *space units"]:
        return self.scale.value * z + self.shift.value


class DenseBlock(eqx.Module):
    """A dense layer, then `film` if there is one, then ReLU."""

    layer: Callable[[Array], Array]
    film: Callable[[Array], Array] | None = None

    def __call__(
        self, x: Float[Array, "n *inputs"], statistics: Statistics = None
    ) -> tuple[Float[Array, "n units"], None]:
        z = self.layer(x.reshape(len(x), -1))
        return jax.nn.relu(z if self.film is None else self.film(z)), None


class ConvBlock(eqx.Module):
    """3x3 convolution, batch normalisation, ReLU and 2x2 max-pool. A `film` acts before the ReLU.

    The offset of the normalisation is meta-learned and shared by all tasks. There is no scale.
    """

    layer: Callable[[Array], Array]
    offset: Shared
    film: Callable[[Array], Array] | None = None

    @classmethod
    def drawn(cls, inputs: int, filters: int, *, key: PRNGKeyArray) -> "ConvBlock":
        """A Glorot-uniform kernel, and zeros for the biases and the offset."""
        return cls(conv2d(inputs, filters, key=key), Shared(jnp.zeros(filters, jnp.float32)))

    def __call__(
        self, x: Float[Array, "n h w inputs"], statistics: tuple[Array, Array] | None = None
    ) -> tuple[Float[Array, "n h2 w2 filters"], tuple[Array, Array]]:
        """Returns the block's output and the statistics that it used (those of `x` if None)."""
        z = self.layer(x)
        statistics = moments(z) if statistics is None else statistics
        # Normalisation without a scale and ReLU never decrease, so pooling first gives the same
        # numbers from a quarter of the elements. With `film`, this order is the definition.
        z = batch_norm(max_pool(z), self.offset.value, statistics=statistics)
        return jax.nn.relu(z if self.film is None else self.film(z)), statistics


class Body(Normalising):
    """The network without its head: blocks, `[n, *features] -> [n, units]`.

    `normalisation="batch"` is transductive, as in the papers: queries are normalised by their own
    batch. `"support"` uses the statistics of the support set, so a prediction does not depend on
    other queries.
    """

    blocks: tuple[_Block, ...]
    normalisation: Literal["batch", "support", "none"] = eqx.field(static=True)

    def run(
        self, x: Float[Array, "n *features"], statistics: tuple[Statistics, ...] | None = None
    ) -> tuple[Float[Array, "n units"], tuple[Statistics, ...]]:
        """The input of the head, and the statistics that each block used: `statistics`, or those of
        `x` if None."""
        used = []
        for i, block in enumerate(self.blocks):
            x, taken = block(x, None if statistics is None else statistics[i])
            used.append(taken)
        return x.reshape(len(x), -1), tuple(used)

    def __call__(self, x: Float[Array, "n *features"]) -> Float[Array, "n units"]:
        return self.run(x)[0]

    def given(self, x: Float[Array, "support *features"]) -> Callable[[Array], Array]:
        """The function that embeds the queries of a task with the support inputs `x`."""
        return self.embedded(x)[1]

    def embedded(
        self, x: Float[Array, "support *features"]
    ) -> tuple[Float[Array, "support units"], Callable[[Array], Array]]:
        """The embeddings of the support inputs, and the function that embeds queries. Both are from
        one run, so the gradient goes back through it only once."""
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


@dataclass(frozen=True)
class MLPOptions(Options):
    """The base network of the 2-D regression. Without hidden layers it is linear."""

    hidden: tuple[Size, ...] = (40, 40)
    """Width of each hidden layer."""
    init: Literal["authors", "he"] = "authors"
    """Initial weights: the authors' truncated normal with deviation .01, or He's."""

    def build(self, problem: Problem, *, key: PRNGKeyArray) -> BaseNetwork:
        if problem.spatial:
            raise ValueError(
                f"an MLP reads vectors, but these tasks have inputs of shape {problem.features}; "
                "use the network conv4"
            )
        init = {"authors": truncated_normal(0.01), "he": he}[self.init]
        sizes = (math.prod(problem.features), *self.hidden, problem.outputs)
        *hidden, head = mlp(sizes, init=init, key=key).layers
        return BaseNetwork(Body(blocks=tuple(map(DenseBlock, hidden)), normalisation="none"), head)


def picture_shape(problem: Problem, network: str) -> tuple[int, ...]:
    """Height, width and channels. **Raises** `ValueError` unless the inputs are pictures of 16 by
    16 pixels or more, because the network halves them four times."""
    if not problem.spatial or min(problem.features[:2]) < 16:
        raise ValueError(
            f"{network} needs inputs of shape (height, width, channels) of at least 16 px; these "
            f"tasks have {problem.features}: choose the network mlp for vectors, or larger pictures"
        )
    return problem.features


@dataclass(frozen=True)
class Conv4Options(Options):
    """The base network of the image tasks. Its kernels are Glorot-uniform and its biases zero, as
    in the reference code of MAML and later methods."""

    filters: Size = 32
    """Channels of each block."""
    normalisation: Literal["batch", "support"] = "batch"
    """Statistics: those of the current batch (transductive, as in the papers) or of the support
    set."""
    weights: str = ""
    """File of weights that the network begins with: safetensors, or a PyTorch state."""

    def build(self, problem: Problem, *, key: PRNGKeyArray) -> BaseNetwork:
        height, width, channels = picture_shape(problem, "Conv-4")
        *keys, head_key = jax.random.split(key, 5)
        sizes = (channels, *(self.filters,) * 3)
        pairs = zip(sizes, keys, strict=True)
        blocks = tuple(ConvBlock.drawn(c, self.filters, key=k) for c, k in pairs)
        units = (height // 16) * (width // 16) * self.filters
        head = linear(units, problem.outputs, key=head_key)
        return BaseNetwork(Body(blocks=blocks, normalisation=self.normalisation), head)


class Plain(eqx.Module):
    """A block that does not normalise."""

    block: Callable[[Array], Array]

    def __call__(self, x: Array, statistics: Statistics = None) -> tuple[Array, None]:
        return self.block(x), None


class SetNetwork(eqx.Module):
    """Your own network: any function of a set."""

    function: Callable[[Array], Array]

    def __call__(self, x: Array) -> Array:
        return self.function(x)

    def given(self, x: Array) -> Callable[[Array], Array]:
        return self.function


class Filmed(eqx.Module):
    """A block without a field `film`, whose output `film` changes."""

    block: _Block
    film: Callable[[Array], Array]

    def __call__(self, x: Array, statistics: Statistics = None) -> tuple[Array, Statistics]:
        y, statistics = self.block(x, statistics)
        return self.film(y), statistics


def network(
    blocks: Iterable[Callable[[Array], Array]], head: Callable[[Array], Array]
) -> BaseNetwork:
    """A base network from functions of a set. Every method can use it.

        keys = jax.random.split(jax.random.key(0))
        layers = arml.nn.linear(1, 8, key=keys[0]), arml.nn.linear(8, 1, key=keys[1])
        net = arml.network(layers[:1], layers[1])

    **Arguments**

    - `blocks`: Equinox modules whose arrays are the parameters. In sequence they make the features,
      `[n, *features] -> [n, ...]`, which are then flattened.
    - `head`: maps features to outputs, `[n, d] -> [n, outputs]`. Use `arml.nn.linear`, because some
      methods change its weights directly.
    """
    return BaseNetwork(Body(blocks=tuple(map(Plain, blocks)), normalisation="none"), head)


def filmed(body: Body, films: Iterable[Callable[[Array], Array]]) -> Body:
    """The body with a modulation in each block. A block with a field `film` applies it before its
    activation. In other blocks it acts on the output."""

    def one(block: PyTree, film: Callable[[Array], Array]) -> _Block:
        own = any(field.name == "film" for field in fields(block))
        return replace(block, film=film) if own else Filmed(block, film)

    pairs = zip(body.blocks, films, strict=True)
    return replace(body, blocks=tuple(one(block, film) for block, film in pairs))


def widths(body: Body, features: tuple[int, ...]) -> list[int]:
    """The number of units of each block, which a film can scale and shift: the last axis of its
    output."""

    def outputs(x: Array) -> list[Array]:
        found = []
        for block in body.blocks:
            x, _ = block(x)
            found.append(x)
        return found

    one = jax.ShapeDtypeStruct((1, *features), jnp.float32)
    return [output.shape[-1] for output in jax.eval_shape(outputs, one)]


def with_body(net: object, method: str) -> BaseNetwork:
    """`net`, as a network with a body and a head.

    **Raises** `ValueError` in one line if it has none.
    """
    if not isinstance(net, BaseNetwork):
        raise ValueError(
            f"{method} needs a network with a body and a head, got {type(net).__name__}: make it "
            "with arml.network(blocks, head)"
        )
    return net


def is_layer(node: object) -> bool:
    """Whether a node is a `Linear` or `Conv2d` layer."""
    return isinstance(node, Linear | Conv2d)


def layers(net: PyTree, is_leaf: Callable[[object], bool] = is_layer) -> list[PyTree]:
    """The layers of a network, in the order of its fields."""
    return [node for node in jax.tree.leaves(net, is_leaf=is_leaf) if is_leaf(node)]


def with_layers(net: N, given: Iterable[PyTree]) -> N:
    """The network with its layers replaced by `given`, in the same order."""
    others = iter(given)
    changed: N = jax.tree.map(
        lambda node: next(others) if is_layer(node) else node, net, is_leaf=is_layer
    )
    return changed
