"""The learner of tables: its symmetries, gaps and units, and a second route in NumPy."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.algorithms.tables import Tables, TablesOptions
from arml.core.episodes import Examples, Problem, Task
from arml.nn.networks import MLPOptions

KEY = jax.random.key(0)
COLUMNS, WAYS, N, M = 5, 3, 12, 4


def table(kind: str) -> tuple[Examples, jax.Array]:
    """A support set with gaps, an empty row and an empty column; and queries."""
    rng = np.random.default_rng(0)
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
    else:
        y = y.astype(np.int32)
    return Examples(jnp.asarray(x[:N]), jnp.asarray(y)), jnp.asarray(x[N:])


def built(kind: str) -> Tables:
    each = (WAYS, N // WAYS, 2) if kind == "classification" else (1, N, M)
    unused = MLPOptions(hidden=()).build(Problem("regression", (1,), 1, 1, 1), key=KEY)
    options = TablesOptions(width=4, depth=1)
    return options.build(unused, Problem(kind, (COLUMNS, 3), *each, inputs="tables"), key=KEY)


@pytest.fixture(scope="module", params=["classification", "regression"])
def case(request):
    """A learner, its examples and queries, and a compiled function from both to outputs."""
    learner = built(request.param)
    predict = jax.jit(lambda support, x: learner.adapt(support, key=KEY).predict(x))
    return learner, *table(request.param), predict


def test_permuting_columns_rows_or_classes_permutes_the_outputs(case):
    learner, support, queries, predict = case
    usual = predict(support, queries)
    columns, rows = np.array([3, 0, 4, 2, 1]), np.random.default_rng(1).permutation(N)
    moved = predict(Examples(support.x[:, columns], support.y), queries[:, columns])
    np.testing.assert_allclose(moved, usual, atol=1e-5)
    moved = predict(Examples(support.x[rows], support.y[rows]), queries)
    np.testing.assert_allclose(moved, usual, atol=1e-5)
    if learner.ways:
        classes = jnp.array([2, 0, 1], jnp.int32)
        renamed = predict(Examples(support.x, classes[support.y]), queries)
        np.testing.assert_allclose(renamed[:, classes], usual, atol=1e-5)


def test_missing_cells_empty_rows_and_units_change_nothing(case):
    _, support, queries, predict = case
    usual = predict(support, queries)
    hidden = jnp.where(support.x[..., 1:2] > 0, support.x, jnp.array([77.0, 0.0, 1.0]))
    asked = jnp.where(queries[..., 1:2] > 0, queries, jnp.array([-5.0, 0.0, 1.0]))
    np.testing.assert_array_equal(predict(Examples(hidden, support.y), asked), usual)
    other = support.y.at[N - 1].set(0)
    np.testing.assert_allclose(predict(Examples(support.x, other), queries), usual, atol=1e-6)
    scale = jnp.array([8.0, 1.0, 1.0])
    moved = predict(Examples(support.x * scale, support.y), queries * scale)
    np.testing.assert_allclose(moved, usual, atol=1e-4)


def test_the_prediction_is_ridge_regression_in_the_kernel(case):
    """The second route: the kernel by loops over cells, and a dense solver, in NumPy."""
    learner, support, *_ = case

    @eqx.filter_jit
    def inside(learner):
        solved = learner.solve(support)
        kernel = solved.kernel._replace(measure=None)
        return kernel, kernel.between(kernel.cells, kernel.places) @ solved.dual, solved.mean

    kernel, ours, mean = jax.tree.map(np.asarray, inside(learner))
    shares = np.exp(kernel.numbers[:4]) / np.exp(kernel.numbers[:4]).sum()

    def similar(i: int, j: int) -> float:
        """Eq. (1)."""
        line = smooth = steps = 0.0
        for c in range(COLUMNS):
            w, v, u = kernel.weights[:, c]
            (z, r, m, _), (z2, r2, m2, _) = ([part[k, c] for part in kernel.cells] for k in (i, j))
            line += w * z * z2
            smooth += v * ((z - z2) ** 2 + (m != m2)) / 2
            steps += u * (abs(r - r2) + (m != m2))
        far = np.sum((kernel.places[i] - kernel.places[j]) ** 2) / 2
        return float(shares @ [line, np.exp(-smooth), np.exp(-steps), np.exp(-far)])

    places = np.flatnonzero(kernel.cells.rows)
    dense = np.array([[similar(i, j) for j in places] for i in places])
    y = np.asarray(support.y)[places]
    labels = np.eye(WAYS)[y] if learner.ways else (y - y.mean()) / y.std()
    ridge = np.exp(kernel.numbers[4]) + 1e-3
    off = labels - labels.mean(axis=0)
    fitted = dense @ np.linalg.solve(dense + ridge * np.eye(len(places)), off)  # Eq. (2)
    np.testing.assert_allclose(ours[places], fitted, rtol=2e-3, atol=2e-4)
    np.testing.assert_allclose(mean, np.eye(WAYS)[y].mean(axis=0) if learner.ways else [y.mean()])


def test_a_larger_ridge_is_the_nearest_class_mean():
    """(K + l I)^-1 tends to I / l: the score of a class is its share of the similarity."""
    learner = built("classification")
    settings = learner.settings.at[:, 4].set(9.0).at[:, 5].set(9.0).at[:, 6].set(0.0)
    learner = dataclasses.replace(learner, settings=settings)
    support, queries = table("classification")

    @eqx.filter_jit
    def both(learner):
        solved = learner.solve(support)
        rows = solved.kernel.cells.rows
        off = jnp.where(rows[:, None], jax.nn.one_hot(support.y, WAYS) - solved.mean, 0.0)
        similar = learner.similar(solved.kernel, queries)
        return learner.adapt(support, key=KEY).predict(queries), similar @ off

    logits, means = both(learner)
    np.testing.assert_allclose(logits, means, rtol=2e-2, atol=2e-3)


def test_the_likelihood_of_numbers_has_a_finite_gradient():
    """The contract checks that of classes."""
    support, queries = table("regression")
    task = Task(support, Examples(queries, support.y[:M]), jnp.zeros((), jnp.int32))
    grad = eqx.filter_jit(eqx.filter_value_and_grad(lambda it: it.meta_loss(task, key=KEY)))
    for leaf in jax.tree.leaves(grad(built("regression"))):
        assert np.all(np.isfinite(leaf))
