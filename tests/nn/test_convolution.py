"""The convolution and the poolings against XLA's own forms, to second order and under `vmap`."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from arml.nn.convolution import MAX_PATCH_CHANNELS, convolve, max_pool, max_pool_same
from small import close, normal

pytestmark = pytest.mark.usefixtures("float64")


def reference(x: jax.Array, kernel: jax.Array) -> jax.Array:
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=numbers)


def second_order(operation: Callable) -> Callable:
    """A loss after a gradient step on both operands, and its gradients: every derivative of the
    convolution up to the second."""

    def loss(both: tuple[jax.Array, jax.Array]) -> jax.Array:
        return jnp.mean(jnp.sin(operation(*both)))

    def after_step(x: jax.Array, kernel: jax.Array) -> jax.Array:
        both = (x, kernel)
        return loss(jax.tree.map(lambda a, g: a - 0.5 * g, both, jax.grad(loss)(both)))

    return jax.value_and_grad(after_step, argnums=(0, 1))


@pytest.fixture(params=["cpu", "gpu"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The convolution in the form for this device, wherever the test runs."""
    monkeypatch.setattr("jax.default_backend", lambda: request.param)


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize(
    ("channels", "kh", "kw"),
    [(2, 3, 3), (9, 3, 3), (9, 1, 5), (2, 2, 3), (MAX_PATCH_CHANNELS + 1, 3, 3)],
)
def test_equals_xla_to_second_order(channels: int, kh: int, kw: int) -> None:
    x = normal(0, 2, 6, 5, channels)
    kernel = normal(1, kh, kw, channels, 3)
    close(jax.jit(second_order(convolve))(x, kernel), jax.jit(second_order(reference))(x, kernel))


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize(
    ("channels", "axes"),
    [(MAX_PATCH_CHANNELS + 1, (0, 0)), (2, (0, 0)), (9, (0, 0)), (9, (0, None)), (9, (None, 0))],
)
def test_vmap_equals_loop(channels: int, axes: tuple[int | None, int | None]) -> None:
    x, kernel = normal(0, 3, 2, 5, 4, channels), normal(1, 3, 3, 3, channels, 2)
    x, kernel = (a if axis == 0 else a[0] for a, axis in zip((x, kernel), axes, strict=True))
    got = jax.jit(jax.vmap(second_order(convolve), axes))(x, kernel)
    close(got, jax.jit(jax.vmap(second_order(reference), axes))(x, kernel))


@pytest.mark.usefixtures("form")
def test_gradient_outside_vmap() -> None:
    x, kernel = normal(0, 3, 2, 5, 4, 3), normal(1, 3, 3, 3, 3, 2)

    def total(operation: Callable) -> Callable:
        one = jax.checkpoint(lambda x, kernel: second_order(operation)(x, kernel)[0])
        return jax.grad(lambda x, k: jnp.mean(jax.vmap(one)(x, k)), (0, 1))

    close(jax.jit(total(convolve))(x, kernel), jax.jit(total(reference))(x, kernel))


def test_no_grouped_convolution_on_a_cpu() -> None:
    x, kernel = normal(0, 3, 2, 5, 4, 9), normal(1, 3, 3, 3, 9, 9)

    def loss(kernel: jax.Array) -> jax.Array:
        gradient = jax.vmap(jax.grad(lambda k, x: jnp.sum(jnp.sin(convolve(x, k)))))(kernel, x)
        return jnp.sum(jnp.square(gradient))

    text = jax.jit(jax.grad(loss)).lower(kernel).as_text()
    groups = [line for line in text.splitlines() if "feature_group_count" in line]
    assert groups or jax.default_backend() != "cpu"
    assert jax.default_backend() != "cpu" or all(
        "feature_group_count = 1 " in line and "batch_group_count = 1 " in line for line in groups
    )


def pooled(x: jax.Array, window: int, stride: int, padding: str) -> jax.Array:
    shape, strides = (1, window, window, 1), (1, stride, stride, 1)
    return lax.reduce_window(x, -jnp.inf, lax.max, shape, strides, padding)


@pytest.mark.parametrize(
    ("pool", "plain"),
    [
        (max_pool, lambda x: pooled(x, 2, 2, "VALID")),
        (lambda x: max_pool(x, window=3), lambda x: pooled(x, 3, 3, "VALID")),
        (max_pool_same, lambda x: pooled(x, 3, 2, "SAME")),
    ],
)
@pytest.mark.parametrize("size", [(6, 6), (7, 9)])
def test_pooling_equals_xla_to_second_order(
    pool: Callable, plain: Callable, size: tuple[int, int]
) -> None:
    x, u = normal(0, 2, *size, 3), normal(1, 2, *size, 3)

    def derivatives(pool: Callable) -> Callable:
        def first(x: jax.Array) -> jax.Array:
            return jax.grad(lambda x: jnp.sum(jnp.sin(pool(x)) ** 2))(x)

        return lambda x: (pool(x), first(x), jax.vjp(first, x)[1](u)[0])

    tasks = jnp.stack([x, u])
    close(jax.jit(jax.vmap(derivatives(pool)))(tasks), lax.map(derivatives(plain), tasks))


def test_of_equal_values_the_first_takes_the_gradient() -> None:
    gradient = jax.grad(lambda x: jnp.sum(max_pool(x)))(jnp.zeros((1, 2, 2, 1)))
    np.testing.assert_array_equal(gradient[0, :, :, 0], [[1.0, 0.0], [0.0, 0.0]])
