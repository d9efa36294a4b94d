"""Splits of classes, and the files that hold them."""

import json

import numpy as np
import pytest

from arml.datasets.folders import ImageFamily
from arml.datasets.splits import check_split, read_split, split_classes, write_split
from arml.results import files


def family(count: int, name: str = "f") -> ImageFamily:
    return ImageFamily(
        name,
        tuple(f"class {i}" for i in range(count)),
        np.zeros((count, 4, 4, 3), np.uint8),
        np.ones(count, np.int64),
        "digest",
    )


@pytest.mark.parametrize("count", [3, 4, 5, 7, 10, 52, 100, 507])
def test_a_split_has_every_class_once_and_exact_counts(count):
    split = split_classes(family(count))
    assert list(split) == ["train", "validation", "test"]
    together = [name for names in split.values() for name in names]
    assert sorted(together) == sorted(family(count).classes)
    assert all(split.values())
    if count >= 5:
        assert len(split["test"]) == round(0.2 * count)
        assert len(split["validation"]) == max(1, round(0.16 * count))


def test_a_split_depends_on_names_and_seed_only():
    one, more = split_classes(family(100)), split_classes(family(101))
    moved = [c for part in one for c in one[part] if c not in more[part]]
    assert len(moved) <= 2
    assert split_classes(family(100)) == one
    assert split_classes(family(100, "renamed")) == one
    assert split_classes(family(100), seed=1) != one


def test_too_few_classes():
    with pytest.raises(ValueError, match="at least 3 classes"):
        split_classes(family(2))


def test_a_split_file_round_trips_and_a_damaged_one_is_refused(tmp_path):
    path = tmp_path / "split.json"
    families = [family(10, "a"), family(20, "b")]
    split = write_split(path, families, seed=3)
    assert read_split(path, seed=3) == split
    check_split(split, families)
    assert split["b"] == split_classes(families[1], seed=3)
    assert json.loads(path.read_text())["seed"] == 3
    assert list(tmp_path.iterdir()) == [path]

    text = path.read_text()
    for broken in (text[: len(text) // 2], "", "[]", "{}"):
        path.write_text(broken)
        with pytest.raises(ValueError, match=r"split\.json"):
            read_split(path)
    with pytest.raises(ValueError, match=r"expected a file .*none\.json, found none"):
        read_split(tmp_path / "none.json")


def test_a_split_of_other_data_is_refused(tmp_path):
    path = tmp_path / "split.json"
    write_split(path, [family(10)])
    check_split(read_split(path), [family(11)])  # classes that are added are not used
    with pytest.raises(ValueError, match="names 1 classes that the data lacks"):
        check_split(read_split(path), [family(9)])
    with pytest.raises(ValueError, match="family 'g': it has no parts"):
        check_split(read_split(path), [family(10, "g")])
    parts = read_split(path)["f"]
    with pytest.raises(ValueError, match="it has a class twice"):
        check_split({"f": parts | {"test": parts["train"]}}, [family(10)])


def test_a_split_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "split.json"
    split = write_split(path, [family(10)])

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(ValueError, match="No space left"):
        write_split(path, [family(12)])
    assert read_split(path) == split
    assert list(tmp_path.iterdir()) == [path]
