"""Embeddings E of a task's samples: `Examples -> [n, d]`."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from arml.core.episodes import Examples
from arml.nn.convolution import convolve, max_pool, max_pool_same
from arml.nn.networks import MLP, BaseNetwork, Linear, he, linear, mlp, truncated_normal
from arml.nn.normalisation import local_response_norm, standardised

Embed = Callable[[Examples], Float[Array, "n d"]]
"""Embeds the samples of a support set."""
Activation = Callable[[Array], Array]


def linear_units(x: Array) -> Array:
    """No activation."""
    return x


class BodyFeatures(eqx.Module):
    """The base network's own features in the place of the inputs: its encoder is as good as the
    network is. No gradient goes back through them."""

    def __call__(self, net: BaseNetwork, support: Examples) -> Examples:
        return Examples(jax.lax.stop_gradient(net.body(support.x)), support.y)


def the_inputs_themselves(support: Examples) -> Float[Array, "n d"]:
    """No embedding: the inputs are features already."""
    return support.x


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


class PooledEmbedding(eqx.Module):
    """The texture of a picture, without places: two convolutions with ReLU and pooling, the mean
    and the standard deviation of each filter over the picture, two dense layers.

    The picture is brought to mean 0 and standard deviation 1 first, so that its brightness does not
    outweigh its content. The embedding is brought there last, so that it can neither vanish nor
    explode.
    """

    first: Float[Array, "3 3 c filters"]
    second: Float[Array, "3 3 filters filters"]
    dense: MLP

    def __call__(self, support: Examples) -> Float[Array, "n d"]:
        x = standardised(support.x, axis=(1, 2, 3))
        for kernel in (self.first, self.second):
            x = max_pool(jax.nn.relu(convolve(x, kernel)))
        mean = jnp.mean(x, axis=(1, 2))
        # The root of a variance of 0, of a filter that sees nothing, would have no gradient.
        deviation = jnp.sqrt(jnp.var(x, axis=(1, 2)) + 1e-6)
        return standardised(self.dense(jnp.concatenate([mean, deviation], axis=1)), axis=1)


def pooled_embedding(
    features: tuple[int, ...],
    width: int,
    *,
    filters: int = 32,
    hidden: int = 128,
    key: PRNGKeyArray,
) -> PooledEmbedding:
    """For images of shape `features = (h, w, c)`, with He's weights."""
    *kernels, key_dense = jax.random.split(key, 3)
    first, second = (
        he(k, (3, 3, inputs, filters), jnp.float32)
        for k, inputs in zip(kernels, (features[2], filters), strict=True)
    )
    return PooledEmbedding(first, second, mlp((2 * filters, hidden, width), init=he, key=key_dense))
