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
from arml.calibration import calibration_error, temperature
from arml.cli import main
from arml.episodes import Examples
from arml.experiment import Experiment, load_learner, run
from arml.nn.networks import Conv4Options, MLPOptions
from arml.results import RunError
from arml.tasks.options import FoldersOptions, FunctionsOptions

PACE = {"steps": 2, "batch": 1, "interval": 2, "checkpoint_every": 2, "validate_every": 2}


@pytest.fixture(autouse=True, scope="module")
def _optax_promotes():
    with jax.numpy_dtype_promotion("standard"):
        yield


def draw(folder: Path, classes: int, each: int = 4, size: int = 20) -> Path:
    """Noisy pictures, each class of one colour."""
    rng = np.random.default_rng(0)
    for name in range(classes):
        (folder / f"class{name}").mkdir(parents=True)
        colour = np.array([name * 37 % 256, name * 91 % 256, name * 53 % 256])
        for i in range(each):
            noise = rng.integers(-20, 20, (size, size, 3))
            picture = np.clip(colour + noise, 0, 255).astype(np.uint8)
            assert cv2.imwrite(str(folder / f"class{name}" / f"{i}.png"), picture)
    return folder


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """A run on pictures, by ARML; its data is gone."""
    data = draw(tmp_path_factory.mktemp("data") / "colours", 12)
    folder = tmp_path_factory.mktemp("runs") / "images"
    tasks = FoldersOptions(data=(str(data),), ways=2, shots=1, queries=2, size=16)
    problem = arml.Problem("classification", (16, 16, 3), 2, 1, 2)
    options = replace(ALGORITHMS["arml"].options(problem), inner_steps=1)
    experiment = Experiment(
        "folders/arml",
        options,
        tasks,
        Conv4Options(filters=4),
        validation_tasks=2,
        scan=False,
        chunk=1,
        **PACE,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ARML_CACHE", str(tmp_path_factory.mktemp("cache")))
        run(experiment, folder)
        out = folder.with_name("shared")
        assert main(["export", str(folder), "--out", str(out), "--tasks", "8"]) == 0
    shutil.rmtree(data)
    return folder, out


@pytest.fixture(scope="module")
def functions(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "functions"
    options = ALGORITHMS["maml"].options(arml.Problem("regression", (2,), 1, 5, 5))
    network = MLPOptions(hidden=(8,), init="he")
    tasks = FunctionsOptions(shots=5, queries=5)
    experiment = Experiment(
        "regression2d/maml", options, tasks, network, validation_tasks=4, **PACE
    )
    run(experiment, folder)
    return folder


@pytest.fixture
def own(tmp_path) -> Path:
    return draw(tmp_path / "own", 2)


def pictures(own: Path) -> tuple[np.ndarray, list[str]]:
    files = sorted(own.rglob("*.png"))
    read = [cv2.resize(cv2.imread(str(f)), (16, 16))[:, :, ::-1] for f in files]
    return np.stack(read), [f.parent.name for f in files]


def test_a_prediction_is_the_learners_own(functions):
    rng = np.random.default_rng(0)
    x, y, more = rng.uniform(0, 5, (7, 2)), rng.normal(size=7), rng.uniform(0, 5, (130, 2))
    predictor = arml.load(functions).adapt(x, y)
    learner = load_learner(functions).learner
    support = Examples(jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)[:, None])
    expected = learner.adapt(support, key=jax.random.key(0)).predict(jnp.asarray(more, jnp.float32))
    np.testing.assert_allclose(predictor.predict(more), expected[:, 0], rtol=1e-5, atol=1e-6)
    assert predictor.predict(np.zeros((0, 2))).shape == (0,)
    assert arml.load(functions).adapt(x, y[:, None]).predict(more).shape == (130, 1)
    assert predictor.reading() is None


def test_labels_are_ones_own_and_a_query_stands_for_itself(images, own):
    x, y = pictures(own)
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
    x, y = pictures(own)
    for i, path in enumerate(images):
        predictor = arml.load(path).adapt(x, y)
        predictor.save(tmp_path / f"kept{i}")
        again = arml.load_predictor(tmp_path / f"kept{i}")
        np.testing.assert_array_equal(again.predict_proba(x), predictor.predict_proba(x))
        assert list(again.predict(x)) == list(predictor.predict(x))
    assert arml.load(images[1]).portable.temperature != 1
    x, y = np.eye(2), [1.0, 2.0]
    arml.load(functions).adapt(x, y).save(tmp_path / "flat")
    kept = arml.load_predictor(tmp_path / "flat").predict(x)
    np.testing.assert_array_equal(kept, arml.load(functions).adapt(x, y).predict(x))
    arml.load(functions).save(tmp_path / "learner")
    arml.load(tmp_path / "learner").adapt(x, y)


def test_a_shared_learner_names_no_path(images):
    config = (images[1] / "config.json").read_text()
    assert "/" not in json.loads(config)["experiment"]["tasks"].get("data", "")
    assert str(images[0].parent) not in config


@pytest.mark.parametrize("name", ["config.json", "weights.safetensors", "support.safetensors"])
def test_what_was_altered_or_cut_short_is_refused(functions, tmp_path, name):
    folder = tmp_path / "kept"
    arml.load(functions).adapt(np.eye(2), [1.0, 2.0]).save(folder)
    whole = (folder / name).read_bytes()
    flipped = whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:]
    for damaged in (whole[:-5], flipped):
        (folder / name).write_bytes(damaged)
        with pytest.raises(RunError):
            arml.load_predictor(folder)
    (folder / name).unlink()
    with pytest.raises(RunError):
        arml.load_predictor(folder)


def test_a_later_format_is_refused_with_advice(functions, tmp_path):
    arml.load(functions).save(tmp_path / "learner")
    path = tmp_path / "learner" / "config.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 9'))
    with pytest.raises(RunError, match="use a later version"):
        arml.load(tmp_path / "learner")


def test_bad_examples_are_refused(images, functions, own):
    x, y = pictures(own)
    few, flat = arml.load(images[0]), arml.load(functions)
    for bad_x, bad_y, said in (
        (x, ["a"] * 8, "expected 2 to 2 classes, got 1"),
        (x, list("aabbccdd"), "expected 2 to 2 classes, got 4"),
        (x, y[:3], "expected 8 labels"),
        (x[:, :8], y, r"of shape \[n, 16, 16, 3\], got \[8, 8, 16, 3\]"),
        (x * 2.0, y, "floats from 0 to 1"),
        (np.full(x.shape, "red"), y, "as numbers"),
    ):
        with pytest.raises(ValueError, match=said):
            few.adapt(bad_x, bad_y)
    with pytest.raises(ValueError, match="got NaN or infinity"):
        flat.adapt([[1.0, np.nan]], [1.0])
    with pytest.raises(ValueError, match="finite targets"):
        flat.adapt([[1.0, 2.0]], [np.inf])
    predictor = flat.adapt([[1.0, 2.0]], [1.0])
    with pytest.raises(ValueError, match=r"queries of shape \[n, 2\], got \[3, 5\]"):
        predictor.predict(np.zeros((3, 5)))
    with pytest.raises(ValueError, match="use predict"):
        predictor.predict_proba(np.zeros((3, 2)))


def test_pictures_on_the_command_line(images, own, tmp_path, capsys):
    answers, kept = tmp_path / "answers.csv", tmp_path / "kept"
    given = ["adapt", str(images[1]), "--support", str(own), "--query", str(own)]
    assert main([*given, "--out", str(answers), "--save", str(kept)]) == 0
    rows = list(csv.reader(answers.read_text().splitlines()))
    assert rows[0] == ["file", "label", "probability", "vertices"]
    assert len(rows) == 9
    assert {row[1] for row in rows[1:]} <= {"class0", "class1"}
    capsys.readouterr()
    one = sorted(own.rglob("*.png"))[0]
    assert main(["predict", str(kept), str(one)]) == 0
    said = list(csv.reader(capsys.readouterr().out.splitlines()))
    assert said[1] == rows[1]
    assert main([*given[:4], "--query", str(tmp_path / "none")]) == 2
    assert "expected an image or a folder" in capsys.readouterr().err
    assert main(["predict", str(images[1]), str(one)]) == 2
    assert "a learner without a task" in capsys.readouterr().err


def test_tables_on_the_command_line(functions, tmp_path, capsys):
    support, query = tmp_path / "support.csv", tmp_path / "query.csv"
    support.write_text("a,b,height\n1,2,3\n2,0.5,1\n0,1,2\n")
    query.write_text("a,b\n1,2\n3,4\n")
    given = ["adapt", str(functions), "--support", str(support), "--query", str(query)]
    assert main([*given, "--target", "height"]) == 0
    rows = list(csv.reader(capsys.readouterr().out.splitlines()))
    assert [row[0] for row in rows] == ["row", "2", "3"]
    expected = arml.load(functions).adapt([[1, 2], [2, 0.5], [0, 1]], [3, 1, 2]).predict([[1, 2]])
    np.testing.assert_allclose(float(rows[1][1]), expected[0], rtol=1e-5)
    for change, said in (
        ([], "expected --target"),
        (["--target", "width"], "expected a column 'width', got a, b, height"),
    ):
        assert main([*given, *change]) == 2
        assert said in capsys.readouterr().err
    for text, said in (
        ("a,b,height\n1,x,3\n", "expected a number in column 'b' of row 2, got 'x'"),
        ("a,b,height\n1,2,tall\n", "expected numbers to predict"),
        ("a,b,height\n1,2,3\n1,2,4\n", "expected inputs that differ"),
        ("a,b,height\n1,2\n", "expected 3 cells a row"),
        ("a,b,height\n", "expected a header and one or more rows"),
    ):
        support.write_text(text)
        assert main([*given, "--target", "height"]) == 2
        assert said in capsys.readouterr().err


def test_temperature_finds_the_scale_of_calibrated_logits():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(20_000, 4))
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    y = np.array([rng.choice(4, p=p) for p in chances])
    assert abs(temperature(3 * logits.astype(np.float32), y) - 3) < 0.1


def test_calibration_error_in_closed_form():
    confidence = np.array([0.9] * 10 + [0.6] * 10)
    correct = np.array([True] * 7 + [False] * 3 + [True] * 6 + [False] * 4)
    assert abs(calibration_error(confidence, correct) - 0.1) < 1e-9
