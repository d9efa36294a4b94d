"""Embeddings E of a task's samples: `Examples -> [n, d]`."""

from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from arml.episodes import Examples
from arml.nn.convolution import convolve, max_pool_same
from arml.nn.networks import MLP, Linear, he, linear, truncated_normal
from arml.nn.normalisation import local_response_norm

Activation = Callable[[Array], Array]


def linear_units(x: Array) -> Array:
    """No activation."""
    return x


ACTIVATIONS: dict[str, Activation] = {
    "relu": jax.nn.relu,
    "none": linear_units,
}


class PairEmbedding(eqx.Module):
    """Embeds the pair (x, y): a regression sample means nothing without its target."""

    net: MLP
    activation: Activation = eqx.field(static=True, default=linear_units)

    def __call__(self, support: Examples) -> Float[Array, "n d"]:
        return self.activation(self.net(jnp.concatenate([support.x, support.y], axis=1)))


class InputEmbedding(eqx.Module):
    """Embeds x alone: classification prototypes get their labels from their order."""

    net: MLP
    activation: Activation = eqx.field(static=True, default=linear_units)

    def __call__(self, support: Examples) -> Float[Array, "n d"]:
        return self.activation(self.net(support.x))


class ImageEmbedding(eqx.Module):
    """Two convolutions with pooling and local response normalisation, two dense layers.

    The network of TensorFlow's old CIFAR-10 tutorial: convolutions without bias, pool and
    normalise after the first, normalise and pool after the second; ReLU between the layers, and at
    the end unless `activation` is another.
    """

    first: Float[Array, "k k c filters"]
    second: Float[Array, "k k filters filters"]
    hidden: Linear
    output: Linear
    activation: Activation = eqx.field(static=True, default=jax.nn.relu)

    def __call__(self, support: Examples) -> Float[Array, "n d"]:
        x = jax.nn.relu(convolve(support.x, self.first))
        x = local_response_norm(max_pool_same(x))
        x = jax.nn.relu(convolve(x, self.second))
        x = max_pool_same(local_response_norm(x))
        x = jax.nn.relu(self.hidden(x.reshape(len(x), -1)))
        return self.activation(self.output(x))


def image_embedding(
    features: tuple[int, ...],
    width: int,
    *,
    window: int,
    filters: int = 32,
    hidden: int = 384,
    init: Literal["authors", "he"] = "authors",
    activation: Activation = jax.nn.relu,
    key: PRNGKeyArray,
) -> ImageEmbedding:
    """For images of shape `features = (h, w, c)`; weights as in the authors' code (truncated
    normal of .04, biases .1), with which all images are embedded nearly alike at first, or He's
    with biases of zero."""
    height, width_px, channels = features
    keys = jax.random.split(key, 4)
    draw, bias = {"authors": (truncated_normal(0.04), 0.1), "he": (he, 0.0)}[init]
    flat = -(-height // 4) * -(-width_px // 4) * filters
    return ImageEmbedding(
        draw(keys[0], (window, window, channels, filters), jnp.float32),
        draw(keys[1], (window, window, filters, filters), jnp.float32),
        linear(flat, hidden, init=draw, bias=bias, key=keys[2]),
        linear(hidden, width, init=draw, bias=bias, key=keys[3]),
        activation,
    )
