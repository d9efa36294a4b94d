"""The blur and the pencil filter: shapes, what they do, and that they are the same everywhere."""

import hashlib

import numpy as np
import pytest

from arml.datasets.filters import BLUR, FILTERS, blur, pencil


def pictures(size: int = 32) -> np.ndarray:
    """A bright disc on a dark ground, a dark line on paper, and noise."""
    across = np.arange(size)
    disc = np.hypot(*np.meshgrid(across - size / 2, across - size / 2)) < size / 4
    line = np.abs(across[:, None] - across[None]) < size / 16
    noise = np.random.default_rng(0).integers(0, 256, (size, size, 3))
    flat = [np.where(disc, 220, 40), np.where(line, 60, 230)]
    return np.stack([*(np.repeat(f[..., None], 3, -1) for f in flat), noise]).astype(np.uint8)


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("size", [28, 32, 84])
def test_a_filter_keeps_shape_and_input_and_takes_pictures_one_by_one(name, size):
    images = pictures(size)
    before = images.copy()
    out = FILTERS[name](images)
    assert out.shape == images.shape
    assert out.dtype == np.uint8
    np.testing.assert_array_equal(images, before)
    assert not np.array_equal(out, images)
    for i in range(len(images)):
        np.testing.assert_array_equal(FILTERS[name](images[i : i + 1])[0], out[i])
    assert FILTERS[name](images[:0]).shape == (0, size, size, 3)


def test_blur_is_a_gaussian_of_its_width():
    point = np.zeros((1, 64, 64, 3), np.uint8)
    point[0, 32, 32] = 255
    out = blur(point)[0, ..., 0].astype(float)
    row = out.sum(0)
    width = np.sqrt((row * (np.arange(64) - 32) ** 2).sum() / row.sum())
    assert width == pytest.approx(64 * BLUR, rel=0.15)  # its tails are cut off
    np.testing.assert_array_equal(blur(np.full((1, 32, 32, 3), 77, np.uint8)), 77)


def test_a_picture_of_another_size_is_blurred_as_much():
    small = blur(pictures(32))[0].astype(float)
    large = blur(pictures(96))[0].astype(float)
    mean = large.reshape(32, 3, 32, 3, 3).mean((1, 3))
    assert np.abs(mean - small).mean() < 4
    assert np.abs(mean - pictures(32)[0]).mean() > 6


def test_pencil_draws_grey_lines_on_paper():
    disc, line, noise = pencil(pictures())
    for drawn in (disc, line, noise):
        np.testing.assert_array_equal(drawn[..., 0], drawn[..., 1])
        np.testing.assert_array_equal(drawn[..., 0], drawn[..., 2])
    # Even parts are paper, whatever their grey; a dark line stays dark.
    assert disc[16, 16, 0] > 245
    assert disc[1, 1, 0] > 245
    assert line[16, 16, 0] < 160
    assert line[1, 30, 0] > 245
    # The darker side of an edge is what is drawn.
    assert disc[16, 24:28, 0].min() < 120


def test_black_and_white_are_no_trouble():
    ends = np.stack([np.zeros((32, 32, 3)), np.full((32, 32, 3), 255)]).astype(np.uint8)
    np.testing.assert_array_equal(blur(ends), ends)
    np.testing.assert_array_equal(pencil(ends), 255)


def test_the_filters_are_what_they_were():
    """Whole numbers all the way: the same on every machine and version, or data sets differ."""
    digests = {
        name: hashlib.sha256(change(pictures()).tobytes()).hexdigest()[:16]
        for name, change in FILTERS.items()
    }
    assert digests == {"blur": "f9185165787f757b", "pencil": "9da50106988b3fd6"}
