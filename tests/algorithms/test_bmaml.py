"""SVGD against NumPy and against what it samples from; what the chaser loss does and does not
differentiate."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.algorithms.bmaml import BMAML, BMAMLOptions, Particle, stein
from arml.core.episodes import Problem
from arml.core.inner import with_steps
from small import KEY, REGRESSION, VECTORS, close, doubled, meta, network, predictions, task

RATE = 0.03
pytestmark = pytest.mark.usefixtures("float64")


def built(problem: Problem, hidden: tuple[int, ...] = (4,), **options: Any) -> BMAML:
    options = {"inner_rate": RATE, "inner_steps": 2, "particles": 3, **options}
    return doubled(BMAMLOptions(**options).build(network(problem, hidden), problem, key=KEY))


def loop(particles: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    """SVGD's direction as its formula has it, one pair after the other."""
    m = len(particles)
    pairs = [np.sum((particles[i] - particles[j]) ** 2) for i in range(m) for j in range(i)]
    h = np.median(pairs) / np.log(m)
    direction = np.zeros_like(particles)
    for i in range(m):
        for j in range(m):
            k = np.exp(-np.sum((particles[j] - particles[i]) ** 2) / h)
            slope = -2 * (particles[j] - particles[i]) / h * k  # dk / d theta_j
            direction[i] += (k * gradients[j] + slope) / m
    return direction


def test_svgd_recovers_a_gaussian():
    """Where the target is N(2, 0.5^2), so are the particles, in the end."""

    def step(_: int, x: jax.Array) -> jax.Array:
        return x + 0.2 * stein(x, (2.0 - x) / 0.25)

    start = jnp.linspace(-1.0, 0.0, 30)[:, None]
    end = np.asarray(jax.jit(lambda x: jax.lax.fori_loop(0, 3_000, step, x))(start))
    np.testing.assert_allclose(end.mean(), 2.0, atol=0.01)
    np.testing.assert_allclose(end.std(), 0.5, rtol=0.1)


def test_one_particle_is_map_gradient_descent():
    """On linear regression, with the gradient of the log posterior written out."""
    on, ours = doubled(task(REGRESSION)), built(REGRESSION, (), inner_steps=3, particles=1)
    head = jax.tree.map(lambda a: a[0], ours.particles.weights.head)
    x = np.concatenate([np.ones((6, 1)), on.support.x], axis=1)
    y, w = np.asarray(on.support.y)[:, 0], np.concatenate([head.bias, head.weight[:, 0]])
    log_lambda, log_gamma = 0.0, np.log(2.0)
    for _ in range(3):
        error, precision, noise = x @ w - y, np.exp(log_lambda), np.exp(log_gamma)
        slope = -noise * x.T @ error - precision * w
        slope_lambda = (3 - precision * w @ w) / 2 + 2.0 - 2.0 * precision
        slope_gamma = (6 - noise * error @ error) / 2 + 2.0 - 0.2 * noise
        w = w + RATE / 6 * slope
        log_lambda = log_lambda + RATE / 3 * slope_lambda
        log_gamma = log_gamma + RATE / 6 * slope_gamma
    read = ours.given(on.support.x)(on.support.x)
    after = ours.move(ours.particles, read, on.support.y, 3)
    close((after.log_lambda[0], after.log_gamma[0]), (log_lambda, log_gamma))
    x = np.concatenate([np.ones((4, 1)), on.query.x], axis=1)
    np.testing.assert_allclose(predictions(ours, on)[:, 0], x @ w, rtol=1e-9)


def test_without_priors_one_particle_is_maml():
    """At the start the likelihood's gradient, over the number of labels, is the mean loss's."""
    on, ours = doubled(task(VECTORS)), built(VECTORS, particles=1, inner_steps=1)
    flat = Particle(ours.particles.weights, jnp.full(1, -40.0), None)
    net = jax.tree.map(lambda a: a[0], flat.weights)
    gradient = jax.jit(jax.grad(lambda n: ours.loss(n(on.support.x), on.support.y)))(net)
    maml = jax.tree.map(lambda p, g: p - RATE * g, net, gradient)
    predicted = predictions(replace(ours, particles=flat), on)
    np.testing.assert_allclose(predicted, jax.nn.log_softmax(maml(on.query.x)), rtol=1e-9)


@pytest.mark.parametrize("m", [2, 5])
def test_a_step_of_all_particles_is_that_of_the_loop(m):
    """The inner loop against NumPy, from each particle's own gradient."""
    on, ours = doubled(task(REGRESSION)), built(REGRESSION, particles=m)
    read = ours.given(on.support.x)(on.support.x)

    def each(tree: Any) -> list[Any]:
        return [jax.tree.map(lambda a, i=i: a[i], tree) for i in range(m)]

    def vectors(trees: list[Any]) -> np.ndarray:
        return np.stack([np.concatenate(list(map(np.ravel, jax.tree.leaves(t)))) for t in trees])

    slope = jax.jit(jax.grad(lambda p: ours.log_posterior(p, read(p.weights), on.support.y)))
    particles = each(ours.particles)
    start, gradients = vectors(particles), vectors(list(map(slope, particles)))
    weights = start.shape[1] - 2
    share = np.full(start.shape[1], 1 / on.support.y.size)
    share[weights] = 1 / weights
    expected = start + RATE * share * loop(start, gradients)
    after = ours.move(ours.particles, read, on.support.y, 1)
    np.testing.assert_allclose(vectors(each(after)), expected, rtol=1e-9)


@pytest.mark.slow
def test_no_gradient_flows_through_the_leader():
    """The chaser loss and its gradient are those of the distance to fixed numbers: to the
    particles after one more step, on support and query set together."""
    on, ours = doubled(task(REGRESSION)), built(REGRESSION)
    trained, rest = eqx.partition(ours, eqx.is_inexact_array)
    x, y = (jnp.concatenate(pair) for pair in zip(on.support, on.query, strict=True))

    def follow(learner: BMAML) -> Particle:
        read = learner.given(on.support.x)
        return learner.move(learner.particles, read(on.support.x), on.support.y, 2)

    leader = ours.move(follow(ours), ours.given(x)(x), y, 1)

    def distance(trained: BMAML) -> jax.Array:
        weights = follow(eqx.combine(trained, rest)).weights
        pairs = zip(*map(jax.tree.leaves, (weights, leader.weights)), strict=True)
        return sum(jnp.sum((a - b) ** 2) for a, b in pairs)

    ours = meta(ours, on)
    close(ours, jax.jit(jax.value_and_grad(distance))(trained), rtol=1e-7, atol=1e-16)
    assert np.all(ours[1].particles.log_gamma != 0)  # through the follower's steps


def test_particles_that_coincide_have_finite_gradients():
    on, ours = doubled(task(REGRESSION)), built(REGRESSION)
    same = jax.tree.map(lambda a: jnp.broadcast_to(a[:1], a.shape), ours.particles)
    gradient = meta(replace(ours, particles=same), on)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize("problem", [REGRESSION, VECTORS], ids=["regression", "classes"])
def test_a_prediction_is_the_particles_mean(problem):
    on, ours = doubled(task(problem)), with_steps(built(problem), 0)
    nets = [jax.tree.map(lambda a, m=m: a[m], ours.particles.weights) for m in range(3)]
    predicted, each = predictions(ours, on), np.stack([net(on.query.x) for net in nets])
    if problem is VECTORS:
        predicted, each = jnp.exp(predicted), jax.nn.softmax(each)
    np.testing.assert_allclose(predicted, np.mean(each, axis=0), rtol=1e-10)


def test_particles_are_drawn_apart_with_the_network_s_own_spread():
    net = network(hidden=(50,))
    ours = BMAMLOptions(particles=4).build(net, REGRESSION, key=KEY).particles.weights
    weight = ours.body.blocks[0].layer.weight
    np.testing.assert_array_equal(weight[0], net.body.blocks[0].layer.weight)
    assert np.all(np.abs(np.corrcoef(weight.reshape(4, -1)) - np.eye(4)) < 0.3)
    np.testing.assert_allclose(weight[1:].std(), weight[0].std(), rtol=0.1)
    np.testing.assert_array_equal(ours.head.bias, np.zeros((4, 1)))


def test_heads_share_a_body_that_the_chaser_loss_teaches():
    on, ours = doubled(task(VECTORS)), built(VECTORS, acts="head", learn_rates=True)
    assert ours.particles.weights.weight.shape == (3, 4, 2)
    gradient = meta(ours, on)[1]
    assert np.any(gradient.net.body.blocks[0].layer.weight != 0)
    assert all(np.any(rate != 0) for rate in jax.tree.leaves(gradient.inner.rate))
