"""The head of prototypes is the nearest class mean; Mahalanobis distances, against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.core.episodes import Examples, Problem
from arml.nn.heads import (
    ABSENT,
    PrototypeHead,
    discriminant,
    headless,
    quadratic,
    shrunk_rows,
    solved,
)
from arml.nn.networks import MLPOptions

KEY = jax.random.key(0)
PROBLEM = Problem("classification", (4,), 3, 2, 5)


def support(y: list[int]) -> Examples:
    return Examples(jax.random.normal(KEY, (len(y), 4)), jnp.asarray(y))


@pytest.mark.parametrize("scale", [0.05, 2.0])
def test_its_softmax_is_that_of_the_scaled_distances(scale):
    """Against distances in float64, example by example."""
    net = headless(MLPOptions(hidden=(8,), init="he").build(PROBLEM, key=KEY))
    given = support([2, 0, 1, 1, 0, 2, 2])
    x = jax.random.normal(jax.random.key(1), (6, 4))
    ours = jax.nn.softmax(PrototypeHead(scale, 3)(net, given)(x))
    f, c = np.asarray(net.body(given.x), np.float64), np.asarray(net.body(x), np.float64)
    means = [f[np.asarray(given.y) == k].mean(axis=0) for k in range(3)]
    away = np.exp([[-scale * np.sum((row - mean) ** 2) for mean in means] for row in c])
    np.testing.assert_allclose(ours, away / away.sum(axis=1, keepdims=True), rtol=1e-4, atol=1e-6)


def test_its_logits_are_the_scaled_mahalanobis_distances():
    """Against Q_k = l S_k + (1 - l) S + I in float64, example by example."""
    net = headless(MLPOptions(hidden=(8,), init="he").build(PROBLEM, key=KEY))
    given = support([2, 0, 1, 1, 0, 2, 2])
    x = jax.random.normal(jax.random.key(1), (6, 4))
    ours = quadratic(2.0, net.body(given.x), given.y, 3)(net.body(x))
    f, queries = np.asarray(net.body(given.x), np.float64), np.asarray(net.body(x), np.float64)
    for k in range(3):
        own = f[np.asarray(given.y) == k]
        share = len(own) / (len(own) + 1)
        q = share * np.cov(own.T, bias=True) + (1 - share) * np.cov(f.T, bias=True) + np.eye(8)
        away = queries - own.mean(axis=0)
        expected = [-2.0 * row @ np.linalg.solve(q, row) for row in away]
        np.testing.assert_allclose(ours[:, k], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("width", [3, 40])
def test_the_pooled_head_is_linear_discriminant_analysis(width):
    """Against scikit-learn's, whose covariance divides by the examples, with W + I in its place;
    with fewer and with more features than examples."""
    from sklearn.covariance import EmpiricalCovariance
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 5)
    x = rng.normal(size=(20, width)) * rng.uniform(0.5, 3, width) + rng.normal(size=(4, width))[y]
    queries = rng.normal(size=(30, width))

    class Shrunk(EmpiricalCovariance):
        def fit(self, X, y=None):
            super().fit(X)
            self.covariance_ = self.covariance_ * 20 / 16 + np.eye(width)
            return self

    theirs = LinearDiscriminantAnalysis(solver="lsqr", covariance_estimator=Shrunk()).fit(x, y)
    given = [jnp.asarray(a, jnp.float32) for a in (x, queries)]
    ours = jax.nn.softmax(discriminant(0.5, given[0], jnp.asarray(y), 4)(given[1]))
    np.testing.assert_allclose(ours, theirs.predict_proba(queries), atol=1e-4)


def test_of_one_shot_the_pooled_head_is_the_nearest_example():
    x, queries = (jax.random.normal(jax.random.key(i), (n, 6)) for i, n in enumerate((4, 9)))
    head = discriminant(0.3, x, jnp.arange(4), 4)
    away = -0.3 * jnp.sum((queries[:, None] - x) ** 2, axis=-1)
    np.testing.assert_allclose(jax.nn.softmax(head(queries)), jax.nn.softmax(away), atol=1e-5)


def pooled_head(scale, ways):
    """Of the inputs themselves."""
    return lambda net, given: discriminant(scale, given.x, given.y, ways)


def mahalanobis_head(scale, ways):
    return lambda net, given: quadratic(scale, given.x, given.y, ways)


@pytest.mark.parametrize("made", [PrototypeHead, mahalanobis_head, pooled_head])
def test_classes_that_a_task_lacks_take_no_part(made):
    net = headless(MLPOptions(hidden=(8,), init="he").build(PROBLEM, key=KEY))
    logits = made(0.5, 4)(net, support([0, 2, 2]))(jnp.ones((2, 4)))
    assert np.all(logits[:, jnp.array([1, 3])] <= ABSENT / 2)
    np.testing.assert_array_equal(jax.nn.softmax(logits)[:, jnp.array([1, 3])], 0)


@pytest.mark.parametrize("n", [12, 100])
def test_one_covariance_for_all_is_inverted(n):
    """Against NumPy in float64, with some directions in which classes spread a lot."""
    rng = np.random.default_rng(3)
    spread = rng.normal(size=(n, 60)) * np.geomspace(30, 0.1, 60) / np.sqrt(n)
    given = rng.normal(size=(5, 60))
    expected = given @ np.linalg.inv(spread.T @ spread + np.eye(60))
    ours = shrunk_rows(jnp.asarray(spread, jnp.float32), jnp.asarray(given, jnp.float32))
    np.testing.assert_allclose(ours, expected, atol=2e-3)


def test_a_solution_and_its_volume_have_the_derivatives_of_xlas_own():
    x = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    matrix = jnp.asarray(np.cov(x.T) + np.eye(4, dtype=np.float32), jnp.float32)
    given = jnp.asarray(x[:2].T, jnp.float32)

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
