"""The run folder: atomic writes, torn files, and the arithmetic of scores."""

import errno
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arml.results.files import (
    RunError,
    append_metric,
    read_json,
    read_metrics,
    truncate_metrics,
    write_json,
)
from arml.results.folder import read_result, read_run
from arml.results.scores import Scores, paired
from small import RESULT, one_line


def test_json_comes_back_as_it_went_without_nan(tmp_path: Path) -> None:
    file = tmp_path / "new" / "a.json"
    write_json(
        file,
        {
            "array": np.arange(4, dtype=np.float32).reshape(2, 2),
            "scalar": np.float32(0.5),
            "path": Path("x"),
            "nested": {"bad": [float("nan"), np.inf, 1, True, None, "é"]},
        },
    )
    assert read_json(file) == {
        "array": [[0.0, 1.0], [2.0, 3.0]],
        "scalar": 0.5,
        "path": "x",
        "nested": {"bad": [None, None, 1, True, None, "é"]},
    }
    assert [f.name for f in file.parent.iterdir()] == ["a.json"]
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(file.stat().st_mode) == 0o666 & ~mask


def test_a_value_unknown_to_json_leaves_the_file(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    write_json(file, {"a": 1})
    with pytest.raises(TypeError, match="JSON can hold, got object"):
        write_json(file, {"a": object()})
    assert read_json(file) == {"a": 1}


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    file = tmp_path / "a.json"
    write_json(file, {"a": 1})

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, full)
    with pytest.raises(RunError, match=one_line(r"could not write .*a\.json.*free some space")):
        write_json(file, {"a": 2})
    assert read_json(file) == {"a": 1}
    assert [f.name for f in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("kind", ["device", "fifo", "folder"])
def test_what_is_no_plain_file_is_not_replaced(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "place"
    if kind == "device":
        place.symlink_to("/dev/null")
    elif kind == "fifo":
        os.mkfifo(place)
    else:
        place.mkdir()
    before = place.stat().st_mode
    with pytest.raises(RunError, match=one_line("which no file can replace")):
        write_json(place, {"a": 1})
    assert place.stat().st_mode == before
    assert [f.name for f in tmp_path.iterdir()] == ["place"]


@pytest.mark.parametrize("text", ['{"a": 1', "", "[1]", '{"a": NaN}', "\xff"])
def test_damaged_json_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(RunError, match=one_line(r"expected a JSON object in .*a\.json")):
        read_json(file)


def test_an_absent_file_or_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"expected a file .*found none"):
        read_json(tmp_path / "a.json")
    with pytest.raises(RunError, match="could not read"):
        read_json(tmp_path)


def test_metrics_survive_a_torn_last_line(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    assert read_metrics(file) == []
    records = [{"step": i, "loss": i / 2} for i in range(4)]
    for record in records:
        append_metric(file, record)
    whole = file.read_bytes()
    for size in range(whole.rfind(b"\n", 0, -1) + 1, len(whole)):
        file.write_bytes(whole[:size])
        assert read_metrics(file) == records[:3]
        truncate_metrics(file, 9)
        append_metric(file, records[3])
        assert file.read_bytes() == whole
    append_metric(file, {"step": np.int64(4), "loss": np.float32("nan")})
    assert read_metrics(file)[-1] == {"step": 4, "loss": None}


def test_a_damaged_line_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_text('{"step": 1}\n{"loss": 2}\n{"step": 3}\n')
    with pytest.raises(RunError, match=one_line("a damaged one")):
        read_metrics(file)
    file.unlink()
    for step in (1, 2, 3):
        append_metric(file, {"step": step, "loss": 0.5})
    file.write_text(file.read_text().replace('2, "loss": 0.5', '2, "loss": 0.6'))
    with pytest.raises(RunError, match=one_line("the checksum of step 2 differs")):
        read_metrics(file)


def test_metrics_are_cut_after_a_step_and_otherwise_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    truncate_metrics(file, 3)
    assert not file.exists()
    file.write_text('{"step": 1, "loss": 0.1}\n{"step": 2}\n{"step": 3}\n{"st')
    truncate_metrics(file, 2)
    assert file.read_text() == '{"step": 1, "loss": 0.1}\n{"step": 2}\n'


def scores(*values: float, families: tuple[int, ...] = (), names: str = "a") -> Scores:
    places = np.array(families or (0,) * len(values))
    return Scores(np.array(values), places, names=tuple(names))


def test_scores_by_hand() -> None:
    found = scores(1, 3, 8, families=(0, 0, 2), names="abc")
    assert found.mean == 4.0
    assert found.ci95 == pytest.approx(1.96 * np.sqrt(13) / np.sqrt(3))
    one = pytest.approx(1.96 * np.sqrt(2) / np.sqrt(2))
    assert found.by_family() == {
        "a": {"mean": 2.0, "ci95": one, "n": 2},
        "b": {"mean": None, "ci95": None, "n": 0},
        "c": {"mean": 8.0, "ci95": None, "n": 1},
    }


def test_the_interval_covers_the_mean_in_95_of_100() -> None:
    draws = np.random.default_rng(0).normal(2.0, 3.0, (2000, 100))
    scores = [paired(row, np.zeros(100)) for row in draws]
    hits = [abs((s["mean"] or 0.0) - 2.0) < (s["ci95"] or 0.0) for s in scores]
    assert 0.93 < np.mean(hits) < 0.965


def test_scores_that_are_not_finite_are_none() -> None:
    assert scores(1, np.inf).score == {"mean": None, "ci95": None, "n": 2}
    assert paired(np.array([np.inf, 1.0]), np.array([np.inf, 1.0]))["mean"] is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": "0"}, r"Expected `int`, got `str` - at `\$.seed`; make the file again"),
        ({"trained": "here"}, r"Expected `object \| null`, got `str` - at `\$.trained`"),
        ({"metric": "f1"}, r"mse\|accuracy.* at `\$.metric`"),
        ({"score": {"mean": 1.0}}, r"required field `ci95` - at `\$.score`"),
    ],
)
def test_a_wrong_result_is_refused_in_one_line(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    write_json(tmp_path / "result.json", {**RESULT, **change})
    with pytest.raises(RunError, match=one_line(message)):
        read_result(tmp_path / "result.json")


def test_a_run_folder_is_read_whole(tmp_path: Path) -> None:
    write_json(tmp_path / "config.json", {"recipe": "r", "experiment": {"a": 1}})
    run = read_run(tmp_path)
    assert (run.metrics, run.result, run.explain) == ([], None, None)
    append_metric(tmp_path / "metrics.jsonl", {"step": 1, "loss": 2.0})
    write_json(tmp_path / "result.json", RESULT)
    explained = {"kind": "own", "families": [], "tasks": 3}
    write_json(tmp_path / "explain" / "explain.json", explained)
    run = read_run(tmp_path)
    assert run.config["experiment"] == {"a": 1}
    assert run.metrics == [{"step": 1, "loss": 2.0}]
    assert {"format": 1, "calibration": None, **run.result} == RESULT
    assert run.explain == explained


def test_what_is_no_run_folder_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"found none; `arml train RECIPE --run"):
        read_run(tmp_path)
    with pytest.raises(RunError, match="found none"):
        read_run(tmp_path / "none")
    write_json(tmp_path / "config.json", {"recipe": 7})
    with pytest.raises(RunError, match="restore the file"):
        read_run(tmp_path)
