"""ANIL adapts the head alone."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.algorithms.anil import ANIL, ANILOptions
from arml.algorithms.maml import MAMLOptions
from arml.core.episodes import Task
from arml.nn.networks import MLPOptions
from arml.tasks.functions import functions_2d

TASKS = functions_2d(shots=6, queries=4)
KEY = jax.random.key(0)


def task() -> Task:
    return TASKS.sample(jax.random.key(3))


def anil(hidden: tuple[int, ...], **options: object) -> ANIL:
    net = MLPOptions(hidden=hidden, init="he").build(TASKS.problem, key=KEY)
    return ANILOptions(inner_rate=0.05, inner_steps=3, **options).build(net, TASKS.problem, key=KEY)


@pytest.mark.parametrize("learn_rates", [False, True])
def test_with_the_whole_net_as_head_it_is_maml(learn_rates):
    ours = anil((), learn_rates=learn_rates)
    maml = MAMLOptions(inner_rate=0.05, inner_steps=3, learn_rates=learn_rates).build(
        ours.net, TASKS.problem, key=KEY
    )
    np.testing.assert_allclose(
        ours.meta_loss(task(), key=KEY), maml.meta_loss(task(), key=KEY), rtol=1e-6
    )


def test_the_head_after_adaptation_in_closed_form():
    """On fixed features the head's descent is linear regression's."""
    ours, on = anil((5,)), task()

    def with_ones(x: jax.Array) -> np.ndarray:
        features = np.asarray(ours.net.body(x), np.float64)
        return np.concatenate([features, np.ones((len(x), 1))], axis=1)

    support, query = with_ones(on.support.x), with_ones(on.query.x)
    head = np.concatenate([ours.net.head.weight[:, 0], ours.net.head.bias]).astype(np.float64)
    for _ in range(3):
        head -= 0.05 * 2 * support.T @ (support @ head - np.asarray(on.support.y)[:, 0]) / 6
    predicted = ours.adapt(on.support, key=KEY).predict(on.query.x)[:, 0]
    np.testing.assert_allclose(predicted, query @ head, rtol=1e-4, atol=1e-5)


def test_the_body_is_learned_through_the_adapted_head():
    ours, on = anil((5,)), task()

    @jax.jit
    @jax.grad
    def gradient(net: object) -> jax.Array:
        return replace(ours, net=net).meta_loss(on, key=KEY)

    assert all(jnp.any(leaf != 0) for leaf in jax.tree.leaves(gradient(ours.net)))
