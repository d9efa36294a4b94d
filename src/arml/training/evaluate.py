"""Evaluation: one score for each task of a fixed list, which is the same for every method."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, PRNGKeyArray, PyTree

from arml.core.compilation import short, vmap
from arml.core.episodes import Problem, Task, TaskDistribution
from arml.core.inner import steps_of, with_steps
from arml.core.learner import MetaLearner, adapted_to
from arml.core.losses import score_of
from arml.core.own_tasks import own_of
from arml.results.machine import one_blas_thread
from arml.results.scores import Scores, pairing
from arml.tasks.splits import Splits, TasksLike, TasksOptions, splits_of
from arml.training.devices import everywhere, over_tasks
from arml.training.progress import bar

Held = Literal["validation", "test"]
SPLIT_SEEDS: dict[str, int] = {"train": 2018, "validation": 2019, "test": 2020}
"""The seed that fixes the tasks of each split; those of `train` are tasks of the training."""

Look = Callable[..., PyTree]
"""A function `look(part, task, key)` of ONE task, where `part` is a learner or a part of one and
the key is for the adaptation. With `entries`, a fourth argument is the task's entry of it."""


@short
def _look_chunk(
    look: Look,
    part: PyTree,
    tasks: TaskDistribution,
    keys: Array,
    mesh: Mesh | None,
    entries: tuple[Array, ...],
) -> PyTree:
    """`look(part, task, key)` on the tasks of these keys, with a leading axis of tasks."""

    def each(
        values: tuple[PyTree, TaskDistribution], keys: tuple[Array, ...]
    ) -> tuple[None, PyTree]:
        part, tasks = values

        def one(key: Array, *own: Array) -> PyTree:
            task_key, adapt_key = jax.random.split(key)
            return look(part, tasks.sample(task_key), adapt_key, *own)

        return None, vmap(one)(*keys)

    return over_tasks(mesh, each)((part, tasks), (keys, *entries))[1]


def looks(
    look: Look,
    part: PyTree,
    tasks: TaskDistribution,
    *,
    split: str,
    n: int,
    chunk: int,
    mesh: Mesh | None = None,
    entries: np.ndarray | None = None,
) -> Iterator[PyTree]:
    """`look(part, task, key)` of the first `n` tasks of a split, as NumPy arrays, `chunk` tasks at
    a time on each device. `entries` `[n, ...]` has one for each task. Define `look` in a module: a
    new function at each call is compiled each time."""
    chunk *= mesh.size if mesh else 1
    for first in range(0, n, chunk):
        # The last chunk is filled up, so that one compiled program serves all chunks.
        rows = np.minimum(np.arange(first, first + chunk), n - 1)
        own = () if entries is None else (jnp.asarray(entries[rows]),)
        with one_blas_thread():
            found = _look_chunk(look, part, tasks, split_keys(split, first, chunk), mesh, own)
            found = jax.tree.map(lambda leaf, first=first: np.asarray(leaf)[: n - first], found)
        yield found


def concatenated(parts: Iterable[PyTree]) -> PyTree:
    """The arrays of all tasks, from the chunks that `looks` yields."""
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


def _scored(
    scoring: tuple[MetaLearner, Callable[[Array, Array], Array]], task: Task, key: PRNGKeyArray
) -> tuple[Array, Array]:
    """The learner's score on ONE task, and the task's family."""
    learner, score = scoring
    outputs = adapted_to(learner, task.support, key=key).predict(task.query.x)
    return score(outputs, task.query.y), task.family


def check_split(split: str) -> None:
    """Raise `ValueError` for a split on which nothing is scored."""
    if split not in ("validation", "test"):
        raise ValueError(f"split must be validation or test, got {split!r}: change it")


def score_tasks(
    learner: MetaLearner,
    tasks: TasksLike,
    n: int,
    *,
    split: Held = "test",
    steps: int | None = None,
    trained_on: TaskDistribution | None = None,
    chunk: int | None = None,
    mesh: Mesh | None = None,
    watch: Callable[[int, int], None] = lambda done, total: None,
    progress: bool | None = False,
) -> Scores:
    """`arml.evaluate` of a learner; `trained_on` are the tasks of its training, if they are known.
    **Raises** `ValueError` in one line if `n` or `steps` is invalid, or `tasks` draws no tasks."""
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}: ask for some hundreds of tasks")
    check_split(split)
    splits = splits_of(tasks)
    distribution: TaskDistribution = getattr(splits, split)
    whole = isinstance(tasks, Splits | TasksOptions)
    shared = splits.shared if whole else own_of(distribution) is own_of(trained_on)
    if steps is not None:
        learner = with_steps(learner, steps)
    problem, identity = distribution.problem, distribution.identity()
    metric, score = score_of(problem)
    chunk = min(n, chunk or at_once_by_default(problem))
    parts: list[PyTree] = []
    done = 0
    with bar("evaluate", n, show=progress) as update:
        scoring, drawn = everywhere(mesh, ((learner, score), distribution))
        for part in looks(_scored, scoring, drawn, split=split, n=n, chunk=chunk, mesh=mesh):
            parts.append(part)
            done += len(part[0])
            update(done, "")
            watch(done, n)
    values, families = concatenated(parts)
    scores = Scores(
        values,
        families,
        pairing(identity, split),
        distribution.families,
        metric,
        split,
        identity,
        steps_of(learner),
        shared=shared,
    )
    if shared and problem.kind == "classification":
        warnings.warn(
            "the tasks are drawn from the training distribution: if its classes are a list, this "
            "is a score on the classes of the training; arml.Splits keeps classes apart",
            stacklevel=2,
        )
    return scores


def at_once_by_default(problem: Problem) -> int:
    """How many tasks a device adapts to at once. For pictures on a CPU it is one: the convolutions
    of several tasks are slower, and compile longer."""
    if not problem.spatial:
        return 100
    return 1 if jax.default_backend() == "cpu" else 16


def split_keys(split: str, first: int, chunk: int) -> Array:
    """The keys of `chunk` tasks from `first` on, functions of the split and the task's number."""
    key = jax.random.key(SPLIT_SEEDS[split])
    return jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(first, first + chunk))
