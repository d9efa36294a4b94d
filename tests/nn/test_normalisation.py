"""Normalisation against loops and finite differences, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.nn.normalisation import batch_norm, local_response_norm, moments, standardised

pytestmark = pytest.mark.usefixtures("float64")


def normal(seed: int, *shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


def test_batch_norm_has_the_offset_as_mean_and_variance_one() -> None:
    x, offset = 7 + 3 * normal(0, 4, 5, 6, 2), jnp.array([1.0, -2.0])
    mean, variance = moments(batch_norm(x, offset))
    np.testing.assert_allclose(mean, offset, atol=1e-12)
    np.testing.assert_allclose(variance, moments(x)[1] / (moments(x)[1] + 1e-3), rtol=1e-12)


def test_moments_are_biased_and_survive_a_large_mean() -> None:
    x = normal(0, 4, 3, 3, 2)
    np.testing.assert_allclose(moments(x)[1], np.var(x, axis=(0, 1, 2)), rtol=1e-12)
    large = (1e4 + x).astype(jnp.float32)
    np.testing.assert_allclose(moments(large)[1], np.var(large.astype(float), (0, 1, 2)), rtol=1e-4)


def test_given_statistics_uncouple_the_examples() -> None:
    support, query, offset = normal(0, 5, 4, 4, 2), normal(1, 3, 4, 4, 2), normal(2, 2)
    together = batch_norm(query, offset, statistics=moments(support))
    alone = batch_norm(query[1:2], offset, statistics=moments(support))
    np.testing.assert_allclose(together[1:2], alone, rtol=1e-12)
    assert not np.allclose(batch_norm(query, offset)[1:2], batch_norm(query[1:2], offset))


@pytest.mark.slow
def test_second_derivatives_of_batch_norm() -> None:
    x, u, v, weight = (normal(i, 3, 2, 2, 2) for i in range(4))
    offset = jnp.array([0.3, -0.1])

    def loss(x: jax.Array) -> jax.Array:
        return jnp.sum(weight * jnp.tanh(batch_norm(x, offset)))

    def slope(t: float) -> jax.Array:
        return jnp.vdot(jax.grad(loss)(x + t * u), v)

    curvature = jnp.vdot(jax.grad(lambda x: jnp.vdot(jax.grad(loss)(x), v))(x), u)
    step = 1e-5
    numeric = (slope(step) - slope(-step)) / (2 * step)
    np.testing.assert_allclose(curvature, numeric, rtol=1e-6)
    first = (loss(x + step * u) - loss(x - step * u)) / (2 * step)
    np.testing.assert_allclose(jnp.vdot(jax.grad(loss)(x), u), first, rtol=1e-6)


@pytest.mark.parametrize("channels", [1, 5, 12])
def test_local_response_norm_equals_loops(channels: int) -> None:
    x = normal(0, 2, 3, 2, channels)
    got = local_response_norm(x, radius=2, alpha=0.3, beta=0.6, bias=1.5)
    for place in np.ndindex(x.shape):
        *where, c = place
        total = sum(float(x[(*where, k)]) ** 2 for k in range(c - 2, c + 3) if 0 <= k < channels)
        np.testing.assert_allclose(got[place], x[place] / (1.5 + 0.3 * total) ** 0.6, rtol=1e-12)


def test_local_response_norm_in_float32_stays_float32() -> None:
    x = normal(0, 1, 2, 2, 6).astype(jnp.float32)
    assert local_response_norm(x).dtype == jnp.float32
    assert batch_norm(x, jnp.zeros(6, jnp.float32)).dtype == jnp.float32


def test_standardised_examples_know_nothing_of_scale_and_offset() -> None:
    x = normal(0, 3, 4, 4, 2)
    one = standardised(x, axis=(1, 2, 3), epsilon=1e-12)
    np.testing.assert_allclose(one.mean((1, 2, 3)), 0, atol=1e-12)
    np.testing.assert_allclose(one.std((1, 2, 3)), 1, rtol=1e-9)
    again = standardised(5 * x - 3, axis=(1, 2, 3), epsilon=1e-12)
    np.testing.assert_allclose(again, one, rtol=1e-9)
    # Nor does one example's result depend on another, and a constant one is no division by zero.
    np.testing.assert_allclose(standardised(x[1:2], axis=(1, 2, 3), epsilon=1e-12), one[1:2])
    np.testing.assert_array_equal(standardised(jnp.ones((1, 4)), axis=1), 0)
