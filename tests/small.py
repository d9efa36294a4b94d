"""Small tasks, networks and experiments, and compiled functions of a learner, that several tests
share."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from arml.core.episodes import Examples, Problem, Task, TaskDistribution
from arml.experiment.options import Experiment
from arml.experiment.recipes import recipe
from arml.nn.networks import BaseNetwork, MLPOptions
from arml.results.files import read_json

REGRESSION = Problem("regression", (2,), 1, 6, 4)
VECTORS = Problem("classification", (3,), 2, 3, 2)
KEY = jax.random.key(0)
RESULT = read_json(Path(__file__).parent / "fixtures" / "run" / "result.json")


def placed(numbers: Any, dtype: Any = None) -> jax.Array:
    """NumPy's numbers on the device. `jnp.asarray` compiles a program for each of their shapes."""
    return jax.device_put(np.asarray(numbers, dtype))


def task(problem: Problem = REGRESSION) -> Task:
    """Normal inputs, and normal targets or the classes in random order."""
    rng = np.random.default_rng(0)

    def examples(n: int) -> Examples:
        x = placed(rng.normal(size=(n, *problem.features)), np.float32)
        if problem.kind == "classification":
            y = rng.permutation(np.arange(n) % problem.outputs)
            return Examples(x, placed(y, np.int32))
        return Examples(x, placed(rng.normal(size=(n, problem.outputs)), np.float32))

    return Task(examples(problem.support), examples(problem.query), placed(0, np.int32))


class Same(TaskDistribution):
    """One task, again and again."""

    problem: Problem = eqx.field(static=True)
    task: Task
    families = ("one",)

    def sample(self, key: jax.Array) -> Task:
        return self.task


def network(problem: Problem = REGRESSION, hidden: tuple[int, ...] = (4,)) -> BaseNetwork:
    return MLPOptions(hidden=hidden, init="he").build(problem, key=jax.random.key(1))


def experiment(name: str = "regression2d/maml", **changes: Any) -> Experiment:
    """A recipe that is trained in a second, with these changes."""
    every = dict.fromkeys(("interval", "checkpoint_every", "validate_every"), 10)
    few = {"network": MLPOptions(hidden=(4,)), "steps": 20, "batch": 2, "validation_tasks": 8}
    return replace(recipe(name), **{**every, **few, **changes})


def one_line(said: str) -> str:
    """A pattern for `pytest.raises`: a message of one line in which this is found."""
    return rf"\A.*(?:{said}).*\Z"


def normal(seed: int, *shape: int) -> jax.Array:
    return placed(np.random.default_rng(seed).normal(size=shape))


def doubled(tree: Any) -> Any:
    """The tree with floats of 64 bits."""
    return jax.tree.map(lambda a: placed(a, np.float64) if eqx.is_inexact_array(a) else a, tree)


def perturbed(tree: Any, size: float = 0.3) -> Any:
    """The tree without constant arrays, so that no weight hides."""
    arrays, rest = eqx.partition(tree, eqx.is_inexact_array)
    leaves, structure = jax.tree.flatten(arrays)
    rng = np.random.default_rng(1)
    leaves = [
        placed(leaf + size * rng.normal(size=leaf.shape), leaf.dtype)
        for leaf in map(np.asarray, leaves)
    ]
    return eqx.combine(jax.tree.unflatten(structure, leaves), rest)


def filled(learner: Any, where: Callable[[Any], Any], value: float) -> Any:
    """The learner with one number in all arrays of some parts."""

    def fill(part: Any) -> Any:
        return jax.tree.map(lambda a: placed(np.full(a.shape, value, a.dtype)), part)

    return eqx.tree_at(where, learner, replace_fn=fill)


def close(ours: Any, theirs: Any, rtol: float = 1e-9, atol: float = 1e-12) -> None:
    """Raise unless the arrays of both trees agree."""
    for a, b in zip(*map(jax.tree.leaves, (ours, theirs)), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


@eqx.filter_jit
def predictions(learner: Any, task: Task) -> jax.Array:
    return learner.adapt(task.support, key=KEY).predict(task.query.x)


@eqx.filter_jit
@eqx.filter_value_and_grad
def meta(learner: Any, task: Task) -> jax.Array:
    return learner.meta_loss(task, key=KEY)
