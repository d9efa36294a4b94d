"""ALFA: rates and decays come from the means of gradients and weights, step by step."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from arml.algorithms.alfa import INITIAL_DECAY, Generator
from arml.core.inner import GradientDescent, adaptable
from small import KEY, close, filled, network

PART = adaptable(network())


def test_each_step_has_its_own_decay_and_further_steps_that_of_the_last():
    rule = Generator.drawn(PART, 0.03, 3, key=KEY)
    np.testing.assert_allclose(rule.decays, INITIAL_DECAY * 0.03)
    rule = filled(rule, lambda g: g.net.layers[-1], 0.0)
    decays = jnp.array([0.1, 0.3, 0.5])[:, None] * jnp.ones(4)
    rule = eqx.tree_at(lambda g: g.decays, rule, decays)
    adapted = GradientDescent(rule, 5)(lambda net: jnp.zeros(()), PART)
    close(adapted, jax.tree.map(lambda a: 0.9 * 0.7 * 0.5**3 * a, PART), rtol=1e-5)


def test_the_generator_reads_the_means_of_gradients_and_weights():
    """Against NumPy, with a gradient that differs from the weights."""
    rule = filled(Generator.drawn(PART, 0.1, 1, key=KEY), lambda g: g.decays, 0.2)
    gradient = jax.tree.map(lambda a: jnp.cos(a) + 1, PART)
    weights, slopes = (list(map(np.asarray, jax.tree.leaves(t))) for t in (PART, gradient))
    state = np.array([a.mean() for a in (*slopes, *weights)])
    first, last = rule.net.layers
    hidden = np.maximum(state @ np.asarray(first.weight) + np.asarray(first.bias), 0)
    factors = 1 + hidden @ np.asarray(last.weight) + np.asarray(last.bias)
    for i, moved in enumerate(jax.tree.leaves(rule(PART, gradient, 0))):
        expected = (1 - 0.2 * factors[4 + i]) * weights[i] - 0.1 * factors[i] * slopes[i]
        np.testing.assert_allclose(moved, expected, rtol=1e-4, atol=1e-6)
