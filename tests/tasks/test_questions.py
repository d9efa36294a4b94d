"""Conflicting questions: the same pictures, other labels."""

from functools import cache
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.core.episodes import Task
from arml.experiment.options import TASKS
from conflict import (
    QUESTIONS,
    STYLES,
    ConflictOptions,
    Style,
    style_of,
    styled,
    styles_of,
)

del TASKS.others["starter-conflict"]  # other tests expect the package's own
PARTS = ("train", "validation", "test")

pytestmark = pytest.mark.slow


@cache
def splits(families: tuple[str, ...] = (), queries: int = 2):
    return ConflictOptions(shots=2, queries=queries, families=families).build(Path("none"))


@eqx.filter_jit
def sample(tasks, keys):
    return jax.vmap(tasks.sample)(keys)


def test_styles_are_split_into_combinations_that_differ():
    parts = [styles_of(part) for part in PARTS]
    assert [len(part) for part in parts] == [48, 16, 16]
    assert sorted(np.concatenate(parts)) == list(range(STYLES))
    for part in parts:
        for numbers, count in zip(style_of(part), (8, 2, 5), strict=True):
            assert set(numbers) == set(range(count))


def test_a_shape_turns_inverts_and_grows():
    shape = np.full((32, 32), 255, np.uint8)
    shape[4:12, 14:18] = 0  # a mark at the top

    def drawn(direction: int, tone: int, scale: int) -> np.ndarray:
        style = Style(*(jnp.asarray(n) for n in (direction, tone, scale)))
        return np.asarray(styled(jnp.asarray(shape), style, jnp.asarray(False)))

    rows = np.array([np.mean(np.nonzero(drawn(d, 0, 2) < 0.5), axis=1) for d in (0, 2, 4, 6)])
    assert rows[0][0] < 12 < 20 < rows[2][0]  # a half turn: from the top to the bottom
    assert abs(rows[1][1] - 15.5) > 6  # a quarter turn: to a side
    assert abs(rows[1][1] - rows[3][1]) > 12  # three quarters: to the other
    np.testing.assert_allclose(drawn(3, 1, 1), 1 - drawn(3, 0, 1), atol=1e-6)
    areas = [float(np.sum(1 - drawn(0, 0, scale))) for scale in range(5)]
    np.testing.assert_allclose(areas[4] / areas[0], (1.25 / 0.7) ** 2, rtol=0.1)


def test_a_texture_is_lit_from_the_direction_and_toned():
    grey = jnp.full((32, 32), 128, jnp.uint8)
    lit = np.asarray(styled(grey, Style(*(jnp.asarray(n) for n in (0, 0, 0))), jnp.asarray(True)))
    np.testing.assert_allclose(lit[-1] - lit[0], 0.5, atol=1e-5)  # downwards
    np.testing.assert_allclose(lit[:, 0], lit[:, -1], atol=1e-5)
    bright = styled(grey, Style(*(jnp.asarray(n) for n in (0, 1, 0))), jnp.asarray(True))
    np.testing.assert_allclose(np.median(bright) - np.median(lit), 0.4, atol=0.02)


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


def test_parts_share_no_picture():
    def of(part):
        return {bytes(row) for row in np.asarray(getattr(splits(), part).pixels).reshape(-1, 1024)}

    train, validation, test = map(of, PARTS)
    # Icons of two names may be drawn alike; nearly none are.
    assert len(train & validation) + len(train & test) + len(validation & test) <= 5


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"families": ("glyphs",)}, "expected families of"),
        ({"families": ("glyphs-style", "glyphs-style")}, "each at most once"),
        ({"queries": 19}, "at most 20 shots and queries"),
    ],
)
def test_what_cannot_be_is_refused(change, words):
    with pytest.raises(ValueError, match=words):
        ConflictOptions(**change).build(Path("none"))
