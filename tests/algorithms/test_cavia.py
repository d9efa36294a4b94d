"""CAVIA: the context is an input of the network."""

import jax
import jax.numpy as jnp

from arml.algorithms.cavia import CAVIAOptions
from small import KEY, REGRESSION, close, network, predictions, task


def test_the_context_is_an_input_of_the_network():
    """By another route: descent on the inputs of a network of wider inputs."""
    on, net = task(), network(hidden=(7, 5))
    learner = CAVIAOptions(inner_rate=0.1, inner_steps=3).build(net, REGRESSION, key=KEY)
    first, second = (block.layer for block in net.body.blocks)

    def concatenated(x: jax.Array, phi: jax.Array) -> jax.Array:
        """The network whose first layer reads [x, phi]."""
        both = jnp.concatenate([x, jnp.broadcast_to(phi, (len(x), len(phi)))], axis=1)
        weight = jnp.concatenate([first.weight, learner.weight])
        return net.head(jax.nn.relu(second(jax.nn.relu(both @ weight + first.bias))))

    def loss(phi: jax.Array) -> jax.Array:
        return jnp.mean(jnp.square(concatenated(on.support.x, phi) - on.support.y))

    phi = jnp.zeros(5)
    for _ in range(3):
        phi = phi - 0.1 * jax.grad(loss)(phi)
    close(learner.context(on.support), phi, rtol=1e-4, atol=1e-6)
    close(predictions(learner, on), concatenated(on.query.x, phi), rtol=1e-4, atol=1e-5)
