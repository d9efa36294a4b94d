"""R2-D2: its head is that of the normal equations, and lies between its limits."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.algorithms.r2d2 import R2D2Options
from arml.core.episodes import Examples, Problem
from arml.nn.heads import ridge
from arml.nn.networks import MLPOptions

KEY = jax.random.key(0)
REGRESSION = Problem("regression", (3,), 2, shots=6, queries=4)
CLASSES = Problem("classification", (3,), 3, shots=2, queries=4)


def examples(problem, n):
    keys = jax.random.split(jax.random.key(1))
    x = jax.random.normal(keys[0], (n, *problem.features))
    if problem.kind == "regression":
        return Examples(x, jax.random.normal(keys[1], (n, problem.outputs)))
    return Examples(x, jnp.arange(n) % problem.outputs)


def learner(problem, **options):
    net = MLPOptions(hidden=(7,), init="he").build(problem, key=KEY)
    return R2D2Options(**options).build(net, problem, key=KEY)


@pytest.mark.parametrize("n", [3, 20])
def test_the_small_system_has_the_solution_of_the_normal_equations(n):
    """By another route: (F^T F + r I)^-1 F^T y in float64, with fewer and more examples than
    features; and so have the gradients with respect to the features."""
    x, y = examples(REGRESSION, n)
    ours = eqx.filter_jit(ridge)(x, y, jnp.float32(0.7))
    f = np.concatenate([np.asarray(x, np.float64), np.ones((n, 1))], axis=1)
    dense = np.linalg.solve(f.T @ f + 0.7 * np.eye(4), f.T @ np.asarray(y, np.float64))
    np.testing.assert_allclose(ours.weight, dense[:-1], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ours.bias, dense[-1], rtol=1e-4, atol=1e-5)

    def primal(x):
        f = jnp.concatenate([x, jnp.ones((n, 1))], axis=1)
        return jnp.sum(jnp.square(jnp.linalg.solve(f.T @ f + 0.7 * jnp.eye(4), f.T @ y)))

    def dual(x):
        head = ridge(x, y, jnp.float32(0.7))
        return jnp.sum(jnp.square(head.weight)) + jnp.sum(jnp.square(head.bias))

    np.testing.assert_allclose(
        jax.jit(jax.grad(dual))(x), jax.jit(jax.grad(primal))(x), rtol=1e-3, atol=1e-4
    )


def test_a_weak_ridge_interpolates_and_a_strong_one_predicts_zero():
    support = examples(REGRESSION, 6)
    for strength, wanted in ((1e-5, support.y), (1e9, jnp.zeros_like(support.y))):
        predict = learner(REGRESSION, ridge=strength).adapt(support, key=KEY).predict
        np.testing.assert_allclose(predict(support.x), wanted, atol=2e-2)


def test_classes_without_examples_are_not_predicted():
    x, y = examples(CLASSES, 6)
    logits = learner(CLASSES).adapt(Examples(x, y % 2), key=KEY).predict(x)
    assert np.all(logits[:, 2] < -1e8)
