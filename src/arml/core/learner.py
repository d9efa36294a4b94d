"""A meta-learner: a pytree of meta-parameters that can learn one task.

The outer loop learns the inexact arrays. Every other leaf is configuration. Nothing here has a
task axis: the axis is added once, by the training step and by the evaluation.
"""

import abc
import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from arml.core.episodes import Examples, Problem, Task
from arml.core.losses import loss_of


@runtime_checkable
class Network(Protocol):
    """A base network: a pytree that maps a whole set of examples to outputs (a whole set, because
    batch statistics couple the examples)."""

    def __call__(self, x: Float[Array, "n *features"], /) -> Float[Array, "n outputs"]:
        """The outputs of a set, normalised with its own statistics."""
        ...

    def given(self, x: Float[Array, "support *features"], /) -> Callable[[Array], Array]:
        """The function that predicts after adaptation to a task with the support inputs `x`."""
        ...


Loss = Callable[[Array, Array], Float[Array, ""]]

Code = Float[Array, " code"]
"""Represents a task."""
Penalty = Float[Array, ""] | float

Embedding = Callable[[Float[Array, "n *features"]], Float[Array, "n d"]]
"""Embeds single inputs."""


Distribution = Callable[
    [Float[Array, "n *features"]], tuple[Float[Array, " n"], Float[Array, " n"]]
]
"""Maps inputs to the centre and the scale of the number predicted for each."""


class Adapted(NamedTuple):
    """The result of adapting to one support set.

    `predict` maps inputs `[m, *features]` to outputs `[m, outputs]`; `penalty` is added to the
    outer loss (ARML's reconstruction losses); `net` is the network that was adapted, None for a
    method that adapts no network.

        from arml.core.losses import loss_of

        fixed = Fixed(arml.nn.linear(1, 1, key=jax.random.key(0)), loss_of(problem))
        adapted = fixed.adapt(support, key=jax.random.key(1))
        adapted.predict(task.query.x)
    """

    predict: Callable[[Float[Array, "m *features"]], Float[Array, "m outputs"]]
    penalty: Penalty = 0.0
    net: Network | None = None


class Normalising(eqx.Module):
    """A part of a learner that may normalise queries by their own batch's statistics, or by those
    of the support set."""

    normalisation: eqx.AbstractVar[Literal["batch", "support", "none"]]


class MetaLearner(eqx.Module):
    """Learns how to learn. `adapt` cannot see the query set; `meta_loss` may.

    A subclass gives the field `loss` and the method `adapt`:

        class Fixed(arml.MetaLearner):
            net: arml.nn.Linear
            loss: arml.Loss

            def adapt(self, support, *, key):
                return arml.Adapted(self.net)
    """

    loss: eqx.AbstractVar[Loss]
    origin: Any = eqx.field(static=True, default=None, kw_only=True)
    """The `experiment` and the `problem` that `arml.build` made it of: its recipe says how
    `arml.fit` trains it. None for a learner that was made otherwise."""

    @abc.abstractmethod
    def adapt(self, support: Examples, *, key: PRNGKeyArray) -> Adapted:
        """Learn ONE task from its support set."""

    def meta_loss(self, task: Task, *, key: PRNGKeyArray) -> Float[Array, ""]:
        """The outer objective on ONE task: the query loss after adaptation, plus the penalty."""
        adapted = adapted_to(self, task.support, key=key)
        return self.loss(adapted.predict(task.query.x), task.query.y) + adapted.penalty

    def scheduled(self, step: Int[Array, ""]) -> "MetaLearner":
        """The learner whose outer loss counts at an outer step, for methods whose outer loss
        changes in training; others return themselves."""
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({parameters(self):,} parameters)"

    @property
    def statistics(self) -> str:
        """The set whose statistics normalise queries: `batch`, `support`, or empty for none."""
        parts = jax.tree.leaves(self, is_leaf=lambda node: isinstance(node, Normalising))
        found = {part.normalisation for part in parts if isinstance(part, Normalising)}
        return min(found - {"none"}, default="")

    @property
    def is_transductive(self) -> bool:
        """Whether a prediction depends on the other queries of its task."""
        return self.statistics == "batch"

    def embedding(self) -> Callable[[Array], Embedding] | None:
        """A function from a task's support inputs to an embedding of single inputs; None if each
        task adapts all weights. The novelty of classification tasks is measured in it."""
        return None

    def spread(self, support: Examples) -> Distribution | None:
        """A function from inputs to the distribution of their predictions, Student's t with four
        degrees of freedom; None for a learner that predicts no distribution of one number."""
        return None

    def reading(self) -> Callable[[Examples], PyTree] | None:
        """A function from a support set to each step of its encoding by a meta-knowledge graph
        (`arml.algorithms.arml.Trace`); None for a method without a graph."""
        return None


class Learner(MetaLearner):
    """A meta-learner that holds the problem of its tasks, which defines its loss."""

    problem: Problem = eqx.field(static=True, kw_only=True)
    loss: Loss = eqx.field(static=True, init=False)

    def __post_init__(self) -> None:
        self.loss = loss_of(self.problem)


def adapted_to(learner: MetaLearner, support: Examples, *, key: PRNGKeyArray) -> Adapted:
    """`learner.adapt`. **Raises** `ValueError` if it returns anything but `Adapted`."""
    found: object = learner.adapt(support, key=key)
    if isinstance(found, Adapted) and callable(found.predict):
        return found
    got = type(found.predict if isinstance(found, Adapted) else found).__name__
    raise ValueError(
        f"{type(learner).__name__}: expected adapt to return arml.Adapted(predict), where predict "
        f"is a function of inputs, got {got}: change adapt"
    )


def predictions_of(learner: MetaLearner, problem: Problem) -> tuple[tuple[int, ...], list[Any]]:
    """The shape of the predictions for ONE task, and the arrays in them that are not of the
    learner's pytree. Nothing is computed."""

    def outputs(learner: MetaLearner) -> Array:
        n, classes = problem.support, problem.kind == "classification"
        y = jnp.zeros(n, jnp.int32) if classes else jnp.zeros((n, problem.outputs))
        support = Examples(jnp.zeros((n, *problem.features)), y)
        predict = adapted_to(learner, support, key=jax.random.key(0)).predict
        return predict(jnp.zeros((problem.query, *problem.features)))

    program, found, _ = eqx.filter_make_jaxpr(outputs)(learner)
    return found.shape, program.consts


def check_suits(learner: MetaLearner, problem: Problem, made_for: object = None) -> None:
    """Raise `ValueError` if a learner, which was `made_for` a problem unless it holds another,
    cannot learn tasks of this problem."""
    made_for = getattr(learner.origin or learner, "problem", made_for)
    if not isinstance(made_for, Problem):
        return
    said = [f"{p.outputs}-output {p.kind} with inputs {p.features}" for p in (made_for, problem)]
    try:
        more = said[0] != said[1] and predictions_of(learner, problem)[0][-1] - problem.outputs
    except Exception:  # of any kind: a method may be a user's own
        more = -1
    # A learner of more classes can learn tasks of fewer.
    if problem.kind != made_for.kind or more < 0 or (more and problem.kind == "regression"):
        raise ValueError(
            f"the learner was made for {said[0]}; these tasks are {said[1]}: build one for these"
        )


class Carried(eqx.Module):
    """Arrays that a learner carries from step to step, but that are not parameters."""


def parameters(learner: PyTree) -> int:
    """How many numbers the outer loop learns."""
    learned = eqx.filter(
        learner, eqx.is_inexact_array, is_leaf=lambda node: isinstance(node, Carried)
    )
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(learned))
