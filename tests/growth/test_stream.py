"""`arml train --stream`: a run folder that meets a stream of families, small."""

import json

import numpy as np
import pytest

import arml
from arml.cli import main
from arml.experiment.contract import same
from arml.growth import stream
from arml.growth.stream import check_room
from arml.results.files import RunError, read_json
from small_pictures import pictures

TINY = (
    "--network.hidden 8 --inner-steps 1 --steps 6 --batch 2 --held 4 --keep 3 "
    "--order line ripple line"
)


def train(folder, *more):
    return main(
        ["train", "regression2d/maml", "--stream", "--run", str(folder), *TINY.split(), *more]
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stream") / "whole"
    assert train(folder) == 0
    return folder


def test_a_run_that_was_stopped_goes_on_as_if_it_had_not(whole, tmp_path, capsys, monkeypatch):
    folder, fit = tmp_path / "again", stream.fit

    def stopped(*arguments, seed, **more):
        if seed:  # the second stage
            raise RunError("stopped")
        return fit(*arguments, seed=seed, **more)

    with monkeypatch.context() as patch:
        patch.setattr(stream, "fit", stopped)
        assert train(folder) == 2
    assert arml.Run(folder).step == 2  # it is a run after each stage
    assert train(folder, "--replay", "0.1") == 2
    assert (
        "holds another stream: stream.replay 0.5 -> 0.1. Give"
        in capsys.readouterr().err.replace("\n", " ")
    )
    assert train(folder, "--json") == 0
    told = capsys.readouterr()
    assert "resuming after 1 of 3 stages" in told.err
    found = json.loads(told.out)
    assert [one["family"] for one in found["stages"]] == ["line", "ripple", "line"]
    assert found["final_mean"] == pytest.approx(np.mean([*found["stages"][-1]["scores"].values()]))
    for name in ("growth.json", "metrics.jsonl"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()
    ours, other = arml.Run(folder), arml.Run(whole)
    assert ours.step == 6
    same(ours.learner, other.learner)


def test_its_folder_is_scored_and_reported(whole, tmp_path, capsys):
    assert main(["evaluate", str(whole), "--tasks", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["recipe"] == "regression2d/maml (stream)"
    page = tmp_path / "page.html"
    assert main(["report", str(whole), "--out", str(page)]) == 0
    assert "regression2d/maml (stream)" in page.read_text(encoding="utf-8").replace("<wbr/>", "")


def test_what_is_refused(whole, tmp_path, capsys):
    cases = {
        "unknown family 'oak'": ["--order", "oak"],
        "raise --steps": ["--steps", "2"],
        "held must be": ["--held", "1"],
        "replay must be at most 1": ["--replay", "1.5"],
    }
    new = ["train", "regression2d/maml", "--stream", "--run", str(tmp_path / "none")]
    for told, more in cases.items():
        assert main([*new, *more]) == 2
        assert told in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
    # The folder of a stream is none for a plain training, nor the other way round.
    assert main(["train", "regression2d/maml", "--run", str(whole)]) == 2
    assert "holds another run" in capsys.readouterr().err
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "config.json").write_text("{}")
    assert train(tmp_path / "plain") == 2
    assert "expected an empty or new folder" in capsys.readouterr().err
    assert main(["train", "--stream", "--run", str(tmp_path / "none")]) == 2
    assert "no recipe and no data" in capsys.readouterr().err


def test_kept_tasks_have_a_bound():
    pictures = arml.Problem("classification", (84, 84, 3), 5, 5, 15)
    check_room(pictures, 3, 30)
    with pytest.raises(ValueError, match="give --keep 42"):
        check_room(pictures, 3, 100)


@pytest.mark.slow
def test_folders_of_ones_own_are_a_stream(tmp_path, capsys):
    """Without a recipe the options suit the data."""
    data = [str(pictures(tmp_path / name, seed)) for seed, name in enumerate(("birds", "cards"))]
    run = ["train", "--stream", "--data", *data, "--run", str(tmp_path / "run"), "--steps", "4"]
    small = "--held 4 --keep 2 --filters 2 --batch 2 --replay 0.25"
    assert main([*run, *small.split()]) == 0
    assert "ways 2" in capsys.readouterr().out
    found = arml.Run(tmp_path / "run")
    assert found.experiment.recipe == "folders/protonet-turns (stream)"
    assert found.families == ("birds", "cards")
    records = read_json(tmp_path / "run" / "growth.json")["records"]
    assert [one["replayed"] for one in records] == [0, 1]
