"""Stages, and replay of kept tasks."""

import jax
import numpy as np
from scipy.stats import chisquare

from arml.growth.replay import kept, replay, with_replay
from arml.tasks.functions import functions_2d
from arml.tasks.mixture import mixture

STREAM = mixture(functions_2d(shots=3, queries=3))


def drawn(tasks, n=400):
    return jax.jit(jax.vmap(tasks.sample))(jax.random.split(jax.random.key(3), n))


def test_shares_of_known_families_that_are_drawn_anew():
    assert with_replay({"c": 1.0}, ["a", "b"], 0.5) == {"c": 0.5, "a": 0.25, "b": 0.25}
    assert with_replay({"a": 1.0}, ["a"], 0.5) == {"a": 1.0}


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
