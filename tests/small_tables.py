"""A small table with gaps, and what holds of every learner of tables."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from arml.core.episodes import Examples, Problem

COLUMNS, WAYS, N, M = 5, 3, 12, 4
Predict = Callable[[Examples, jax.Array], jax.Array]
"""From a support set and queries to outputs."""


def table(kind: str, seed: int = 0) -> tuple[Examples, jax.Array]:
    """A support set with gaps, an empty row and an empty column; and queries."""
    rng = np.random.default_rng(seed)
    x = np.ones((N + M, COLUMNS, 3), np.float32)
    x[..., 0] = rng.normal(size=(N + M, COLUMNS)) * [1, 10, 0.1, 1, 1] + [0, 50, 0, 0, 0]
    x[:, 3, 0] = x[:, 3, 0] > 0
    x[..., 2] = np.arange(COLUMNS) == 3
    x[rng.uniform(size=x.shape[:2]) < 0.2] = 0
    x[N - 1] = 0
    x[:, 4] = 0
    y = rng.permutation(np.arange(N) % WAYS)
    if kind == "regression":
        y = (x[:N, :1, 0] + y[:, None]).astype(np.float32)
        return Examples(jnp.asarray(x[:N]), jnp.asarray(y)), jnp.asarray(x[N:])
    return Examples(jnp.asarray(x[:N]), jnp.asarray(y, jnp.int32)), jnp.asarray(x[N:])


def problem(kind: str) -> Problem:
    each = (WAYS, N // WAYS, 2) if kind == "classification" else (1, N, M)
    return Problem(kind, (COLUMNS, 3), *each)


def check_permutations(kind: str, predict: Predict) -> None:
    support, queries = table(kind)
    usual = np.asarray(predict(support, queries))
    columns, rows = np.array([3, 0, 4, 2, 1]), np.random.default_rng(1).permutation(N)
    moved = predict(Examples(support.x[:, columns], support.y), queries[:, columns])
    np.testing.assert_allclose(moved, usual, atol=1e-5)
    moved = predict(Examples(support.x[rows], support.y[rows]), queries)
    np.testing.assert_allclose(moved, usual, atol=1e-5)
    np.testing.assert_allclose(predict(support, queries[::-1])[::-1], usual, atol=1e-5)
    if kind == "classification":
        classes = np.array([2, 0, 1])
        renamed = predict(Examples(support.x, jnp.asarray(classes, jnp.int32)[support.y]), queries)
        np.testing.assert_allclose(renamed[:, classes], usual, atol=1e-5)


def check_gaps(kind: str, predict: Predict) -> None:
    support, queries = table(kind)
    usual = predict(support, queries)
    hidden = jnp.where(support.x[..., 1:2] > 0, support.x, jnp.array([77.0, 0.0, 1.0]))
    asked = jnp.where(queries[..., 1:2] > 0, queries, jnp.array([-5.0, 0.0, 1.0]))
    np.testing.assert_array_equal(predict(Examples(hidden, support.y), asked), usual)
    other = support.y.at[N - 1].set(0)
    np.testing.assert_allclose(predict(Examples(support.x, other), queries), usual, atol=1e-6)


def check_units(kind: str, predict: Predict) -> None:
    """Other units of the values change nothing."""
    support, queries = table(kind)
    scale = jnp.where(jnp.arange(3) == 0, 8.0, 1.0)
    moved = predict(Examples(support.x * scale, support.y), queries * scale)
    np.testing.assert_allclose(moved, predict(support, queries), atol=1e-4)
