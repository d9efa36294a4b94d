"""Normalisation by statistics of the current data, never by a running average.

All functions here can be differentiated any number of times.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

Moments = tuple[Float[Array, " c"], Float[Array, " c"]]


@jax.custom_jvp
def moments(x: Float[Array, "n *space c"]) -> Moments:
    """The mean and the biased variance of each channel over examples and positions.

    The variance is the mean of squared deviations, because `E[x^2] - E[x]^2` loses precision in
    float32.
    """
    axes = tuple(range(x.ndim - 1))
    mean = jnp.mean(x, axis=axes)
    return mean, jnp.mean(jnp.square(x - mean), axis=axes)


@moments.defjvp
def _moments_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Moments, Moments]:
    # The derivative of a variance with respect to its mean is zero. Automatic differentiation does
    # not use this, and would sum over all of x again in each gradient.
    (x,), (dx,) = primals, tangents
    mean, variance = moments(x)
    axes = tuple(range(x.ndim - 1))
    changes = jnp.mean(dx, axis=axes), 2 * jnp.mean((x - mean) * dx, axis=axes)
    return (mean, variance), changes


def batch_norm(
    x: Float[Array, "n *space c"], offset: Float[Array, " c"], *, statistics: Moments | None = None
) -> Float[Array, "n *space c"]:
    """Bring each channel to mean `offset` and variance one. There is no scale.

    `statistics` are the `moments` to normalise with. If None, they are those of `x`, and then the
    prediction for a query depends on the other queries.
    """
    mean, variance = moments(x) if statistics is None else statistics
    return (x - mean) * lax.rsqrt(variance + 1e-3) + offset


def standardised(
    x: Float[Array, "n *features"], *, axis: int | tuple[int, ...]
) -> Float[Array, "n *features"]:
    """Bring `x` to mean 0 and variance 1 over `axis`. If that is all axes except the first, each
    example is normalised on its own."""
    deviation = x - jnp.mean(x, axis=axis, keepdims=True)
    variance = jnp.mean(jnp.square(deviation), axis=axis, keepdims=True)
    return deviation * lax.rsqrt(variance + 1e-3)


def local_response_norm(x: Float[Array, "*n c"]) -> Float[Array, "*n c"]:
    """Divide each channel by `(1 + .001 / 9 * sum of squares of its neighbours)^.75`.

    The neighbours of channel `i` are the existing channels `i - 4` to `i + 4`, with `i` itself. The
    sum is not divided by their number.
    """
    channels = x.shape[-1]
    squares = jnp.pad(jnp.square(x), [(0, 0)] * (x.ndim - 1) + [(4, 4)])
    total = sum(squares[..., i : i + channels] for i in range(9))
    return x / jnp.power(1 + 0.001 / 9 * total, 0.75)
