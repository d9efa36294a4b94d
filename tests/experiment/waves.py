"""A user's script: a task family, and nothing of the library but its public names."""

import jax
import jax.numpy as jnp

import arml


class Waves(arml.TaskDistribution):
    """Two families of sines."""

    problem = arml.Problem("regression", (1,), 1, shots=4, queries=6)
    families = ("slow", "fast")
    highest: float = 3.0

    def sample(self, key):
        family_key, x_key, phase_key = jax.random.split(key, 3)
        family = jax.random.randint(family_key, (), 0, 2)
        x = self.highest * jax.random.uniform(x_key, (10, 1), minval=-1.0)
        y = jnp.sin((1 + family).astype(jnp.float32) * x + jax.random.uniform(phase_key))
        return arml.Task(arml.Examples(x[:4], y[:4]), arml.Examples(x[4:], y[4:]), family)
