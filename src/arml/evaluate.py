"""Evaluation: one score for each of a fixed list of tasks, the same for every method."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from arml.compilation import short
from arml.devices import over_tasks
from arml.episodes import TaskDistribution
from arml.learner import MetaLearner
from arml.losses import score_of

Split = Literal["validation", "test"]
SEEDS: dict[str, int] = {"validation": 2019, "test": 2020}
"""The key that fixes each split's tasks."""


class Scores(NamedTuple):
    """One score per task, and the index of the task's family."""

    values: np.ndarray
    families: np.ndarray


@short
def _score_chunk(
    learner: MetaLearner, tasks: TaskDistribution, keys: Array, mesh: Mesh | None
) -> tuple[Array, Array]:
    score = score_of(tasks.problem)[1]

    def scores(
        given: tuple[MetaLearner, TaskDistribution], keys: Array
    ) -> tuple[None, tuple[Array, Array]]:
        learner, tasks = given

        def one(key: Array) -> tuple[Array, Array]:
            task_key, adapt_key = jax.random.split(key)
            task = tasks.sample(task_key)
            adapted = learner.adapt(task.support, key=adapt_key)
            return score(adapted.predict(task.query.x), task.query.y), task.family

        return None, jax.vmap(one)(keys)

    return over_tasks(mesh, scores)((learner, tasks), keys)[1]


def evaluate(
    learner: MetaLearner,
    tasks: TaskDistribution,
    *,
    split: Split,
    n: int,
    chunk: int = 100,
    mesh: Mesh | None = None,
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> Scores:
    """Score `learner` on the first `n` tasks of a split: mse or accuracy, one for each task.

    Task `i` is a function of the split and `i` alone, so that two learners' scores are paired.
    Each device of `mesh` adapts to `chunk` tasks at once; it changes the memory, not the scores.
    `watch` is called with the number of tasks done and `n`.
    """
    chunk *= mesh.size if mesh else 1
    values, families = [], []
    for first in range(0, n, chunk):
        # The last chunk is filled up, so that one compiled program serves all.
        keys = _keys(split, first, chunk)
        scored = _score_chunk(learner, tasks, keys, mesh)
        values.append(np.asarray(scored[0]))
        families.append(np.asarray(scored[1]))
        watch(min(first + chunk, n), n)
    return Scores(np.concatenate(values)[:n], np.concatenate(families)[:n])


@short
def _predict_chunk(
    learner: MetaLearner, tasks: TaskDistribution, keys: Array
) -> tuple[Array, Array]:
    def one(key: Array) -> tuple[Array, Array]:
        task_key, adapt_key = jax.random.split(key)
        task = tasks.sample(task_key)
        adapted = learner.adapt(task.support, key=adapt_key)
        return adapted.predict(task.query.x), task.query.y

    return jax.vmap(one)(keys)


def predictions(
    learner: MetaLearner, tasks: TaskDistribution, *, split: Split, n: int, chunk: int = 100
) -> tuple[np.ndarray, np.ndarray]:
    """The outputs `[n, queries, outputs]` and the targets `[n, queries]` of the first `n` tasks
    of a split: the tasks that `evaluate` scores."""
    outputs, targets = [], []
    for first in range(0, n, chunk):
        keys = _keys(split, first, chunk)
        predicted, y = _predict_chunk(learner, tasks, keys)
        outputs.append(np.asarray(predicted))
        targets.append(np.asarray(y))
    return np.concatenate(outputs)[:n], np.concatenate(targets)[:n]


def _keys(split: Split, first: int, chunk: int) -> Array:
    """The keys of the tasks from `first` on, which are functions of the split and their numbers."""
    key = jax.random.key(SEEDS[split])
    return jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(first, first + chunk))
