"""ARML with FiLM learns from wide vectors, such as the features of a pretrained network."""

import jax
import jax.numpy as jnp
import pytest

import arml
from arml.nn.networks import MLPOptions

WIDTH = 1_280


class Wide(arml.TaskDistribution):
    """Classes around centres in 40 directions that all tasks share; positive, as after a ReLU, and
    with a mean square of one."""

    problem = arml.Problem("classification", (WIDTH,), 5, shots=1, queries=4)
    families = ("wide",)

    def sample(self, key):
        keys = jax.random.split(key, 3)
        directions = jax.random.normal(jax.random.key(7), (40, WIDTH)) / jnp.sqrt(40.0)
        centres = jax.random.normal(keys[0], (5, 40)) @ directions

        def examples(key, n):
            y = jnp.tile(jnp.arange(5), n)
            x = jax.nn.relu(centres[y] + 0.7 * jax.random.normal(key, (5 * n, WIDTH)))
            return arml.Examples(x / jnp.sqrt(jnp.mean(x**2, axis=1, keepdims=True)), y)

        return arml.Task(examples(keys[1], 1), examples(keys[2], 4), jnp.array(0))


@pytest.mark.slow
@pytest.mark.usefixtures("optax_promotes")
def test_a_few_steps_on_wide_vectors_are_far_above_chance():
    network = MLPOptions(hidden=(64,), init="he")
    learner = arml.build("arml-film", Wide(), network=network)
    outer = arml.OuterOptions(clip=10.0)
    fitted = arml.fit(learner, Wide(), steps=60, batch=8, outer=outer)
    assert arml.evaluate(fitted.learner, Wide(), n=100).mean > 0.6
