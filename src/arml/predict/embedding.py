"""The vectors of support sets and of single inputs, for methods with an embedding that all tasks
share; and those of the meta-training tasks, from which novelty is measured.

- Classification: the vectors are the inputs' embeddings (`MetaLearner.embedding`).
- Regression: an input means nothing without its target, so the one vector is the code of the whole
  support set (`MetaLearner.coding`), and single queries have none.
- A method that adapts all of its weights has neither.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from arml.core.compilation import short
from arml.core.episodes import Examples, Problem, Task, TaskDistribution
from arml.core.learner import MetaLearner
from arml.core.novelty import Novelty, class_threshold, enough, threshold
from arml.nn.prototypes import class_means
from arml.training.evaluate import looks

TRAIN_TASKS = 200
"""Meta-training tasks that are kept in the bank."""


def embeds(learner: MetaLearner, problem: Problem) -> bool:
    """Whether the learner has an embedding of tasks at all."""
    found = learner.coding() if problem.kind == "regression" else learner.embedding()
    return found is not None


def _vectors(learner: MetaLearner, support: Examples, problem: Problem) -> Float[Array, "m d"]:
    """The embedding of each support example, or the code of the whole set `[1, d]`."""
    if problem.kind == "regression":
        code = learner.coding()
        assert code is not None
        return code(support)[None]
    return _query_vectors(learner, support, problem, support.x)


def _query_vectors(
    learner: MetaLearner, support: Examples, problem: Problem, x: Float[Array, "m *features"]
) -> Float[Array, "m d"]:
    """The embedding of queries, for classification."""
    given = learner.embedding()
    assert given is not None
    return given(support.x)(x)


vectors = short(_vectors)
query_vectors = short(_query_vectors)


def _of_task(
    given: tuple[MetaLearner, Problem], task: Task, key: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """The vectors of ONE task's support set, their class means, and those of its queries; and which
    of the distribution's classes the support's and the queries' are, -1 where it has none."""
    learner, problem = given
    own = _vectors(learner, task.support, problem)
    if problem.kind == "regression":
        none = jnp.full(len(own), -1)
        return own, own, own, none, none
    means = class_means(own, task.support.y, problem.outputs)[0]
    classes = jnp.full(problem.outputs, -1) if task.classes is None else task.classes
    queries = _query_vectors(learner, task.support, problem, task.query.x)
    return own, means, queries, classes[task.support.y], classes[task.query.y]


def _all_of(
    learner: MetaLearner, tasks: TaskDistribution, *, split: str, n: int, chunk: int
) -> list[np.ndarray]:
    found = looks(_of_task, (learner, tasks.problem), tasks, split=split, n=n, chunk=chunk)
    return [np.concatenate(part) for part in zip(*found, strict=True)]


def task_vectors(
    learner: MetaLearner, tasks: TaskDistribution, *, split: str, n: int, chunk: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The vectors of the first `n` tasks of a split, each with a leading axis of tasks: of support
    sets, of their classes' means, and of queries."""
    own, means, queries, *_ = _all_of(learner, tasks, split=split, n=n, chunk=chunk)
    return own, means, queries


def measured_novelty(
    learner: MetaLearner,
    train: TaskDistribution,
    validation: TaskDistribution,
    *,
    tasks: int,
    chunk: int,
) -> Novelty | None:
    """The bank of the vectors of `TRAIN_TASKS` training tasks, and the thresholds from
    `tasks` validation tasks; None for a learner without an embedding, and for fewer validation
    classes than a threshold takes."""
    if not embeds(learner, train.problem):
        return None
    seen = task_vectors(learner, train, split="train", n=TRAIN_TASKS, chunk=chunk)[1]
    novelty = Novelty(seen.reshape(-1, seen.shape[-1]).astype(np.float32), 1.0, None)
    own, _, queries, own_classes, query_classes = _all_of(
        learner, validation, split="validation", n=tasks, chunk=chunk
    )
    distances = np.stack([novelty.distances(each) for each in own])
    if train.problem.kind == "regression":
        return Novelty(novelty.bank, threshold(distances.mean(axis=1)), None)
    single = novelty.distances(queries.reshape(-1, queries.shape[-1]))
    known = np.unique(own_classes)
    if known[0] < 0:  # tasks draw classes without end
        return Novelty(novelty.bank, threshold(distances.mean(axis=1)), threshold(single))
    if not enough(len(known)):
        return None
    # Tasks share their classes, so what is drawn anew is a class: its mean distance is one score.
    per_class = np.array([distances[own_classes == k].mean() for k in known])
    return Novelty(
        novelty.bank,
        class_threshold(per_class, known),
        class_threshold(single, query_classes.ravel()),
    )
