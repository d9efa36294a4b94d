"""The conditions of a score in words; and the classifiers that need no meta-training."""

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy.optimize import minimize

from arml.core.episodes import Problem
from arml.experiment.contract import Blobs
from arml.experiment.recipes import build, recipe
from arml.experiment.scoring import (
    FLOOR,
    NEAREST,
    PENALTY,
    protocol,
    simple_predictions,
    simple_scores,
)
from arml.tasks.functions import functions_2d
from arml.tasks.options import FunctionsOptions
from arml.tasks.splits import splits_of
from arml.training.evaluate import split_keys

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
        return -np.mean(np.sum(one_hot * log_p, axis=1)) + PENALTY / 2 * np.sum(flat[:18] ** 2)

    best = minimize(loss, np.zeros(21), options={"gtol": 1e-8}).x
    expected = logits(best, queries).argmax(axis=1)
    np.testing.assert_array_equal(simple_predictions(x, y, queries)[FLOOR], expected)


def test_the_nearest_mean_against_numpy():
    x, y, queries, _ = arrays(Blobs(PROBLEM, noise=2.0), jax.random.key(1))
    means = np.stack([x[y == k].mean(axis=0) for k in range(3)])
    far = np.linalg.norm(queries[:, None] - means, axis=-1)
    np.testing.assert_array_equal(simple_predictions(x, y, queries)[NEAREST], far.argmin(axis=1))


def test_simple_classifiers_are_scored_on_the_tasks_of_a_split():
    tasks = Blobs(PROBLEM, noise=2.0)
    done: list[int] = []
    found = simple_scores(tasks, 6, split="test", chunk=3, watch=done.append)
    assert done == [3, 6]
    right = []
    for key in split_keys("test", 0, 6):
        x, y, queries, targets = arrays(tasks, jax.random.split(key)[0])
        right.append(np.mean(simple_predictions(x, y, queries)[NEAREST] == targets))
    assert found[NEAREST]["mean"] == pytest.approx(np.mean(right))
    assert found[FLOOR]["n"] == 6
    line = FunctionsOptions().build(Path())
    assert simple_scores(splits_of(line).test, 6, split="test", chunk=3) == {}
