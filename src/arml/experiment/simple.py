"""Classifiers that need no meta-training: they learn each task from its support set alone, on the
raw inputs. A learner that is not above them has learned nothing useful.
"""

from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from arml.core.episodes import Examples, Problem, TaskDistribution
from arml.core.learner import Adapted, Loss, MetaLearner
from arml.core.losses import cross_entropy
from arml.nn.prototypes import among, class_means, squared_distances
from arml.results.scores import Score
from arml.training.evaluate import Split, evaluate

FLOOR = "logistic regression on the inputs"
PENALTY, STEPS = 0.01, 300
"""The penalty and the steps of logistic regression."""


class Logistic(MetaLearner):
    """Logistic regression on flattened inputs: it minimises the mean loss plus `PENALTY` times half
    the squared weights. Inputs are centred, then divided by their standard deviation and by the
    root of their number."""

    ways: int = eqx.field(static=True)
    loss: Loss = eqx.field(static=True)

    def adapt(self, support: Examples, *, key: PRNGKeyArray) -> Adapted:
        flat = support.x.reshape(len(support.x), -1)
        middle = jnp.mean(flat, axis=0)
        scale = jnp.std(flat - middle) * flat.shape[1] ** 0.5 + 1e-6

        def prepared(x: Float[Array, "m *features"]) -> Float[Array, "m inputs"]:
            return (x.reshape(len(x), -1) - middle) / scale

        inputs, n = prepared(support.x), len(flat)
        target = jax.nn.one_hot(support.y, self.ways, dtype=flat.dtype)
        # The best weights are X^T A with PENALTY * n * A = Y - P. Descent searches for A, which has
        # one row for each example; a bound of the curvature sets the rate.
        products = inputs @ inputs.T + 1.0  # the bias is a weight of an input of 1
        rate = 1 / (PENALTY + 0.5 * jnp.max(jnp.sum(jnp.abs(products), axis=1)) / n)

        def step(_: Array, a: Float[Array, "n ways"]) -> Float[Array, "n ways"]:
            wanted = (target - jax.nn.softmax(products @ a)) / n
            return a + rate * (wanted - PENALTY * a)

        a = jax.lax.fori_loop(0, STEPS, step, jnp.zeros_like(target))
        return Adapted(lambda x: (prepared(x) @ inputs.T + 1.0) @ a)


class NearestMean(MetaLearner):
    """The class whose mean input is nearest by Euclidean distance."""

    ways: int = eqx.field(static=True)
    loss: Loss = eqx.field(static=True)

    def adapt(self, support: Examples, *, key: PRNGKeyArray) -> Adapted:
        flat = support.x.reshape(len(support.x), -1)
        means, present = class_means(flat, support.y, self.ways)
        return Adapted(lambda x: among(present, -squared_distances(x.reshape(len(x), -1), means)))


SIMPLE: dict[str, Callable[[int], MetaLearner]] = {
    FLOOR: lambda ways: Logistic(ways=ways, loss=cross_entropy),
    "nearest class mean of the inputs": lambda ways: NearestMean(ways=ways, loss=cross_entropy),
}
"""Each classifier by its name in tables; it is made for a number of classes."""


def simple_classifiers(problem: Problem) -> dict[str, MetaLearner]:
    """Those of `SIMPLE` for a problem, by name. None for regression, and none for tables, whose
    cells are no plain numbers."""
    if problem.kind == "regression" or len(problem.features) == 2:
        return {}
    return {name: make(problem.outputs) for name, make in SIMPLE.items()}


def simple_scores(
    tasks: TaskDistribution,
    n: int,
    *,
    split: Split,
    chunk: int,
    watch: Callable[[int], None] = lambda done: None,
) -> dict[str, Score]:
    """The mean accuracy of each simple classifier on the first `n` tasks of a split, with its
    interval over tasks. `watch` is called with the tasks done, those of all classifiers together.
    """
    found = {}
    for i, (name, classifier) in enumerate(simple_classifiers(tasks.problem).items()):
        told = partial(_told, watch, i * n)
        scores = evaluate(
            classifier, tasks, n, split=split, chunk=chunk, progress=False, watch=told
        )
        found[name] = scores.score
    return found


def _told(watch: Callable[[int], None], before: int, done: int, total: int) -> None:
    watch(before + done)
