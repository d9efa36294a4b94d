"""R2-D2: its head is that of the normal equations, and lies between its limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.algorithms.r2d2 import R2D2Options
from arml.core.episodes import Examples
from arml.nn.heads import ridge
from small import KEY, REGRESSION, VECTORS, close, network, task


@pytest.mark.parametrize("n", [3, 20])
def test_the_small_system_has_the_solution_of_the_normal_equations(n):
    """By another route: (F^T F + r I)^-1 F^T y, with fewer and more examples than features; and so
    have the gradients with respect to the features."""
    x, y = (jax.random.normal(key, (n, 3)) for key in jax.random.split(KEY))

    def primal(x):
        f = jnp.concatenate([x, jnp.ones((n, 1))], axis=1)
        both = jnp.linalg.solve(f.T @ f + 0.7 * jnp.eye(4), f.T @ y)
        return jnp.sum(jnp.square(both)), both

    def dual(x):
        head = ridge(x, y, jnp.float32(0.7))
        both = jnp.concatenate([head.weight, head.bias[None]])
        return jnp.sum(jnp.square(both)), both

    ours, expected = (jax.jit(jax.value_and_grad(f, has_aux=True))(x) for f in (dual, primal))
    close(ours, expected, rtol=1e-3, atol=1e-4)


def test_a_weak_ridge_interpolates_and_a_strong_one_predicts_zero():
    support = task().support
    for strength, wanted in ((1e-5, support.y), (1e9, jnp.zeros_like(support.y))):
        learner = R2D2Options(ridge=strength).build(network(hidden=(7,)), REGRESSION, key=KEY)
        predicted = learner.adapt(support, key=KEY).predict(support.x)
        np.testing.assert_allclose(predicted, wanted, atol=2e-2)


def test_classes_without_examples_are_not_predicted():
    x, y = task(VECTORS).support
    learner = R2D2Options().build(network(VECTORS), VECTORS, key=KEY)
    logits = learner.adapt(Examples(x, 0 * y), key=KEY).predict(x)
    assert np.all(logits[:, 1] < -1e8)
