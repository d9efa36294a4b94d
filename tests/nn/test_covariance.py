"""Regularised Mahalanobis distances, against NumPy and against what they must become."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.nn.covariance import covariances, inverse, inverses, mahalanobis, solved
from arml.nn.prototypes import class_means, squared_distances

X = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
Y = np.array([0, 1, 1, 2, 2, 2, 0, 0, 1])
QUERIES = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)


def test_against_numpy():
    matrices = np.asarray(covariances(jnp.asarray(X), jnp.asarray(Y), 3))
    means, _ = class_means(jnp.asarray(X), jnp.asarray(Y), 3)
    ours = mahalanobis(jnp.asarray(QUERIES), means, inverses(jnp.asarray(matrices)))
    task = np.cov(X.T, bias=True)
    for k in range(3):
        own = X[k == Y]
        share = len(own) / (len(own) + 1)
        q = share * np.cov(own.T, bias=True) + (1 - share) * task + np.eye(4)
        np.testing.assert_allclose(matrices[k], q, rtol=1e-4, atol=1e-5)
        away = QUERIES - own.mean(axis=0)
        expected = np.sum(away * np.linalg.solve(q, away.T).T, axis=1)
        np.testing.assert_allclose(ours[:, k], expected, rtol=1e-3)


def test_of_one_shot_it_is_the_plain_distance():
    x, y = jnp.asarray(X[:3]), jnp.arange(3)
    matrices = covariances(x, y, 3)
    np.testing.assert_array_equal(matrices, np.broadcast_to(np.eye(4), (3, 4, 4)))
    ours = mahalanobis(jnp.asarray(QUERIES), x, inverses(matrices))
    np.testing.assert_allclose(ours, squared_distances(jnp.asarray(QUERIES), x), rtol=1e-5)


def test_a_direction_in_which_classes_spread_counts_for_less():
    """Two classes that differ as much along both axes, and spread along the first alone."""
    x = jnp.array([[-5.0, 0], [5, 0], [-4, 1], [6, 1]])
    matrices = covariances(x, jnp.array([0, 0, 1, 1]), 2)
    distances = mahalanobis(jnp.array([[1.0, 0], [0, 1]]), jnp.zeros((2, 2)), inverses(matrices))
    assert np.all(distances[0] < distances[1])


@pytest.mark.slow
def test_the_inverse_has_the_derivatives_of_xlas_own():
    matrix = jnp.asarray(np.cov(X.T) + np.eye(4, dtype=np.float32), jnp.float32)

    def loss(f):
        return lambda m: jnp.sum(jnp.sin(f(m)))

    for depth in (jax.grad, lambda f: jax.grad(lambda m: jnp.sum(jax.grad(f)(m) ** 2))):
        ours, expected = depth(loss(inverse))(matrix), depth(loss(jnp.linalg.inv))(matrix)
        np.testing.assert_allclose(ours, expected, rtol=1e-3, atol=1e-5)


def test_a_solution_and_its_volume_have_the_derivatives_of_xlas_own():
    matrix = jnp.asarray(np.cov(X.T) + np.eye(4, dtype=np.float32), jnp.float32)
    given = jnp.asarray(X[:2].T, jnp.float32)

    def by_xla(m, b):
        return jnp.linalg.solve(m, b), jnp.linalg.slogdet(m)[1]

    def loss(f):
        def value(both):
            x, volume = f(*both)
            return jnp.sum(jnp.sin(x)) * volume

        return value

    def twice(f):
        return jax.grad(lambda both: sum(jnp.sum(g**2) for g in jax.grad(f)(both)))

    for depth in (lambda f: f, jax.grad, twice):
        ours, expected = depth(loss(solved))((matrix, given)), depth(loss(by_xla))((matrix, given))
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-4)
