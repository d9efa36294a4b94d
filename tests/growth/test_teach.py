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
from arml.growth.teach import between, refusals, with_replay
from arml.results.files import read_json
from arml.results.scores import Score, Scores
from arml.tasks.functions import functions_2d
from arml.tasks.options import StarterOptions
from small_pictures import pictures

pytestmark = pytest.mark.usefixtures("optax_promotes")
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


@pytest.fixture
def grow(place, command):
    """Grow a learner by the cards; returns what `command` returns."""

    def call(learner, out, more="--steps 2 --tasks 4", *, code=2):
        return command("grow", learner, "--data", place / "cards", "--out", out, more, code=code)

    return call


def test_a_run_grows_and_stays_as_it_was(place, grow, command):
    before, out = digests(place / "run"), place / "grown"
    found, said = grow(place / "run", out, "--json --steps 2 --tasks 4", code=0)
    found = json.loads(found)
    assert list(found) == ["before", "after"]
    assert list(found["before"]) == list(found["after"]) == ["birds", "cards"]
    assert digests(place / "run") == before
    assert re.search(r"training: \d+ steps of 1 tasks, 50% of known families; ", said)
    assert re.search(r"\(\d+ (s|min) in all\)", said)
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
        assert "not accepted" in said
    # The new folder is a run on both families.
    score, _ = command("evaluate", out, "--tasks 8 --json")
    assert list(json.loads(score)["families"]) == ["birds", "cards"]
    assert "which holds a learner that has grown: name another" in grow(place / "run", out)[1]


def test_invalid_options_are_refused(place, grow):
    for more, told in (("--replay 2", "replay must be a share"), ("--minutes 0", "minutes must")):
        assert told in grow(place / "run", place / "none", more)[1]
    assert not (place / "none" / "config.json").exists()


def test_a_family_of_ones_own_may_have_the_name_of_a_starter_family(tmp_path):
    pictures(tmp_path / "icons", 3)
    options = StarterOptions(data=(str(tmp_path / "icons"),), ways=2, queries=2)
    splits = options.build(tmp_path / "split.json")
    assert splits.train.families == ("glyphs", "icons", "textures", "icons (own)")
    assert list(json.loads((tmp_path / "split.json").read_text())["families"]) == ["icons (own)"]


def test_an_exported_learner_needs_the_data_that_it_knows(place, grow, command):
    shared = place / "shared"
    command("export", place / "run", "--out", shared, "--tasks 0")
    assert "--known" in grow(shared, place / "nothing")[1]


def test_a_family_that_is_too_small_and_functions_are_refused(place, grow):
    assert "whose tasks take no data" in grow("regression2d", place / "functions")[1]
    _, said = grow("starter", place / "small")
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


def test_shares_of_known_families_that_are_drawn_anew():
    assert with_replay({"c": 1.0}, ["a", "b"], 0.5) == {"c": 0.5, "a": 0.25, "b": 0.25}
    assert with_replay({"a": 1.0}, ["a"], 0.5) == {"a": 1.0}
