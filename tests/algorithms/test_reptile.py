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
from arml.nn.networks import MLPOptions
from arml.tasks.functions import functions_2d
from arml.training.fit import OuterOptions, make_step, start

TASKS = functions_2d(shots=6, queries=4)
KEY = jax.random.key(0)


def reptile(**options: object) -> Reptile:
    net = MLPOptions(hidden=(5,), init="he").build(TASKS.problem, key=KEY)
    options = {"inner_rate": 0.01, "inner_steps": 4, "inner_batch": 0, **options}
    return ReptileOptions(**options).build(net, TASKS.problem, key=KEY)


def task() -> Task:
    return TASKS.sample(jax.random.key(3))


def merged(task: Task) -> Examples:
    return Examples(*map(jnp.concatenate, zip(task.support, task.query, strict=True)))


@eqx.filter_jit
def descend(ours: Reptile, on: Examples) -> tuple:
    return ours.descend(on, KEY)


def assert_equal(ours: object, theirs: object, rtol: float = 1e-5) -> None:
    for a, b in zip(*map(jax.tree.leaves, (ours, theirs)), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-7)


@pytest.mark.slow
def test_the_inner_loop_is_adam_with_beta_1_of_zero():
    ours, on = reptile(), task().support
    adam = optax.adam(0.01, b1=0.0)
    net, state = ours.net, adam.init(ours.net)
    with jax.numpy_dtype_promotion("standard"):  # Optax counts steps in integers
        for _ in range(4):
            gradient = jax.grad(lambda n: ours.loss(n(on.x), on.y))(net)
            updates, state = adam.update(gradient, state)
            net = optax.apply_updates(net, updates)
    assert_equal(descend(ours, on)[0], net)


def test_the_moments_that_adam_carries_are_not_learned_numbers():
    ours = reptile()
    assert parameters(ours) == sum(a.size for a in jax.tree.leaves(ours.net))


def test_carried_moments_go_on_where_they_were():
    """Two tasks of two steps with what the first one left are one task of four steps."""
    ours, on = reptile(inner_steps=2), task().support
    net, moment = descend(ours, on)
    twice = descend(eqx.tree_at(lambda r: (r.net, r.moment), ours, (net, moment)), on)[0]
    once = descend(replace(ours, inner=GradientDescent(0.01, 4)), on)[0]
    assert_equal(twice, once)
    fresh = descend(replace(ours, net=net), on)[0]
    assert np.any(fresh.head.weight != twice.head.weight)


def test_its_gradient_is_theta_less_where_the_task_led():
    ours, on = reptile(), task()
    trained, rest = eqx.partition(ours, eqx.is_inexact_array)
    gradient = jax.jit(jax.grad(lambda t: eqx.combine(t, rest).meta_loss(on, key=KEY)))(trained)
    net, moment = descend(ours, merged(on))
    assert_equal(gradient.net, jax.tree.map(jnp.subtract, ours.net, net))
    assert_equal(gradient.moment, jax.tree.map(jnp.subtract, ours.moment, moment))


def test_an_outer_step_of_rate_one_on_one_task_is_the_task_itself():
    ours = reptile()
    optimiser = OuterOptions(outer_rate=1.0, optimiser="sgd").build(10)
    step = make_step(optimiser, batch=1, key=KEY)
    state, _ = eqx.filter_jit(step)(TASKS, start(ours, optimiser))
    task_key, _ = jax.random.split(jax.random.fold_in(KEY, 0))
    drawn = TASKS.sample(jax.random.split(task_key, 1)[0])
    net, moment = descend(ours, merged(drawn))
    assert_equal((state.learner.net, state.learner.moment), (net, moment), rtol=1e-3)


def test_minibatches_pass_through_all_examples():
    chosen = np.concatenate(minibatches(6, 2, 7, key=KEY))
    assert chosen.shape == (14,)
    for first in (0, 6):
        assert sorted(chosen[first : first + 6]) == list(range(6))
    assert np.any(chosen[:6] != chosen[6:12])
    for size in (0, 6, 9):
        assert all(list(b) == list(range(6)) for b in minibatches(6, size, 2, key=KEY))
