"""How many floating-point operations and bytes the library's hot paths need, from shapes.

A product of an array of inputs with weights (a dense layer, a convolution, a message along edges)
reads its operands and writes its result once; what is element by element is thought to be computed
on the way, and is left out. Its gradient is two more products of the same size, its second-order
gradient two for each of those three, so that a layer counts one product forward, three with a
gradient and nine with a second-order one; a layer that reads the data themselves lacks those
products that would give the gradient of the data: two and four.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax

from arml.nn.autoencoders import GRUAutoencoder
from arml.nn.embeddings import ImageEmbedding, PooledEmbedding
from arml.nn.modulation import FiLM, Gate, UnitModulation
from arml.nn.networks import MLP, BaseNetwork, Body, ConvBlock

FLOAT = 4
RANDOM = 40
"""Integer operations of one random number: twenty rounds of Threefry for two of them."""


class Work(NamedTuple):
    """Operations and bytes."""

    flops: float = 0.0
    bytes: float = 0.0

    def __add__(self, other: "Work") -> "Work":  # type: ignore[override]
        return Work(self.flops + other.flops, self.bytes + other.bytes)

    def __mul__(self, times: float) -> "Work":  # type: ignore[override]
        return Work(times * self.flops, times * self.bytes)


class Passes(NamedTuple):
    """Products of a layer, and of one that reads the data themselves."""

    inner: int
    first: int


FORWARD, GRADIENT, SECOND = Passes(1, 1), Passes(3, 2), Passes(9, 4)


def dense(n: int, inputs: int, outputs: int) -> Work:
    """`[n, inputs] @ [inputs, outputs]`."""
    moved = n * inputs + inputs * outputs + n * outputs
    return Work(2 * n * inputs * outputs, FLOAT * moved)


def convolution(n: int, side: int, window: int, inputs: int, outputs: int) -> Work:
    """Stride 1 over `n` images of `side x side`, padding SAME."""
    area, kernel = n * side * side, window * window * inputs * outputs
    return Work(2 * area * kernel, FLOAT * (area * (inputs + outputs) + kernel))


def total(layers: Sequence[Work], passes: Passes) -> Work:
    """A chain of layers, the first of which reads the data."""
    first, *rest = layers
    return sum((layer * passes.inner for layer in rest), first * passes.first)


def size(tree: Any) -> int:
    """The numbers in a pytree."""
    return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array)))


def network(net: MLP | BaseNetwork | Body, n: int, side: int = 0) -> list[Work]:
    """The layers of a network on `n` inputs: images of `side` px, or vectors."""
    if isinstance(net, MLP):
        return [dense(n, *layer.weight.shape) for layer in net.layers]
    if isinstance(net, BaseNetwork):
        head: Any = net.head
        return [*network(net.body, n, side), dense(n, *head.weight.shape)]
    layers = []
    for block in net.blocks:
        if isinstance(block, ConvBlock):
            kernel: Any = block.layer
            layers.append(convolution(n, side, *kernel.kernel.shape[1:]))
            side //= 2
        else:
            layers.append(dense(n, *block.layer.weight.shape))
    return layers


def embedding(encode: Any, n: int, side: int) -> list[Work]:
    """E of the encoder, on `n` examples."""
    embed = encode.embed
    if isinstance(embed, PooledEmbedding):
        (_, _, channels, filters), half = embed.first.shape, side // 2
        both = [(side, channels), (half, filters)]
        layers = [convolution(n, size, 3, inputs, filters) for size, inputs in both]
        return layers + network(embed.dense, n)
    if not isinstance(embed, ImageEmbedding):
        return network(embed.net, n)
    window, _, channels, filters = embed.first.shape
    half = -(-side // 2)
    return [
        convolution(n, side, window, channels, filters),
        convolution(n, half, window, filters, filters),
        *(dense(n, *layer.weight.shape) for layer in (embed.hidden, embed.output)),
    ]


def summary(autoencoder: Any, batch: int, n: int) -> Work:
    """One autoencoder over `batch` sequences of `n` vectors, forward."""
    if not isinstance(autoencoder, GRUAutoencoder):
        both = (autoencoder.encoder, autoencoder.decoder)
        return sum((layer for half in both for layer in network(half, batch * n)), Work())
    state, features = autoencoder.output.weight.shape
    # A step of the decoder reads its last output; the encoder's inputs are multiplied at once.
    step = dense(batch, state, 3 * state)
    back = step + dense(batch, features, 3 * state) + dense(batch, state, features)
    return dense(batch * n, features, 3 * state) + (step + back) * n


def graph(encode: Any, batch: int, prototypes: int) -> Work:
    """Reading the meta-knowledge graph, forward: edges, links and one layer of messages."""
    vertices, d = encode.graph.vertices.shape
    nodes = prototypes + vertices
    edges = dense(batch * prototypes**2, d, 1) + dense(vertices**2, d, 1)
    links = Work(3 * batch * prototypes * vertices * d, FLOAT * batch * nodes * d)
    return edges + links + (dense(nodes, nodes, d) * batch) + dense(batch * nodes, d, d)


def modulation(modulate: Gate | FiLM | UnitModulation, batch: int) -> Work:
    """From codes to gates, forward; the weights are read once for all tasks."""
    if isinstance(modulate, Gate):
        return dense(batch, *modulate.dense.weight.shape)
    units = isinstance(modulate, UnitModulation)
    layers = modulate.layers if units else (modulate.scale, modulate.shift)
    return sum((dense(batch, *layer.weight.shape) for layer in layers), Work())


def adam(parameters: int) -> Work:
    """Reads gradient, parameter and two moments; writes the last three."""
    return Work(12 * parameters, 7 * FLOAT * parameters)
