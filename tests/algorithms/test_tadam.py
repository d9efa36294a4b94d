"""TADAM: a scaled ProtoNet at the start (`test_limits.py`), conditioned on the task off it."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax

from arml.algorithms.tadam import TADAM, TADAMOptions, root
from arml.core.episodes import Problem
from small import KEY, doubled, meta, network, predictions, task

PROBLEM = Problem("classification", (4,), 3, 2, 3)
pytestmark = pytest.mark.usefixtures("float64")


def tadam(of: Problem = PROBLEM, **options: object) -> TADAM:
    return doubled(TADAMOptions(**options).build(network(of, (8, 6)), of, key=KEY))


def conditioned(learner: TADAM) -> TADAM:
    """Off the start: factors that are not zero."""
    factors = jnp.array([0.3, -0.2]), jnp.array([0.1, 0.4])
    return eqx.tree_at(lambda m: (m.gamma_0, m.beta_0), learner, factors)


def embedded(learner: TADAM, x: jax.Array, films: list | None = None) -> np.ndarray:
    """The body with (scale, shift) before each activation."""
    h = np.asarray(x)
    for i, block in enumerate(learner.body.blocks):
        scale, shift = films[i] if films else (1, 0)
        h = np.maximum(scale * (h @ block.layer.weight + block.layer.bias) + shift, 0)
    return h


def class_means(e: np.ndarray, y: jax.Array) -> np.ndarray:
    return np.stack([e[np.asarray(y) == k].mean(axis=0) for k in range(3)])


def cross_entropy(logits: np.ndarray, y: np.ndarray) -> float:
    return -np.mean(log_softmax(logits, axis=1)[np.arange(len(logits)), np.asarray(y)])


def test_conditioned_on_the_task_against_numpy():
    on, learner = doubled(task(PROBLEM)), conditioned(tadam())
    code = class_means(embedded(learner, on.support.x), on.support.y).mean(axis=0)

    films = []
    for pair, gamma_0, beta_0 in zip(learner.ten, learner.gamma_0, learner.beta_0, strict=True):
        made = []
        for first, second, third in (part.layers for part in pair):
            h = jax.nn.swish(code @ first.weight + first.bias)
            h = h + jax.nn.swish(h @ second.weight + second.bias)
            made.append(h + h @ third.weight + third.bias)
        films.append((1 + gamma_0 * made[0], beta_0 * made[1]))
    query, support = (embedded(learner, e.x, films) for e in (on.query, on.support))
    means = class_means(support, on.support.y)
    logits = -7.5 * np.linalg.norm(query[:, None] - means, axis=-1)
    np.testing.assert_allclose(predictions(learner, on), logits, rtol=1e-9)
    penalty = 0.005 * (0.3**2 + 0.2**2 + 0.1**2 + 0.4**2)
    expected = cross_entropy(logits, on.query.y) + penalty
    np.testing.assert_allclose(meta(learner, on)[0], expected, rtol=1e-6)


def test_the_auxiliary_loss_against_numpy():
    """All of the task's images, as the shared body embeds them, among all training classes."""
    of = replace(PROBLEM, classes=7)
    learner, on = conditioned(tadam(of)), doubled(task(of))._replace(classes=jnp.array([5, 0, 3]))
    images = np.concatenate([embedded(learner, e.x) for e in (on.support, on.query)])
    labels = np.array([5, 0, 3])[np.concatenate([on.support.y, on.query.y])]
    head = learner.auxiliary_head
    assert head.weight.shape == (6, 7)
    expected = 0.395 * cross_entropy(images @ head.weight + head.bias, labels)
    added = meta(learner, on)[0] - meta(learner, on._replace(classes=None))[0]
    np.testing.assert_allclose(added, expected, rtol=1e-4)
    assert tadam().auxiliary_head is tadam(of, auxiliary=0.0).auxiliary_head is None


def test_the_auxiliary_weight_is_the_mean_of_the_authors_schedule():
    steps = 30_000
    mean = np.mean(0.9 ** (np.floor(20 * np.arange(steps) / steps) + 1))
    assert TADAMOptions().auxiliary == pytest.approx(mean, abs=5e-4)


def test_the_distance_has_a_finite_gradient_at_zero():
    np.testing.assert_array_equal(jax.grad(lambda x: root(x).sum())(jnp.zeros((1, 1))), 0)
    of = replace(PROBLEM, shots=1)
    on = doubled(task(of))
    on = on._replace(query=on.support)  # every query is its class's prototype
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(meta(tadam(of), on)))
