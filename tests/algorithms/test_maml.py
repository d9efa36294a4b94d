"""MAML on linear regression, where the adapted weights and the meta-gradient have closed forms."""

import jax.numpy as jnp
import numpy as np
import pytest

from arml.algorithms.maml import MAMLOptions
from arml.core.episodes import Examples, Problem, Task
from arml.nn.networks import BaseNetwork, Body, Linear
from small import KEY, meta, predictions

pytestmark = pytest.mark.usefixtures("float64")
PROBLEM = Problem("regression", (3,), 1, 6, 5)
RATE, STEPS = 0.05, 3
RNG = np.random.default_rng(0)
# A last column of ones makes the bias a weight.
SUPPORT, QUERY = (np.concatenate([RNG.normal(size=(n, 3)), np.ones((n, 1))], 1) for n in (6, 5))
SUPPORT_Y, QUERY_Y, START = (RNG.normal(size=n) for n in (6, 5, 4))


def adapted() -> np.ndarray:
    weight = START
    for _ in range(STEPS):
        weight = weight - RATE * 2 * SUPPORT.T @ (SUPPORT @ weight - SUPPORT_Y) / 6
    return weight


@pytest.mark.parametrize("first_order", [False, True])
def test_predictions_loss_and_meta_gradient_in_closed_form(first_order):
    """dL/d theta = (I - rate H)^steps g, with H the support loss's Hessian and g the query loss's
    gradient at the adapted weights. First order: g alone."""
    head = Linear(jnp.asarray(START[:3, None]), jnp.asarray(START[3:]))
    net = BaseNetwork(Body((), "none"), head)
    options = MAMLOptions(inner_rate=RATE, inner_steps=STEPS, first_order=first_order)
    maml = options.build(net, PROBLEM, key=KEY)
    examples = (
        Examples(jnp.asarray(x[:, :3]), jnp.asarray(y[:, None]))
        for x, y in ((SUPPORT, SUPPORT_Y), (QUERY, QUERY_Y))
    )
    on = Task(*examples, jnp.zeros((), jnp.int32))
    loss, gradient = meta(maml, on)
    missed = QUERY @ adapted() - QUERY_Y
    np.testing.assert_allclose(predictions(maml, on)[:, 0], missed + QUERY_Y, rtol=1e-10)
    np.testing.assert_allclose(loss, np.mean(missed**2), rtol=1e-10)
    expected = 2 * QUERY.T @ missed / 5
    if not first_order:
        step = np.eye(4) - RATE * 2 * SUPPORT.T @ SUPPORT / 6
        expected = np.linalg.matrix_power(step, STEPS) @ expected
    head = gradient.net.head
    ours = np.concatenate([head.weight[:, 0], head.bias])
    np.testing.assert_allclose(ours, expected, rtol=1e-9)
