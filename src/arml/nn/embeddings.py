"""Embeddings E of a task's samples: `Examples -> [n, d]`."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from arml.episodes import Examples
from arml.nn.convolution import convolve, max_pool_same
from arml.nn.networks import MLP, Linear, linear, truncated_normal
from arml.nn.normalisation import local_response_norm

Activation = Callable[[Array], Array]


def linear_units(x: Array) -> Array:
    """No activation."""
    return x


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
    normalise after the first, normalise and pool after the second; ReLU everywhere, so that the
    embeddings are not negative.
    """

    first: Float[Array, "k k c filters"]
    second: Float[Array, "k k filters filters"]
    hidden: Linear
    output: Linear

    def __call__(self, support: Examples) -> Float[Array, "n d"]:
        x = jax.nn.relu(convolve(support.x, self.first))
        x = local_response_norm(max_pool_same(x))
        x = jax.nn.relu(convolve(x, self.second))
        x = max_pool_same(local_response_norm(x))
        x = jax.nn.relu(self.hidden(x.reshape(len(x), -1)))
        return jax.nn.relu(self.output(x))


def image_embedding(
    features: tuple[int, ...],
    width: int,
    *,
    window: int,
    filters: int = 32,
    hidden: int = 384,
    key: PRNGKeyArray,
) -> ImageEmbedding:
    """For images of shape `features = (h, w, c)`; weights as in the authors' code (truncated
    normal of .04, biases .1)."""
    height, width_px, channels = features
    keys = jax.random.split(key, 4)
    init = truncated_normal(0.04)
    flat = -(-height // 4) * -(-width_px // 4) * filters
    return ImageEmbedding(
        init(keys[0], (window, window, channels, filters), jnp.float32),
        init(keys[1], (window, window, filters, filters), jnp.float32),
        linear(flat, hidden, init=init, bias=0.1, key=keys[2]),
        linear(hidden, width, init=init, bias=0.1, key=keys[3]),
    )
