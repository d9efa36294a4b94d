"""SVGD against NumPy and against what it samples from; what the chaser loss does and does not
differentiate."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import small
from arml.algorithms.bmaml import BMAML, BMAMLOptions, Particle, stein
from arml.core.episodes import Problem, Task
from arml.core.inner import with_steps
from arml.nn.networks import MLPOptions, perceptron
from small import doubled

KEY = jax.random.key(0)
REGRESSION = Problem("regression", (3,), 1, 6, 5)
CLASSES = Problem("classification", (3,), 3, 2, 2)
RATE = 0.03


pytestmark = pytest.mark.usefixtures("float64")


def built(problem: Problem, hidden: tuple[int, ...] = (4,), **options: Any) -> BMAML:
    net = MLPOptions(hidden=hidden, init="he").build(problem, key=jax.random.key(1))
    options = {"inner_rate": RATE, "inner_steps": 2, "particles": 3, **options}
    return doubled(BMAMLOptions(**options).build(net, problem, key=KEY))


def task(problem: Problem) -> Task:
    return doubled(small.task(problem))


@eqx.filter_jit
def predictions(ours: BMAML, on: Task) -> jax.Array:
    return ours.adapt(on.support, key=KEY).predict(on.query.x)


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


@pytest.mark.parametrize("m", [2, pytest.param(5, marks=pytest.mark.slow)])
def test_the_direction_is_that_of_a_loop_over_pairs(m):
    rng = np.random.default_rng(m)
    particles, gradients = rng.normal(size=(2, m, 4))
    np.testing.assert_allclose(
        stein(jnp.asarray(particles), jnp.asarray(gradients)), loop(particles, gradients)
    )


@pytest.mark.slow
def test_the_repulsion_is_the_kernel_s_derivative():
    """Without a likelihood the direction is the gradient of the kernel's sum, bandwidth fixed."""
    x = jax.random.normal(KEY, (4, 3), jnp.float64)
    squares = np.sum(np.square(np.asarray(x)[:, None] - np.asarray(x)), axis=-1)
    bandwidth = np.median(squares[np.triu_indices(4, 1)]) / np.log(4)

    def kernels(others: jax.Array) -> jax.Array:  # sum_j k(theta_j, theta_m) for each m
        return jnp.exp(-jnp.sum(jnp.square(others[:, None] - x), axis=-1) / bandwidth).sum(0)

    slopes = jax.jacrev(kernels)(x)  # [m, j, numbers]
    np.testing.assert_allclose(stein(x, jnp.zeros_like(x)), slopes.sum(1) / 4, rtol=1e-12)


def test_svgd_recovers_a_gaussian():
    """Where the target is N(2, 0.5^2), so are the particles, in the end."""

    def step(_: int, x: jax.Array) -> jax.Array:
        return x + 0.2 * stein(x, (2.0 - x) / 0.25)

    start = jnp.linspace(-1.0, 0.0, 30)[:, None]
    end = np.asarray(jax.jit(lambda x: jax.lax.fori_loop(0, 3_000, step, x))(start))
    np.testing.assert_allclose(end.mean(), 2.0, atol=0.01)
    np.testing.assert_allclose(end.std(), 0.5, rtol=0.1)


@pytest.mark.slow
def test_repulsion_drives_near_particles_apart():
    x = np.array([[1.0, 0.0], [1.0, 1e-2], [1.0, 3e-2]])
    moved = x + 1e-4 * np.asarray(stein(jnp.asarray(x), jnp.zeros((3, 2))))
    before, after = (np.linalg.norm(a[[0, 0, 1]] - a[[1, 2, 2]], axis=1) for a in (x, moved))
    assert np.all(after > before)
    np.testing.assert_allclose(moved.mean(0), x.mean(0), rtol=1e-10)


def line(n: Task) -> tuple[np.ndarray, np.ndarray]:
    x = np.asarray(n.support.x)
    return np.concatenate([np.ones((len(x), 1)), x], axis=1), np.asarray(n.support.y)[:, 0]


@pytest.mark.slow
def test_one_particle_is_map_gradient_descent():
    """On linear regression, with the gradient of the log posterior written out."""
    on, problem = task(REGRESSION), REGRESSION
    net = doubled(perceptron((3, 1), key=KEY))
    ours = doubled(
        BMAMLOptions(inner_rate=RATE, inner_steps=3, particles=1).build(net, problem, key=KEY)
    )
    x, y = line(on)
    w = np.concatenate([net.head.bias, net.head.weight[:, 0]])
    log_lambda, log_gamma = 0.0, np.log(2.0)
    for _ in range(3):
        error, precision, noise = x @ w - y, np.exp(log_lambda), np.exp(log_gamma)
        slope = -noise * x.T @ error - precision * w
        slope_lambda = (4 - precision * w @ w) / 2 + 2.0 - 2.0 * precision
        slope_gamma = (6 - noise * error @ error) / 2 + 2.0 - 0.2 * noise
        w = w + RATE / 6 * slope
        log_lambda, log_gamma = (
            log_lambda + RATE / 4 * slope_lambda,
            log_gamma + RATE / 6 * (slope_gamma),
        )
    after = ours.move(ours.particles, ours.given(on.support.x)(on.support.x), on.support.y, 3)
    np.testing.assert_allclose(after.weights.head.bias[0, 0], w[0], rtol=1e-10)
    np.testing.assert_allclose(after.weights.head.weight[0, :, 0], w[1:], rtol=1e-10)
    np.testing.assert_allclose(after.log_lambda[0], log_lambda, rtol=1e-10)
    np.testing.assert_allclose(after.log_gamma[0], log_gamma, rtol=1e-10)
    predicted = ours.adapt(on.support, key=KEY).predict(on.support.x)[:, 0]
    np.testing.assert_allclose(predicted, x @ w, rtol=1e-10)


def test_without_priors_one_particle_is_maml():
    """At the start the likelihood's gradient, over the number of labels, is the mean loss's."""
    on, ours = task(CLASSES), built(CLASSES, particles=1, inner_steps=1)
    flat = Particle(ours.particles.weights, jnp.full(1, -40.0), None)
    ours = replace(ours, particles=flat)
    net = jax.tree.map(lambda a: a[0], flat.weights)
    gradient = jax.jit(jax.grad(lambda n: ours.loss(n(on.support.x), on.support.y)))(net)
    maml = jax.tree.map(lambda p, g: p - RATE * g, net, gradient)
    predicted = predictions(ours, on)
    np.testing.assert_allclose(predicted, jax.nn.log_softmax(maml(on.query.x)), rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    "problem",
    [
        pytest.param(REGRESSION, id="regression", marks=pytest.mark.slow),
        pytest.param(CLASSES, id="classes"),
    ],
)
def test_a_step_of_all_particles_is_that_of_the_loop(problem):
    """The inner loop against NumPy, from each particle's own gradient."""
    on, ours = task(problem), built(problem)
    read = ours.given(on.support.x)(on.support.x)

    def vector(particle: Particle) -> np.ndarray:
        return np.concatenate([np.ravel(a) for a in jax.tree.leaves(particle)])

    def each(tree: Any) -> list[Any]:
        return [jax.tree.map(lambda a, m=m: a[m], tree) for m in range(3)]

    slope = jax.jit(jax.grad(lambda p: ours.log_posterior(p, read(p.weights), on.support.y)))
    start = np.stack([vector(p) for p in each(ours.particles)])
    gradients = np.stack([vector(slope(p)) for p in each(ours.particles)])
    weights = start.shape[1] - (2 if problem.kind == "regression" else 1)
    share = np.full(start.shape[1], 1 / on.support.y.size)
    share[weights] = 1 / weights
    expected = start + RATE * share * loop(start, gradients)
    after = ours.move(ours.particles, read, on.support.y, 1)
    np.testing.assert_allclose(np.stack([vector(p) for p in each(after)]), expected, rtol=1e-9)


def chaser_gradient(ours: BMAML, on: Task) -> BMAML:
    trained, rest = eqx.partition(ours, eqx.is_inexact_array)
    return jax.jit(jax.grad(lambda t: eqx.combine(t, rest).meta_loss(on, key=KEY)))(trained)


@pytest.mark.slow
def test_no_gradient_flows_through_the_leader():
    """The chaser loss and its gradient are those of the distance to fixed numbers: to the
    particles after one more step, on support and query set together."""
    on, ours = task(REGRESSION), built(REGRESSION)
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

    loss, expected = jax.jit(jax.value_and_grad(distance))(trained)
    np.testing.assert_allclose(ours.meta_loss(on, key=KEY), loss, rtol=1e-10)
    gradient = chaser_gradient(ours, on)
    for a, b in zip(*map(jax.tree.leaves, (gradient, expected)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-16)
    assert np.all(gradient.particles.log_gamma != 0)  # through the follower's steps


def test_particles_that_coincide_have_finite_gradients():
    on, ours = task(REGRESSION), built(REGRESSION)
    same = jax.tree.map(lambda a: jnp.broadcast_to(a[:1], a.shape), ours.particles)
    gradient = chaser_gradient(replace(ours, particles=same), on)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))


def test_a_prediction_is_the_particles_mean():
    on = task(CLASSES)
    for problem, mean in ((REGRESSION, lambda z: z), (CLASSES, jax.nn.softmax)):
        ours = with_steps(built(problem), 0)
        heads = [jax.tree.map(lambda a, m=m: a[m], ours.particles.weights) for m in range(3)]
        predicted = predictions(ours, Task(task(problem).support, on.query, on.family))
        if problem is CLASSES:
            predicted = jnp.exp(predicted)
        expected = np.mean([mean(net(on.query.x)) for net in heads], axis=0)
        np.testing.assert_allclose(predicted, expected, rtol=1e-10)


@pytest.mark.slow
def test_particles_are_drawn_apart_with_the_network_s_own_spread():
    net = MLPOptions(hidden=(50,), init="he").build(REGRESSION, key=KEY)
    ours = BMAMLOptions(particles=4).build(net, REGRESSION, key=KEY).particles.weights
    weight = ours.body.blocks[0].layer.weight
    np.testing.assert_array_equal(weight[0], net.body.blocks[0].layer.weight)
    correlations = np.corrcoef(weight.reshape(4, -1)) - np.eye(4)
    assert np.all(np.abs(correlations) < 0.3)
    np.testing.assert_allclose(weight[1:].std(), weight[0].std(), rtol=0.1)
    np.testing.assert_array_equal(ours.head.bias, np.zeros((4, 1)))


def test_heads_share_a_body_that_the_chaser_loss_teaches():
    on, ours = task(CLASSES), built(CLASSES, acts="head", learn_rates=True)
    assert ours.particles.weights.weight.shape == (3, 4, 3)
    gradient = chaser_gradient(ours, on)
    assert np.any(gradient.net.body.blocks[0].layer.weight != 0)
    assert all(np.any(rate != 0) for rate in jax.tree.leaves(gradient.inner.rate))


@pytest.mark.slow
def test_the_inner_loop_s_options_are_honoured():
    on = task(REGRESSION)
    plain, again = (chaser_gradient(built(REGRESSION, remat=r), on) for r in (False, True))
    for a, b in zip(*map(jax.tree.leaves, (plain, again)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)
    first = chaser_gradient(built(REGRESSION, first_order=True), on)
    assert np.any(first.particles.weights.head.weight != plain.particles.weights.head.weight)
    bounded = built(REGRESSION, inner_bound=0.01, inner_steps=1, particles=1)
    read = bounded.given(on.support.x)(on.support.x)
    after = bounded.move(bounded.particles, read, on.support.y, 1)
    moves = jax.tree.leaves(jax.tree.map(jnp.subtract, after.weights, bounded.particles.weights))
    assert max(np.max(np.abs(a)) for a in moves) == pytest.approx(RATE * 0.01 / 6)
