"""Regularised Mahalanobis distances, against NumPy and against what they must become."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.nn.heads import (
    inverse,
    mahalanobis,
    precisions,
    shrunk,
    shrunk_by_products,
    solved,
)
from arml.nn.prototypes import class_means, squared_distances

X = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
Y = np.array([0, 1, 1, 2, 2, 2, 0, 0, 1])
compiled = jax.jit(precisions, static_argnums=2)
distances = jax.jit(mahalanobis)


@pytest.mark.parametrize("width", [4, 30])
def test_against_numpy(width):
    """By the covariances of the features, and by the products of fewer examples."""
    rng = np.random.default_rng(2)
    x, queries = (rng.normal(size=(n, width)).astype(np.float32) * 3 for n in (9, 5))
    means, _ = class_means(jnp.asarray(x), jnp.asarray(Y), 3)
    found = compiled(jnp.asarray(x), jnp.asarray(Y), 3)
    assert (found.spreads is not None) == (width == 30)
    ours = distances(jnp.asarray(queries), means, found)
    task = np.cov(x.T, bias=True)
    for k in range(3):
        own = x[k == Y]
        share = len(own) / (len(own) + 1)
        q = share * np.cov(own.T, bias=True) + (1 - share) * task + np.eye(width)
        away = queries - own.mean(axis=0)
        expected = np.sum(away * np.linalg.solve(q, away.T).T, axis=1)
        np.testing.assert_allclose(ours[:, k], expected, rtol=1e-3)


@pytest.mark.parametrize("n", [12, 100])
@pytest.mark.parametrize("how", [shrunk, jax.jit(shrunk_by_products)])
def test_one_covariance_for_all_is_inverted(how, n):
    """Against NumPy in float64, with some directions in which classes spread a lot, by a system as
    large as the examples and by products alone."""
    rng = np.random.default_rng(3)
    spread = rng.normal(size=(n, 60)) * np.geomspace(30, 0.1, 60) / np.sqrt(n)
    given = rng.normal(size=(5, 60))
    expected = given @ np.linalg.inv(spread.T @ spread + np.eye(60))
    ours = how(jnp.asarray(spread, jnp.float32), jnp.asarray(given, jnp.float32))
    np.testing.assert_allclose(ours, expected, atol=2e-3)


@pytest.mark.parametrize("width", [4, 30])
def test_of_one_shot_it_is_the_plain_distance(width):
    rng = np.random.default_rng(2)
    x, queries = (jnp.asarray(rng.normal(size=(n, width)), jnp.float32) for n in (3, 5))
    ours = distances(queries, x, compiled(x, jnp.arange(3), 3))
    np.testing.assert_allclose(ours, squared_distances(queries, x), rtol=1e-5)


def test_a_direction_in_which_classes_spread_counts_for_less():
    """Two classes that differ as much along both axes, and spread along the first alone."""
    x, y = jnp.array([[-5.0, 0], [5, 0], [-4, 1], [6, 1]]), jnp.array([0, 0, 1, 1])
    queries = jnp.array([[1.0, 0], [0, 1]])
    for more in (0, 20):  # without and with more features than examples
        wide, asked = (jnp.pad(a, ((0, 0), (0, more))) for a in (x, queries))
        means = jnp.zeros((2, 2 + more))
        along, across = distances(asked, means, compiled(wide, y, 2))
        assert np.all(along < across)


@pytest.mark.slow
def test_the_inverse_has_the_derivatives_of_xlas_own():
    matrix = jnp.asarray(np.cov(X.T) + np.eye(4, dtype=np.float32), jnp.float32)

    def loss(f):
        return lambda m: jnp.sum(jnp.sin(f(m)))

    for depth in (jax.grad, lambda f: jax.grad(lambda m: jnp.sum(jax.grad(f)(m) ** 2))):
        ours, expected = (jax.jit(depth(loss(f)))(matrix) for f in (inverse, jnp.linalg.inv))
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
        ours, expected = (jax.jit(depth(loss(f)))((matrix, given)) for f in (solved, by_xla))
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-4)
