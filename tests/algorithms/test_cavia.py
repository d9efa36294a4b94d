"""CAVIA: the context is an input of the network, and a task moves the context alone."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.algorithms.cavia import CAVIAOptions, cavia
from arml.core.episodes import Examples, Problem
from arml.core.inner import with_steps
from arml.nn.networks import Conv4Options, MLPOptions

KEY = jax.random.key(0)
PROBLEM = Problem("regression", (3,), 1, shots=6, queries=4)
NET = MLPOptions(hidden=(7, 5), init="he").build(PROBLEM, key=KEY)
KEYS = jax.random.split(jax.random.key(1))
SUPPORT = Examples(jax.random.normal(KEYS[0], (6, 3)), jax.random.normal(KEYS[1], (6, 1)))


def concatenated(learner, x, phi):
    """The network whose first layer reads [x, phi]."""
    first, *others = [block.layer for block in learner.net.body.blocks]
    weight = jnp.concatenate([first.weight, learner.weight])
    both = jnp.concatenate([x, jnp.broadcast_to(phi, (len(x), len(phi)))], axis=1)
    h = jax.nn.relu(both @ weight + first.bias)
    for layer in others:
        h = jax.nn.relu(layer(h))
    return learner.net.head(h)


def test_the_context_is_an_input_of_the_network():
    """By another route: descent on the inputs of a network of wider inputs."""
    learner = CAVIAOptions(inner_rate=0.1, inner_steps=3).build(NET, PROBLEM, key=KEY)
    phi = jnp.zeros(5)
    for _ in range(3):
        slope = jax.grad(
            lambda p: jnp.mean(jnp.square(concatenated(learner, SUPPORT.x, p) - SUPPORT.y))
        )
        phi = phi - 0.1 * slope(phi)
    np.testing.assert_allclose(learner.context(SUPPORT), phi, rtol=1e-4, atol=1e-6)
    ours = learner.adapt(SUPPORT, key=KEY).predict(SUPPORT.x)
    np.testing.assert_allclose(ours, concatenated(learner, SUPPORT.x, phi), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["vectors", pytest.param("pictures", marks=pytest.mark.slow)])
def test_a_task_moves_nothing_but_the_context(kind):
    problem, net, x = PROBLEM, NET, SUPPORT.x
    support = SUPPORT
    if kind == "pictures":
        problem = Problem("classification", (16, 16, 1), 3, shots=1, queries=1)
        net = Conv4Options(filters=4).build(problem, key=KEY)
        x = jax.random.normal(KEY, (3, 16, 16, 1))
        support = Examples(x, jnp.arange(3))
    learner = cavia(problem).build(net, problem, key=KEY)
    adapted = learner.adapt(support, key=KEY).net
    for ours, theirs in zip(adapted.body.blocks, net.body.blocks, strict=True):
        assert eqx.tree_equal(ours.layer, theirs.layer)
    assert eqx.tree_equal(adapted.head, net.head)
    still = with_steps(learner, 0).adapt(support, key=KEY).predict(x)
    np.testing.assert_allclose(still, net(x), rtol=1e-5, atol=1e-6)
