"""Classifiers that a support set makes, and their linear systems, against NumPy and
scikit-learn."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.core.episodes import Examples, Problem
from arml.nn.heads import (
    ABSENT_LOGIT,
    PrototypeHead,
    discriminant,
    headless,
    quadratic,
    shrunk_rows,
    solved,
)
from small import close, network

PROBLEM = Problem("classification", (4,), 3, 2, 5)
X, QUERIES = (jax.random.normal(jax.random.key(n), (n, 4)) for n in (7, 6))
Y = jnp.array([2, 0, 1, 1, 0, 2, 2])


def by_head(scale: float, x: jax.Array, y: jax.Array, ways: int):
    """The classifier of a network whose features are its inputs."""
    return PrototypeHead(jnp.float32(scale), ways)(headless(network(PROBLEM, ())), Examples(x, y))


@pytest.mark.parametrize("scale", [0.05, 2.0])
def test_the_head_of_prototypes_has_the_softmax_of_the_scaled_distances(scale):
    means = [np.asarray(X)[np.asarray(Y) == k].mean(axis=0) for k in range(3)]
    away = -scale * np.sum((np.asarray(QUERIES)[:, None] - np.stack(means)) ** 2, axis=-1)
    ours = by_head(scale, X, Y, 3)(QUERIES)
    close(*map(jax.nn.softmax, (ours, away)), rtol=1e-4, atol=1e-6)


def test_quadratic_logits_are_the_scaled_mahalanobis_distances():
    """Against Q_k = l S_k + (1 - l) S + I, example by example."""
    x, queries = np.asarray(X, np.float64), np.asarray(QUERIES, np.float64)
    ours = quadratic(2.0, X, Y, 3)(QUERIES)
    for k in range(3):
        own = x[np.asarray(Y) == k]
        share = len(own) / (len(own) + 1)
        q = share * np.cov(own.T, bias=True) + (1 - share) * np.cov(x.T, bias=True) + np.eye(4)
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


@pytest.mark.parametrize("made", [by_head, quadratic, discriminant])
def test_classes_that_a_task_lacks_take_no_part(made):
    logits = made(0.5, X[:3], jnp.array([0, 2, 2]), 4)(QUERIES)
    assert np.all(logits[:, [1, 3]] <= ABSENT_LOGIT / 2)
    np.testing.assert_array_equal(jax.nn.softmax(logits)[:, [1, 3]], 0)


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

    def value(f, both):
        x, volume = f(*both)
        return jnp.sum(jnp.sin(x)) * volume

    def thrice(f):
        first = jax.grad(partial(value, f))
        second = jax.grad(lambda both: sum(jnp.sum(g**2) for g in first(both)))
        return jax.jit(lambda both: (value(f, both), first(both), second(both)))

    close(*(thrice(f)((matrix, given)) for f in (solved, by_xla)), rtol=2e-3, atol=1e-4)
