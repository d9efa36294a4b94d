"""Mixtures: shares of families, and draws of one family."""

import jax
import numpy as np
import pytest
from scipy.stats import chisquare

from arml.tasks.functions import FAMILY_NAMES, functions_2d
from arml.tasks.mixture import mixture

TASKS = functions_2d(noise=0.0)


def drawn(tasks, n=400):
    return jax.jit(jax.vmap(tasks.sample))(jax.random.split(jax.random.key(3), n))


def test_families_come_in_their_shares():
    some = mixture(TASKS).of({"line": 0.5, "ripple": 0.2, "cubic": 0.3})
    counts = np.bincount(np.asarray(drawn(some).family), minlength=6)
    assert counts[[0, 2, 4]].sum() == 0
    assert chisquare(counts[[1, 5, 3]], 400 * np.array([0.5, 0.2, 0.3])).pvalue > 1e-3


def test_a_task_is_of_the_family_that_it_names():
    lines = drawn(mixture(TASKS).only("line"), 50)
    assert set(np.asarray(lines.family).tolist()) == {FAMILY_NAMES.index("line")}
    x, y = np.asarray(lines.support.x[..., 0], float), np.asarray(lines.support.y[..., 0], float)
    for own_x, own_y in zip(x, y, strict=True):  # ten points on one line
        assert np.abs(np.polyval(np.polyfit(own_x, own_y, 1), own_x) - own_y).max() < 1e-3


def test_identities_differ_exactly_if_the_tasks_do():
    tasks = mixture(TASKS)
    assert tasks.only("line").identity() == tasks.only("cubic").only("line").identity()
    assert tasks.only("line").identity() != tasks.only("cubic").identity()


@pytest.mark.parametrize(
    ("stage", "said"), [({"oak": 1.0}, "unknown family 'oak'"), ({"line": 0.7}, "sum to 1")]
)
def test_other_shares_are_refused(stage, said):
    with pytest.raises(ValueError, match=said):
        mixture(TASKS).of(stage)
