"""What a learner makes of a support set and of single inputs, for methods that have an embedding
which all tasks share; and what it made of its meta-training tasks, from which novelty is measured.

- Classification: ARML and HSML embed inputs for their encoders; ProtoNet, TapNet, TADAM and VERSA
  with their body, ANIL with the body that no task adapts. A vector is an input's embedding.
- Regression: an input means nothing without its target. ARML, HSML and MUMOMAML make a code of the
  whole support set: it is the one vector, and single queries have none.
- The other methods adapt all of their weights, and have no such embedding.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from arml.algorithms.anil import ANIL
from arml.algorithms.hsml import TreeEncoder
from arml.algorithms.protonet import ProtoNet
from arml.algorithms.tadam import TADAM
from arml.algorithms.tapnet import TapNet
from arml.algorithms.versa import VERSA
from arml.core.compilation import short
from arml.core.episodes import Examples, Problem, TaskDistribution
from arml.core.learner import Conditioned, MetaLearner
from arml.core.novelty import Novelty, threshold
from arml.nn.prototypes import class_means
from arml.nn.relational import Relational
from arml.training.evaluate import split_keys

Embed = Callable[[Float[Array, "n *features"]], Float[Array, "n d"]]

TRAIN_TASKS = 200
"""Meta-training tasks that are kept in the bank."""


def embedder(learner: MetaLearner, problem: Problem) -> Callable[[Array], Embed] | None:
    """From a support set's inputs to the embedding of single inputs; None where there is none."""
    if problem.kind == "regression":
        return None
    given: Callable[[Array], Embed]
    if isinstance(learner, ProtoNet | TapNet | TADAM | VERSA):
        given = learner.body.given
        return given
    if isinstance(learner, ANIL):
        given = learner.net.body.given
        return given
    if isinstance(learner, Conditioned) and isinstance(learner.encode, Relational | TreeEncoder):
        # These embed x alone where there are classes, whatever the support set is.
        encode = learner.encode.embed
        return lambda _: lambda x: encode(Examples(x, jnp.zeros(len(x), jnp.int32)))
    return None


def embeds(learner: MetaLearner, problem: Problem) -> bool:
    """Whether the learner has an embedding of tasks at all."""
    codes = problem.kind == "regression" and isinstance(learner, Conditioned)
    return codes or embedder(learner, problem) is not None


def _vectors(learner: MetaLearner, support: Examples, problem: Problem) -> Float[Array, "m d"]:
    """The embedding of each support example, or the code of the whole set `[1, d]`."""
    given = embedder(learner, problem)
    if given is not None:
        return given(support.x)(support.x)
    assert isinstance(learner, Conditioned)
    return learner.encode(support)[0][None]


def _query_vectors(
    learner: MetaLearner, support: Examples, problem: Problem, x: Float[Array, "m *features"]
) -> Float[Array, "m d"]:
    """The embedding of queries, for classification."""
    given = embedder(learner, problem)
    assert given is not None
    return given(support.x)(x)


vectors = short(_vectors)
query_vectors = short(_query_vectors)


@short
def _chunk(
    learner: MetaLearner, tasks: TaskDistribution, keys: Array
) -> tuple[Array, Array, Array]:
    """For each task the vectors of its support set, their class means, and those of its queries."""
    problem = tasks.problem

    def one(key: Array) -> tuple[Array, Array, Array]:
        # The tasks that evaluation draws with the same keys.
        task = tasks.sample(jax.random.split(key)[0])
        own = _vectors(learner, task.support, problem)
        if problem.kind == "regression":
            return own, own, own
        means = class_means(own, task.support.y, problem.outputs)[0]
        return own, means, _query_vectors(learner, task.support, problem, task.query.x)

    return jax.vmap(one)(keys)


def task_vectors(
    learner: MetaLearner, tasks: TaskDistribution, keys: Array, *, chunk: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`_chunk` of all keys `[n]`, each with a leading axis of tasks."""
    parts = []
    for first in range(0, len(keys), chunk):
        some = keys[first : first + chunk]
        filled = jnp.concatenate([some, jnp.repeat(some[:1], chunk - len(some), axis=0)])
        parts.append([np.asarray(part)[: len(some)] for part in _chunk(learner, tasks, filled)])
    own, means, queries = (np.concatenate(part) for part in zip(*parts, strict=True))
    return own, means, queries


def measured_novelty(
    learner: MetaLearner,
    train: TaskDistribution,
    validation: TaskDistribution,
    *,
    tasks: int,
    chunk: int,
) -> Novelty | None:
    """The bank of what `TRAIN_TASKS` training tasks were embedded as, and the thresholds from
    `tasks` validation tasks; None for a learner without an embedding."""
    if not embeds(learner, train.problem):
        return None
    seen = task_vectors(learner, train, split_keys("train", 0, TRAIN_TASKS), chunk=chunk)[1]
    novelty = Novelty(seen.reshape(-1, seen.shape[-1]).astype(np.float32), 1.0, None)
    keys = split_keys("validation", 0, tasks)
    own, _, queries = task_vectors(learner, validation, keys, chunk=chunk)
    per_task = [novelty.distances(each).mean() for each in own]
    single = None
    if train.problem.kind == "classification":
        single = threshold(novelty.distances(queries.reshape(-1, queries.shape[-1])))
    return Novelty(novelty.bank, threshold(np.asarray(per_task)), single)
