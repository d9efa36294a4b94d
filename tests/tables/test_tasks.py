"""Tasks of tables: the prior, which rows are drawn, and one's own files."""

import jax
import numpy as np
import pytest

from arml.experiment.options import TASKS
from table_prior import SyntheticTables, TablesOptions

for name in ("tables", "tables-regression"):
    del TASKS.others[name]  # other tests list what is registered
OPTIONS = TablesOptions(columns=5, ways=3, rows=12, questions=6)
KEYS = jax.random.split(jax.random.key(0), 200)


@pytest.fixture(scope="module", params=["classes", "numbers"])
def drawn(request):
    options = TablesOptions(**{**vars(OPTIONS), "predict": request.param})
    tasks = SyntheticTables(options.problem)
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


def test_half_of_the_tasks_have_as_many_examples_of_each_class(drawn):
    kind, tasks = drawn
    if kind == "numbers":
        return
    rows = np.any(tasks.support.x[..., 1] > 0, axis=2)
    counts = [np.bincount(y[kept]) for y, kept in zip(tasks.support.y, rows, strict=True)]
    balanced = [len(set(n[n > 0])) == 1 for n in counts]
    assert 0.5 < np.mean(balanced) < 0.95


def test_the_columns_foretell_the_labels(drawn):
    """The nearest class mean of standardised values is better than chance: the labels are of the
    columns."""
    kind, tasks = drawn
    if kind == "numbers":
        return
    right, chance = [], []
    for s, q in zip(range(len(KEYS)), range(len(KEYS)), strict=True):
        x, y = tasks.support.x[s, :, :, 0], tasks.support.y[s]
        kept = np.any(tasks.support.x[s, :, :, 1] > 0, axis=1)
        mean, unit = x[kept].mean(0), x[kept].std(0) + 1e-6
        classes = np.unique(y[kept])
        centres = np.stack([((x[kept] - mean) / unit)[y[kept] == k].mean(0) for k in classes])
        off = (tasks.query.x[q, :, :, 0] - mean) / unit
        found = classes[np.argmin(np.square(off[:, None] - centres).sum(-1), axis=1)]
        right.append(np.mean(found == tasks.query.y[q]))
        chance.append(1 / len(classes))
    assert np.mean(right) > np.mean(chance) + 0.1


def test_refusals():
    with pytest.raises(ValueError, match="at least the 3 ways"):
        TablesOptions(ways=3, rows=2).check()
