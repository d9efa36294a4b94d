"""Reptile's gradient is theta - theta', and its inner optimiser is Adam without a first moment."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from arml.algorithms.reptile import Reptile, ReptileOptions, minibatches
from arml.core.episodes import Examples, Task
from arml.core.inner import GradientDescent
from arml.core.learner import parameters
from small import KEY, REGRESSION, close, meta, network, task


def reptile(steps: int = 4) -> Reptile:
    options = ReptileOptions(inner_rate=0.01, inner_steps=steps, inner_batch=0)
    return options.build(network(), REGRESSION, key=KEY)


def merged(task: Task) -> Examples:
    return Examples(*map(jnp.concatenate, zip(task.support, task.query, strict=True)))


@eqx.filter_jit
def descend(ours: Reptile, on: Examples) -> tuple:
    return ours.descend(on, KEY)


@pytest.mark.usefixtures("optax_promotes")
def test_the_inner_loop_is_adam_with_beta_1_of_zero():
    ours, on = reptile(), task().support
    adam = optax.adam(0.01, b1=0.0)

    @jax.jit
    def step(net: object, state: object) -> tuple:
        gradient = jax.grad(lambda n: ours.loss(n(on.x), on.y))(net)
        updates, state = adam.update(gradient, state)
        return optax.apply_updates(net, updates), state

    net, state = ours.net, adam.init(ours.net)
    for _ in range(4):
        net, state = step(net, state)
    close(descend(ours, on)[0], net, rtol=1e-5, atol=1e-7)


def test_carried_moments_go_on_where_they_were():
    """Two tasks of two steps with what the first one left are one task of four steps."""
    ours, on = reptile(2), task().support
    assert parameters(ours) == sum(a.size for a in jax.tree.leaves(ours.net))
    net, moment = descend(ours, on)
    twice = descend(eqx.tree_at(lambda r: (r.net, r.moment), ours, (net, moment)), on)[0]
    once = descend(replace(ours, inner=GradientDescent(0.01, 4)), on)[0]
    close(twice, once, rtol=1e-5, atol=1e-7)
    assert np.any(descend(replace(ours, net=net), on)[0].head.weight != twice.head.weight)


def test_its_gradient_is_theta_less_where_the_task_led():
    ours, on = reptile(), task()
    gradient, (net, moment) = meta(ours, on)[1], descend(ours, merged(on))
    expected = jax.tree.map(jnp.subtract, (ours.net, ours.moment), (net, moment))
    close((gradient.net, gradient.moment), expected, rtol=1e-5, atol=1e-7)


def test_minibatches_pass_through_all_examples():
    chosen = np.concatenate(minibatches(6, 2, 7, key=KEY))
    assert chosen.shape == (14,)
    for first in (0, 6):
        assert sorted(chosen[first : first + 6]) == list(range(6))
    assert np.any(chosen[:6] != chosen[6:12])
    for size in (0, 6, 9):
        assert all(list(b) == list(range(6)) for b in minibatches(6, size, 2, key=KEY))
