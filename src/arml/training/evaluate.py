"""Evaluation: one score for each of a fixed list of tasks, the same for every method."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from arml.core.compilation import short, vmap
from arml.core.episodes import TaskDistribution
from arml.core.learner import MetaLearner
from arml.core.losses import score_of
from arml.training.devices import over_tasks

Split = Literal["validation", "test"]
SEEDS: dict[str, int] = {"train": 2018, "validation": 2019, "test": 2020}
"""The key that fixes each split's tasks; those of `train` are for looking back at what was seen."""


class Scores(NamedTuple):
    """One score per task, and the index of the task's family."""

    values: np.ndarray
    families: np.ndarray


class Predictions(NamedTuple):
    """What a learner predicted on some tasks, one row a task, and how it scored."""

    outputs: np.ndarray
    """`[tasks, queries, outputs]`."""
    targets: np.ndarray
    """`[tasks, queries]` classes, or `[tasks, queries, outputs]`."""
    scores: Scores


def predict_chunk(
    learner: MetaLearner, tasks: TaskDistribution, keys: Array, mesh: Mesh | None
) -> tuple[Array, Array, Array, Array]:
    """What the learner predicts on the tasks of these keys, their targets, scores and families."""
    score = score_of(tasks.problem)[1]

    def predicted(
        given: tuple[MetaLearner, TaskDistribution], keys: Array
    ) -> tuple[None, tuple[Array, Array, Array, Array]]:
        learner, tasks = given

        def one(key: Array) -> tuple[Array, Array, Array, Array]:
            task_key, adapt_key = jax.random.split(key)
            task = tasks.sample(task_key)
            outputs = learner.adapt(task.support, key=adapt_key).predict(task.query.x)
            return outputs, task.query.y, score(outputs, task.query.y), task.family

        return None, vmap(one)(keys)

    return over_tasks(mesh, predicted)((learner, tasks), keys)[1]


_predict_chunk = short(predict_chunk)


def predictions(
    learner: MetaLearner,
    tasks: TaskDistribution,
    *,
    split: Split,
    n: int,
    chunk: int = 100,
    mesh: Mesh | None = None,
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> Predictions:
    """What `learner` predicts on the first `n` tasks of a split; arguments as of `evaluate`."""
    chunk *= mesh.size if mesh else 1
    parts = []
    for first in range(0, n, chunk):
        # The last chunk is filled up, so that one compiled program serves all.
        predicted = _predict_chunk(learner, tasks, split_keys(split, first, chunk), mesh)
        parts.append([np.asarray(part) for part in predicted])
        watch(min(first + chunk, n), n)
    outputs, targets, values, families = (
        np.concatenate(part)[:n] for part in zip(*parts, strict=True)
    )
    return Predictions(outputs, targets, Scores(values, families))


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
    return predictions(learner, tasks, split=split, n=n, chunk=chunk, mesh=mesh, watch=watch).scores


def split_keys(split: str, first: int, chunk: int) -> Array:
    """The keys of the tasks from `first` on, which are functions of the split and their numbers."""
    key = jax.random.key(SEEDS[split])
    return jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(first, first + chunk))
