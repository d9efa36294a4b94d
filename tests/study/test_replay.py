"""Replay of kept tasks, and the measures of a stream against values computed by hand."""

import math

import jax
import numpy as np
import pytest
from scipy.stats import chisquare

from arml.tasks.functions import functions_2d
from arml.tasks.mixture import mixture
from study.replay import forgetting, kept, measures, replay

STREAM = mixture(functions_2d(shots=3, queries=3))
ERRORS = np.array([[1.0, 9.0, 9.0], [1.5, 2.0, 9.0], [0.9, 3.0, 4.0]])
"""R[stage, family] of an error; family f comes at stage f."""


def drawn(tasks, n=400):
    return jax.jit(jax.vmap(tasks.sample))(jax.random.split(jax.random.key(3), n))


def test_what_is_replayed_are_tasks_that_were_drawn_before():
    memory = kept(STREAM, 3, key=jax.random.key(0))
    known = ["ripple", "line", "cubic"]
    again = drawn(replay(STREAM.only("cubic"), memory, known, 0.5))
    names = np.asarray(STREAM.families)[np.asarray(again.family)]
    counts = [int((names == name).sum()) for name in ("line", "cubic", "ripple")]
    assert sum(counts) == 400
    assert chisquare(counts, 400 * np.array([0.25, 0.5, 0.25])).pvalue > 1e-3
    for name in ("line", "ripple"):
        place = STREAM.families.index(name)
        own = {part.tobytes() for part in np.asarray(memory.query.y[place])}
        assert len(own) == 3
        assert {part.tobytes() for part in np.asarray(again.query.y)[names == name]} == own
    cubics = np.asarray(again.query.y)[names == "cubic"][:, 0, 0]
    assert len(np.unique(cubics)) == len(cubics)  # the family that arrives is drawn anew


def test_without_known_families_nothing_is_replayed():
    lines = STREAM.only("line")
    memory = kept(lines, 2, key=jax.random.key(0))
    found = drawn(replay(lines, memory, ["line"], 0.5), 100)
    assert set(np.asarray(found.family).tolist()) == {STREAM.families.index("line")}
    ys = np.asarray(found.query.y)[:, 0, 0]
    assert len(np.unique(ys)) == len(ys)


def test_forgetting_by_hand():
    # a ends at its best; b's best was 2; c came last.
    assert forgetting(ERRORS, (0, 1, 2), "mse") == pytest.approx((0.0 + 0.5) / 2)
    accuracies = np.array([[0.8, 0.2], [0.6, 0.7], [0.7, 0.9]])
    assert forgetting(accuracies, (0, 1), "accuracy") == pytest.approx((0.1 / 0.8 + 0.0) / 2)
    assert math.isnan(forgetting(np.array([[0.5]]), (0,), "mse"))


def test_a_stream_is_measured_over_its_families():
    names = ("a", "b", "c")
    stages = [
        {"family": name, "scores": dict(zip(names, row, strict=True)), "tasks": 10}
        | {"replayed": 5 * (i > 0)}
        for i, (name, row) in enumerate(zip(names, ERRORS.tolist(), strict=True))
    ]
    found = measures(stages, "mse")
    assert found["final_mean"] == pytest.approx((0.9 + 3.0 + 4.0) / 3)
    assert found["forgetting"] == forgetting(ERRORS, (0, 1, 2), "mse")
    assert (found["tasks"], found["replayed"]) == (30, 10)
