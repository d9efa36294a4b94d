"""Options as data: what is refused, when, and what a refusal leaves behind."""

import dataclasses
import json
import math
from pathlib import Path

import cv2
import numpy as np
import pytest

from arml.checks import at_least
from arml.nn.networks import MLPOptions
from arml.tasks.options import FoldersOptions, FunctionsOptions


@pytest.fixture
def pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ten classes of four small images."""
    monkeypatch.setenv("ARML_CACHE", str(tmp_path / "cache"))
    for name in range(10):
        folder = tmp_path / "colours" / f"class{name}"
        folder.mkdir(parents=True)
        for i in range(4):
            picture = np.full((16, 16, 3), 10 * name + i, np.uint8)
            assert cv2.imwrite(str(folder / f"{i}.png"), picture)
    return tmp_path / "colours"


def episodes(*data: Path, **change: int) -> FoldersOptions:
    usual = {"shots": 1, "queries": 2, "ways": 2, "size": 16}
    return FoldersOptions(data=tuple(map(str, data)), **{**usual, **change})


def test_numbers_must_be_finite_and_large_enough():
    options = FunctionsOptions(shots=0, noise=math.nan, high=math.inf)
    at_least(options, ("shots", "low"), 0)
    for name, least, said in (
        ("shots", 1, "shots must be at least 1, got 0: raise it"),
        ("shots", 0.5, "shots must be at least 0.5, got 0: raise it"),
        ("noise", 0, "noise must be 0 or more, got nan: give a finite number"),
        ("high", 0, "high must be 0 or more, got inf: give a finite number"),
    ):
        with pytest.raises(ValueError, match=said):
            at_least(options, (name,), least)
    with pytest.raises(ValueError, match="shots must be above 0, got 0"):
        at_least(options, ("shots",), 0, strict=True)
    with pytest.raises(ValueError, match="hidden must be at least 1, got 0"):
        at_least(MLPOptions(hidden=(2, 0)), ("hidden",), 1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ways": 1}, "ways must be at least 2, got 1"),
        ({"shots": 0}, "shots must be at least 1, got 0"),
        ({"queries": 0}, "queries must be at least 1, got 0"),
        ({"size": 8}, "size must be at least 16 px, got 8"),
        ({"data": ()}, "give --data"),
    ],
)
def test_image_options_are_refused_before_any_data_is_read(tmp_path, change, said):
    options = dataclasses.replace(episodes(tmp_path / "none"), **change)
    for refuse in (options.check, lambda: options.build(tmp_path / "split.json")):
        with pytest.raises(ValueError, match=said):
            refuse()


def test_a_refused_run_leaves_no_split(pictures, tmp_path):
    split = tmp_path / "split.json"
    with pytest.raises(ValueError, match="for 9-way tasks"):
        episodes(pictures, ways=9).build(split)
    assert not split.exists()
    episodes(pictures, split_seed=3).build(split)
    assert json.loads(split.read_text())["seed"] == 3


def test_a_split_with_another_seed_is_refused(pictures, tmp_path):
    split = tmp_path / "split.json"
    first = episodes(pictures, split_seed=1).build(split)
    before = split.read_bytes()
    again = episodes(pictures, split_seed=1).build(split)
    assert again.sources == first.sources
    np.testing.assert_array_equal(again.test.pixels, first.test.pixels)
    with pytest.raises(ValueError, match="with the seed 2, got one with 1; give that split seed"):
        episodes(pictures, split_seed=2).build(split)
    assert split.read_bytes() == before


def test_counts_and_paths_are_checked_before_the_first_image_is_decoded(
    pictures, tmp_path, monkeypatch
):
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr("arml.tasks.sources.folders.decode", refuse)
    split = tmp_path / "split.json"
    with pytest.raises(ValueError, match=r"at least 5 images a class .*, got 4 in 'class0'"):
        episodes(pictures, queries=4).build(split)
    with pytest.raises(ValueError, match="none: expected a folder or a zip"):
        episodes(pictures, tmp_path / "none").build(split)
    few = tmp_path / "few" / "only"
    few.mkdir(parents=True)
    (few / "a.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match="at least 3 class folders"):
        episodes(pictures, few.parent).build(split)
    assert not split.exists()
