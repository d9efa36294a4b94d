"""PLATIPUS's divergence in closed form, its limit MAML, and what its samples do."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import small
from arml.algorithms.maml import MAMLOptions
from arml.algorithms.platipus import PLATIPUS, PLATIPUSOptions, divergence, draw
from arml.core.episodes import Examples, Problem, Task
from arml.core.inner import Shared, adaptable
from arml.nn.networks import Conv4Options, MLPOptions
from small import doubled

KEY = jax.random.key(0)
REGRESSION = Problem("regression", (3,), 1, 6, 5)
CLASSES = Problem("classification", (3,), 3, 2, 2)
LOG_SIGMA, LOG_V, GAMMA_P, GAMMA_Q = -3.0, -4.5, 0.02, 0.005
BOTH = pytest.mark.parametrize(
    "problem",
    [
        pytest.param(REGRESSION, id="regression", marks=pytest.mark.slow),
        pytest.param(CLASSES, id="classes"),
    ],
)


pytestmark = pytest.mark.usefixtures("float64")


def built(problem: Problem, **options: Any) -> PLATIPUS:
    net = MLPOptions(hidden=(4,), init="he").build(problem, key=jax.random.key(1))
    options = {"inner_rate": 0.03, "inner_steps": 2, "samples": 3, **options}
    return unequal(doubled(PLATIPUSOptions(**options).build(net, problem, key=KEY)))


def unequal(ours: PLATIPUS) -> PLATIPUS:
    """With constants that differ, so that none can stand in another's place."""
    log_sigma, log_v = (
        jax.tree.map(lambda a, log_sd=log_sd: jnp.full_like(a, log_sd), ours.log_v)
        for log_sd in (LOG_SIGMA, LOG_V)
    )
    rates = {"gamma_p": jnp.array(GAMMA_P), "gamma_q": jnp.array(GAMMA_Q)}
    return replace(ours, log_sigma=log_sigma, log_v=log_v, **rates)


def task(problem: Problem) -> Task:
    return doubled(small.task(problem))


def with_spread(ours: PLATIPUS, log_sd: float, gamma: float) -> PLATIPUS:
    sd = jax.tree.map(lambda a: jnp.full_like(a, log_sd), ours.log_v)
    gamma = jnp.array(gamma)
    return replace(ours, log_sigma=sd, log_v=sd, gamma_p=gamma, gamma_q=gamma)


def gaussians() -> tuple[Any, ...]:
    """Two means and two log standard deviations, each a pair of arrays."""
    keys = iter(jax.random.split(KEY, 8))
    return tuple(
        {name: scale * jax.random.normal(next(keys), shape) for name, shape in shapes.items()}
        for scale in (1.0, 0.5, 1.0, 0.5)
        for shapes in ({"a": (2, 2), "b": (3,)},)
    )


def test_the_divergence_is_the_scalar_formula_summed():
    mean, s, other, s_other = (
        np.concatenate([np.ravel(a) for a in g.values()]) for g in gaussians()
    )
    expected = sum(
        np.log(np.exp(b) / np.exp(a)) + (np.exp(a) ** 2 + (m - n) ** 2) / (2 * np.exp(b) ** 2) - 0.5
        for m, a, n, b in zip(mean, s, other, s_other, strict=True)
    )
    np.testing.assert_allclose(divergence(*gaussians()), expected, rtol=1e-12)
    mean, s, *_ = gaussians()
    assert divergence(mean, s, mean, s) == 0


def test_the_divergence_is_the_mean_log_ratio_of_densities():
    mean, s, other, s_other = gaussians()

    def log_density(x: Any, mean: Any, s: Any) -> jax.Array:
        terms = jax.tree.map(
            lambda x, m, s: jnp.sum(-(((x - m) / jnp.exp(s)) ** 2) / 2 - s), x, mean, s
        )
        return sum(jax.tree.leaves(terms))

    def ratio(key: jax.Array) -> jax.Array:
        x = draw(mean, s, key=key)
        return log_density(x, mean, s) - log_density(x, other, s_other)

    ratios = np.asarray(jax.jit(jax.vmap(ratio))(jax.random.split(KEY, 100_000)))
    error = ratios.std() / np.sqrt(len(ratios))
    exact = float(divergence(mean, s, other, s_other))
    assert 5 * error < 0.1 * exact  # a test that could fail
    np.testing.assert_allclose(ratios.mean(), exact, atol=4 * error)


@pytest.mark.slow
@pytest.mark.parametrize(
    "problem",
    [
        pytest.param(REGRESSION, id="regression", marks=pytest.mark.slow),
        pytest.param(CLASSES, id="classes"),
    ],
)
def test_without_spread_and_without_steps_of_the_means_it_is_maml(problem):
    """The same loss, the same gradient, the same predictions; noise^2 = 1/2 makes the negative
    log-likelihood the mean squared error."""
    on, ours = task(problem), with_spread(built(problem, noise=0.5**0.5), -40.0, 0.0)
    maml = MAMLOptions(inner_rate=0.03, inner_steps=2).build(ours.net, problem, key=KEY)

    def gradient(learner: Any) -> Any:
        return jax.jit(
            jax.value_and_grad(lambda net: replace(learner, net=net).meta_loss(on, key=KEY))
        )(learner.net)

    for a, b in zip(*map(jax.tree.leaves, (gradient(ours), gradient(maml))), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)
    predicted, expected = (
        learner.adapt(on.support, key=KEY).predict(on.query.x) for learner in (ours, maml)
    )
    if problem is CLASSES:
        expected = jax.nn.log_softmax(expected)
    np.testing.assert_allclose(predicted, expected, rtol=1e-9)


@BOTH
def test_the_loss_written_out(problem):
    """Algorithm 1, with plain gradients of plain losses."""
    on, ours = task(problem), built(problem, noise=0.2, kl_weight=0.01)
    key = jax.random.key(7)

    def loss(net: Any, examples: Examples) -> jax.Array:
        return ours.loss(net(examples.x), examples.y)

    def moved(net: Any, examples: Examples, rate: float) -> Any:
        return jax.tree.map(lambda p, g: p - rate * g, net, jax.grad(loss)(net, examples))

    mu_q, mu_p = moved(ours.net, on.query, GAMMA_Q), moved(ours.net, on.support, GAMMA_P)
    phi = draw(mu_q, ours.log_v, key=key)
    for _ in range(2):
        phi = moved(phi, on.support, 0.03)
    factor = 1 / (2 * 0.2**2) if problem is REGRESSION else 1.0
    v, sigma2 = np.exp(2 * LOG_V), np.exp(2 * LOG_SIGMA)
    kl = sum(
        np.sum(np.log(sigma2 / v) + (v + (np.asarray(a) - np.asarray(b)) ** 2) / sigma2 - 1) / 2
        for a, b in zip(*map(jax.tree.leaves, (mu_q, mu_p)), strict=True)
    )
    expected = factor * loss(phi, on.query) + 0.01 * kl
    np.testing.assert_allclose(ours.meta_loss(on, key=key), expected, rtol=1e-7)


@pytest.mark.slow
def test_more_samples_vary_less():
    on, spread = task(REGRESSION), -1.0

    def variance(samples: int) -> float:
        ours = with_spread(built(REGRESSION, samples=samples), spread, 0.01)
        keys = jax.random.split(KEY, 200)
        predict = jax.vmap(lambda k: ours.adapt(on.support, key=k).predict(on.query.x))
        predicted = jax.jit(predict)(keys)
        return float(jnp.mean(jnp.var(predicted, axis=0)))

    np.testing.assert_allclose(variance(2) / variance(20), 10.0, rtol=0.3)


@pytest.mark.slow
def test_samples_come_from_the_prior_that_has_seen_the_support_set():
    """Without inner steps a prediction is the mean over theta ~ N(mu_p, sigma^2)."""
    on, ours = task(REGRESSION), built(REGRESSION, inner_steps=0, samples=4)
    mu = ours.net
    gradient = jax.grad(lambda net: ours.loss(net(on.support.x), on.support.y))(mu)
    mu_p = jax.tree.map(lambda m, g: m - GAMMA_P * g, mu, gradient)
    thetas = [draw(mu_p, ours.log_sigma, key=k) for k in jax.random.split(KEY, 4)]
    expected = np.mean([theta(on.query.x) for theta in thetas], axis=0)
    predicted = ours.adapt(on.support, key=KEY).predict(on.query.x)
    np.testing.assert_allclose(predicted, expected, rtol=1e-10)


@BOTH
def test_a_gradient_reaches_both_spreads_and_both_step_sizes(problem):
    on, ours = task(problem), built(problem)
    trained, rest = eqx.partition(ours, eqx.is_inexact_array)
    gradient = jax.jit(jax.grad(lambda t: eqx.combine(t, rest).meta_loss(on, key=KEY)))(trained)
    for part in (gradient.log_sigma, gradient.log_v, gradient.gamma_p, gradient.gamma_q):
        assert all(np.all(np.isfinite(a)) and np.any(a != 0) for a in jax.tree.leaves(part))


@pytest.mark.slow
def test_shared_arrays_have_no_distribution():
    problem = Problem("classification", (16, 16, 1), 2, 1, 1)
    net = Conv4Options(filters=2).build(problem, key=KEY)
    ours = PLATIPUSOptions(samples=2, inner_steps=1).build(net, problem, key=KEY)
    count = len(jax.tree.leaves(adaptable(net)))
    assert len(jax.tree.leaves(ours.log_sigma)) == len(jax.tree.leaves(ours.log_v)) == count
    x, y = jax.random.normal(KEY, (2, 16, 16, 1), jnp.float32), jnp.arange(2)
    theta = draw(adaptable(net), ours.log_sigma, key=KEY)
    phi = jax.jit(lambda theta: ours.descend(theta, Examples(x, y)))(theta)
    for old, new in zip(net.body.blocks, phi.body.blocks, strict=True):
        assert isinstance(new.offset, Shared)
        np.testing.assert_array_equal(old.offset.value, new.offset.value)
        assert np.any(old.layer.kernel != new.layer.kernel)
