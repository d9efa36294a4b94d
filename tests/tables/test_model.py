"""The learner of tables against a second route in NumPy, and what its parts do."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.algorithms.tables import Tables, TablesOptions
from arml.core.episodes import Examples, Problem, Task
from arml.nn.networks import MLPOptions
from small_tables import COLUMNS, WAYS, M, problem, table

KEY = jax.random.key(0)
UNUSED = MLPOptions(hidden=()).build(Problem("regression", (1,), 1, 1, 1), key=KEY)
"""The base network, which the learner does not use."""


def built(kind: str) -> Tables:
    return TablesOptions(width=4, depth=1).build(UNUSED, problem(kind), key=KEY)


@pytest.fixture(scope="module", params=["classification", "regression"])
def case(request):
    """A kind of problem, and a learner for it."""
    return request.param, built(request.param)


def test_the_prediction_is_ridge_regression_in_the_kernel(case):
    """The second route: the kernel by loops over cells, and a dense solver, in NumPy."""
    kind, learner = case
    support, _ = table(kind)

    @eqx.filter_jit
    def inside(learner):
        read, solved = learner.read(support), learner.solve(support)
        own = read.kernel(read.cells, read.places)
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
