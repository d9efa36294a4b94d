"""`arml grow` on pictures of one's own, small."""

import hashlib
import json
import re
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest

import arml
from arml.cli import main
from arml.growth.teach import between, refusals
from arml.results.files import read_json
from arml.results.scores import Score, Scores
from arml.tasks.functions import functions_2d
from arml.tasks.options import StarterOptions
from small_pictures import pictures

SMALL = """--ways 2 --shots 1 --queries 2 --size 16 --filters 2 --batch 1 --steps 2 --interval 1
--checkpoint-every 2 --validate-every 2 --validation-tasks 2"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with two families and a run on the first."""
    folder = tmp_path_factory.mktemp("grow")
    birds, cards = pictures(folder / "birds", 0), pictures(folder / "cards", 1)
    run = ["train", "folders/protonet", "--data", str(birds), "--run", str(folder / "run")]
    assert main([*run, *SMALL.split()]) == 0
    assert cards.is_dir()
    return folder


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ARML_CACHE", str(tmp_path / "cache"))


def digests(folder: Path) -> dict[str, str]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def grow(place, learner, out, *more):
    given = ["--data", str(place / "cards"), "--out", str(out)]
    return main(["grow", str(learner), *given, *(more or ("--steps", "2", "--tasks", "4"))])


def test_a_run_grows_and_stays_as_it_was(place, capsys):
    before, out = digests(place / "run"), place / "grown"
    assert grow(place, place / "run", out, "--json", "--steps", "2", "--tasks", "4") == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert list(found) == ["before", "after"]
    assert list(found["before"]) == list(found["after"]) == ["birds", "cards"]
    assert digests(place / "run") == before
    assert re.search(r"training: \d+ steps of 1 tasks, 50% of known families; ", said.err)
    assert re.search(r"\(\d+ s in all\)", said.err)
    kept = read_json(out / "growth.json")
    assert kept["records"] == []
    outcome = kept["outcome"]
    assert outcome["before"] == found["before"]
    # Before, after and the gain are of the same tasks.
    for name, gain in outcome["gains"].items():
        assert gain["mean"] == pytest.approx(found["after"][name] - found["before"][name])
        assert gain["n"] == outcome["tasks"]
    if not outcome["moved"]:
        assert found["after"] == found["before"]
        assert "not accepted" in said.err
    # The new folder is a run on both families.
    assert main(["evaluate", str(out), "--tasks", "8", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["families"]) == ["birds", "cards"]
    assert grow(place, place / "run", out) == 2
    assert "which holds a learner that has grown: name another" in capsys.readouterr().err


def test_invalid_options_are_refused(place, capsys):
    cases = {"replay must be a share": ("--replay", "2"), "minutes must": ("--minutes", "0")}
    for told, more in cases.items():
        assert grow(place, place / "run", place / "none", *more) == 2
        assert told in capsys.readouterr().err
    assert not (place / "none" / "config.json").exists()


def test_a_family_of_ones_own_may_have_the_name_of_a_starter_family(tmp_path):
    pictures(tmp_path / "icons", 3)
    options = StarterOptions(data=(str(tmp_path / "icons"),), ways=2, queries=2)
    splits = options.build(tmp_path / "split.json")
    assert splits.train.families == ("glyphs", "icons", "textures", "icons (own)")
    assert list(json.loads((tmp_path / "split.json").read_text())["families"]) == ["icons (own)"]


def test_an_exported_learner_needs_the_data_that_it_knows(place, capsys):
    shared = place / "shared"
    assert main(["export", str(place / "run"), "--out", str(shared), "--tasks", "0"]) == 0
    capsys.readouterr()
    assert grow(place, shared, place / "nothing") == 2
    assert "give them with --known" in capsys.readouterr().err.replace("\n", " ")


def test_a_family_that_is_too_small_and_functions_are_refused(place, capsys):
    assert grow(place, "regression2d", place / "functions") == 2
    assert "whose tasks take no data" in capsys.readouterr().err
    assert grow(place, "starter", place / "small") == 2
    said = capsys.readouterr().err
    assert "expected at least 10 train classes" in said
    assert "add some, because a learner keeps its ways, shots and queries when it grows" in said


def test_a_new_learner_must_gain_and_may_lose_two_points_at_most():
    def score(mean, ci95):
        return Score(mean=mean, ci95=ci95, n=100)

    def before(metric):
        return {n: Scores(np.array([v]), np.zeros(1), metric=metric) for n, v in old.items()}

    better, old = score(0.10, 0.02), {"birds": 0.8, "cards": 0.5}
    cases = [
        (better, score(0.0, 0.01), True),
        (better, score(-0.009, 0.01), True),  # at most 1.9 points
        (better, score(-0.015, 0.01), False),  # it may lose more than two points
        (better, score(0.0, 0.03), False),
        (score(0.10, 0.11), score(0.0, 0.01), False),
        (score(None, None), score(0.0, 0.01), False),
    ]
    for new, known, wanted in cases:
        gains = {"cards": new, "birds": known}
        refused = refusals(gains, ["cards"], before("accuracy"))
        assert (not refused) is wanted, (new, known, refused)
    lost = {"cards": better, "birds": score(-0.03, 0.01)}
    assert not refusals(lost, ["cards"], before("mse"))  # 5% of the error


def test_weights_go_a_part_of_the_way():
    tasks = functions_2d()
    old, new = (arml.build("maml", tasks, seed=seed) for seed in (0, 1))
    half = between(old, new, 0.5)
    arrays = (jax.tree.leaves(eqx.filter(m, eqx.is_inexact_array)) for m in (old, new, half))
    for a, b, c in zip(*arrays, strict=True):
        np.testing.assert_allclose(c, (np.asarray(a) + np.asarray(b)) / 2, rtol=1e-5)
