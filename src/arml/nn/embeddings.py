"""The embedding E of a task's samples: `Examples -> [n, d]`."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from arml.core.episodes import Examples, Problem
from arml.nn.convolution import convolve, max_pool, max_pool_same
from arml.nn.networks import MLP, Linear, he, linear, mlp, truncated_normal
from arml.nn.normalisation import local_response_norm, standardised

Embed = Callable[[Examples], Float[Array, "n d"]]
"""Embeds the samples of a support set."""


class VectorEmbedding(eqx.Module):
    """Embeds vectors. In regression its input is the pair (x, y), because x alone does not describe
    the function. In classification it is x: the order of the prototypes gives their classes."""

    net: MLP
    paired: bool = eqx.field(static=True)
    relu: bool = eqx.field(static=True)
    """Whether ReLU follows the last layer."""

    def __call__(self, support: Examples) -> Float[Array, "n d"]:
        x = jnp.concatenate(support, axis=1) if self.paired else support.x
        return jax.nn.relu(self.net(x)) if self.relu else self.net(x)


class ImageEmbedding(eqx.Module):
    """Two convolutions with pooling and local response normalisation, then two dense layers.

    It is the network of TensorFlow's old CIFAR-10 tutorial. The convolutions have no bias. Pooling
    and then normalisation follow the first, normalisation and then pooling follow the second. Each
    layer ends with ReLU, so the embeddings are not negative.
    """

    first: Float[Array, "k k c filters"]
    second: Float[Array, "k k filters filters"]
    hidden: Linear
    output: Linear

    @classmethod
    def drawn(
        cls, features: tuple[int, ...], width: int, *, window: int, key: PRNGKeyArray
    ) -> "ImageEmbedding":
        """For images of shape `features = (h, w, c)`, with the sizes and initial weights of the
        authors' code (truncated normal with deviation .04, biases .1)."""
        height, width_px, channels = features
        keys = jax.random.split(key, 4)
        init, pixels = truncated_normal(0.04), -(-height // 4) * -(-width_px // 4)
        return cls(
            init(keys[0], (window, window, channels, 32), jnp.float32),
            init(keys[1], (window, window, 32, 32), jnp.float32),
            linear(pixels * 32, 384, init=init, bias=0.1, key=keys[2]),
            linear(384, width, init=init, bias=0.1, key=keys[3]),
        )

    def __call__(self, support: Examples) -> Float[Array, "n d"]:
        x = jax.nn.relu(convolve(support.x, self.first))
        x = local_response_norm(max_pool_same(x))
        x = jax.nn.relu(convolve(x, self.second))
        x = max_pool_same(local_response_norm(x))
        x = jax.nn.relu(self.hidden(x.reshape(len(x), -1)))
        return jax.nn.relu(self.output(x))


class PooledEmbedding(eqx.Module):
    """The texture of a picture, without positions: two convolutions with ReLU and pooling, then the
    mean and standard deviation of each filter over the picture, then two dense layers.

    The picture is first scaled to mean 0 and standard deviation 1, because its brightness would
    outweigh its content. The embedding is scaled in the same way, so it cannot vanish or explode.
    """

    first: Float[Array, "3 3 c filters"]
    second: Float[Array, "3 3 filters filters"]
    dense: MLP

    @classmethod
    def drawn(cls, channels: int, width: int, *, key: PRNGKeyArray) -> "PooledEmbedding":
        """32 filters and 128 hidden units, with He's weights."""
        keys = jax.random.split(key, 3)
        first = he(keys[0], (3, 3, channels, 32), jnp.float32)
        second = he(keys[1], (3, 3, 32, 32), jnp.float32)
        return cls(first, second, mlp((64, 128, width), init=he, key=keys[2]))

    def __call__(self, support: Examples) -> Float[Array, "n d"]:
        x = standardised(support.x, axis=(1, 2, 3))
        for kernel in (self.first, self.second):
            x = max_pool(jax.nn.relu(convolve(x, kernel)))
        mean = jnp.mean(x, axis=(1, 2))
        # A filter that is zero everywhere has variance 0, and the root has no gradient there.
        deviation = jnp.sqrt(jnp.var(x, axis=(1, 2)) + 1e-6)
        return standardised(self.dense(jnp.concatenate([mean, deviation], axis=1)), axis=1)


def embedding_of(
    problem: Problem,
    width: int,
    *,
    window: int,
    pooled: bool = False,
    hidden: tuple[int, ...] = (),
    relu: bool = False,
    key: PRNGKeyArray,
) -> Embed:
    """The embedding of a problem's samples in `width` numbers. For images it is a `PooledEmbedding`
    if `pooled`, or else an `ImageEmbedding` with this `window`. For vectors it is dense layers."""
    if problem.spatial:
        if pooled:
            return PooledEmbedding.drawn(problem.features[2], width, key=key)
        return ImageEmbedding.drawn(problem.features, width, window=window, key=key)
    paired = problem.kind == "regression"
    inputs = problem.features[0] + (problem.outputs if paired else 0)
    return VectorEmbedding(mlp((inputs, *hidden, width), key=key), paired, relu)
