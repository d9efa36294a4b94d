"""Classifiers that need no meta-training, which stand beside a learner."""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from arml.core.episodes import Examples, Problem
from arml.experiment.contract import Blobs
from arml.experiment.scoring import FLOOR, PENALTY, SIMPLE, simple_scores
from arml.tasks.options import FunctionsOptions, splits_of
from arml.training.evaluate import evaluate

KEY = jax.random.key(0)
PROBLEM = Problem("classification", (6,), 3, 2, 4)
MEAN = "nearest class mean of the inputs"


def test_logistic_regression_against_scipy():
    """The same decision function as BFGS on the stated loss, from the weights' side."""
    task = Blobs(PROBLEM, noise=2.0).sample(jax.random.key(1))
    ours = eqx.filter_jit(lambda support, x: SIMPLE[FLOOR](3).adapt(support, key=KEY).predict(x))(
        task.support, task.query.x
    )
    x, y = (np.asarray(a, np.float64) for a in (task.support.x, jax.nn.one_hot(task.support.y, 3)))
    middle = x.mean(axis=0)
    scale = (x - middle).std() * 6**0.5
    inputs = np.concatenate([(x - middle) / scale, np.ones((len(x), 1))], axis=1)

    def loss(flat):
        w = flat.reshape(7, 3)
        logits = inputs @ w
        log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        return -np.mean(np.sum(y * log_p, axis=1)) + PENALTY / 2 * np.sum(w**2)

    best = minimize(loss, np.zeros(21), options={"gtol": 1e-8}).x.reshape(7, 3)
    queries = (np.asarray(task.query.x, np.float64) - middle) / scale
    expected = np.concatenate([queries, np.ones((len(queries), 1))], axis=1) @ best
    np.testing.assert_allclose(ours, expected, atol=0.05 * np.abs(expected).max())


def test_logistic_regression_of_pictures():
    support = Examples(jnp.linspace(0, 1, 4 * 12).reshape(4, 2, 2, 3), jnp.array([0, 0, 1, 1]))
    logits = SIMPLE[FLOOR](2).adapt(support, key=KEY).predict(support.x)
    np.testing.assert_array_equal(np.argmax(logits, axis=1), support.y)


def test_the_nearest_mean_against_numpy():
    task = Blobs(PROBLEM, noise=2.0).sample(jax.random.key(1))
    ours = SIMPLE[MEAN](3).adapt(task.support, key=KEY).predict(task.query.x)
    x, y = np.asarray(task.support.x), np.asarray(task.support.y)
    means = np.stack([x[y == k].mean(axis=0) for k in range(3)])
    far = np.linalg.norm(np.asarray(task.query.x)[:, None] - means, axis=-1)
    np.testing.assert_allclose(ours, -(far**2), rtol=1e-4)


def test_simple_classifiers_are_scored_on_the_tasks_of_a_split():
    tasks = Blobs(PROBLEM, noise=2.0)
    done: list[int] = []
    found = simple_scores(tasks, 6, split="test", chunk=3, watch=done.append)
    assert done == [3, 6, 9, 12]
    assert found[FLOOR] == evaluate(SIMPLE[FLOOR](3), tasks, 6).score
    assert found[MEAN]["n"] == 6
    line = FunctionsOptions().build(Path())
    assert simple_scores(splits_of(line).test, 6, split="test", chunk=3) == {}
