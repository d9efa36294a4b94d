"""The conditions of a score in words; and the classifiers that need no meta-training."""

import json
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from PIL import Image
from scipy.optimize import minimize

import arml
from arml.core.episodes import Problem
from arml.experiment.contract import Blobs
from arml.experiment.recipes import build, recipe
from arml.experiment.scoring import (
    L2_PENALTY,
    LOGISTIC_NAME,
    NEAREST_NAME,
    protocol,
    simple_predictions,
    simple_scores,
)
from arml.tasks.functions import functions_2d
from arml.tasks.options import FunctionsOptions
from arml.tasks.splits import splits_of
from arml.training.evaluate import split_keys
from small import experiment, one_line

pytestmark = pytest.mark.usefixtures("optax_promotes")
PROBLEM = Problem("classification", (6,), 3, 2, 4)


def arrays(tasks, key):
    """Inputs and classes of the examples and of the queries of one task."""
    task = tasks.sample(key)
    return tuple(map(np.asarray, (*task.support, *task.query)))


@pytest.mark.parametrize(
    ("statistics", "words"),
    [("batch", "batch statistics (transductive)"), ("support", "support statistics")],
)
def test_the_protocol_names_the_statistics_of_the_network(statistics, words):
    images = Blobs(Problem("classification", (16, 16, 3), 3, 2, 4, inputs="pictures"))
    functions = functions_2d(shots=3, queries=4)
    for name in ("maml", "protonet", "mt-net", "tnp", "mumomaml"):
        experiment = recipe(f"folders/{name}")
        network = replace(experiment.network, normalisation=statistics, filters=4)
        learner = build(replace(experiment, network=network), images, seed=0)
        assert protocol(learner, images).endswith(f", {words}")
        assert learner.is_transductive == (statistics == "batch")
    learner = build("maml", functions, seed=0)
    assert "statistics" not in protocol(learner, functions)
    for tasks, drawn in ((functions, "tasks"), (Blobs(PROBLEM), "classes")):
        said = protocol(learner, tasks, shared=True)
        assert said == f"{protocol(learner, tasks)}, {drawn} of the training distribution"
    assert not learner.is_transductive


def test_logistic_regression_against_scipy():
    """The same predictions as BFGS on the stated loss, from the weights' side."""
    x, y, queries, _ = arrays(Blobs(PROBLEM, noise=2.0), jax.random.key(1))
    middle = x.mean(axis=0)
    scale = np.sqrt(np.mean(np.sum((x - middle) ** 2, axis=1)))
    one_hot = np.eye(3)[y]

    def logits(flat, inputs):
        return (inputs - middle) / scale @ flat[:18].reshape(6, 3) + flat[18:]

    def loss(flat):
        z = logits(flat, x)
        log_p = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
        return -np.mean(np.sum(one_hot * log_p, axis=1)) + L2_PENALTY / 2 * np.sum(flat[:18] ** 2)

    best = minimize(loss, np.zeros(21), options={"gtol": 1e-8}).x
    expected = logits(best, queries).argmax(axis=1)
    np.testing.assert_array_equal(simple_predictions(x, y, queries)[LOGISTIC_NAME], expected)


def test_the_nearest_mean_against_numpy():
    x, y, queries, _ = arrays(Blobs(PROBLEM, noise=2.0), jax.random.key(1))
    means = np.stack([x[y == k].mean(axis=0) for k in range(3)])
    far = np.linalg.norm(queries[:, None] - means, axis=-1)
    np.testing.assert_array_equal(
        simple_predictions(x, y, queries)[NEAREST_NAME], far.argmin(axis=1)
    )


def test_simple_classifiers_are_scored_on_the_tasks_of_a_split():
    tasks = Blobs(PROBLEM, noise=2.0)
    done: list[int] = []
    found = simple_scores(tasks, 6, split="test", chunk=3, watch=done.append)
    assert done == [3, 6]
    right = []
    for key in split_keys("test", 0, 6):
        x, y, queries, targets = arrays(tasks, jax.random.split(key)[0])
        right.append(np.mean(simple_predictions(x, y, queries)[NEAREST_NAME] == targets))
    assert found[NEAREST_NAME]["mean"] == pytest.approx(np.mean(right))
    assert found[LOGISTIC_NAME]["n"] == 6
    line = FunctionsOptions().build(Path())
    assert simple_scores(splits_of(line).test, 6, split="test", chunk=3) == {}


SMALL = {"steps": 4, "batch": 2, "interval": 4, "validation_tasks": 4}


def test_a_run_is_scored_and_kept_from_python_as_by_the_command(tmp_path, command):
    made = experiment()
    run = arml.run(made, tmp_path / "run")
    assert (run.last, int(run)) == (20, 20) == (arml.Run(tmp_path / "run").last,) * 2
    other = arml.evaluate(run, n=6, split="validation")
    fewer = arml.evaluate(run, n=6, shots=3)
    assert run.result is None  # only scores as in the training are kept
    scores = arml.evaluate(run, n=6)
    assert run.scores.values == pytest.approx(scores.values)
    kept = (run.folder / "result.json").read_bytes()
    assert json.loads(command("evaluate", run.folder, "--tasks 6 --shots 3 --json")[0])["score"][
        "mean"
    ] == pytest.approx(fewer.mean)
    assert (run.folder / "result.json").read_bytes() == kept
    command("evaluate", run.folder, "--tasks 6")
    assert (run.folder / "result.json").read_bytes() == kept
    # The same without the folder: a learner on the options of its tasks.
    again = arml.evaluate(run.learner, made.tasks, 6, shots=3)
    assert again.values == pytest.approx(fewer.values)
    assert other.mean != scores.mean
    for wrong, said in (
        (lambda: arml.evaluate(run, n=6, ways=3), "the tasks of regression2d/maml have no option"),
        (lambda: arml.evaluate(run, n=0), "tasks must be at least 1, got 0"),
        (lambda: arml.evaluate(run, n=6, shots=0), "shots must be 1 or more, got 0"),
        (lambda: arml.evaluate(run.learner, n=6), "expected tasks, got none"),
        (lambda: arml.evaluate(run.learner, run.tasks(), 6, shots=3), "have no option shots"),
    ):
        with pytest.raises(ValueError, match=one_line(said)):
            wrong()


def test_a_run_of_splits_opens_without_their_data(tmp_path, command):
    rng = np.random.default_rng(0)
    data = rng.normal(size=(120, 6)).astype(np.float32), np.arange(120) // 10
    shape = {"ways": 2, "shots": 2, "queries": 2}
    splits = arml.Splits.of_classes(data, **shape)
    run = arml.run("protonet", tmp_path / "run", tasks=splits, **SMALL)
    assert run.splits.test.identity() == splits.test.identity()
    assert run.splits.sources == splits.sources
    fitted = arml.fit(arml.build("protonet", splits), splits, **{**SMALL, "chunk": 16})
    assert arml.evaluate(run, n=4).values == pytest.approx(
        arml.evaluate(fitted, splits, 4).values, abs=1e-6
    )
    command("evaluate", run.folder, "--tasks 4")
    assert arml.run("protonet", run.folder, tasks=splits, **SMALL).last == 4
    with pytest.raises(ValueError, match=one_line("holds another run")):
        arml.run(
            "protonet", run.folder, tasks=arml.Splits.of_classes(data, seed=1, **shape), **SMALL
        )
    (run.folder / "tasks.safetensors").unlink()
    with pytest.raises(ValueError, match="expected a file"):
        arml.Run(run.folder).tasks()
    # The learner alone is shared without them.
    fitted.save(tmp_path / "learner")
    shared = arml.load(tmp_path / "learner")
    x, y = splits_of(splits).test.sample(jax.random.key(0)).support
    ours, theirs = (arml.adapt(one, x, y).predict_proba(x) for one in (fitted, shared))
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_a_loaded_learner_is_scored_as_its_run(tmp_path):
    run = arml.run(experiment(), tmp_path / "run")
    loaded = arml.load(tmp_path / "run")
    scores = arml.evaluate(loaded, run.experiment.tasks, 4)
    np.testing.assert_array_equal(scores.values, arml.evaluate(run, n=4).values)
    assert run.result["protocol"].endswith(", tasks of the training distribution")
    predictor = arml.adapt(loaded, [[0.0, 0.0]] * 3 + [[1.0, 1.0]], [0.0, 1.0, 2.0, 3.0])
    for wrong in (run.experiment.tasks, "regression2d", predictor):
        said = f"expected a learner, a Fitted or an arml.Run, got {type(wrong).__name__}"
        with pytest.raises(ValueError, match=one_line(said)):
            arml.evaluate(wrong, loaded)
    with pytest.raises(ValueError, match=r"got FewShotLearner: give its \.learner"):
        arml.fit.__wrapped__(loaded, run.experiment.tasks, steps=1)


def test_tasks_that_a_learner_was_not_made_for_are_one_line():
    line, plane = Problem("regression", (1,), 1, 3, 4), functions_2d()
    blobs = {ways: Blobs(Problem("classification", (6,), ways, 2, 4)) for ways in (2, 3, 4)}
    wide = Blobs(Problem("classification", (5,), 3, 2, 4))
    for made_for, tasks in ((line, plane), (line, wide), (PROBLEM, plane), (PROBLEM, wide)):
        learner, kind = build("maml", made_for), tasks.problem
        said = f"the learner was made for {made_for.outputs}-output {made_for.kind} with inputs "
        said += rf"\({made_for.features[0]},\); these tasks are {kind.outputs}-output {kind.kind}"
        for use in (
            lambda learner=learner, tasks=tasks: arml.evaluate(learner, tasks, 2),
            lambda learner=learner, tasks=tasks: arml.fit(learner, tasks, steps=1),
        ):
            with pytest.raises(ValueError, match=one_line(said)):
                use()
    with pytest.raises(ValueError, match="these tasks are 1-output regression"):
        arml.fit(build("maml", blobs[3]), blobs[3], steps=1, validation=plane)
    # A learner of some classes can learn tasks of fewer; of more, where its weights can be widened.
    for name in ("maml", "protonet"):
        for tasks in blobs.values():
            assert len(arml.evaluate(build(name, PROBLEM), tasks, 2)) == 2
    for use in (
        lambda: arml.evaluate(build("tapnet", PROBLEM), blobs[4], 2),
        lambda: arml.fit(build("maml", PROBLEM), blobs[4], steps=1),
    ):
        with pytest.raises(ValueError, match=one_line("4 classes are more|are 4-output class")):
            use()


def test_options_of_training_tasks_do_not_limit_the_shape_of_others(tmp_path):
    path = drawn(tmp_path / "pics")
    made = recipe("folders/protonet")
    tasks = replace(made.tasks, data=(str(path),), ways=2, shots=2, queries=1, size=16)
    tasks = replace(tasks, mixed_shots=True, train_ways=3)
    few = {"steps": 2, "interval": 1, "validate_every": 2, "validation_tasks": 2, "batch": 2}
    run = arml.run(replace(made, tasks=tasks), tmp_path / "run", **few)
    assert len(arml.evaluate(run, n=4, shots=1)) == 4


def drawn(folder):
    """Noise of 16 classes."""
    draw = np.random.default_rng(0)
    for i in range(16):
        (folder / f"c{i}").mkdir(parents=True)
        for j in range(5):
            Image.fromarray(draw.integers(0, 255, (8, 8, 3), np.uint8)).save(
                folder / f"c{i}" / f"{j}.png"
            )
    return folder
