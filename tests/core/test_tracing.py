"""Looking at how a task is learned, and inner optimisers of Optax's."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import arml
from arml.core.episodes import Problem
from arml.core.inner import GradientDescent
from arml.core.learner import trace
from arml.core.losses import mse
from arml.nn.networks import MLPOptions, perceptron

PROBLEM = Problem("regression", (2,), 1, shots=5, queries=4)
IMAGE = Problem("classification", (3,), 2, shots=2, queries=2)


@pytest.fixture(scope="module")
def support():
    x = jax.random.normal(jax.random.key(1), (5, 2))
    return arml.Examples(x, jnp.sum(x, axis=1, keepdims=True))


def leaves(net):
    return jax.tree.leaves(eqx.filter(net, eqx.is_array))


OTHERS = [
    pytest.param(name, marks=pytest.mark.slow)
    for name in ("arml", "anil", "reptile", "mt-net", "llama")
]


@pytest.mark.parametrize("name", ["maml", *OTHERS])
def test_the_trace_begins_at_the_start_and_ends_at_the_adapted_network(name, support):
    learner = arml.with_steps(arml.build(name, PROBLEM, network=MLPOptions(hidden=(4,))), 2)
    found = trace(learner, support)
    assert len(found) == 3
    adapted = learner.adapt(support, key=jax.random.key(0))
    for one, other in zip(leaves(found[-1].net), leaves(adapted.net), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    # A mask of MT-Net may leave out every unit.
    assert (found[-1].loss < found[0].loss) or name == "mt-net"
    if name == "maml":
        part, rate = learner.net, learner.inner.rate
        gradient = eqx.filter_grad(lambda net: mse(net(support.x), support.y))(part)
        by_hand = jax.tree.map(lambda p, g: p - rate * g, *map(leaves, (part, gradient)))
        for one, other in zip(leaves(found[1].net), by_hand, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5)


def test_a_method_without_an_adapted_network_says_so():
    task = arml.Examples(jnp.zeros((4, 3)), jnp.asarray([0, 0, 1, 1]))
    learner = arml.build("protonet", IMAGE, network=MLPOptions(hidden=(4,)))
    with pytest.raises(ValueError, match=r"expected a learner that adapts a network.*ProtoNet"):
        trace(learner, task)


@pytest.mark.slow
@pytest.mark.parametrize(
    "transform",
    [
        pytest.param(optax.trace(0.9), id="momentum"),
        pytest.param(optax.scale_by_adam(eps_root=1e-8), id="adam"),
    ],
)
def test_an_optax_transformation_gives_optaxs_own_steps(transform, support):
    net = perceptron((2, 4, 1), key=jax.random.key(0))

    def loss(net):
        return mse(net(support.x), support.y)

    with jax.numpy_dtype_promotion("standard"):
        found = GradientDescent(0.1, steps=3, transform=transform)(loss, net)
        optimiser = optax.chain(transform, optax.scale(-0.1))
        state = optimiser.init(eqx.filter(net, eqx.is_array))
        by_hand = net
        for _ in range(3):
            gradient = eqx.filter_grad(loss)(by_hand)
            updates, state = optimiser.update(gradient, state)
            by_hand = eqx.apply_updates(by_hand, updates)
        for one, other in zip(leaves(found), leaves(by_hand), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
        # The outer gradient goes through it, and is finite.
        outer = eqx.filter_grad(
            lambda start: loss(GradientDescent(0.1, steps=2, transform=transform)(loss, start))
        )(net)
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in leaves(outer))
    assert any(bool((leaf != 0).any()) for leaf in leaves(outer))
