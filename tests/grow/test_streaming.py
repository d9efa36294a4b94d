"""`arml train --stream`: a run folder that meets a stream of families, small."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest

import arml
from arml.cli import main
from arml.grow import resuming, streaming
from arml.grow.growth import begun
from arml.grow.keeping import Place
from arml.grow.streaming import StreamOptions
from arml.grow.vertices import handicapped, with_vertex
from arml.nn.networks import MLPOptions
from arml.results.files import RunError
from arml.results.growth import read_growth
from arml.tasks.options import splits_of
from small_pictures import pictures

TINY = (
    "--network.hidden 8 --inner-steps 1 --steps 6 --batch 2 --held 4 --keep 3 "
    "--order line ripple line"
)


@pytest.fixture(autouse=True, scope="module")
def _optax_promotes():
    with jax.numpy_dtype_promotion("standard"):
        yield


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
    folder, keep, kept = tmp_path / "again", resuming.write_json, []

    def stopped(file, held):
        keep(file, held)
        kept.append(file)
        if len(kept) == 3:  # in the middle of the second stage
            raise RunError("stopped")

    with monkeypatch.context() as patch:
        patch.setattr(resuming, "write_json", stopped)
        assert train(folder) == 2
    assert arml.Run(folder).step == 2  # it is a run after each stage
    assert train(folder, "--grow") == 2
    assert "expected a learner that can grow" in capsys.readouterr().err
    assert train(folder, "--replay", "1.5") == 2
    assert "replay must be at most 1, got 1.5: lower it" in capsys.readouterr().err
    assert train(folder, "--replay", "0.1") == 2
    assert "other options (stream.replay 0.5 -> 0.1)" in capsys.readouterr().err.replace("\n", " ")
    # A stream that an earlier version began lacks the options that came later.
    file = folder / "stream" / "asked.json"
    begun = json.loads(file.read_text())
    del begun["experiment"]["algorithm"]["remat"]
    file.write_text(json.dumps(begun))
    assert train(folder, "--json") == 0
    told = capsys.readouterr()
    assert "goes on after 1 of 3 stages" in told.err
    found = json.loads(told.out)
    assert [list(one["stage"]) for one in found["stages"]] == [["line"], ["ripple"], ["line"]]
    assert found["final_mean"] == pytest.approx(np.mean([*found["stages"][-1]["scores"].values()]))
    for name in ("growth.jsonl", "metrics.jsonl"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()
    ours, other = arml.Run(folder), arml.Run(whole)
    assert ours.step == 6
    for a, b in zip(jax.tree.leaves(ours.learner), jax.tree.leaves(other.learner), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_its_folder_is_scored_and_reported(whole, tmp_path, capsys):
    assert main(["evaluate", str(whole), "--tasks", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["recipe"] == "regression2d/maml (stream)"
    page = tmp_path / "page.html"
    assert main(["report", str(whole), "--out", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert "Scores by stage" in text
    assert "3: line" in text
    # A learner without vertices replays: half of the second stage, and of the third.
    assert "12 training tasks, of which 4 were replayed" in text


def test_what_is_refused(whole, tmp_path, capsys):
    cases = {
        "unknown family 'oak'": ["--order", "oak"],
        "raise --steps": ["--steps", "2"],
        "held must be": ["--held", "1"],
    }
    for told, more in cases.items():
        assert train(tmp_path / "none", *more) == 2
        assert told in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
    # The folder of a stream is none for a plain training, nor the other way round.
    assert main(["train", "regression2d/maml", "--run", str(whole)]) == 2
    assert "holds another run" in capsys.readouterr().err
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "config.json").write_text("{}")
    assert train(tmp_path / "plain") == 2
    assert "a new folder or that of a stream" in capsys.readouterr().err
    assert main(["train", "--stream", "--run", str(tmp_path / "none")]) == 2
    assert "no recipe and no data" in capsys.readouterr().err


def test_a_learner_that_has_grown_is_a_run(tmp_path):
    """The folder says how many vertices the learner has, and how many were grown."""
    made = arml.recipe("regression2d/arml-layers")
    options = replace(made.algorithm, vertices=1, hidden=(4,), width=4, inner_steps=1)
    experiment = replace(made, algorithm=options, network=MLPOptions(hidden=(8,)))
    splits = splits_of(experiment.tasks)
    more = with_vertex(arml.build(experiment, splits), np.zeros(4), np.ones(1))
    learner = handicapped(more, 0.5)
    growth = replace(begun(learner), stages=1, names=("V0", "V1"))
    scored = {"stage": {"line": 1.0}, "scores": {"line": 1.0}, "vertices": 2}
    place = Place(growth, 1, found=({**scored, "tasks": 2, "replayed": 0},))
    streaming.claim(experiment, splits, tmp_path)
    streaming._publish(place, [{"line": 1.0}], experiment, tmp_path, 3)
    run = arml.Run(tmp_path)
    assert (run.experiment.algorithm.vertices, run.experiment.algorithm.grown) == (2, 1)
    assert float(run.learner.choose.handicaps[0]) == 0.5
    (record,) = read_growth(tmp_path / "growth.jsonl")
    assert record["scores"] == {"line": 1.0}


def test_kept_tasks_have_a_bound():
    pictures = arml.Problem("classification", (84, 84, 3), 5, 5, 15)
    streaming._check_room(pictures, 3, 30)
    with pytest.raises(ValueError, match="give --keep 42, or --keep 0"):
        streaming._check_room(pictures, 3, 100)


def test_stages_follow_the_order_and_drift():
    assert StreamOptions().stages(["a", "b"]) == [{"a": 1.0}, {"b": 1.0}]
    drift = StreamOptions(order=("b", "a"), drift=1).stages(["a", "b"])
    assert drift == [{"b": 1.0}, {"b": 0.5, "a": 0.5}, {"a": 1.0}]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("[]", "expected a decision"),
        ('{"decision": "oak"}', "got 'oak'"),
        ('{"stage": 0, "decision": "prune"}', "expected the required field vertex"),
        ('{"stage": 0, "decision": "read", "vertices": ["V0"], "families": {"a": []}}', "a share"),
        ("{", "one JSON object a line"),
    ],
)
def test_damaged_decisions_are_refused_in_one_line(tmp_path, line, told):
    (tmp_path / "growth.jsonl").write_text(f"{line}\n")
    with pytest.raises(RunError, match=told) as found:
        read_growth(tmp_path / "growth.jsonl")
    assert "\n" not in str(found.value)


@pytest.mark.slow
def test_folders_of_ones_own_are_a_stream(tmp_path, capsys):
    """Without a recipe the method is the one that grows, with options that suit the data."""
    data = [str(pictures(tmp_path / name, seed)) for seed, name in enumerate(("birds", "cards"))]
    run = ["train", "--stream", "--data", *data, "--run", str(tmp_path / "run"), "--steps", "4"]
    small = "--held 4 --keep 2 --filters 2 --batch 2 --replay 0.25"
    assert main([*run, *small.split()]) == 0
    assert "ways 2" in capsys.readouterr().out
    found = arml.Run(tmp_path / "run")
    assert found.experiment.recipe == "folders/arml (stream)"
    assert found.families == ("birds", "cards")
    records = read_growth(tmp_path / "run" / "growth.jsonl")
    assert [one["replayed"] for one in records if one["decision"] == "scored"] == [0, 1]
