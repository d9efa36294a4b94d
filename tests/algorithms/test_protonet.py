"""ProtoNet is a Gaussian classifier in its embedding."""

from dataclasses import replace
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.algorithms.protonet import ProtoNet, ProtoNetOptions
from arml.core.episodes import Examples, Problem, Task
from arml.experiment.contract import Blobs
from arml.experiment.options import from_json, to_json
from arml.experiment.recipes import recipe
from arml.nn.heads import ABSENT
from arml.nn.networks import MLPOptions

KEY = jax.random.key(0)


def problem(ways: int = 3, shots: int = 2) -> Problem:
    return Problem("classification", (4,), ways, shots, 3)


@cache
def task(of: Problem, seed: int = 1) -> Task:
    return Blobs(of).sample(jax.random.key(seed))


@cache
def protonet(of: Problem, hidden: tuple[int, ...] = (8,)) -> ProtoNet:
    net = MLPOptions(hidden=hidden, init="he").build(of, key=KEY)
    return ProtoNetOptions().build(net, of, key=KEY)


@eqx.filter_jit
def predict(learner: ProtoNet, support: Examples, x: jax.Array) -> jax.Array:
    return learner.adapt(support, key=KEY).predict(x)


def embedded(learner: ProtoNet, x: jax.Array) -> np.ndarray:
    """The body's one hidden layer, in float64."""
    layer = learner.body.blocks[0].layer
    weight, bias = np.asarray(layer.weight, np.float64), np.asarray(layer.bias, np.float64)
    return np.maximum(np.asarray(x, np.float64) @ weight + bias, 0)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def test_it_is_the_bayes_rule_of_gaussian_classes_of_covariance_one_half():
    """Without hidden layers the embedding is the input itself."""
    of = problem()
    on, learner = task(of), protonet(of, ())
    (x, y), queries = on.support, np.asarray(on.query.x, np.float64)
    covariance = np.eye(4) / 2
    log_density = np.empty((len(queries), 3))
    for k in range(3):
        away = queries - np.asarray(x, np.float64)[np.asarray(y) == k].mean(axis=0)
        mahalanobis = np.sum(away * np.linalg.solve(covariance, away.T).T, axis=1)
        log_density[:, k] = -0.5 * (mahalanobis + np.linalg.slogdet(2 * np.pi * covariance)[1])
    posterior = log_softmax(log_density)  # equal priors
    ours = log_softmax(np.asarray(predict(learner, on.support, on.query.x), np.float64))
    np.testing.assert_allclose(ours, posterior, rtol=1e-4, atol=1e-4)


def test_it_is_linear_in_the_embedding():
    """Along a line the difference of two logits has no curvature, though each logit has."""
    of = problem()
    on, learner = task(of), protonet(of, ())
    line = jnp.linspace(-2, 2, 9)[:, None] * jax.random.normal(KEY, (4,))
    logits = np.asarray(predict(learner, on.support, line), np.float64)
    apart = logits - logits[:, :1]
    np.testing.assert_allclose(np.diff(apart, 2, axis=0), 0, atol=1e-4)
    assert np.all(np.abs(np.diff(logits, 2, axis=0)) > 0.01)


def test_meta_loss_against_numpy():
    of = problem()
    on, learner = task(of), protonet(of)
    support, query = embedded(learner, on.support.x), embedded(learner, on.query.x)
    means = np.stack([support[np.asarray(on.support.y) == k].mean(axis=0) for k in range(3)])
    distances = np.sum((query[:, None] - means[None]) ** 2, axis=-1)
    expected = -np.mean(log_softmax(-distances)[np.arange(len(query)), np.asarray(on.query.y)])
    ours = eqx.filter_jit(learner.meta_loss)(on, key=KEY)
    np.testing.assert_allclose(ours, expected, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("metric", ["squared", "pooled", "mahalanobis"])
def test_with_rotation_each_part_of_a_task_is_the_support_set_once(metric):
    """The mean of the usual loss over tasks that are divided by hand; some examples, too few for a
    support set of their own, are queries in each."""
    of = replace(problem(), queries=5)
    on = task(of)
    net = MLPOptions(hidden=(8,), init="he").build(of, key=KEY)
    usual, ours = (
        ProtoNetOptions(metric=metric, rotate=rotate).build(net, of, key=KEY)
        for rotate in (False, True)
    )
    x = np.concatenate([on.support.x, on.query.x])
    y = np.concatenate([on.support.y, on.query.y])
    by_class = np.stack([np.flatnonzero(y == k) for k in range(3)])
    assert by_class.shape == (3, 7)  # 2 shots: three divisions
    loss, expected = eqx.filter_jit(lambda m, t: m.meta_loss(t, key=KEY)), []
    for k in range(3):
        support = by_class[:, 2 * k : 2 * k + 2].ravel()
        query = np.setdiff1d(np.arange(len(y)), support)
        parts = (Examples(jnp.asarray(x[i]), jnp.asarray(y[i])) for i in (support, query))
        divided = Task(*parts, on.family)
        expected.append(loss(usual, divided))
    np.testing.assert_allclose(loss(ours, on), np.mean(expected), rtol=1e-4)


def test_with_one_example_a_class_it_is_the_nearest_neighbour():
    of = problem(ways=5, shots=1)
    on, learner = task(of), protonet(of)
    x = jax.random.normal(KEY, (50, 4))
    support, query = embedded(learner, on.support.x), embedded(learner, x)
    nearest = [np.argmin([np.linalg.norm(q - s) for s in support]) for q in query]
    ours = np.argmax(predict(learner, on.support, x), axis=1)
    np.testing.assert_array_equal(ours, np.asarray(on.support.y)[nearest])


def test_classes_that_a_task_lacks_take_no_part():
    """A learner for five classes on a task of three is the learner for three."""
    few, many = protonet(problem()), protonet(problem(ways=5))
    on, labels = task(problem()), jnp.array([0, 2, 4])
    spread = on._replace(
        support=on.support._replace(y=labels[on.support.y]),
        query=on.query._replace(y=labels[on.query.y]),
    )
    ours = predict(many, spread.support, on.query.x)
    expected = predict(few, on.support, on.query.x)
    np.testing.assert_allclose(ours[:, labels], expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(ours[:, [1, 3]], ABSENT)

    gradient = eqx.filter_jit(eqx.filter_value_and_grad(lambda m, t: m.meta_loss(t, key=KEY)))
    (loss, ours), (same, expected) = gradient(many, spread), gradient(few, on)
    np.testing.assert_allclose(loss, same, rtol=1e-5)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        assert np.any(a)
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6)


def test_a_scale_that_is_learned_is_a_meta_parameter_and_a_constant_is_not():
    of = problem()
    net = MLPOptions(hidden=(8,), init="he").build(of, key=KEY)
    learned, fixed = (
        ProtoNetOptions(scale=0.3, learn_scale=learn).build(net, of, key=KEY)
        for learn in (True, False)
    )
    gradient = eqx.filter_jit(eqx.filter_grad(lambda m: m.meta_loss(task(of), key=KEY)))
    assert gradient(learned).scale != 0
    assert gradient(fixed).scale is None
    on = task(of)
    ours = predict(fixed, on.support, on.query.x)
    np.testing.assert_allclose(ours, predict(learned, on.support, on.query.x), rtol=1e-6)
    np.testing.assert_allclose(
        ours, 0.3 * predict(protonet(of), on.support, on.query.x), rtol=1e-4, atol=1e-5
    )


def test_a_file_of_an_earlier_version_names_the_rotation_otherwise():
    value = to_json(recipe("folders/protonet-turns"))
    algorithm = value["algorithm"]
    value["algorithm"] = {**algorithm, "in_turns": algorithm.pop("rotate")}
    assert from_json(value, "config.json") == recipe("folders/protonet-turns")
