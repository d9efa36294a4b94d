"""A convolution of NHWC images that is fast under `vmap` and in reverse mode of any order.

If each task has its own kernel, `vmap` turns XLA's convolution into a grouped one, and reverse mode
turns it into dilated forms. On a CPU both are ten times slower. Therefore this module has two
operations: the convolution and the gradient of its kernel. Each derivative of one of them is again
one of the two. On a CPU `vmap` unrolls them over the tasks, or merges the tasks into the examples
if all tasks share the kernel. On a GPU a grouped convolution is fast, but the gradient of its
kernel is slow. With up to `MAX_PATCH_CHANNELS` channels this gradient is one product for all tasks.
"""

from collections.abc import Callable
from functools import partial, reduce

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float

FEW_CHANNELS = 8
PRODUCT_POSITIONS = 1024
"""About how many positions one product of a kernel's gradient sums over: whole images, at least
one."""
MAX_PATCH_CHANNELS = 32
"""The most channels, of input and output, for which a kernel's gradient on a GPU is a product with
the patches. Patches for a 3 x 3 kernel need nine times the memory. More were not measured."""


def _on_cpu() -> bool:
    return jax.default_backend() == "cpu"


def convolve(
    x: Float[Array, "n h w c"], kernel: Float[Array, "kh kw c o"]
) -> Float[Array, "n h w o"]:
    """The cross-correlation of `x` with `kernel`, stride 1, zero padding SAME, no bias.

    It has derivatives of any order in reverse mode. It has none in forward mode on a
    CPU, and elsewhere only with more than `MAX_PATCH_CHANNELS` channels.
    """
    odd = kernel.shape[0] % 2 == 1 and kernel.shape[1] % 2 == 1
    # The derivatives below assume equal padding on both sides, which an even kernel does not have.
    if odd and (_on_cpu() or max(kernel.shape[2:]) <= MAX_PATCH_CHANNELS):
        return _convolve(x, kernel)
    return _plain(x, kernel)


def _plain(x: Array, kernel: Array) -> Array:
    return lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _pad(x: Array, rows: int, columns: int) -> Array:
    return jnp.pad(x, ((0, 0), (rows, rows), (columns, columns), (0, 0)))


def patches(x: Array, kh: int, kw: int) -> Array:
    """`[n * h * w, kh * kw * c]`: the neighbourhood of each position. Columns are shifted first:
    then memory is copied in long runs."""
    h, c = x.shape[1], x.shape[3]
    columns = _columns(x, kh, kw)
    return jnp.concatenate([columns[:, i : i + h] for i in range(kh)], -1).reshape(-1, kh * kw * c)


def _columns(x: Array, kh: int, kw: int) -> Array:
    """`[n, h + kh - 1, w, kw * c]`: the padded `x`, shifted by each column of the kernel."""
    padded = _pad(x, kh // 2, kw // 2)
    return jnp.concatenate([padded[:, :, j : j + x.shape[2]] for j in range(kw)], -1)


def _direct(x: Array, kernel: Array) -> Array:
    """The convolution of one task. With few channels, a product with the patches is faster, and
    `_correlate` and all inner steps reuse these patches."""
    kh, kw, c, o = kernel.shape
    if c >= FEW_CHANNELS:
        return _plain(x, kernel)
    return (patches(x, kh, kw) @ kernel.reshape(-1, o)).reshape(*x.shape[:3], o)


def _unrolled(operation: Callable[..., Array]) -> Callable[..., Array]:
    """`operation` with a `vmap` that is a loop over the mapped axis."""
    mapped = custom_vmap(operation)

    @mapped.def_vmap
    def rule(size: int, batched: list[bool], *arguments: Array) -> tuple[Array, bool]:
        if operation is _direct and not batched[1]:
            x, kernel = arguments
            flat = mapped(x.reshape(-1, *x.shape[2:]), kernel)
            return flat.reshape(*x.shape[:2], *flat.shape[1:]), True
        pairs = [*zip(arguments, batched, strict=True)]
        results = [mapped(*(a[i] if own else a for a, own in pairs)) for i in range(size)]
        return jnp.stack(results), True

    return mapped


_by_task = _unrolled(_direct)


def _transposed(kernel: Array) -> Array:
    """The kernel whose convolution is the adjoint of convolving with `kernel`."""
    return jnp.flip(kernel, (0, 1)).swapaxes(2, 3)


@jax.custom_vjp
def _convolve(x: Array, kernel: Array) -> Array:
    return _by_task(x, kernel) if _on_cpu() else _plain(x, kernel)


def _convolve_fwd(x: Array, kernel: Array) -> tuple[Array, tuple[Array, Array]]:
    return _convolve(x, kernel), (x, kernel)


def _convolve_bwd(residuals: tuple[Array, Array], g: Array) -> tuple[Array, Array]:
    x, kernel = residuals
    return _convolve(g, _transposed(kernel)), _kernel_gradient(kernel.shape[:2], x, g)


_convolve.defvjp(_convolve_fwd, _convolve_bwd)


def _by_patches(size: tuple[int, int], x: Array, g: Array) -> Array:
    """The kernel's gradient as one product with the patches."""
    c, o = x.shape[-1], g.shape[-1]
    return (patches(x, *size).T @ g.reshape(-1, o)).reshape(*size, c, o)


def _correlate(size: tuple[int, int], x: Array, g: Array) -> Array:
    """The kernel's gradient: `d[i, j] = sum over n, y, z of x[n, y + i, z + j]^T g[n, y, z]`.

    It is one matrix product of the column shifts of `x` and the row shifts of `g`. The product sums
    over `PRODUCT_POSITIONS` at a time, because the operands of a longer one do not fit into the
    cache.
    """
    kh, kw = size
    n, h, w, c = x.shape
    o = g.shape[-1]
    if c < FEW_CHANNELS:
        return _by_patches(size, x, g)
    most = PRODUCT_POSITIONS // ((h + kh - 1) * w)
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
    return _unrolled(partial(_correlate, size))(x, g) if _on_cpu() else _by_patches(size, x, g)


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
    """The maximum over windows that do not overlap. Remaining rows and columns are dropped.

    If values are equal, the first gets the gradient. It has derivatives of any order.
    """
    n, c = len(x), x.shape[-1]
    h, w = (side // window for side in x.shape[1:3])
    windows = x[:, : h * window, : w * window].reshape(n, h, window, w, window, c)
    held = lax.stop_gradient(windows)
    best, first = held[:, :, 0, :, 0], jnp.zeros((n, h, w, c), jnp.uint8)
    for index in range(1, window**2):
        other = held[:, :, index // window, :, index % window]
        first = jnp.where(other > best, jnp.uint8(index), first)
        best = jnp.maximum(other, best)
    # A sum with one nonzero term has cheaper derivatives than a maximum.
    indices = jnp.arange(window**2, dtype=jnp.uint8).reshape(window, 1, window, 1)
    return jnp.sum(jnp.where(first[:, :, None, :, None] == indices, windows, 0), axis=(2, 4))


def max_pool_same(x: Float[Array, "n h w c"]) -> Float[Array, "n h2 w2 c"]:
    """The maximum over overlapping 3x3 windows with stride 2, padded as SAME: `ceil(h / 2)` rows.
    An odd row of padding is at the bottom, and an odd column at the right.

    Equal values share the gradient. It has derivatives of any order.
    """
    for axis in (1, 2):
        n = -(-x.shape[axis] // 2)
        before = x.shape[axis] % 2
        edges = [(0, 0)] * x.ndim
        edges[axis] = (before, 1)
        padded = jnp.pad(x, edges, constant_values=-jnp.inf)
        ends = ((i, i + 2 * n - 1) for i in range(3))
        x = reduce(jnp.maximum, (lax.slice_in_dim(padded, *end, 2, axis) for end in ends))
    return x
