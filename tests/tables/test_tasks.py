"""Tasks of tables: the prior, and which rows are drawn."""

import jax
import numpy as np
import pytest

from arml.experiment.options import TASKS
from table_prior import SyntheticTables, TablesOptions

for name in ("tables", "tables-regression"):
    del TASKS.others[name]  # other tests list what is registered
OPTIONS = {"columns": 5, "ways": 3, "rows": 12, "questions": 6}
KEYS = jax.random.split(jax.random.key(0), 200)


@pytest.fixture(scope="module", params=["classes", "numbers"])
def drawn(request):
    tasks = SyntheticTables(TablesOptions(**OPTIONS, predict=request.param).problem)
    return request.param, jax.tree.map(np.asarray, jax.jit(jax.vmap(tasks.sample))(KEYS))


def test_what_is_drawn_is_a_task(drawn):
    kind, tasks = drawn
    x, there = tasks.support.x[..., 0], tasks.support.x[..., 1]
    assert np.all(np.isfinite(x))
    assert set(np.unique(there)) == {0, 1}
    assert np.all(x[there == 0] == 0)
    assert set(np.unique(tasks.family)) == {0, 1, 2, 3}
    columns = np.any(np.concatenate([there, tasks.query.x[..., 1]], axis=1), axis=1).sum(axis=1)
    assert set(columns) == {2, 3, 4, 5}
    assert np.all(np.any(tasks.query.x[..., 1] > 0, axis=2)), "a query without a cell"
    rows = np.any(there > 0, axis=2)
    assert len(set(rows.sum(axis=1))) > 5, "support sets differ in size"
    assert np.all(np.isfinite(tasks.query.y))
    if kind == "classes":
        for y, y_query, kept in zip(tasks.support.y, tasks.query.y, rows, strict=True):
            assert set(y_query) <= set(y[kept]), "a query of a class without an example"


def test_the_values_of_a_category_exclude_each_other(drawn):
    """Columns side by side of one category: a row has one of them, and gaps are of all."""
    _, tasks = drawn
    x = np.concatenate([tasks.support.x, tasks.query.x], axis=1)
    rows = np.any(x[..., 1] > 0, axis=2, keepdims=True)
    indicator, there = x[..., 2] > 0, x[..., 1] > 0
    whole = np.all(~rows | (indicator & there), axis=1)  # columns without gaps
    exclusive = 0
    for table, columns, kept in zip(x[..., 0], whole, rows[..., 0], strict=True):
        some = table[kept][:, columns]
        exclusive += some.shape[1] > 1 and len(some) > 3 and bool(np.all(some.sum(axis=1) == 1))
    assert exclusive >= 3


@pytest.mark.parametrize("drawn", ["classes"], indirect=True)
def test_half_of_the_tasks_are_balanced_and_the_columns_foretell_the_labels(drawn):
    """The nearest class mean of standardised values is better than chance."""
    _, (support, query, *_) = drawn
    balanced, gains = [], []
    for x, y, asked, answers in zip(*support, *query, strict=True):
        kept = np.any(x[..., 1] > 0, axis=1)
        x, y = x[kept, :, 0], y[kept]
        classes, counts = np.unique(y, return_counts=True)
        balanced.append(len(set(counts)) == 1)
        mean, unit = x.mean(axis=0), x.std(axis=0) + 1e-6
        centres = np.stack([((x - mean) / unit)[y == k].mean(axis=0) for k in classes])
        off = (asked[..., 0] - mean) / unit
        found = classes[np.argmin(np.square(off[:, None] - centres).sum(axis=-1), axis=1)]
        gains.append(np.mean(found == answers) - 1 / len(classes))
    assert 0.5 < np.mean(balanced) < 0.95
    assert np.mean(gains) > 0.1


def test_refusals():
    with pytest.raises(ValueError, match="at least the 3 ways"):
        TablesOptions(ways=3, rows=2).check()
