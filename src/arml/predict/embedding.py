"""The vectors of support sets and of single inputs, for methods with an embedding that all tasks
share; and those of the meta-training tasks, from which novelty is measured.

- Classification: the vectors are the inputs' embeddings (`MetaLearner.embedding`).
- Regression: an input means nothing without its target, so the one vector is the code of the whole
  support set (`MetaLearner.coding`), and single queries have none.
- A method that adapts all of its weights has neither.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from arml.core.compilation import short
from arml.core.episodes import Examples, Problem, Task, TaskDistribution
from arml.core.learner import MetaLearner
from arml.core.novelty import Bound, Novelty, class_threshold, enough, threshold
from arml.nn.prototypes import class_means
from arml.training.evaluate import looks, together

TRAIN_TASKS = 200
"""Meta-training tasks that are kept in the bank."""
SETS = tuple((classes, examples) for classes in (2, 3, 5) for examples in (1, 3, 10))
"""Classes, and examples of each, of the support sets whose bounds are measured."""


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
    return _query_vectors(learner, support, support.x)


def _query_vectors(
    learner: MetaLearner, support: Examples, x: Float[Array, "m *features"]
) -> Float[Array, "m d"]:
    """The embedding of queries, for classification."""
    given = learner.embedding()
    assert given is not None
    return given(support.x)(x)


vectors = short(_vectors)
query_vectors = short(_query_vectors)


class Vectors(NamedTuple):
    """The vectors of tasks, and which of the distribution's classes they belong to, -1 where it has
    none."""

    own: np.ndarray
    """`[tasks, m, d]`: of the support sets."""
    queries: np.ndarray
    """`[tasks, queries, d]`; those of `own` for regression."""
    own_classes: np.ndarray
    """`[tasks, m]`."""
    query_classes: np.ndarray
    """`[tasks, queries]`."""


def of_task(
    given: tuple[MetaLearner, Problem], task: Task, key: Array
) -> tuple[Array, Array, Array, Array]:
    """The `Vectors` of ONE task, for `looks`."""
    learner, problem = given
    own = _vectors(learner, task.support, problem)
    if problem.kind == "regression":
        none = jnp.full(len(own), -1)
        return own, own, none, none
    classes = jnp.full(problem.outputs, -1) if task.classes is None else task.classes
    queries = _query_vectors(learner, task.support, task.query.x)
    return own, queries, classes[task.support.y], classes[task.query.y]


def _means(given: tuple[MetaLearner, Problem], task: Task, key: Array) -> Array:
    """The class means of ONE task's support set, or its code."""
    learner, problem = given
    own = _vectors(learner, task.support, problem)
    if problem.kind == "regression":
        return own
    return class_means(own, task.support.y, problem.outputs)[0]


def task_vectors(
    learner: MetaLearner, tasks: TaskDistribution, *, split: str, n: int, chunk: int
) -> Vectors:
    """The vectors of the first `n` tasks of a split."""
    given = learner, tasks.problem
    return Vectors(*together(looks(of_task, given, tasks, split=split, n=n, chunk=chunk)))


def measured_novelty(
    learner: MetaLearner,
    train: TaskDistribution,
    validation: TaskDistribution,
    *,
    tasks: int,
    chunk: int,
    found: Vectors | None = None,
) -> Novelty | None:
    """The bank of the vectors of `TRAIN_TASKS` training tasks, and the thresholds from
    `tasks` validation tasks; None for a learner without an embedding, and for fewer validation
    classes than a threshold takes. `found` has the vectors of these validation tasks, if the caller
    has them."""
    if not embeds(learner, train.problem):
        return None
    given = learner, train.problem
    seen = together(looks(_means, given, train, split="train", n=TRAIN_TASKS, chunk=chunk))
    novelty = Novelty(half(seen.reshape(-1, seen.shape[-1])), 1.0, None)
    own, queries, own_classes, query_classes = found or task_vectors(
        learner, validation, split="validation", n=tasks, chunk=chunk
    )
    distances = np.stack([novelty.distances(each) for each in own])
    if train.problem.kind == "regression":
        return Novelty(novelty.bank, threshold(distances.mean(axis=1)), None)
    single = novelty.distances(queries.reshape(-1, queries.shape[-1]))
    known = np.unique(own_classes)
    endless = bool(known[0] < 0)  # tasks draw classes without end
    if not endless and not enough(len(known)):
        return None
    sets = []
    problem, independent = validation.problem, tasks if endless else len(known)
    for ways, shots in SETS:
        # Sets of two classes give the bound of one class, too.
        measurable = ways == 2 or enough(independent // (1 if endless else ways))
        if measurable and ways <= problem.outputs and shots <= problem.shots:
            shape = ways, shots
            small = set_vectors(
                learner, validation, shape, split="validation", n=tasks, chunk=chunk
            )
            sets += _bounds(novelty, shape, small, independent)
    if endless:
        at = threshold(distances.mean(axis=1)), threshold(single)
    else:
        # Tasks share their classes, so a new draw is a class: its mean distance is one score.
        per_class = np.array([distances[own_classes == k].mean() for k in known])
        at = class_threshold(per_class, known), class_threshold(single, query_classes.ravel())
    return Novelty(novelty.bank, *at, tuple(sets))


class Sets(NamedTuple):
    """Small support sets and their queries, a row a set."""

    own: np.ndarray
    """`[sets, classes, examples, d]`."""
    queries: np.ndarray
    """`[sets, classes, queries, d]`."""
    classes: np.ndarray
    """`[sets, classes]`: those of the distribution, -1 where it has none."""


def _of_set(
    given: tuple[MetaLearner, Problem, tuple[int, int]], task: Task, key: Array
) -> tuple[Array, Array, Array]:
    """The vectors of the first classes of ONE task by a support set of their first examples."""
    learner, problem, (ways, shots) = given
    inputs = []
    for part, n in ((task.support, shots), (task.query, problem.queries)):
        order = jnp.argsort(part.y, stable=True).reshape(problem.outputs, -1)
        inputs.append(part.x[order[:ways, :n].ravel()])
    support = Examples(inputs[0], jnp.repeat(jnp.arange(ways), shots))
    made = (_query_vectors(learner, support, x) for x in inputs)
    own, queries = (vectors.reshape(ways, -1, vectors.shape[1]) for vectors in made)
    classes = jnp.full(problem.outputs, -1) if task.classes is None else task.classes
    return own, queries, classes[:ways]


def set_vectors(
    learner: MetaLearner,
    tasks: TaskDistribution,
    shape: tuple[int, int],
    *,
    split: str,
    n: int,
    chunk: int,
) -> Sets:
    """The vectors of a support set of `shape` (classes, examples of each) in each of the first `n`
    tasks of a split, and of its queries, as the learner makes them of that set alone."""
    given = learner, tasks.problem, shape
    return Sets(*together(looks(_of_set, given, tasks, split=split, n=n, chunk=chunk)))


def _bounds(novelty: Novelty, shape: tuple[int, int], found: Sets, independent: int) -> list[Bound]:
    """The bounds of sets of so many classes and examples of each, of `independent` classes or
    tasks; for one class, too, whose bound is that of all sets for which these are too few."""
    ways, shots = shape
    own, queries = (
        novelty.distances(part.reshape(-1, part.shape[-1])).reshape(part.shape[:-1])
        for part in (found.own, found.queries)
    )
    labels = np.broadcast_to(found.classes[..., None], queries.shape)
    endless = bool(found.classes.min() < 0)
    query = threshold(queries.ravel(), independent)
    if not endless:
        query = class_threshold(queries.ravel(), labels.ravel())
    made = []
    # As many sets share no class.
    alike = independent if endless else independent // ways
    if enough(alike):
        at = threshold(own.mean(axis=(1, 2)), min(alike, len(own)))
        made.append(Bound(ways, shots, at, query))
    if ways == 2:
        means = own.mean(axis=2).ravel()
        at = threshold(means, independent)
        if not endless:
            at = class_threshold(means, found.classes.ravel())
        made.append(Bound(1, shots, at, query))
    return made


def half(bank: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    """A bank in half precision, if its numbers fit: half of the bytes."""
    small: Float[np.ndarray, "n d"] = bank.astype(np.float16)
    return small if np.all(np.isfinite(small)) else bank.astype(np.float32)
