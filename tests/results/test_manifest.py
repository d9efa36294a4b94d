"""What a run wrote beside its checkpoints, and what was changed since."""

import json

import numpy as np
import pytest

from arml.results.files import RunError, append_metric
from arml.results.manifest import MANIFEST, check_sealed, noted, seal, sealed, unseal
from arml.results.scores import Scores, read_scores, write_scores


@pytest.fixture
def file(tmp_path):
    with sealed(tmp_path / "result.json"):
        (tmp_path / "result.json").write_text('{"score": 1.5}')
    return tmp_path / "result.json"


def test_what_is_as_it_was_written_passes(file):
    check_sealed(file)
    check_sealed(file.parent / "never-sealed.json")


@pytest.mark.parametrize("content", ['{"score": 1.6}', '{"score": 1.5} ', "", None])
def test_what_was_changed_is_refused(file, content):
    file.write_text(content) if content is not None else file.unlink()
    with pytest.raises(RunError, match="is gone" if content is None else "has changed"):
        check_sealed(file)
    # The message says how to use it all the same.
    (file.parent / MANIFEST).unlink()
    check_sealed(file)


def test_writing_it_anew_seals_it_anew(file):
    with sealed(file):
        file.write_text("{}")
    check_sealed(file)


def test_a_file_that_grows_is_sealed_up_to_where_it_was(tmp_path):
    path = tmp_path / "metrics.jsonl"
    append_metric(path, {"step": 1})
    seal(tmp_path, path.name, steps=[1])
    append_metric(path, {"step": 2})
    check_sealed(path)
    assert noted(tmp_path, "steps") == [1]
    path.write_text(path.read_text().replace('"step": 1', '"step": 3'))
    with pytest.raises(RunError, match="has changed"):
        check_sealed(path)
    unseal(tmp_path, path.name)
    check_sealed(path)


def test_scores_of_single_tasks_are_sealed(tmp_path):
    path = tmp_path / "scores.npz"
    write_scores(path, Scores(np.ones(3), np.zeros(3, int), "tasks"))
    assert read_scores(path).tasks == "tasks"
    other = tmp_path / "other" / "scores.npz"
    write_scores(other, Scores(np.zeros(3), np.zeros(3, int), "tasks"))
    path.write_bytes(other.read_bytes())
    with pytest.raises(RunError, match="has changed"):
        read_scores(path)


@pytest.mark.parametrize(
    "content",
    ["[]", "{", '{"format": 2, "files": {}}', '{"format": 1, "files": {"result.json": 3}}'],
)
def test_a_damaged_manifest_is_refused(file, content):
    (file.parent / MANIFEST).write_text(content)
    with pytest.raises(RunError, match=MANIFEST):
        check_sealed(file)


def test_the_manifest_is_json_that_others_can_read(file):
    content = json.loads((file.parent / MANIFEST).read_text())
    assert content["files"]["result.json"]["bytes"] == 14


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"about": np.array('{"names": 5}')}, "names: expected array, got int"),
        ({"about": np.array('{"identity": "[1"}')}, "Expecting"),
        ({"about": np.array("[" * 100_000)}, "recursion"),
        ({"values": np.array(["a", "b"])}, "expected a score and a family for each task"),
        ({"families": np.zeros(3, np.uint8)}, "expected a score and a family for each task"),
    ],
)
def test_scores_that_say_something_else_are_refused(tmp_path, changed, said):
    whole = {"values": np.ones(2, np.float32), "families": np.zeros(2, np.uint8)}
    whole |= {"tasks": np.array("tasks"), "about": np.array("{}")}
    np.savez(tmp_path / "scores.npz", **whole)
    assert len(read_scores(tmp_path / "scores.npz")) == 2
    np.savez(tmp_path / "scores.npz", **(whole | changed))
    with pytest.raises(RunError, match=said):
        read_scores(tmp_path / "scores.npz")
