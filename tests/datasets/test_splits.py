"""Splits of classes, and the files that hold them."""

import json
from dataclasses import replace

import numpy as np
import pytest

from arml.datasets.folders import ImageFamily
from arml.datasets.splits import check_split, read_split, split_classes, write_split


def family(count: int, name: str = "f") -> ImageFamily:
    classes, images = tuple(f"class {i}" for i in range(count)), np.zeros((count, 4, 4, 3), "u1")
    return ImageFamily(name, classes, images, np.ones(count, np.int64), "digest")


@pytest.mark.parametrize("count", [3, 4, 5, 7, 10, 52, 100, 507])
def test_a_split_has_every_class_once_and_exact_counts(count):
    classes = family(count).classes
    split = split_classes(classes)
    assert list(split) == ["train", "validation", "test"]
    together = [name for names in split.values() for name in names]
    assert sorted(together) == sorted(classes)
    assert all(split.values())
    if count >= 5:
        assert len(split["test"]) == round(0.2 * count)
        assert len(split["validation"]) == max(1, round(0.16 * count))


def test_a_split_depends_on_names_and_seed_only():
    names = family(101).classes
    one, more = split_classes(names[:-1]), split_classes(names)
    moved = [c for part in one for c in one[part] if c not in more[part]]
    assert len(moved) <= 2
    assert split_classes(names[-2::-1]) == one
    assert split_classes(names[:-1], seed=1) != one


def test_a_split_file_round_trips_and_a_damaged_one_is_refused(tmp_path):
    path = tmp_path / "split.json"
    families = [family(10, "a"), family(20, "b")]
    split = write_split(path, families, seed=3)
    assert read_split(path, seed=3) == split
    assert split["b"] == split_classes(families[1].classes, seed=3)
    assert json.loads(path.read_text())["seed"] == 3
    with pytest.raises(ValueError, match="a split with the seed 0, got one with 3; give that"):
        read_split(path)
    path.write_text("{}")
    with pytest.raises(ValueError, match=r"split\.json: .*restore the file, or write a new split"):
        read_split(path)


def test_a_split_of_other_data_is_refused():
    split = split_classes(family(10).classes)
    check_split([replace(family(11), split=split)])  # classes that are added are not used
    for given, parts, said in (
        (family(9), split, "names 1 classes that the data lacks"),
        (family(10, "g"), None, "family 'g': it has the parts none, not train"),
        (family(10), split | {"test": split["train"]}, "it has a class twice"),
    ):
        with pytest.raises(ValueError, match=said):
            check_split([replace(given, split=parts)])
