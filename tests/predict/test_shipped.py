"""The learners that the package carries: found by name, in the wheel, and better than chance."""

import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hatchling.builders.wheel import WheelBuilder

import arml
from arml.predict.files import SHIPPED_LEARNERS, locate, shipped
from arml.predict.learner import by_chunks
from arml.results.files import RunError

ROOT = Path(__file__).parents[2]
NAMES = ("regression2d", "starter", "tables", "tables-regression")


def test_the_wheel_carries_them_and_stays_small(tmp_path):
    wheel = next(WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"]))
    with zipfile.ZipFile(wheel) as archive:
        names = {*archive.namelist()}
    for name in NAMES:
        for file in ("config.json", "weights.safetensors"):
            assert f"arml/data/learners/{name}/{file}" in names
    assert {
        f"arml/data/photos/{file}" for file in ("efficientnet-lite0.onnx", "LICENCE.md")
    } < names
    assert Path(wheel).stat().st_size < 10 * 2**20
    for name in NAMES:
        assert sum(f.stat().st_size for f in (SHIPPED_LEARNERS / name).iterdir()) < 4 * 2**20


def test_they_are_found_by_name_and_a_learner_here_goes_first(tmp_path, monkeypatch):
    assert shipped() == ("photos", *NAMES)
    monkeypatch.chdir(tmp_path)
    assert locate("regression2d") == (SHIPPED_LEARNERS / "regression2d", None)
    Path("regression2d").mkdir()
    place, note = locate("regression2d")
    assert place == SHIPPED_LEARNERS / "regression2d"
    assert "holds no learner" in note
    shutil.copytree(SHIPPED_LEARNERS / "regression2d", "regression2d", dirs_exist_ok=True)
    place, note = locate("regression2d")
    assert place == Path("regression2d")
    assert "not the learner that ships" in note
    assert arml.load("regression2d").problem.kind == "regression"
    every = r"\(photos, regression2d, starter, tables, tables-regression, texts, photographs\)"
    with pytest.raises(RunError, match=rf"no learner at startre: .*{every}.*mean 'starter'"):
        arml.load("startre")


def test_each_says_what_it_was_trained_on_and_names_no_path():
    for name in NAMES:
        text = (SHIPPED_LEARNERS / name / "config.json").read_text()
        assert json.loads(text)["trained"]["step"] > 0
        assert str(Path.home()) not in text
        assert "data" not in json.loads(text)["experiment"]["tasks"]


def test_functions_are_fitted_and_more_examples_than_in_training_do_not_make_it_worse():
    """Prototypes of a regression task are sums over its examples: they must not grow with them."""
    learner, rng = arml.load("regression2d"), np.random.default_rng(0)
    queries = rng.uniform(0, 5, (200, 2))
    error = {}
    for n in (10, 50, 1000):
        x = rng.uniform(0, 5, (n, 2))
        predictor = learner.adapt(x, np.sin(x[:, 0]))
        error[n] = np.mean(np.square(predictor.predict(queries) - np.sin(queries[:, 0])))
    assert max(error.values()) < 0.5


def test_predictions_that_are_not_finite_are_refused():
    with pytest.raises(ValueError, match="scale them to its range"):
        by_chunks(lambda x: np.full((len(x), 1), np.inf), np.ones((3, 1)), 8)


def test_a_learner_of_functions_refuses_what_it_cannot_reach():
    few = arml.load("regression2d")
    x = np.stack([np.arange(5.0), np.ones(5)], axis=1)
    with pytest.raises(ValueError, match=r"at most 51.5 in size, .* got 1e\+06: divide them by"):
        few.adapt(x, 1e6 - x[:, 0])
    with pytest.warns(UserWarning, match="inputs from 0 to 5, got 0 to 40: predictions outside"):
        few.adapt(10 * x, x[:, 0])
