"""A convolution of NHWC images that is fast on a CPU under `vmap` and reverse mode of any order.

`vmap` over tasks whose kernels differ turns XLA's convolution into a grouped one, and reverse mode
turns it into dilated forms; on a CPU both are ten times slower. So this module has two operations,
the convolution and the gradient of its kernel. Every derivative of either is again one of the two.
`vmap` unrolls them over the tasks, or merges the tasks into the examples where all tasks share the
kernel. On other devices XLA's own convolution runs.
"""

from collections.abc import Callable
from functools import partial, reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float

FEW_CHANNELS = 8
POSITIONS = 1024
"""Positions that one product of a kernel's gradient sums over, at least those of one image."""


def convolve(
    x: Float[Array, "n h w c"], kernel: Float[Array, "kh kw c o"]
) -> Float[Array, "n h w o"]:
    """The cross-correlation of `x` with `kernel`, stride 1, zero padding SAME, no bias.

    It has derivatives of any order in reverse mode. In forward mode it has them on other devices
    than a CPU only.
    """
    odd = kernel.shape[0] % 2 == 1 and kernel.shape[1] % 2 == 1
    # The derivatives here take the padding to be even, and an even kernel pads unevenly.
    if jax.default_backend() == "cpu" and odd:
        return _convolve(x, kernel)
    return _plain(x, kernel)


def _plain(x: Array, kernel: Array) -> Array:
    return lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _pad(x: Array, rows: int, columns: int) -> Array:
    return jnp.pad(x, ((0, 0), (rows, rows), (columns, columns), (0, 0)))


def patches(x: Array, kh: int, kw: int) -> Array:
    """`[n * h * w, kh * kw * c]`: the neighbourhood of each position. Columns are shifted first, so
    that memory is copied in long runs."""
    h, c = x.shape[1], x.shape[3]
    columns = _columns(x, kh, kw)
    return jnp.concatenate([columns[:, i : i + h] for i in range(kh)], -1).reshape(-1, kh * kw * c)


def _columns(x: Array, kh: int, kw: int) -> Array:
    """`[n, h + kh - 1, w, kw * c]`: the column shifts of the padded `x` beside each other."""
    padded = _pad(x, kh // 2, kw // 2)
    return jnp.concatenate([padded[:, :, j : j + x.shape[2]] for j in range(kw)], -1)


def _direct(x: Array, kernel: Array) -> Array:
    """The convolution of one task. With few channels, a product with the patches is faster, and
    `_correlate` and all inner steps use the same patches."""
    kh, kw, c, o = kernel.shape
    if c >= FEW_CHANNELS:
        return _plain(x, kernel)
    return (patches(x, kh, kw) @ kernel.reshape(-1, o)).reshape(*x.shape[:3], o)


def _unrolled(operation: Callable[..., Array]) -> Callable[..., Array]:
    """`operation`, whose `vmap` is a loop over the mapped axis."""
    mapped = custom_vmap(operation)

    @mapped.def_vmap
    def rule(size: int, batched: list[bool], *arguments: Array) -> tuple[Array, bool]:
        def pick(i: int) -> list[Array]:
            return [a[i] if b else a for a, b in zip(arguments, batched, strict=True)]

        if operation is _direct and not batched[1]:
            x, kernel = arguments
            flat = mapped(x.reshape(-1, *x.shape[2:]), kernel)
            return flat.reshape(*x.shape[:2], *flat.shape[1:]), True
        return jnp.stack([mapped(*pick(i)) for i in range(size)]), True

    return mapped


_forward = _unrolled(_direct)


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
    """The kernel's gradient: `d[i, j] = sum over n, y, z of x[n, y + i, z + j]^T g[n, y, z]`.

    One matrix product makes it: the column shifts of `x` beside each other, and the row shifts of
    `g`. It runs over `POSITIONS` at a time, because XLA's product with a long inner dimension loses
    its operands from the cache.
    """
    kh, kw = size
    n, h, w, c = x.shape
    o = g.shape[-1]
    if c < FEW_CHANNELS:
        return (patches(x, kh, kw).T @ g.reshape(-1, o)).reshape(kh, kw, c, o)
    most = POSITIONS // ((h + kh - 1) * w)
    images = max(m for m in range(1, n + 1) if n % m == 0 and m <= max(most, 1))

    def add(total: Array, part: list[Array]) -> tuple[Array, None]:
        x, g = part
        below = [jnp.pad(g, ((0, 0), (i, kh - 1 - i), (0, 0), (0, 0))) for i in range(kh)]
        rows = jnp.concatenate(below, -1).reshape(-1, kh * o)
        return total + rows.T @ _columns(x, kh, kw).reshape(-1, kw * c), None

    total = jnp.zeros((kh * o, kw * c), x.dtype)
    if images == n:
        total = add(total, [x, g])[0]
    else:
        parts = [a.reshape(-1, images, *a.shape[1:]) for a in (x, g)]
        total = lax.scan(add, total, parts)[0]
    return total.reshape(kh, o, kw, c).transpose(0, 2, 3, 1)


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


class _Windows(NamedTuple):
    """The geometry of a pooling: `shape` of the input, window, stride, and the padding before."""

    shape: tuple[int, ...]
    window: int
    stride: int
    before: tuple[int, int]
    out: tuple[int, int]


def max_pool(x: Float[Array, "n h w c"], *, window: int = 2) -> Float[Array, "n h2 w2 c"]:
    """The maximum over windows that do not overlap; rows and columns left over are dropped.

    Of equal values the first takes the gradient. It has derivatives of any order in reverse mode.
    """
    out = (x.shape[1] // window, x.shape[2] // window)
    return _pool(x, _Windows(x.shape, window, window, (0, 0), out))


def max_pool_same(
    x: Float[Array, "n h w c"], *, window: int = 3, stride: int = 2
) -> Float[Array, "n h2 w2 c"]:
    """The maximum over windows that may overlap, padded as SAME: `ceil(h / stride)` rows. An odd
    row of padding is at the bottom, an odd column at the right.

    Of equal values the first takes the gradient. It has derivatives of any order in reverse mode.
    """
    out = (-(-x.shape[1] // stride), -(-x.shape[2] // stride))
    before = tuple(
        max((n - 1) * stride + window - size, 0) // 2
        for n, size in zip(out, x.shape[1:3], strict=True)
    )
    return _pool(x, _Windows(x.shape, window, stride, (before[0], before[1]), out))


def _slices(x: Array, windows: _Windows, fill: float) -> list[Array]:
    """`window^2` arrays of the output's shape: each has one element of every window."""
    size, stride = windows.window, windows.stride
    low_high = []
    for before, n, length in zip(windows.before, windows.out, x.shape[1:3], strict=True):
        low_high.append((before, (n - 1) * stride + size - length - before, 0))
    x = lax.pad(x, jnp.asarray(fill, x.dtype), [(0, 0, 0), *low_high, (0, 0, 0)])
    ends = [stride * (n - 1) + 1 for n in windows.out]
    return [
        x[:, i : i + ends[0] : stride, j : j + ends[1] : stride]
        for i in range(size)
        for j in range(size)
    ]


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def _pool(x: Array, windows: _Windows) -> Array:
    return reduce(jnp.maximum, _slices(x, windows, -jnp.inf))


def _pool_fwd(x: Array, windows: _Windows) -> tuple[Array, Array]:
    return _pool(x, windows), _winner(_slices(lax.stop_gradient(x), windows, -jnp.inf))


def _winner(slices: list[Array]) -> Array:
    """The place in its window of each window's first maximum."""
    best, index = slices[0], jnp.zeros(slices[0].shape, jnp.int8)
    for k, part in enumerate(slices[1:], 1):
        index = jnp.where(part > best, jnp.int8(k), index)
        best = jnp.maximum(part, best)
    return index


def _pool_bwd(windows: _Windows, index: Array, g: Array) -> tuple[Array]:
    return (_spread(g, index, windows),)


_pool.defvjp(_pool_fwd, _pool_bwd)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _gather(u: Array, index: Array, windows: _Windows) -> Array:
    """The element of each window of `u` that `index` names."""
    parts = _slices(u, windows, 0.0)
    return reduce(jnp.add, [jnp.where(index == k, part, 0) for k, part in enumerate(parts)])


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _spread(g: Array, index: Array, windows: _Windows) -> Array:
    """The adjoint of `_gather`: each window's `g` at the place that `index` names."""
    size, stride = windows.window, windows.stride
    n, h, w, c = windows.shape
    if size == stride:
        places = jnp.arange(size * size, dtype=index.dtype).reshape(size, 1, size, 1)
        full = jnp.where(index[:, :, None, :, None] == places, g[:, :, None, :, None], 0)
        full = full.reshape(n, size * windows.out[0], size * windows.out[1], c)
        return jnp.pad(full, ((0, 0), (0, h - full.shape[1]), (0, w - full.shape[2]), (0, 0)))
    total = jnp.zeros(windows.shape, g.dtype)
    for k in range(size * size):
        edges = []
        for offset, before, m, length in zip(
            divmod(k, size), windows.before, windows.out, (h, w), strict=True
        ):
            low = offset - before
            edges.append((low, length - low - (stride * (m - 1) + 1), stride - 1))
        part = jnp.where(index == k, g, 0)
        total += lax.pad(part, jnp.zeros((), g.dtype), [(0, 0, 0), *edges, (0, 0, 0)])
    return total


def _gather_fwd(u: Array, index: Array, windows: _Windows) -> tuple[Array, Array]:
    return _gather(u, index, windows), index


def _gather_bwd(windows: _Windows, index: Array, g: Array) -> tuple[Array, None]:
    return _spread(g, index, windows), None


def _spread_fwd(g: Array, index: Array, windows: _Windows) -> tuple[Array, Array]:
    return _spread(g, index, windows), index


def _spread_bwd(windows: _Windows, index: Array, u: Array) -> tuple[Array, None]:
    return _gather(u, index, windows), None


_gather.defvjp(_gather_fwd, _gather_bwd)
_spread.defvjp(_spread_fwd, _spread_bwd)
