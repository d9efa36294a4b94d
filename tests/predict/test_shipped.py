"""The learners that the package carries: found by name, in the wheel, and better than chance."""

import json
import shutil
import zipfile
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest
from hatchling.builders.wheel import WheelBuilder

import arml
from arml.cli import main
from arml.predict.files import SHIPPED, locate, shipped
from arml.predict.learner import FewShotLearner
from arml.predict.predictor import by_chunks
from arml.results.files import RunError
from arml.tasks.functions import functions_2d
from arml.tasks.options import StarterOptions

ROOT = Path(__file__).parents[2]
NAMES = ("regression2d", "starter", "tables", "tables-regression")


def test_the_wheel_carries_them_and_stays_small(tmp_path):
    wheel = next(WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"]))
    with zipfile.ZipFile(wheel) as archive:
        names = {*archive.namelist()}
    for name in NAMES:
        for file in ("config.json", "weights.safetensors"):
            assert f"arml/data/learners/{name}/{file}" in names
    assert "arml/data/photos/efficientnet-lite0.onnx" in names
    assert Path(wheel).stat().st_size < 10 * 2**20
    for name in NAMES:
        assert sum(f.stat().st_size for f in (SHIPPED / name).iterdir()) < 4 * 2**20


def test_they_are_found_by_name_and_a_learner_here_goes_first(tmp_path, monkeypatch):
    assert shipped() == ("photos", *NAMES)
    monkeypatch.chdir(tmp_path)
    assert locate("regression2d") == (SHIPPED / "regression2d", None)
    Path("regression2d").mkdir()
    place, note = locate("regression2d")
    assert place == SHIPPED / "regression2d"
    assert "holds no learner" in note
    shutil.copytree(SHIPPED / "regression2d", "regression2d", dirs_exist_ok=True)
    place, note = locate("regression2d")
    assert place == Path("regression2d")
    assert "not the learner that ships" in note
    assert arml.load("regression2d").problem.kind == "regression"
    with pytest.raises(RunError, match=r"no learner at startre: .*tables-regression\)"):
        arml.load("startre")


def test_each_says_what_it_was_trained_on_and_names_no_path():
    for name in NAMES:
        text = (SHIPPED / name / "config.json").read_text()
        assert json.loads(text)["trained"]["step"] > 0
        assert str(Path.home()) not in text
        assert "data" not in json.loads(text)["experiment"]["tasks"]


def mean_score(learner: FewShotLearner, tasks: arml.TaskDistribution, n: int) -> float:
    """Mean over tasks of the mean squared error, or of the accuracy."""
    sample = eqx.filter_jit(tasks.sample)
    scores = []
    for key in jax.random.split(jax.random.key(0), n):
        task = sample(key)
        (x, y), query = task.support, task.query
        got = learner.adapt(np.asarray(x), np.asarray(y)).predict(np.asarray(query.x))
        right = np.asarray(query.y)
        wrong = (got - right) ** 2
        scores.append(np.mean(wrong if learner.problem.kind == "regression" else got == right))
    return float(np.mean(scores))


def test_the_regression_learner_fits_functions_that_it_never_saw():
    # 0.14 on 4,000 tasks; the mean of the support set has about 9.
    tasks = functions_2d(shots=10, queries=10)
    assert mean_score(arml.load("regression2d"), tasks, 2) < 0.8


def test_the_starter_learner_tells_classes_that_it_never_saw(tmp_path):
    # Chance is 0.2.
    tasks = StarterOptions(shots=2, queries=5).build(tmp_path / "none").test
    assert mean_score(arml.load("starter"), tasks, 2) > 0.5


def test_a_table_is_fitted_by_name_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("few.csv").write_text("a,b,height\n0,1,1\n1,1,2\n2,1,3\n3,1,4\n")
    assert main(["adapt", "regression2d", "--support", "few.csv", "--target", "height", "--query",
                 "few.csv"]) == 0  # fmt: skip
    said = capsys.readouterr()
    heights = [float(line.split(",")[1]) for line in said.out.splitlines()[1:]]
    np.testing.assert_allclose(heights, [1, 2, 3, 4], atol=0.8)
    assert main(["adapt", "regression", "--support", "few.csv", "--save", "kept"]) == 2
    assert (
        "one that ships (photos, regression2d, starter, tables, tables-regression)"
        in capsys.readouterr().err
    )


def test_more_examples_than_in_training_do_not_make_it_worse():
    """Prototypes of a regression task are sums over its examples: they must not grow with them."""
    learner, rng = arml.load("regression2d"), np.random.default_rng(0)
    queries = rng.uniform(0, 5, (200, 2))
    error = {}
    for n in (10, 50, 1000):
        x = rng.uniform(0, 5, (n, 2))
        predictor = learner.adapt(x, np.sin(x[:, 0]))
        error[n] = np.mean(np.square(predictor.predict(queries) - np.sin(queries[:, 0])))
    assert error[50] < 0.5
    assert error[1000] < 0.5


def test_predictions_that_are_not_finite_are_refused():
    with pytest.raises(ValueError, match="scale them to its range"):
        by_chunks(lambda x: np.full((len(x), 1), np.inf), np.ones((3, 1)), 8)


def test_texts_and_numbers_as_labels_are_not_one():
    pictures = np.zeros((2, 32, 32, 3), np.uint8)
    with pytest.raises(ValueError, match="all texts or all numbers"):
        arml.load("starter").adapt(pictures, [1, "1"])


def test_a_learner_of_functions_refuses_what_it_cannot_reach():
    few = arml.load("regression2d")
    x = np.stack([np.arange(5.0), np.ones(5)], axis=1)
    with pytest.raises(ValueError, match=r"at most 51.5 in size, .* got 1e\+06: divide them by"):
        few.adapt(x, 1e6 - x[:, 0])
    with pytest.warns(UserWarning, match="inputs from 0 to 5, got 0 to 40: predictions outside"):
        few.adapt(10 * x, x[:, 0])
