"""Copies of pictures in a folder for each label."""

from arml.predict.answers import Answer, sort_into


def test_labels_that_would_share_a_folder_get_folders_of_their_own(tmp_path):
    labels = ["a/b", "a\\b", "a_b", ".a_b", "unsure", "..", "_"]
    answers = [*(Answer("x.png", label, 0.9) for label in labels), Answer("x.png", "_", 0.1)]
    counts = sort_into(tmp_path, answers, lambda place: bytes([place]), above=0.5)
    assert len(counts) == 8
    assert (tmp_path / "unsure" / "x.png").read_bytes() == bytes([7])
    assert {name: count for name, count in counts.items() if "class" not in name} == {"unsure": 1}
    copies = sorted(path.read_bytes()[0] for path in tmp_path.glob("*/*.png"))
    assert copies == list(range(8))
