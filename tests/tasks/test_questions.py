"""Conflicting questions: the same pictures, other labels."""

from functools import cache
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest

from arml.core.episodes import Task
from arml.experiment.options import TASKS
from conflict import QUESTIONS, STYLES, ConflictOptions, styles_of

del TASKS.others["starter-conflict"]  # other tests expect the package's own
PARTS = ("train", "validation", "test")
pytestmark = pytest.mark.slow


@cache
def splits(families: tuple[str, ...] = (), queries: int = 2):
    return ConflictOptions(shots=2, queries=queries, families=families).build(Path("none"))


@eqx.filter_jit
def sample(tasks, keys):
    return jax.vmap(tasks.sample)(keys)


def test_both_questions_have_the_same_pictures():
    """The mean picture of either family, and the spread of each pixel, agree within chance."""
    tasks = splits().train
    drawn = sample(tasks, jax.random.split(jax.random.key(0), 400))
    x, family = np.asarray(drawn.support.x)[..., 0], np.asarray(drawn.family)
    names = list(QUESTIONS)
    assert set(family) == set(range(len(names)))
    for first in (0, 2, 4):
        one, other = (x[family == f] for f in (first, first + 1))
        # One number a task, because the pictures of a task of style share their tones.
        for summary in (np.mean, np.std):
            a, b = (np.array([summary(task) for task in part]) for part in (one, other))
            error = np.hypot(a.std() / len(a) ** 0.5, b.std() / len(b) ** 0.5)
            assert abs(a.mean() - b.mean()) < 4 * error


def test_what_is_asked_decides_what_the_classes_are():
    """In a task of style a class has one tone; in one of content it has both, sooner or later."""
    for family, constant in (("glyphs-style", True), ("glyphs-character", False)):
        drawn: Task = sample(splits((family,), 6).train, jax.random.split(jax.random.key(1), 20))
        x = np.asarray(drawn.query.x)[..., 0].reshape(20, 5, 6, 32, 32)
        light = np.median(x, axis=(3, 4)) > 0.5  # the paper
        assert np.all(light == light[:, :, :1]) == constant


def test_classes_and_their_numbers():
    tasks = splits().train
    assert tasks.problem.classes == 116 + 98 + 64 + 3 * 48
    drawn = sample(tasks, jax.random.split(jax.random.key(2), 200))
    counts = [116, 48, 98, 48, 64, 48]
    first = np.cumsum(counts) - counts
    for classes, family in zip(np.asarray(drawn.classes), np.asarray(drawn.family), strict=True):
        assert len(set(classes)) == 5
        assert np.all((classes >= first[family]) & (classes < first[family] + counts[family]))


def test_parts_share_neither_pictures_nor_styles():
    def of(part):
        return {bytes(row) for row in np.asarray(getattr(splits(), part).pixels).reshape(-1, 1024)}

    train, validation, test = map(of, PARTS)
    # Icons of two names may be drawn alike; nearly none are.
    assert len(train & validation) + len(train & test) + len(validation & test) <= 5
    assert sorted(np.concatenate([*map(styles_of, PARTS)])) == list(range(STYLES))
