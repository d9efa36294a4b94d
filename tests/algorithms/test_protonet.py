"""ProtoNet is a Gaussian classifier in its embedding."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.algorithms.protonet import ProtoNet, ProtoNetOptions
from arml.core.episodes import Examples, Problem, Task
from arml.nn.heads import ABSENT_LOGIT
from small import KEY, close, meta, network, predictions, task

PROBLEM = Problem("classification", (4,), 3, 2, 3)


def protonet(of: Problem = PROBLEM, hidden: tuple[int, ...] = (8,), **options: object) -> ProtoNet:
    return ProtoNetOptions(**options).build(network(of, hidden), of, key=KEY)


def test_it_is_the_bayes_rule_of_gaussian_classes_of_covariance_one_half():
    """Without hidden layers the embedding is the input itself."""
    on = task(PROBLEM)
    (x, y), queries = on.support, np.asarray(on.query.x, np.float64)
    density = np.empty((len(queries), 3))
    for k in range(3):
        away = queries - np.asarray(x, np.float64)[np.asarray(y) == k].mean(axis=0)
        density[:, k] = np.exp(-0.5 * np.sum(away * np.linalg.solve(np.eye(4) / 2, away.T).T, 1))
    posterior = density / density.sum(axis=1, keepdims=True)  # equal priors
    learner = protonet(hidden=())
    ours = jax.nn.softmax(predictions(learner, on))
    np.testing.assert_allclose(ours, posterior, rtol=1e-4, atol=1e-6)
    picked = posterior[np.arange(len(queries)), np.asarray(on.query.y)]
    np.testing.assert_allclose(meta(learner, on)[0], -np.mean(np.log(picked)), rtol=1e-4)


@pytest.mark.parametrize("metric", ["squared", "pooled", "mahalanobis"])
def test_with_rotation_each_part_of_a_task_is_the_support_set_once(metric):
    """The mean of the usual loss over tasks that are divided by hand; some examples, too few for a
    support set of their own, are queries in each."""
    of = replace(PROBLEM, queries=5)
    on, expected = task(of), []
    usual, ours = (protonet(of, metric=metric, rotate=rotate) for rotate in (False, True))
    x = np.concatenate([on.support.x, on.query.x])
    y = np.concatenate([on.support.y, on.query.y])
    by_class = np.stack([np.flatnonzero(y == k) for k in range(3)])
    assert by_class.shape == (3, 7)  # 2 shots: three divisions
    for k in range(3):
        support = by_class[:, 2 * k : 2 * k + 2].ravel()
        query = np.setdiff1d(np.arange(len(y)), support)
        parts = (Examples(jnp.asarray(x[i]), jnp.asarray(y[i])) for i in (support, query))
        expected.append(meta(usual, Task(*parts, on.family))[0])
    np.testing.assert_allclose(meta(ours, on)[0], np.mean(expected), rtol=1e-4)


def test_classes_that_a_task_lacks_take_no_part():
    """A learner for five classes on a task of three is the learner for three."""
    few, many = protonet(), protonet(replace(PROBLEM, outputs=5))
    on, labels = task(PROBLEM), jnp.array([0, 2, 4])
    spread = on._replace(
        support=on.support._replace(y=labels[on.support.y]),
        query=on.query._replace(y=labels[on.query.y]),
    )
    ours = predictions(many, spread)
    close(ours[:, labels], predictions(few, on), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(ours[:, [1, 3]], ABSENT_LOGIT)
    close(meta(many, spread), meta(few, on), rtol=1e-3, atol=1e-6)
