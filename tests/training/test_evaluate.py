"""The protocol: fixed tasks, one score for each, the same for every learner."""

import equinox as eqx
import jax
import numpy as np
import pytest

from arml.algorithms.maml import MAMLOptions
from arml.core.losses import accuracy, cross_entropy, mse
from arml.nn.networks import MLPOptions
from arml.tasks.functions import functions_2d
from arml.training.evaluate import SPLIT_SEEDS, score_tasks

TASKS = functions_2d(shots=4, queries=3)


def learner(seed: int = 0):
    net = MLPOptions(hidden=(4,), init="he").build(TASKS.problem, key=jax.random.key(seed))
    options = MAMLOptions(inner_steps=1, inner_rate=0.01)
    return options.build(net, TASKS.problem, key=jax.random.key(0))


@pytest.fixture(scope="module")
def scores():
    return score_tasks(learner(), TASKS, split="test", n=10, chunk=4)


def test_each_score_is_the_error_on_its_own_task(scores):
    maml = learner()

    @eqx.filter_jit
    def one(key):
        task_key, adapt_key = jax.random.split(key)
        task = TASKS.sample(task_key)
        adapted = maml.adapt(task.support, key=adapt_key)
        return mse(adapted.predict(task.query.x), task.query.y), task.family

    for i in (0, 3, 9):
        value, family = one(jax.random.fold_in(jax.random.key(SPLIT_SEEDS["test"]), i))
        np.testing.assert_allclose(scores.values[i], value, rtol=1e-4)
        assert scores.families[i] == family


def test_neither_the_number_of_tasks_nor_the_chunk_changes_a_score(scores):
    fewer = score_tasks(learner(), TASKS, split="test", n=6, chunk=4)
    np.testing.assert_array_equal(fewer.values, scores.values[:6])
    other = score_tasks(learner(), TASKS, split="test", n=10, chunk=10)
    np.testing.assert_allclose(other.values, scores.values, rtol=1e-4)


def test_learners_are_scored_on_the_same_tasks_and_splits_differ(scores):
    other = score_tasks(learner(seed=1), TASKS, split="test", n=8, chunk=4)
    np.testing.assert_array_equal(other.families, scores.families[:8])
    assert not np.any(other.values == scores.values[:8])
    validation = score_tasks(learner(), TASKS, split="validation", n=8, chunk=4)
    assert not np.any(validation.values == scores.values[:8])


def test_progress_is_told():
    seen = []
    score_tasks(learner(), TASKS, split="test", n=6, chunk=4, watch=lambda *now: seen.append(now))
    assert seen == [(4, 6), (6, 6)]


def test_losses_and_scores():
    logits = np.array([[2.0, 0.0, 1.0], [0.0, 3.0, 0.0]], np.float32)
    y = np.array([0, 2])
    logits_, y_ = jax.numpy.asarray(logits), jax.numpy.asarray(y)
    assert accuracy(logits_, y_) == 0.5
    log = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(cross_entropy(logits_, y_), -(log[0, 0] + log[1, 2]) / 2, rtol=1e-5)
    np.testing.assert_allclose(mse(logits_, logits_ + 2), 4, rtol=1e-6)
