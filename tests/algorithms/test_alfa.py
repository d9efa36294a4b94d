"""ALFA: without decays and with factors of one it is MAML; decays multiply, step by step."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from arml.algorithms.alfa import ALFAOptions, Generator
from arml.algorithms.maml import MAML, MAMLOptions
from arml.core.episodes import Task
from arml.core.inner import GradientDescent, adaptable
from arml.nn.networks import MLPOptions
from arml.tasks.functions import functions_2d

KEY = jax.random.key(0)
TASKS = functions_2d(shots=6, queries=5)
NET = MLPOptions(hidden=(5,), init="he").build(TASKS.problem, key=KEY)
OPTIONS = {"inner_rate": 0.03, "inner_steps": 3}


def alfa() -> MAML:
    return ALFAOptions(**OPTIONS).build(NET, TASKS.problem, key=KEY)


def with_constant_factors(learner: MAML) -> MAML:
    last = learner.inner.rate.net.layers[-1]
    return eqx.tree_at(lambda m: m.inner.rate.net.layers[-1].weight, learner, 0 * last.weight)


@eqx.filter_jit
def loss_and_gradient(learner: MAML, task: Task) -> tuple:
    return eqx.filter_value_and_grad(lambda m: m.meta_loss(task, key=KEY))(learner)


def with_decays(learner: MAML, decays) -> MAML:
    return eqx.tree_at(lambda m: m.inner.rate.decays, learner, decays)


def test_without_decays_it_is_maml():
    task = TASKS.sample(jax.random.key(1))
    maml = MAMLOptions(**OPTIONS).build(NET, TASKS.problem, key=KEY)
    (ours, gradient), (theirs, expected) = (
        loss_and_gradient(m, task)
        for m in (with_decays(with_constant_factors(alfa()), jnp.zeros((3, 4))), maml)
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    for a, b in zip(*map(jax.tree.leaves, (gradient.net, expected.net)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


def test_it_starts_with_the_authors_decay_of_the_weights_in_each_step():
    rule = with_constant_factors(alfa()).inner.rate
    adapted = GradientDescent(rule, 3)(lambda net: jnp.zeros(()), NET)
    for a, b in zip(*map(jax.tree.leaves, map(adaptable, (adapted, NET))), strict=True):
        np.testing.assert_allclose(a, (1 - 5e-4 * 0.03) ** 3 * b, rtol=1e-6)


def test_each_step_has_its_own_decay_and_further_steps_that_of_the_last():
    decays = jnp.array([0.1, 0.3, 0.5])[:, None] * jnp.ones(4)
    rule = with_decays(with_constant_factors(alfa()), decays).inner.rate
    adapted = GradientDescent(rule, 5)(lambda net: jnp.zeros(()), NET)
    for a, b in zip(*map(jax.tree.leaves, map(adaptable, (adapted, NET))), strict=True):
        np.testing.assert_allclose(a, 0.9 * 0.7 * 0.5**3 * b, rtol=1e-5)


def test_the_generator_reads_the_means_of_gradients_and_weights():
    """Against NumPy, with a gradient that differs from the weights."""
    rule = Generator.drawn(adaptable(NET), 0.1, 1, key=KEY)
    rule = eqx.tree_at(lambda g: g.decays, rule, jnp.full((1, 4), 0.2))
    part = adaptable(NET)
    gradient = jax.tree.map(lambda a: jnp.cos(a) + 1, part)
    weights, slopes = (list(map(np.asarray, jax.tree.leaves(t))) for t in (part, gradient))
    state = np.array([a.mean() for a in (*slopes, *weights)])
    first, last = rule.net.layers
    hidden = np.maximum(state @ np.asarray(first.weight) + np.asarray(first.bias), 0)
    factors = 1 + hidden @ np.asarray(last.weight) + np.asarray(last.bias)
    for i, moved in enumerate(jax.tree.leaves(rule(part, gradient, 0))):
        expected = (1 - 0.2 * factors[4 + i]) * weights[i] - 0.1 * factors[i] * slopes[i]
        np.testing.assert_allclose(moved, expected, rtol=1e-4, atol=1e-6)
