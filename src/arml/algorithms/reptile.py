"""Reptile: learn a task with a few steps of Adam, then move the initialisation part of the way to
the adapted weights theta'. It needs no query set and no derivative of the inner loop: the direction
theta' - theta alone finds an initialisation that is near the solutions of many tasks.

[1] Nichol, Achiam and Schulman, On First-Order Meta-Learning Algorithms, 2018; code:
    openai/supervised-reptile.

Differences
- The outer step theta <- theta + epsilon * mean(theta' - theta) is gradient descent on half the
  squared distance to theta', which is held fixed: the outer optimiser `sgd` with `outer_rate`
  epsilon. The training loss is half that distance. It does not measure quality: the validation
  score does.
- Meta-training merges a task's support and query set into `shots + queries` examples of each class,
  which the authors do with `--train-shots`.
- Tasks of one outer step run side by side. Each starts Adam from common second moments, and the
  outer step moves these towards the mean of the tasks' final ones. The authors' code passes them on
  from task to task.
- Batch normalisation has no scale, and its offset is adapted with the rest.
- A task takes 8 steps on minibatches of 10, at test as in training. On images the authors take 50
  steps at test, on minibatches of 5 (1-shot) or 15 (5-shot): `arml evaluate --steps 50`.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from arml.algorithms.method import Method
from arml.core.checks import NonNegative, Options, Whole
from arml.core.episodes import Examples, Problem, Task
from arml.core.inner import GradientDescent
from arml.core.learner import Adapted, Carried, Learner, Network


class SecondMoment(Carried):
    """Adam's running mean of squared gradients, and the sum of its weights, so that
    `total / weight` has no bias from its start at zero."""

    total: PyTree
    weight: Float[Array, ""]

    @classmethod
    def zero(cls, net: Network) -> "SecondMoment":
        """Adam's state before any gradient."""
        zeros = jax.tree.map(jnp.zeros_like, eqx.filter(net, eqx.is_inexact_array))
        return cls(zeros, jnp.zeros(()))

    def updated(self, gradient: PyTree) -> "SecondMoment":

        def mix(old: Array, new: Array | float) -> Array:
            return 0.999 * old + (1 - 0.999) * new

        total = jax.tree.map(lambda v, g: mix(v, jnp.square(g)), self.total, gradient)
        return SecondMoment(total, mix(self.weight, 1.0))

    def step(self, gradient: PyTree) -> PyTree:
        """Adam's direction without a first moment."""
        return jax.tree.map(
            lambda v, g: g / (jnp.sqrt(v / self.weight) + 1e-8), self.total, gradient
        )


@dataclass(frozen=True, kw_only=True)
class ReptileOptions(Options):
    """Reptile: the initialisation moves towards where each task's own steps lead. Its outer
    optimiser is `sgd` with a rate that falls from 1 to 0."""

    inner_rate: NonNegative = 0.001
    """Adam's step size on a task."""
    inner_steps: Whole = 8
    """Adam's steps on a task."""
    inner_batch: Whole = 10
    """Examples of a minibatch; 0 for all."""

    def build(self, net: Network, problem: Problem, *, key: PRNGKeyArray) -> "Reptile":
        return Reptile(
            net=net,
            moment=SecondMoment.zero(net),
            inner=GradientDescent(self.inner_rate, self.inner_steps),
            options=self,
            problem=problem,
        )


class Reptile(Learner):
    """theta' = Adam (first moment 0) on minibatches of the task; theta moves towards theta'."""

    net: Network
    moment: SecondMoment
    """Adam's state, carried from step to step."""
    inner: GradientDescent
    """The rate and the number of steps."""
    options: ReptileOptions = eqx.field(static=True)

    def descend(self, examples: Examples, key: PRNGKeyArray) -> tuple[Network, SecondMoment]:
        part, rest = eqx.partition(self.net, eqx.is_inexact_array)
        moment = self.moment
        n, size = len(examples.y), self.options.inner_batch
        # Unrolled: the steps are few, and some of XLA's convolutions are slow in a loop on a CPU.
        for chosen in minibatches(n, size, self.inner.steps, key=key):
            x, y = examples.x[chosen], examples.y[chosen]
            gradient = jax.grad(lambda p, x=x, y=y: self.loss(eqx.combine(p, rest)(x), y))(part)
            moment = moment.updated(gradient)
            direction = moment.step(gradient)
            part = jax.tree.map(lambda p, d: p - self.inner.rate * d, part, direction)
        return eqx.combine(part, rest), moment

    def adapt(self, support: Examples, *, key: PRNGKeyArray) -> Adapted:
        adapted = self.descend(support, key)[0]
        return Adapted(adapted.given(support.x), net=adapted)

    def meta_loss(self, task: Task, *, key: PRNGKeyArray) -> Float[Array, ""]:
        """Half the squared distance to the adapted weights: its gradient is theta - theta'."""
        pairs = zip(task.support, task.query, strict=True)
        merged = Examples(*(jnp.concatenate(pair) for pair in pairs))
        start, end = (
            eqx.filter(state, eqx.is_inexact_array)
            for state in ((self.net, self.moment), self.descend(merged, key))
        )
        away = jax.tree.map(jnp.subtract, start, jax.lax.stop_gradient(end))
        import optax  # here, because it is slow to load

        squared: Array = optax.tree.norm(away, squared=True)
        return squared / 2


def minibatches(n: int, size: int, steps: int, *, key: PRNGKeyArray) -> list[Int[Array, " batch"]]:
    """`steps` sets of `size` indices (all `n` if `size` is 0 or too large), cut from shuffled
    passes through the examples."""
    if not 0 < size < n:
        return [jnp.arange(n)] * steps
    passes = -(-steps * size // n)
    shuffled = jax.vmap(lambda k: jax.random.permutation(k, n))(jax.random.split(key, passes))
    return list(shuffled.reshape(-1)[: steps * size].reshape(steps, size))


METHODS = (
    Method(
        name="reptile",
        options_class=ReptileOptions,
        widens=True,
        paper="Nichol, Achiam and Schulman, 2018",
        # theta moves all the way towards the tasks at first, and not at all at the end.
        settings={
            "any": {
                "outer": {"outer_rate": 1.0, "optimiser": "sgd", "schedule": "linear", "clip": 0.0}
            }
        },
    ),
)
