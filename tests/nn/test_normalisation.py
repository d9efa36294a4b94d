"""Normalisation against its formulas and finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.nn.normalisation import batch_norm, local_response_norm, moments, standardised
from small import normal

pytestmark = pytest.mark.usefixtures("float64")


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


def test_second_derivatives_of_batch_norm() -> None:
    x, u, v, weight = (normal(i, 3, 2, 2, 2) for i in range(4))

    @jax.jit
    @jax.grad
    def gradient(x: jax.Array) -> jax.Array:
        return jnp.sum(weight * jnp.tanh(batch_norm(x, jnp.array([0.3, -0.1]))))

    curvature = jnp.vdot(jax.jvp(gradient, (x,), (u,))[1], v)
    step = 1e-5
    numeric = jnp.vdot(gradient(x + step * u) - gradient(x - step * u), v) / (2 * step)
    np.testing.assert_allclose(curvature, numeric, rtol=1e-6)


def test_standardised_examples_know_nothing_of_scale_and_offset() -> None:
    x = normal(0, 3, 4, 4, 2)
    one = standardised(1e4 * x, axis=(1, 2, 3))
    np.testing.assert_allclose(one.mean((1, 2, 3)), 0, atol=1e-12)
    np.testing.assert_allclose(one.std((1, 2, 3)), 1, rtol=1e-9)
    np.testing.assert_allclose(standardised(5e4 * x - 3, axis=(1, 2, 3)), one, rtol=1e-9)
    # A constant example is no division by zero.
    np.testing.assert_array_equal(standardised(jnp.ones((1, 4)), axis=1), 0)


def test_local_response_norm_against_a_loop() -> None:
    x = 30 * normal(0, 2, 3, 12)
    for i in range(12):
        total = np.sum(x[..., max(0, i - 4) : i + 5] ** 2, axis=-1)
        expected = x[..., i] / (1 + 0.001 / 9 * total) ** 0.75
        np.testing.assert_allclose(local_response_norm(x)[..., i], expected, rtol=1e-12)
