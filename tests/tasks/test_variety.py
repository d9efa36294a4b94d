"""Variety of training tasks: what changes, what stays, and the geometry against other routes."""

from pathlib import Path

import cv2
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.core.episodes import Examples, Problem
from arml.tasks.images import (
    Frame,
    Varied,
    fewer,
    moved_picture,
    quarter_turn,
    relit,
    varied,
    with_variety,
)
from arml.tasks.options import StarterOptions

KEY = jax.random.key(0)
PICTURE = jnp.asarray(np.random.default_rng(0).uniform(size=(9, 9, 3)), jnp.float32)


@pytest.fixture(scope="module")
def splits():
    return StarterOptions(shots=4, queries=2, mixed_shots=True, augment=True).build(Path("none"))


def test_a_quarter_turn_moves_every_pixel_to_another():
    symmetries = {
        np.asarray(turned).tobytes()
        for k in range(4)
        for turned in (np.rot90(PICTURE, k), np.rot90(PICTURE[:, ::-1], k))
    }
    seen = set()
    for key in jax.random.split(KEY, 40):
        frame = Frame(quarter_turn(key=key), jnp.zeros(2))
        turned = np.asarray(moved_picture(PICTURE, frame))
        near = [one for one in symmetries if np.allclose(np.frombuffer(one, np.float32),
                                                         turned.ravel(), atol=1e-5)]  # fmt: skip
        assert len(near) == 1
        seen.update(near)
    assert seen == symmetries


def test_a_frame_against_opencv():
    turn, zoom, offset = 0.2, 1.1, np.array([0.25, -0.125])
    rotation = zoom * np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    ours = moved_picture(PICTURE, Frame(jnp.asarray(rotation, jnp.float32), jnp.asarray(offset)))
    # Columns first, in pixels from the corner: p -> R (p - 4) + 4 + 4 offset.
    swapped, middle = rotation[::-1, ::-1], np.full(2, 4.0)
    shift = middle - swapped @ middle + 4 * offset[::-1]
    theirs = cv2.warpAffine(
        np.asarray(PICTURE),
        np.concatenate([swapped, shift[:, None]], axis=1),
        (9, 9),
        flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
        borderMode=cv2.BORDER_REPLICATE,
    )
    inside = np.s_[2:-2, 2:-2]  # OpenCV rounds places to 1/32 of a pixel
    np.testing.assert_allclose(np.asarray(ours)[inside], theirs[inside], atol=0.05)


def test_light_moves_black_and_white_only():
    ramp = jnp.linspace(0, 1, 12).reshape(1, 1, 2, 2, 3)
    np.testing.assert_array_equal(relit(ramp, 0.0, (1, 1, 1, 1, 3), key=KEY), ramp)
    lit = np.asarray(relit(ramp, 0.3, (1, 1, 1, 1, 1), key=KEY)).ravel()
    assert 0 <= lit[0] <= 0.3
    assert 0.7 <= lit[-1] <= 1
    np.testing.assert_allclose(np.diff(lit), np.diff(lit)[0], rtol=1e-4)


def test_pictures_stay_pictures_and_colours_come_by_class_or_by_picture():
    grey = jnp.broadcast_to(PICTURE[..., :1], (2, 3, 9, 9, 3))
    vary = jax.jit(lambda key: varied(grey, key=key))
    coloured = []
    for key in jax.random.split(KEY, 30):
        x = np.asarray(vary(key))
        assert x.shape == grey.shape
        assert x.min() >= -1e-6
        assert x.max() <= 1 + 1e-6
        coloured.append(np.abs(x - x.mean(axis=-1, keepdims=True)).max() > 1e-3)
    assert 0.3 < np.mean(coloured) < 0.95  # two thirds


def test_fewer_shots_are_repeated_and_have_the_mean_of_those_alone():
    problem = Problem("classification", (2,), 3, 6, 1)
    x = jnp.asarray(np.random.default_rng(1).normal(size=(18, 2)), jnp.float32)
    support = Examples(x, jnp.repeat(jnp.arange(3), 6))
    seen = set()
    for key in jax.random.split(KEY, 30):
        got = np.asarray(fewer(support, problem, key=key).x).reshape(3, 6, 2)
        k = len(np.unique(got[0], axis=0))
        seen.add(k)
        alone = np.asarray(x).reshape(3, 6, 2)[:, :k]
        np.testing.assert_allclose(got.mean(axis=1), alone.mean(axis=1), rtol=1e-4, atol=1e-6)
    assert seen == {1, 2, 3, 6}


def test_only_training_tasks_are_varied(splits):
    plain = StarterOptions(shots=4, queries=2).build(Path("none"))
    assert isinstance(splits.train, Varied)
    assert splits.train.families == plain.train.families
    assert splits.train.problem == plain.train.problem
    for ours, theirs in ((splits.validation, plain.validation), (splits.test, plain.test)):
        assert ours.identity() == theirs.identity()
    shots = with_variety(plain.train, shots=True)
    one, other, both = (
        eqx.filter_jit(lambda tasks: tasks.sample(KEY))(tasks)
        for tasks in (plain.train, shots, splits.train)
    )
    np.testing.assert_array_equal(one.query.x, other.query.x)
    for task in (other, both):
        np.testing.assert_array_equal(one.support.y, task.support.y)
        np.testing.assert_array_equal(one.classes, task.classes)
    assert float(jnp.abs(both.query.x - one.query.x).max()) > 0.1


def test_mixed_shots_need_two():
    with pytest.raises(ValueError, match="mixed_shots needs at least 2 shots"):
        StarterOptions(shots=1, mixed_shots=True).check()
