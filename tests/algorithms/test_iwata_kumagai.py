"""Iwata and Kumagai's learner of tables against a second route in NumPy."""

import equinox as eqx
import jax
import numpy as np
import pytest

from arml.algorithms.iwata_kumagai import IwataKumagaiOptions
from arml.nn.cells import measure, standard_targets
from arml.nn.flat import CellsOptions
from small_tables import COLUMNS, WAYS, problem, table

KEY = jax.random.key(0)


@pytest.fixture(scope="module", params=["classification", "regression"])
def case(request):
    """A learner, compiled: from a support set and queries to outputs."""
    net = CellsOptions(width=4).build(problem(request.param), key=KEY)
    learner = IwataKumagaiOptions(width=4).build(net, problem(request.param), key=KEY)
    predict = jax.jit(lambda s, x: learner.adapt(s, key=KEY).predict(x))
    return request.param, learner, predict


def test_the_prediction_is_that_of_loops_over_cells(case):
    """The second route: sums over the cells that are there, one by one, in NumPy."""
    kind, learner, predict = case
    support, queries = table(kind)

    @eqx.filter_jit
    def inside(support, queries):
        by = measure(support.x)
        cells = by(support.x)
        scaled = standard_targets(support.y[:, 0], cells.rows) if kind == "regression" else None
        return cells, by(queries), scaled

    cells, asked, scaled = jax.tree.map(np.asarray, inside(support, queries))
    learner = jax.tree.map(np.asarray, learner)

    def run(mlp, *parts):
        h = np.concatenate([np.atleast_1d(part) for part in parts])
        for layer in mlp.layers[:-1]:
            h = np.maximum(h @ layer.weight + layer.bias, 0)
        return h @ mlp.layers[-1].weight + mlp.layers[-1].bias

    def cell(of, n, i):
        return np.array([of.score[n, i], of.rank[n, i], of.kind[n, i]])

    def mean(values):
        """Zero of none: a column or row without a cell is left out of all that follows."""
        return np.mean(values, axis=0) if values else np.zeros(4)

    rows = np.flatnonzero(cells.there.any(axis=1))
    labels = scaled[0][:, None] if scaled else np.eye(WAYS)[np.asarray(support.y)]
    targets = range(labels.shape[1])

    def there(of, n):
        return [i for i in range(COLUMNS) if of.there[n, i]]

    def of_column(net, i, before=None):
        each = []
        for n in (n for n in rows if cells.there[n, i]):
            each.append(
                run(net.inside, *([] if before is None else [before[n]]), cell(cells, n, i))
            )
        return run(net.outside, mean(each))

    def of_label(net, j, before=None):
        more = [[] if before is None else [before[n]] for n in rows]
        each = [run(net.inside, *m, labels[n, j]) for m, n in zip(more, rows, strict=True)]
        return run(net.outside, mean(each))

    v = [of_column(learner.columns, i) for i in range(COLUMNS)]  # Eq. (1)
    c = [of_label(learner.labels, j) for j in targets]  # Eq. (1)
    u = {}
    for n in rows:
        of_cells = mean(
            [run(learner.rows.inside, v[i], cell(cells, n, i)) for i in there(cells, n)]
        )
        of_labels = mean([run(learner.row_labels, c[j], labels[n, j]) for j in targets])
        u[n] = run(learner.rows.outside, of_cells + of_labels)  # Eq. (2)
    v = [of_column(learner.refined, i, u) for i in range(COLUMNS)]  # Eq. (3)

    def place(of, n):
        each = [run(learner.place.inside, v[i], cell(of, n, i)) for i in there(of, n)]
        return run(learner.place.outside, mean(each))  # Eq. (4)

    queries_at = [place(asked, n) for n in range(len(asked.there))]
    if kind == "classification":
        means = [
            np.mean([place(cells, n) for n in rows if labels[n, k]], axis=0) for k in range(WAYS)
        ]
        expected = [
            [-np.exp(learner.scale) * np.sum((z - m) ** 2) for m in means] for z in queries_at
        ]
    else:
        refined = of_label(learner.refined_labels, 0, u)  # Eq. (3)
        numbers = [run(learner.answer, refined, z) for z in queries_at]
        expected = scaled[1] + scaled[2] * np.array(numbers)
    np.testing.assert_allclose(predict(support, queries), expected, rtol=1e-4, atol=1e-5)
