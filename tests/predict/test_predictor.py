"""One's own examples in, predictions out, and a predictor that survives being kept."""

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import cv2
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import arml
from arml.algorithms import ALGORITHMS
from arml.cli import main
from arml.core.episodes import Examples
from arml.experiment.options import Experiment
from arml.experiment.running import Run, run
from arml.nn.networks import Conv4Options, MLPOptions
from arml.predict.learner import temperature
from arml.results.files import RunError
from arml.tasks.options import FoldersOptions, FunctionsOptions
from small_pictures import pictures
from untrained import untrained

PACE = {"steps": 2, "batch": 1, "interval": 2, "checkpoint_every": 2, "validate_every": 2}
PACE |= {"validation_tasks": 4}


@pytest.fixture(autouse=True, scope="module")
def _optax_promotes():
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """A run on pictures, by ARML; its data is gone."""
    data = pictures(tmp_path_factory.mktemp("data") / "colours", 0, 130)
    folder = tmp_path_factory.mktemp("runs") / "images"
    tasks = FoldersOptions(data=(str(data),), ways=2, shots=1, queries=2, size=16)
    problem = arml.Problem("classification", (16, 16, 3), 2, 1, 2, inputs="pictures")
    options = replace(ALGORITHMS["arml-film"].options(problem), inner_steps=1)
    network, pace = Conv4Options(filters=4), {**PACE, "scan": False, "chunk": 1}
    experiment = Experiment("folders/arml-film", options, tasks, network, **pace)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ARML_CACHE", str(tmp_path_factory.mktemp("cache")))
        run(experiment, folder)
        out = folder.with_name("shared")
        assert main(["export", str(folder), "--out", str(out), "--tasks", "60"]) == 0
    shutil.rmtree(data)
    return folder, out


@pytest.fixture(scope="module")
def functions(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "functions"
    options = ALGORITHMS["maml"].options(arml.Problem("regression", (2,), 1, 5, 5))
    network = MLPOptions(hidden=(8,), init="he")
    tasks = FunctionsOptions(shots=5, queries=5)
    run(Experiment("regression2d/maml", options, tasks, network, **PACE), folder)
    return folder


@pytest.fixture
def own(tmp_path) -> Path:
    return pictures(tmp_path / "own", 0, 2)


def read(own: Path) -> tuple[np.ndarray, list[str]]:
    files = sorted(own.rglob("*.png"))
    return np.stack([cv2.imread(str(f))[:, :, ::-1] for f in files]), [f.parent.name for f in files]


def test_a_prediction_is_the_learners_own(functions):
    rng = np.random.default_rng(0)
    x, y, more = rng.uniform(0, 5, (7, 2)), rng.normal(size=7), rng.uniform(0, 5, (130, 2))
    predictor = arml.load(functions).adapt(x, y)
    learner = Run(functions).learner
    support = Examples(jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)[:, None])
    expected = learner.adapt(support, key=jax.random.key(0)).predict(jnp.asarray(more, jnp.float32))
    np.testing.assert_allclose(predictor.predict(more), expected[:, 0], rtol=1e-5, atol=1e-6)
    assert predictor.predict(np.zeros((0, 2))).shape == (0,)
    assert arml.load(functions).adapt(x, y[:, None]).predict(more).shape == (130, 1)
    assert predictor.reading() is None
    without = untrained("arml-paper", 2, vertices=0).adapt(x[:4], [0, 1, 0, 1])
    assert without.reading() is None


def test_labels_are_ones_own_and_a_query_stands_for_itself(images, own):
    x, y = read(own)
    predictor = arml.load(images[0]).adapt(x[1:], y[1:])  # the classes' counts differ
    assert list(predictor.classes) == ["class0", "class1"]
    chances = predictor.predict_proba(x)
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    assert set(predictor.predict(x)) <= {"class0", "class1"}
    # One by one, and as floats: the same.
    alone = np.concatenate([predictor.predict_proba(x[i : i + 1] / 255) for i in range(len(x))])
    np.testing.assert_allclose(chances, alone, rtol=1e-4, atol=1e-6)
    reading = predictor.reading()
    assert reading.shape == (2, 8)
    np.testing.assert_allclose(reading.sum(axis=1), 1, rtol=1e-5)
    numbers = arml.load(images[0]).adapt(x, np.repeat([30, 7], 4))
    assert list(numbers.classes) == [7, 30]


def test_a_kept_predictor_predicts_the_same(images, functions, own, tmp_path):
    x, y = read(own)
    for i, path in enumerate(images):
        predictor = arml.load(path).adapt(x, y)
        predictor.save(tmp_path / f"kept{i}")
        again = arml.load_predictor(tmp_path / f"kept{i}")
        np.testing.assert_array_equal(again.predict_proba(x), predictor.predict_proba(x))
        assert list(again.predict(x)) == list(predictor.predict(x))
    assert arml.load(images[1]).temperature != 1
    config = (images[1] / "config.json").read_text()
    assert "/" not in json.loads(config)["experiment"]["tasks"].get("data", "")
    assert str(images[0].parent) not in config
    arml.load(functions).save(tmp_path / "learner")
    path = tmp_path / "learner" / "config.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 9'))
    with pytest.raises(RunError, match="use the version of arml that wrote it"):
        arml.load(tmp_path / "learner")


def test_bad_examples_are_refused(images, functions, own):
    x, y = read(own)
    few, flat = arml.load(images[0]), arml.load(functions)
    for learner, bad_x, bad_y, said in (
        (few, x, ["a"] * 8, "expected 2 or more classes, got 1"),
        (few, x, y[:3], "expected 8 labels"),
        (few, x[:, :8], y, r"of shape \[n, 16, 16, 3\], got \[8, 8, 16, 3\]"),
        (few, x * 2.0, y, "floats from 0 to 1"),
        (few, np.full(x.shape, "red"), y, "as numbers"),
        (few, x, [*y[:-1], 1], "all texts or all numbers"),
        (flat, [[1.0, np.nan]], [1.0], "got NaN or infinity"),
        (flat, np.ma.masked_equal([[1.0, 2.0]], 2.0), [1.0], "got masked numbers"),
        (flat, [[1e300, 1.0]], [1.0], "expected finite support inputs"),
        (flat, [[1.0, 2.0]], [np.inf], "finite targets"),
        (flat, [[1.0, 1.0]], ["tall"], "expected numbers as targets"),
        (flat, [[1e30, 1.0]], [1e30], "expected targets of at most"),
        (flat, np.zeros((0, 2)), [], "no examples"),
    ):
        with pytest.raises(ValueError, match=said):
            learner.adapt(bad_x, bad_y)
    predictor = flat.adapt([[1.0, 2.0], [3.0, 2.0]], [1.0, 2.0])
    # A constant column is no harm: four of the families have one. Nor are pictures without light.
    assert np.all(np.isfinite(predictor.predict([[0, 0]])))
    assert np.all(np.isfinite(few.adapt(0 * x, y).predict_proba(0 * x)))
    with pytest.raises(ValueError, match=r"queries of shape \[n, 2\], got \[3, 5\]"):
        predictor.predict(np.zeros((3, 5)))
    with pytest.raises(ValueError, match="use predict"):
        predictor.predict_proba(np.zeros((3, 2)))


def test_tables_on_the_command_line(functions, tmp_path, command):
    support, query, kept = (tmp_path / name for name in ("support.csv", "query.csv", "kept"))
    support.write_text("a,height,b\n1,3,2\n2,1,0.5\n0,2,1\n")
    adapt = f"adapt {functions} --support {support} --query {query}"
    predictor = arml.load(functions).adapt([[1, 2], [2, 0.5], [0, 1]], [3, 1, 2]).using("ensemble")
    query.write_text("a,b\n1,2\n3,4\n")
    for more in (f"--save {kept}", "--no-reliability"):
        said, remarks = command(adapt, "--target height", more)
        rows = list(csv.reader(said.splitlines()))
        assert [row[0] for row in rows] == ["row", "2", "3"]
        expected = predictor.predict([[1, 2]])
        np.testing.assert_allclose(float(rows[1][1]), expected[0], rtol=1e-4)
        assert ("cross-validated error" in remarks) == more.startswith("--save")
    swapped = f"adapt {functions} --support {support} --target a --save {kept}"
    _, said = command(swapped, code=2)
    assert "holds a predictor of another target (height): name another folder" in said
    assert "learned from" not in said
    # Columns go by their names. Blank lines are counted, as an editor counts them, and not read.
    for text, places in (("b,a\n2,1\n4,3\n", "23"), ("b,height,a\n\n2,9,1\n\n4,9,3\n", "35")):
        query.write_text(text)
        found = list(csv.reader(command("predict", kept, query)[0].splitlines()))
        assert [row[0] for row in found] == ["row", *places]
        assert [row[1:] for row in found] == [row[1:] for row in rows]
    to_predict = f"predict {kept} {query}"
    learned = f"{adapt} --target height"
    for file, text, words, says in (
        (
            query,
            "a,b\n1,0_5.0\n",
            to_predict,
            "'0_5.0' in column 'b' of row 2 is not a finite number",
        ),
        (
            query,
            "a,b\n1,1e99\n",
            to_predict,
            "'1e99' in column 'b' of row 2 is not a finite number",
        ),
        (support, "a,height,b\n1,2,3\n", adapt, "named; name one with --target: a, height, b"),
        (
            support,
            "a,b,height\n1,x,3\n",
            learned,
            "'x' in column 'b' of row 2 is not a finite number",
        ),
        (support, "a,b,height\n1,2,tall\n", learned, "'tall' in column 'target' of row 2 is no"),
        (support, "a,b,height\n1,2,3\n1,2,4\n", learned, "all 2 rows are identical"),
        (support, "a,b,height\n1,2\n", learned, "row 2 has 2 cells, the header 3"),
        (support, "a,b,height\n", learned, "has only a header: add one or more rows"),
    ):
        file.write_text(text)
        assert says in command(words, code=2)[1]


@pytest.mark.parametrize(("n", "ways"), [(20, 2), (300, 5)])
def test_right_answers_alone_do_not_make_the_next_one_certain(n, ways):
    """By the rule of succession, for two classes: (n + 1) / (n + 2)."""
    y = np.arange(n) % ways
    logits = np.eye(ways, dtype=np.float32)[y]
    z = 1 / temperature(logits, y)
    sure = np.exp(z) / (np.exp(z) + ways - 1)
    assert sure == pytest.approx((n + 1) / (n + ways), rel=1e-4)
    lacking = np.concatenate([logits, np.full((n, 1), -1e9, np.float32)], axis=1)
    assert temperature(lacking, y) == pytest.approx(1 / z, rel=1e-4)


def test_a_diverged_learner_has_a_temperature_without_a_warning():
    logits = np.eye(3, dtype=np.float32)
    logits[1] = np.nan
    temperature(logits, np.arange(3))
