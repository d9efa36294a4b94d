"""A small task and the compiled functions of a learner that the tests of several methods share."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from arml.core.episodes import Examples, Problem, Task

REGRESSION = Problem("regression", (2,), 1, 6, 4)
VECTORS = Problem("classification", (3,), 2, 3, 2)
KEY = jax.random.key(0)


def task(problem: Problem = REGRESSION, *, shuffled: bool = False) -> Task:
    """Normal inputs, and normal targets or the classes in turn (`shuffled`: in random order)."""
    rng = np.random.default_rng(0)

    def examples(n: int) -> Examples:
        x = jnp.asarray(rng.normal(size=(n, *problem.features)), jnp.float32)
        if problem.kind == "classification":
            y = np.arange(n) % problem.outputs
            return Examples(x, jnp.asarray(rng.permutation(y) if shuffled else y, jnp.int32))
        return Examples(x, jnp.asarray(rng.normal(size=(n, 1)), jnp.float32))

    return Task(examples(problem.support), examples(problem.query), jnp.zeros((), jnp.int32))


def doubled(tree: Any) -> Any:
    """The tree with floats of 64 bits."""
    return jax.tree.map(lambda a: a.astype(jnp.float64) if eqx.is_inexact_array(a) else a, tree)


@eqx.filter_jit
def predictions(learner: Any, task: Task) -> jax.Array:
    return learner.adapt(task.support, key=KEY).predict(task.query.x)


@eqx.filter_jit
@eqx.filter_value_and_grad
def meta(learner: Any, task: Task) -> jax.Array:
    return learner.meta_loss(task, key=KEY)
