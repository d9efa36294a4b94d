"""Copies of pictures in a folder for each label."""

import pytest

from arml.predict.answers import Answer, sort_into
from arml.results import files


def test_labels_that_would_share_a_folder_get_folders_of_their_own(tmp_path):
    labels = ["a/b", "a\\b", "a_b", ".a_b", "unsure", "..", "_"]
    answers = [*(Answer("x.png", label, 0.9) for label in labels), Answer("x.png", "_", 0.1)]
    counts = sort_into(tmp_path, answers, lambda place: bytes([place]), above=0.5)
    assert len(counts) == 8
    assert (tmp_path / "unsure" / "x.png").read_bytes() == bytes([7])
    assert {name: count for name, count in counts.items() if "class" not in name} == {"unsure": 1}
    copies = sorted(path.read_bytes()[0] for path in tmp_path.glob("*/*.png"))
    assert copies == list(range(8))


@pytest.mark.parametrize("there", [True, False])
def test_a_full_disk_leaves_no_folder_that_is_refused(tmp_path, monkeypatch, there):
    def full(number: int) -> None:
        if number and list(tmp_path.rglob("*.png")):
            raise OSError(28, "No space left on device")

    folder = tmp_path / "out"
    if there:
        folder.mkdir()
    answers = [Answer("x.png", label, 0.9) for label in "ab"]
    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", full)
        with pytest.raises(ValueError, match="No space left on device; free some space"):
            sort_into(folder, answers, lambda place: b"1", above=0.5)
    assert [*tmp_path.iterdir()] == [folder] * there
    assert sort_into(folder, answers, lambda place: b"1", above=0.5) == {"a": 1, "b": 1}
