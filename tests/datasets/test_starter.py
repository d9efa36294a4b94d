"""The starter set in the package: whole, as published, as hard as it should be; and its tasks."""

import json
import shutil
from dataclasses import replace

import cv2
import jax
import numpy as np
import pytest

from arml.datasets.decode import FILTERS
from arml.datasets.splits import SPLIT_PARTS, check_split
from arml.datasets.starter import STARTER_FOLDER, load_starter
from arml.results.files import read_json
from arml.tasks.options import StarterOptions

INDEX = read_json(STARTER_FOLDER / "index.json")


def test_what_the_set_promises():
    assert sum(path.stat().st_size for path in STARTER_FOLDER.iterdir()) < 4 * 2**20
    licences = (STARTER_FOLDER / "LICENCES.md").read_text("utf-8")
    for about in INDEX["families"].values():
        assert all(len(sources) == about["each"] for sources in about["samples"].values())
        score = about["nearest_mean"]  # on raw pixels: they tell something, and not much
        for filtered in (score, *(score[name] for name in FILTERS)):
            assert all(0.25 <= filtered[kind] <= 0.50 for kind in ("test", "all"))
    # Every font and every icon set that a sample is from is named, with its licence.
    for sources in INDEX["families"]["glyphs"]["samples"].values():
        assert len(set(sources)) == len(sources)
        assert all(f"| {font} |" in licences for font in sources)
    for sources in INDEX["families"]["icons"]["samples"].values():
        assert all(f"({source.partition(':')[0]})" in licences for source in sources)
    assert "freedoom-license" not in licences
    assert "Redistribution and use in source and binary forms" in licences


@pytest.mark.parametrize("art", [False, True])
def test_every_family_loads_as_its_index_says(art):
    families, split = load_starter(art=art)
    plain = list(INDEX["families"])
    through = ("", *(f"-{name}" for name in FILTERS)) if art else ("",)
    assert [f.name for f in families] == [p + filtered for p in plain for filtered in through]
    check_split(families)
    for family in families:
        name, _, through = family.name.partition("-")
        about = INDEX["families"][name]
        assert family.classes == tuple(about["samples"])
        assert family.counts.tolist() == [about["each"]] * len(family.classes)
        assert not family.images.flags.writeable
        assert sum(len(split[family.name][part]) for part in SPLIT_PARTS) == len(family.classes)
        assert min(len(split[family.name][part]) for part in SPLIT_PARTS) >= 5
        sheet = cv2.imread(str(STARTER_FOLDER / about["file"]), cv2.IMREAD_GRAYSCALE)
        row, column = 7, 13
        tile = sheet[row * 32 : (row + 1) * 32, column * 32 : (column + 1) * 32]
        expected = np.repeat(tile[..., None], 3, axis=-1)
        expected = FILTERS[through](expected) if through else expected
        np.testing.assert_array_equal(family.images[family.first[row] + column], expected)
        if not through:  # no picture is blank, and no two are the same
            assert len({image.tobytes() for image in family.images}) == len(family.images)
            assert family.images[..., 0].std((1, 2)).min() > 8
    assert len({family.digest for family in families}) == len(families)


def test_the_digest_is_of_pictures_classes_and_split(tmp_path):
    folder = shutil.copytree(STARTER_FOLDER, tmp_path / "starter")
    before, index = {f.name: f.digest for f in load_starter()[0]}, read_json(folder / "index.json")

    def changed() -> set[str]:
        (folder / "index.json").write_text(json.dumps(index), "utf-8")
        return {f.name for f in load_starter(folder=folder)[0] if f.digest != before[f.name]}

    index["families"]["icons"]["about"] = "other words"
    assert not changed()
    index["families"]["icons"]["split"]["test"].pop()
    assert changed() == {"icons"}


# --- as tasks


def test_options_make_tasks_of_the_published_split(tmp_path, cache):
    options = StarterOptions(ways=3, train_ways=7, shots=2, queries=4)
    splits = options.build(tmp_path / "split.json")
    assert not list(tmp_path.iterdir())
    _, split = load_starter()
    for part, ways in (("train", 7), ("validation", 3), ("test", 3)):
        tasks = getattr(splits, part)
        assert tasks.families == tuple(split)
        assert tasks.problem.features == (32, 32, 3)
        assert tasks.problem.outputs == ways
        assert tasks.problem.classes == sum(len(split[name][part]) for name in split)
        assert tasks.table.classes.tolist() == [len(split[name][part]) for name in split]
    task = splits.test.sample(jax.random.key(0))
    assert task.support.x.shape == (2 * 3, 32, 32, 3)
    assert task.query.x.shape == (4 * 3, 32, 32, 3)
    assert list(splits.sources) == list(split)
    more = replace(options, art=True).build(tmp_path / "split.json")
    assert len(more.test.families) == 9
    assert splits.sources.items() <= more.sources.items()
    assert not cache.exists()
