"""The learner of tables: symmetries, gaps and units."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.algorithms.tables import TablesOptions
from arml.core.episodes import Examples, Problem
from arml.nn.networks import MLPOptions
from small_tables import N, problem, table

KEY = jax.random.key(0)
UNUSED = MLPOptions(hidden=()).build(Problem("regression", (1,), 1, 1, 1), key=KEY)
"""The base network, which the learner does not use."""


@pytest.fixture(scope="module", params=("classification", "regression"))
def case(request):
    """The kind of problem, and a compiled learner: from a support set and queries to outputs."""
    kind = request.param
    learner = TablesOptions(width=4, depth=1).build(UNUSED, problem(kind), key=KEY)
    return kind, jax.jit(lambda support, x: learner.adapt(support, key=KEY).predict(x))


def test_permuting_columns_rows_or_classes_permutes_the_outputs(case):
    kind, predict = case
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


def test_the_value_of_a_missing_cell_and_an_empty_row_say_nothing(case):
    kind, predict = case
    support, queries = table(kind)
    usual = predict(support, queries)
    hidden = jnp.where(support.x[..., 1:2] > 0, support.x, jnp.array([77.0, 0.0, 1.0]))
    asked = jnp.where(queries[..., 1:2] > 0, queries, jnp.array([-5.0, 0.0, 1.0]))
    np.testing.assert_array_equal(predict(Examples(hidden, support.y), asked), usual)
    other = support.y.at[N - 1].set(0)
    np.testing.assert_allclose(predict(Examples(support.x, other), queries), usual, atol=1e-6)


def test_units_do_not_matter(case):
    kind, predict = case
    support, queries = table(kind)
    scale = jnp.where(jnp.arange(3) == 0, 8.0, 1.0)
    moved = predict(Examples(support.x * scale, support.y), queries * scale)
    np.testing.assert_allclose(moved, predict(support, queries), atol=1e-4)
