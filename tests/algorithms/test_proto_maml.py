"""Proto-MAML lies between ProtoNet and MAML."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from arml.algorithms.maml import MAML
from arml.algorithms.proto_maml import ProtoMAML, ProtoMAMLOptions
from arml.algorithms.protonet import ProtoNetOptions
from arml.core.episodes import Problem
from arml.core.inner import with_steps
from arml.experiment.contract import Blobs
from arml.nn.networks import MLPOptions

KEY = jax.random.key(0)
PROBLEM = Problem("classification", (4,), 3, 2, 3)
TASK = Blobs(PROBLEM).sample(jax.random.key(1))
NET = MLPOptions(hidden=(8,), init="he").build(PROBLEM, key=KEY)


def learner(steps: int = 2) -> ProtoMAML:
    options = ProtoMAMLOptions(inner_rate=0.1, inner_steps=steps, scale=0.3)
    return options.build(NET, PROBLEM, key=KEY)


@eqx.filter_jit
def probabilities(learner, x):
    return jax.nn.softmax(learner.adapt(TASK.support, key=KEY).predict(x))


def test_without_a_step_it_is_the_scaled_protonet():
    protonet = ProtoNetOptions(scale=0.3).build(NET, PROBLEM, key=KEY)
    ours = probabilities(with_steps(learner(), 0), TASK.query.x)
    np.testing.assert_allclose(ours, probabilities(protonet, TASK.query.x), rtol=1e-4, atol=1e-6)

    loss = eqx.filter_jit(eqx.filter_value_and_grad(lambda m: m.meta_loss(TASK, key=KEY)))
    (mine, gradient), (theirs, expected) = loss(with_steps(learner(), 0)), loss(protonet)
    np.testing.assert_allclose(mine, theirs, rtol=1e-4)
    for a, b in zip(
        jax.tree.leaves(gradient.net.body), jax.tree.leaves(expected.body), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


def test_with_steps_it_is_maml_from_that_head():
    """The head is made by hand, in NumPy."""
    features, y = np.asarray(NET.body(TASK.support.x), np.float64), np.asarray(TASK.support.y)
    means = np.stack([features[y == k].mean(axis=0) for k in range(3)])
    head = replace(
        NET.head,
        weight=jnp.asarray(0.6 * means.T, jnp.float32),
        bias=jnp.asarray(-0.3 * np.sum(means**2, axis=1), jnp.float32),
    )
    maml = MAML(replace(NET, head=head), learner().inner, learner().loss)
    ours = probabilities(learner(), TASK.query.x)
    np.testing.assert_allclose(ours, probabilities(maml, TASK.query.x), rtol=1e-4, atol=1e-6)
