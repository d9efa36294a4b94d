"""Convolution and pooling of NHWC images that are fast on a CPU under `vmap`, twice differentiable.

`vmap` over tasks whose kernels differ turns XLA's convolution into a grouped one, and reverse mode
turns it into dilated forms; on a CPU both leave the fast path by an order of magnitude. So there
are two operations here, the convolution and the gradient of its kernel, tied so that every
derivative of either is again one of the two, and `vmap` unrolls them over the tasks (or merges the
tasks into the examples where the kernel is shared). Elsewhere XLA's own convolution is used.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float


def convolve(
    x: Float[Array, "n h w c"], kernel: Float[Array, "kh kw c o"]
) -> Float[Array, "n h w o"]:
    """The cross-correlation of `x` with `kernel`, stride 1, zero padding SAME, no bias.

    Reverse mode of any order; forward mode only where the plain form is used (not on a CPU).
    """
    odd = kernel.shape[0] % 2 == 1 and kernel.shape[1] % 2 == 1
    # Even kernels pad unevenly, which the tied derivatives do not provide for.
    if jax.default_backend() == "cpu" and odd:
        return _convolve(x, kernel)
    return _plain(x, kernel)


def _plain(x: Array, kernel: Array) -> Array:
    return lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _unrolled(operation: Callable[..., Array]) -> Callable[..., Array]:
    """`operation` as it is, but a loop over the mapped axis under `vmap`."""
    mapped = custom_vmap(operation)

    @mapped.def_vmap
    def rule(size: int, batched: list[bool], *arguments: Array) -> tuple[Array, bool]:
        def pick(i: int) -> list[Array]:
            return [a[i] if b else a for a, b in zip(arguments, batched, strict=True)]

        if operation is _plain and not batched[1]:
            x, kernel = arguments
            flat = mapped(x.reshape(-1, *x.shape[2:]), kernel)
            return flat.reshape(*x.shape[:2], *flat.shape[1:]), True
        return jnp.stack([mapped(*pick(i)) for i in range(size)]), True

    return mapped


_forward = _unrolled(_plain)


def _transposed(kernel: Array) -> Array:
    """The kernel whose convolution is the adjoint of convolving with `kernel`."""
    return jnp.flip(kernel, (0, 1)).swapaxes(2, 3)


@jax.custom_vjp
def _convolve(x: Array, kernel: Array) -> Array:
    return _forward(x, kernel)


def _convolve_fwd(x: Array, kernel: Array) -> tuple[Array, tuple[Array, Array]]:
    return _convolve(x, kernel), (x, kernel)


def _convolve_bwd(residuals: tuple[Array, Array], g: Array) -> tuple[Array, Array]:
    x, kernel = residuals
    return _convolve(g, _transposed(kernel)), _kernel_gradient(kernel.shape[:2], x, g)


_convolve.defvjp(_convolve_fwd, _convolve_bwd)


def _correlate(size: tuple[int, int], x: Array, g: Array) -> Array:
    """`d[i, j] = sum over examples and positions of x[y + i, z + j]^T g[y, z]`."""
    kh, kw = size
    n, h, w, c = x.shape
    o = g.shape[-1]
    top, left = kh // 2, kw // 2
    if c < 16 or h * w < 50:
        padded = jnp.pad(x, ((0, 0), (top, top), (left, left), (0, 0)))
        columns = [padded[:, i : i + h, j : j + w] for i in range(kh) for j in range(kw)]
        patches = jnp.concatenate(columns, -1).reshape(-1, kh * kw * c)
        return (patches.T @ g.reshape(-1, o)).reshape(kh, kw, c, o)
    padded = jnp.pad(x, ((0, 0), (top, top), (left, left), (0, 0)))
    a = jnp.concatenate([padded[:, :, j : j + w] for j in range(kw)], -1)
    padded = jnp.pad(g, ((0, 0), (kh - 1, kh - 1), (0, 0), (0, 0)))
    rows = h + kh - 1
    b = jnp.concatenate([padded[:, kh - 1 - i : kh - 1 - i + rows] for i in range(kh)], -1)
    d = a.reshape(-1, kw * c).T @ b.reshape(-1, kh * o)
    return d.reshape(kw, c, kh, o).transpose(2, 0, 1, 3)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _kernel_gradient(size: tuple[int, int], x: Array, g: Array) -> Array:
    return _unrolled(partial(_correlate, size))(x, g)


def _kernel_gradient_fwd(
    size: tuple[int, int], x: Array, g: Array
) -> tuple[Array, tuple[Array, Array]]:
    return _kernel_gradient(size, x, g), (x, g)


def _kernel_gradient_bwd(
    size: tuple[int, int], residuals: tuple[Array, Array], d: Array
) -> tuple[Array, Array]:
    x, g = residuals
    return _convolve(g, _transposed(d)), _convolve(x, d)


_kernel_gradient.defvjp(_kernel_gradient_fwd, _kernel_gradient_bwd)


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
    return lax.reduce_window(
        x, -jnp.inf, lax.max, (1, window, window, 1), (1, stride, stride, 1), "SAME"
    )
