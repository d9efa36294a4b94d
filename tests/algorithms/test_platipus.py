"""PLATIPUS's loss written out, and where its samples come from; MAML in `test_limits.py`."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.algorithms.platipus import PLATIPUS, PLATIPUSOptions, draw
from arml.core.episodes import Examples, Problem
from small import KEY, REGRESSION, VECTORS, doubled, filled, network, predictions, task

LOG_SIGMA, LOG_V, GAMMA_P, GAMMA_Q = -3.0, -4.5, 0.02, 0.005
pytestmark = pytest.mark.usefixtures("float64")


def built(problem: Problem, **options: Any) -> PLATIPUS:
    """With constants that differ, so that none can stand in another's place."""
    options = {"inner_rate": 0.03, "inner_steps": 2, "samples": 3, **options}
    ours = doubled(PLATIPUSOptions(**options).build(network(problem), problem, key=KEY))
    ours = filled(filled(ours, lambda m: m.log_sigma, LOG_SIGMA), lambda m: m.log_v, LOG_V)
    return replace(ours, gamma_p=jnp.array(GAMMA_P), gamma_q=jnp.array(GAMMA_Q))


def moved(ours: PLATIPUS, net: Any, examples: Examples, rate: float) -> Any:
    """A network after a plain step on a plain loss."""
    gradient = jax.grad(lambda net: ours.loss(net(examples.x), examples.y))(net)
    return jax.tree.map(lambda p, g: p - rate * g, net, gradient)


@pytest.mark.parametrize("problem", [REGRESSION, VECTORS], ids=["regression", "classes"])
def test_the_loss_written_out(problem):
    """Algorithm 1, with plain gradients of plain losses."""
    on, ours = doubled(task(problem)), built(problem, noise=0.2, kl_weight=0.01)
    mu_q = moved(ours, ours.net, on.query, GAMMA_Q)
    mu_p = moved(ours, ours.net, on.support, GAMMA_P)
    phi = draw(mu_q, ours.log_v, key=KEY)
    for _ in range(2):
        phi = moved(ours, phi, on.support, 0.03)
    factor = 1 / (2 * 0.2**2) if problem is REGRESSION else 1.0
    v, sigma2 = np.exp(2 * LOG_V), np.exp(2 * LOG_SIGMA)
    kl = sum(
        np.sum(np.log(sigma2 / v) + (v + (np.asarray(a) - np.asarray(b)) ** 2) / sigma2 - 1) / 2
        for a, b in zip(*map(jax.tree.leaves, (mu_q, mu_p)), strict=True)
    )
    expected = factor * ours.loss(phi(on.query.x), on.query.y) + 0.01 * kl
    np.testing.assert_allclose(ours.meta_loss(on, key=KEY), expected, rtol=1e-7)


def test_samples_come_from_the_prior_that_has_seen_the_support_set():
    """Without inner steps a prediction is the mean over theta ~ N(mu_p, sigma^2)."""
    on, ours = doubled(task(REGRESSION)), built(REGRESSION, inner_steps=0)
    mu_p = moved(ours, ours.net, on.support, GAMMA_P)
    thetas = [draw(mu_p, ours.log_sigma, key=k) for k in jax.random.split(KEY, 3)]
    expected = np.mean([theta(on.query.x) for theta in thetas], axis=0)
    np.testing.assert_allclose(predictions(ours, on), expected, rtol=1e-10)
