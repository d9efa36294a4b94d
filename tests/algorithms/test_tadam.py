"""TADAM: a scaled ProtoNet at the start, conditioned on the task off it."""

from dataclasses import replace
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.algorithms.protonet import ProtoNetOptions
from arml.algorithms.tadam import TADAM, TADAMOptions, root
from arml.core.episodes import Examples, Problem, Task
from arml.core.learner import MetaLearner
from arml.experiment.contract import Blobs
from arml.nn.networks import Conv4Options, MLPOptions

KEY = jax.random.key(0)


def problem(ways: int = 3, classes: int = 0) -> Problem:
    return Problem("classification", (4,), ways, 2, 3, classes)


@cache
def task(of: Problem) -> Task:
    return Blobs(of).sample(jax.random.key(1))


@cache
def tadam(of: Problem, hidden: tuple[int, ...] = (8, 6), **options: object) -> TADAM:
    net = MLPOptions(hidden=hidden, init="he").build(of, key=KEY)
    return TADAMOptions(**options).build(net, of, key=jax.random.key(2))


def conditioned(learner: TADAM) -> TADAM:
    """Off the start: factors that are not zero."""
    factors = jnp.array([0.3, -0.2]), jnp.array([0.1, 0.4])
    return eqx.tree_at(lambda m: (m.gamma_0, m.beta_0), learner, factors)


@eqx.filter_jit
def predict(learner: MetaLearner, support: Examples, x: jax.Array) -> jax.Array:
    return learner.adapt(support, key=KEY).predict(x)


@eqx.filter_jit
def meta_loss(learner: MetaLearner, on: Task) -> jax.Array:
    return learner.meta_loss(on, key=KEY)


gradient = eqx.filter_jit(eqx.filter_grad(meta_loss))


def in_float64(tree: object) -> object:
    return jax.tree.map(lambda a: np.asarray(a, np.float64), eqx.filter(tree, eqx.is_array))


def embedded(learner: TADAM, x: jax.Array, films: list | None = None) -> np.ndarray:
    """The body with (scale, shift) before each activation, in float64."""
    h = np.asarray(x, np.float64)
    for i, block in enumerate(in_float64(learner.body).blocks):
        h = h @ block.layer.weight + block.layer.bias
        scale, shift = films[i] if films else (1, 0)
        h = np.maximum(scale * h + shift, 0)
    return h


def class_means(e: np.ndarray, y: jax.Array) -> np.ndarray:
    return np.stack([e[np.asarray(y) == k].mean(axis=0) for k in range(3)])


def cross_entropy(logits: np.ndarray, y: np.ndarray) -> float:
    log_sum = np.log(np.exp(logits).sum(axis=1))
    return np.mean(log_sum - logits[np.arange(len(logits)), np.asarray(y)])


@pytest.mark.parametrize("metric", ["euclidean", "squared"])
def test_with_zero_factors_it_is_a_scaled_protonet(metric):
    of = problem()
    on, learner = task(of), tadam(of, metric=metric, scale=3.0)
    net = MLPOptions(hidden=(8, 6), init="he").build(of, key=KEY)
    protonet = ProtoNetOptions().build(net, of, key=KEY)
    logits = np.asarray(predict(protonet, on.support, on.query.x))
    expected = 3 * logits if metric == "squared" else -3 * np.sqrt(-logits)
    np.testing.assert_allclose(predict(learner, on.support, on.query.x), expected, rtol=1e-5)


def test_conditioned_on_the_task_against_numpy():
    of = problem()
    on, learner = task(of), conditioned(tadam(of))
    code = class_means(embedded(learner, on.support.x), on.support.y).mean(axis=0)

    def swish(z: np.ndarray) -> np.ndarray:
        return z / (1 + np.exp(-z))

    films = []
    exact = in_float64(learner)
    for (scale, shift), gamma_0, beta_0 in zip(exact.ten, exact.gamma_0, exact.beta_0, strict=True):
        made = []
        for first, second, third in (scale.layers, shift.layers):
            h = swish(code @ first.weight + first.bias)
            h = h + swish(h @ second.weight + second.bias)
            made.append(h + h @ third.weight + third.bias)
        films.append((1 + gamma_0 * made[0], beta_0 * made[1]))
    query, support = (embedded(learner, e.x, films) for e in (on.query, on.support))
    means = class_means(support, on.support.y)
    logits = -7.5 * np.linalg.norm(query[:, None] - means, axis=-1)
    np.testing.assert_allclose(
        predict(learner, on.support, on.query.x), logits, rtol=1e-3, atol=1e-4
    )
    plain = predict(tadam(of), on.support, on.query.x)
    assert np.max(np.abs(plain - logits)) > 0.1  # the condition matters
    penalty = 0.005 * (0.3**2 + 0.2**2 + 0.1**2 + 0.4**2)
    expected = cross_entropy(logits, on.query.y) + penalty
    np.testing.assert_allclose(meta_loss(learner, on), expected, rtol=1e-3)


def test_the_factors_learn_from_the_start_and_the_networks_after_one_step():
    of = problem()
    on = task(of)
    at_start = gradient(tadam(of), on)
    assert np.all(at_start.gamma_0 != 0)
    assert np.all(at_start.beta_0 != 0)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(at_start.ten))
    learner = tadam(of)
    moved = eqx.tree_at(
        lambda m: (m.gamma_0, m.beta_0),
        learner,
        (-0.01 * jnp.sign(at_start.gamma_0), -0.01 * jnp.sign(at_start.beta_0)),
    )
    assert all(np.any(leaf) for leaf in jax.tree.leaves(gradient(moved, on).ten))


def test_the_auxiliary_loss_against_numpy():
    """All of the task's images, as the shared body embeds them, among all training classes."""
    of = problem(classes=7)
    learner = conditioned(tadam(of))
    on = task(of)._replace(classes=jnp.array([5, 0, 3]))
    images = [embedded(learner, e.x) for e in (on.support, on.query)]
    labels = np.array([5, 0, 3])[np.concatenate([on.support.y, on.query.y])]
    head = in_float64(learner.auxiliary_head)
    assert head.weight.shape == (6, 7)
    expected = 0.395 * cross_entropy(np.concatenate(images) @ head.weight + head.bias, labels)
    added = meta_loss(learner, on) - meta_loss(learner, on._replace(classes=None))
    np.testing.assert_allclose(added, expected, rtol=1e-4)
    assert all(np.any(leaf) for leaf in jax.tree.leaves(gradient(learner, on).auxiliary_head))


def test_without_known_classes_or_weight_there_is_no_auxiliary_head():
    assert tadam(problem()).auxiliary_head is None
    assert tadam(problem(classes=7), auxiliary=0.0).auxiliary_head is None


def test_the_auxiliary_weight_is_the_mean_of_the_authors_schedule():
    steps = 30_000
    mean = np.mean(0.9 ** (np.floor(20 * np.arange(steps) / steps) + 1))
    assert TADAMOptions().auxiliary == pytest.approx(mean, abs=5e-4)


def test_the_distance_has_a_finite_gradient_at_zero():
    np.testing.assert_array_equal(jax.grad(lambda x: root(x).sum())(jnp.zeros((1, 1))), 0)
    of = replace(problem(), shots=1)
    on = task(of)
    on = on._replace(query=on.support)  # every query is its class's prototype
    for leaf in jax.tree.leaves(gradient(tadam(of), on)):
        assert np.all(np.isfinite(leaf))
    assert np.isfinite(meta_loss(tadam(of), on))


@pytest.mark.slow
def test_a_conditioned_convolution_with_statistics_of_the_support_set():
    """The films of the second pass act, and a query is still judged by itself."""
    of = Problem("classification", (16, 16, 1), 2, 2, 2)
    net = Conv4Options(filters=3, normalisation="support").build(of, key=KEY)
    plain = TADAMOptions().build(net, of, key=KEY)
    learner = eqx.tree_at(lambda m: m.beta_0, plain, jnp.full(4, 0.3))
    on = task(of)
    ours = predict(learner, on.support, on.query.x)
    np.testing.assert_allclose(
        predict(learner, on.support, on.query.x[1:2]), ours[1:2], rtol=1e-4, atol=1e-5
    )
    assert np.max(np.abs(ours - predict(plain, on.support, on.query.x))) > 0.1
