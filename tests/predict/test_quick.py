"""Learners in NumPy answer as the same learners in JAX, and load no JAX."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

import arml
from arml.cli import main
from arml.datasets.starter import load_starter
from arml.experiment.building import build
from arml.experiment.loaded import Portable
from arml.experiment.options import from_json
from arml.nn.networks import Conv4Options
from arml.predict.quick import few, quick_learner, quick_predictor
from arml.predict.shared import SHIPPED
from arml.results.files import read_json

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def pictures(each: int) -> tuple[np.ndarray, list[str]]:
    """Three test classes of icons."""
    families, split = load_starter()
    icons = next(family for family in families if family.name == "icons")
    names = split["icons"]["test"][:3]
    first = [icons.first[icons.classes.index(name)] for name in names]
    x = np.concatenate([icons.images[i : i + each] for i in first])
    return x, [name for name in names for _ in range(each)]


def test_the_shipped_learner_answers_alike():
    x, y = pictures(4)
    support = np.arange(len(x)) % 4 < 2
    few_shot = arml.load("starter").adapt(x[support], [*np.array(y)[support]])
    quick = quick_learner(SHIPPED / "starter").adapt(x[support], [*np.array(y)[support]])
    assert quick.classes.tolist() == few_shot.classes.tolist()
    ours, theirs = quick.predict_proba(x[~support]), few_shot.predict_proba(x[~support])
    np.testing.assert_allclose(ours, theirs, **CLOSE)
    np.testing.assert_allclose(quick.novelty(x[~support]), few_shot.novelty(x[~support]), **CLOSE)
    assert quick.support_novelty() == pytest.approx(few_shot.support_novelty(), rel=1e-4)
    ours, theirs = quick.trust(), few_shot.trust()
    np.testing.assert_allclose(ours.probabilities, theirs.probabilities, **CLOSE)
    assert ours.others == theirs.others
    assert str(ours) == str(theirs)


@pytest.mark.parametrize(("size", "edges"), [(16, False), (21, True)])
def test_any_scaled_protonet_on_pictures_answers_alike(size, edges, tmp_path):
    experiment = arml.recipe("starter/protonet")
    experiment = dataclasses.replace(experiment, network=Conv4Options(filters=3, edges=edges))
    problem = arml.Problem("classification", (size, size, 3), 4, 2, 2)
    portable = Portable(experiment, build(experiment, problem), problem, ("noise",), 1.5)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 255, (9, size, size, 3)).astype(np.uint8)
    predictor = arml.FewShotLearner(portable).adapt(x[:6], [*"abcabc"])
    predictor.save(tmp_path / "kept")
    quick = quick_predictor(tmp_path / "kept")
    assert quick.portable.temperature == 1.5
    ours, theirs = quick.predict_proba(x), predictor.predict_proba(x)
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_a_predictor_is_saved_as_jax_saves_it(tmp_path):
    x, y = pictures(3)
    for name, learner in (
        ("theirs", arml.load("starter")),
        ("ours", quick_learner(SHIPPED / "starter")),
    ):
        learner.adapt(x, y).using("together").save(tmp_path / name)
    for name in ("weights", "support", "seen"):
        ours, theirs = (tmp_path / who / f"{name}.safetensors" for who in ("ours", "theirs"))
        assert ours.read_bytes() == theirs.read_bytes()
    ours, theirs = (read_json(tmp_path / who / "config.json") for who in ("ours", "theirs"))
    assert ours["made"].keys() == theirs["made"].keys()
    shares = [who["task"].pop("shares") for who in (ours, theirs)]
    assert shares[0] == pytest.approx(shares[1], abs=1e-4)
    # The folder that ships lacks options that were added after it; they have their defaults.
    same = [from_json(who.pop("experiment"), "config.json") for who in (ours, theirs)]
    assert same[0] == same[1]
    unlike = {"made": 0, "sha256": 0}
    assert {**ours, **unlike} == {**theirs, **unlike}
    again = arml.load_predictor(tmp_path / "ours")
    quick = quick_predictor(tmp_path / "ours")
    np.testing.assert_allclose(quick.predict_proba(x), again.predict_proba(x), **CLOSE)
    with pytest.raises(ValueError, match="expected an empty or new folder"):
        quick_learner(SHIPPED / "starter").adapt(x, y).save(tmp_path)


@pytest.mark.parametrize("name", ["regression2d", "tables", "tables-regression"])
def test_other_learners_are_left_to_jax(name):
    assert quick_learner(SHIPPED / name) is None


def test_the_command_line_loads_no_jax_and_to_predict_no_scipy(tmp_path):
    x, y = pictures(3)
    for i, (picture, label) in enumerate(zip(x, y, strict=True)):
        (tmp_path / "own" / label).mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(tmp_path / "own" / label / f"{i}.png"), picture)
    own, kept = str(tmp_path / "own"), str(tmp_path / "kept")
    for command, without in (
        (["adapt", "starter", "--support", own, "--query", own, "--save", kept], ["jax"]),
        (["predict", kept, own], ["jax", "scipy"]),
    ):
        code = f"""
import sys
from arml.cli import main
assert main({command!r}) == 0
assert not {{*{without!r}}} & {{*sys.modules}}
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.splitlines()) == 10
    assert few([tmp_path / "own"], 9)
    assert not few([tmp_path / "own"], 8)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (
            "adapt starter --support t.csv --target b --query t.csv",
            "because starter reads pictures",
        ),
        ("adapt tables --support own --target b --query own", "because tables reads tables"),
        ("adapt starter --support own --query own --target b", "expected no --target"),
        ("adapt starter --support own --query own --matter", "expected no --matter"),
        ("adapt starter --support own --query own t.csv", "got the table t.csv: name folders"),
    ],
)
def test_tables_and_pictures_are_not_mistaken(command, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("a,b\n1,2\n3,4\n")
    for name in "ab":
        Path("own", name).mkdir(parents=True)
        cv2.imwrite(f"own/{name}/0.png", np.zeros((8, 8, 3), np.uint8))
    assert main(command.split()) == 2
    said = capsys.readouterr().err
    assert says in said
    assert len(said.splitlines()) == 1
