"""Learners of tables: symmetries, gaps, and a second route in NumPy."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.algorithms.tables import Tables, TablesOptions
from arml.core.episodes import Examples, Problem, Task
from arml.nn.flat import CellsOptions

COLUMNS, WAYS, N, M = 5, 3, 12, 4
KEY = jax.random.key(0)


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


def built(kind: str) -> Tables:
    net = CellsOptions(width=4).build(problem(kind), key=KEY)
    return TablesOptions(width=4, depth=1).build(net, problem(kind), key=KEY)


@pytest.fixture(scope="module", params=["classification", "regression"])
def case(request):
    """A learner, compiled: from a support set and queries to outputs."""
    learner = built(request.param)
    predict = jax.jit(lambda s, x: learner.adapt(s, key=KEY).predict(x))
    return request.param, learner, predict


def test_permuting_columns_rows_or_classes_permutes_the_outputs(case):
    kind, _, predict = case
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
    kind, _, predict = case
    support, queries = table(kind)
    usual = predict(support, queries)
    hidden = jnp.where(support.x[..., 1:2] > 0, support.x, jnp.array([77.0, 0.0, 1.0]))
    asked = jnp.where(queries[..., 1:2] > 0, queries, jnp.array([-5.0, 0.0, 1.0]))
    np.testing.assert_array_equal(predict(Examples(hidden, support.y), asked), usual)
    other = support.y.at[N - 1].set(0)
    np.testing.assert_allclose(predict(Examples(support.x, other), queries), usual, atol=1e-6)


def test_units_do_not_matter(case):
    kind, _, predict = case
    support, queries = table(kind)
    scale = jnp.where(jnp.arange(3) == 0, 8.0, 1.0)
    moved = predict(Examples(support.x * scale, support.y), queries * scale)
    np.testing.assert_allclose(moved, predict(support, queries), atol=1e-4)


def test_the_prediction_is_ridge_regression_in_the_kernel(case):
    """The second route: the kernel by loops over cells, and a dense solver, in NumPy."""
    kind, learner, _ = case
    support, _ = table(kind)

    @eqx.filter_jit
    def inside(learner):
        read, solved = learner.read(support), learner.solve(support)
        own = learner.kernel(read, read.cells, read.places)
        return read._replace(measure=None), own, (solved.dual, solved.mean, solved.deviation)

    read, ours, (solution, mean, deviation) = jax.tree.map(np.asarray, inside(learner))
    kept = read.cells.rows
    shares = np.exp(read.numbers[:4]) / np.exp(read.numbers[:4]).sum()

    def similar(i: int, j: int) -> float:
        """Eq. (1)."""
        line = smooth = steps = 0.0
        for c in range(COLUMNS):
            w, v, u = read.weights[:, c]
            (z, r, m, _), (z2, r2, m2, _) = ([part[k, c] for part in read.cells] for k in (i, j))
            line += w * z * z2
            smooth += v * ((z - z2) ** 2 + (m != m2)) / 2
            steps += u * (abs(r - r2) + (m != m2))
        far = np.sum((read.places[i] - read.places[j]) ** 2) / 2
        return float(shares @ [line, np.exp(-smooth), np.exp(-steps), np.exp(-far)])

    places = np.flatnonzero(kept)
    kernel = np.array([[similar(i, j) for j in places] for i in places])
    y = np.asarray(support.y)[places]
    labels = np.eye(WAYS)[y] if kind == "classification" else (y - y.mean()) / y.std()
    ridge = np.exp(read.numbers[4]) + 1e-3
    off = labels - labels.mean(axis=0)
    dual = np.linalg.solve(kernel + ridge * np.eye(len(places)), off)  # Eq. (2)
    fitted = kernel @ dual
    if kind == "classification":
        fitted = np.exp(read.numbers[5]) * fitted + read.numbers[6] * np.log(labels.mean(axis=0))
    else:
        fitted = y.mean() + y.std() * fitted
    ours = np.where(kept, ours, 0)[places] @ solution
    if kind == "classification":
        ours = np.exp(read.numbers[5]) * ours + read.numbers[6] * np.log(mean)
    else:
        ours = mean + deviation * ours
    np.testing.assert_allclose(ours, fitted, rtol=2e-3, atol=2e-4)


def test_a_larger_ridge_is_the_nearest_class_mean():
    """(K + l I)^-1 tends to I / l: the score of a class is its share of the similarity."""
    learner = built("classification")
    settings = learner.settings.at[:, 4].set(9.0).at[:, 5].set(9.0).at[:, 6].set(0.0)
    learner = dataclasses.replace(learner, settings=settings)
    support, queries = table("classification")

    @eqx.filter_jit
    def both(learner):
        solved = learner.solve(support)
        rows = learner.read(support).cells.rows
        off = jnp.where(rows[:, None], jax.nn.one_hot(support.y, WAYS) - solved.mean, 0.0)
        return learner.adapt(support, key=KEY).predict(queries), solved.similar(queries) @ off

    logits, means = both(learner)
    np.testing.assert_allclose(logits, means, rtol=2e-2, atol=2e-3)


def test_the_likelihood_of_numbers_has_a_finite_gradient():
    learner = built("regression")
    support, queries = table("regression")
    task = Task(support, Examples(queries, support.y[:M]), jnp.zeros((), jnp.int32))
    grad = eqx.filter_jit(eqx.filter_value_and_grad(lambda it: it.meta_loss(task, key=KEY)))
    loss, gradient = grad(learner)
    assert np.isfinite(loss)
    for leaf in jax.tree.leaves(eqx.filter(gradient, eqx.is_inexact_array)):
        assert np.all(np.isfinite(leaf))
