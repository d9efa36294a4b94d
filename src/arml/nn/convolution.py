"""Convolution and pooling of NHWC images, stride 1 and SAME."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def convolve(
    x: Float[Array, "n h w c"], kernel: Float[Array, "kh kw c o"]
) -> Float[Array, "n h w o"]:
    """The cross-correlation of `x` with `kernel`, stride 1, zero padding SAME, no bias."""
    return jax.lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def max_pool(x: Float[Array, "n h w c"], *, window: int = 2) -> Float[Array, "n h2 w2 c"]:
    """The maximum over windows that do not overlap; rows and columns left over are dropped."""
    n, h, w, c = x.shape
    h, w = h // window, w // window
    x = x[:, : h * window, : w * window].reshape(n, h, window, w, window, c)
    return jnp.max(x, axis=(2, 4))


def max_pool_same(
    x: Float[Array, "n h w c"], *, window: int = 3, stride: int = 2
) -> Float[Array, "n h2 w2 c"]:
    """The maximum over overlapping windows, padded as SAME (the odd pixel at the bottom right)."""
    return jax.lax.reduce_window(
        x, -jnp.inf, jax.lax.max, (1, window, window, 1), (1, stride, stride, 1), "SAME"
    )
