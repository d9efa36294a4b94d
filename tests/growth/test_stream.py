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

pytestmark = pytest.mark.usefixtures("optax_promotes")
STREAM = "train regression2d/maml --stream --run"
TINY = """--network.hidden 8 --inner-steps 1 --steps 6 --batch 2 --held 4 --keep 3
--order line ripple line"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stream") / "whole"
    assert main(f"{STREAM} {folder} {TINY}".split()) == 0
    return folder


def test_a_run_that_was_stopped_goes_on_as_if_it_had_not(whole, tmp_path, command, monkeypatch):
    folder, fit = tmp_path / "again", stream.fit

    def stopped(*arguments, seed, **more):
        if seed:  # the second stage
            raise RunError("stopped")
        return fit(*arguments, seed=seed, **more)

    with monkeypatch.context() as patch:
        patch.setattr(stream, "fit", stopped)
        command(STREAM, folder, TINY, code=2)
    assert arml.Run(folder).step == 2  # it is a run after each stage
    _, told = command(STREAM, folder, TINY, "--replay 0.1", code=2)
    assert "holds another stream: stream.replay 0.5 -> 0.1. Give" in told
    found, told = command(STREAM, folder, TINY, "--json")
    assert "resuming after 1 of 3 stages" in told
    found = json.loads(found)
    assert [one["family"] for one in found["stages"]] == ["line", "ripple", "line"]
    assert found["final_mean"] == pytest.approx(np.mean([*found["stages"][-1]["scores"].values()]))
    for name in ("growth.json", "metrics.jsonl"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()
    ours, other = arml.Run(folder), arml.Run(whole)
    assert ours.step == 6
    same(ours.learner, other.learner)


def test_its_folder_is_scored_and_reported(whole, tmp_path, command):
    found, _ = command("evaluate", whole, "--tasks 4 --json")
    assert json.loads(found)["recipe"] == "regression2d/maml (stream)"
    page = tmp_path / "page.html"
    command("report", whole, "--out", page)
    assert "regression2d/maml (stream)" in page.read_text(encoding="utf-8").replace("<wbr/>", "")


def test_what_is_refused(whole, tmp_path, command):
    new, plain = tmp_path / "none", tmp_path / "plain"
    plain.mkdir()
    (plain / "config.json").write_text("{}")
    for words, told in (
        (f"{STREAM} {new} --order oak", "unknown family 'oak'"),
        (f"{STREAM} {new} --steps 2", "raise --steps"),
        (f"{STREAM} {new} --held 1", "held must be"),
        (f"{STREAM} {new} --replay 1.5", "replay must be at most 1"),
        # The folder of a stream is none for a plain training, nor the other way round.
        (f"train regression2d/maml --run {whole}", "holds another run"),
        (f"{STREAM} {plain} {TINY}", "expected an empty or new folder"),
        (f"train --stream --run {new}", "no recipe and no data"),
    ):
        assert told in command(words, code=2)[1]
    assert not new.exists()


def test_kept_tasks_have_a_bound():
    pictures = arml.Problem("classification", (84, 84, 3), 5, 5, 15)
    check_room(pictures, 3, 30)
    with pytest.raises(ValueError, match="give --keep 42"):
        check_room(pictures, 3, 100)


@pytest.mark.slow
def test_folders_of_ones_own_are_a_stream(tmp_path, command):
    """Without a recipe the options suit the data."""
    data = [pictures(tmp_path / name, seed) for seed, name in enumerate(("birds", "cards"))]
    small = "--steps 4 --held 4 --keep 2 --filters 2 --batch 2 --replay 0.25"
    said, _ = command("train --stream --data", *data, "--run", tmp_path / "run", small)
    assert "ways 2" in said
    found = arml.Run(tmp_path / "run")
    assert found.experiment.recipe == "folders/protonet-turns (stream)"
    assert found.families == ("birds", "cards")
    records = read_json(tmp_path / "run" / "growth.json")["records"]
    assert [one["replayed"] for one in records] == [0, 1]
