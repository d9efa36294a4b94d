"""Proto-MAML is MAML from a head of prototypes; without steps, ProtoNet (`test_limits.py`)."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from arml.algorithms.maml import MAML
from arml.algorithms.proto_maml import ProtoMAMLOptions
from arml.nn.networks import Linear
from small import KEY, VECTORS, close, network, predictions, task


def test_with_steps_it_is_maml_from_that_head():
    """The head is made by hand, in NumPy."""
    on, net = task(VECTORS), network(VECTORS)
    options = ProtoMAMLOptions(inner_rate=0.1, inner_steps=2, scale=0.3)
    ours = options.build(net, VECTORS, key=KEY)
    features, y = np.asarray(net.body(on.support.x)), np.asarray(on.support.y)
    means = np.stack([features[y == k].mean(axis=0) for k in range(2)])
    biases = -0.3 * np.sum(means**2, axis=1)
    head = Linear(*(jnp.asarray(a, jnp.float32) for a in (0.6 * means.T, biases)))
    maml = MAML(replace(net, head=head), ours.inner, problem=VECTORS)
    close(*(jax.nn.softmax(predictions(m, on)) for m in (ours, maml)), rtol=1e-4)
