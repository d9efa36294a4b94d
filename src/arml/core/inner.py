"""The inner loop: gradient descent on a task's support loss, which can itself be differentiated.

theta <- theta - rate * grad L_support(theta), repeated. A rate that is a float is a constant; a
rate that is an array, or a pytree of arrays with the shape of the adapted parameters, is
meta-learned (Meta-SGD).
"""

import abc
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree
from msgspec import Meta

from arml.core.checks import NonNegative, Options
from arml.core.episodes import Problem

N = TypeVar("N")
"""A network or a part of one, as a pytree; in `with_steps`, a learner."""

MAX_UNROLLED_STEPS = 10
"""Up to this number, the steps of dense networks are compiled one by one: they run faster so."""


class Shared(eqx.Module):
    """Marks an array of a network that is meta-learned, but neither adapted nor modulated: it has
    one value for all tasks (Conv-4's batch-normalisation offsets, MT-Net's warps)."""

    value: Array


def _is_shared(node: object) -> bool:
    return isinstance(node, Shared)


def adaptable(net: N) -> N:
    """The part of `net` that a task may change, as a pytree of the same structure with None
    elsewhere: every inexact array that is not `Shared`."""
    return split(net)[0]


def split(net: N) -> tuple[N, N]:
    """`net` as its adaptable part and the rest; `join` is the inverse."""
    part, rest = eqx.partition(net, eqx.is_inexact_array, is_leaf=_is_shared)
    return part, rest


def join(part: N, rest: N) -> N:
    """The inverse of `split`."""
    return eqx.combine(part, rest, is_leaf=lambda node: node is None or _is_shared(node))


class Rule(eqx.Module):
    """A learned rule of one inner step."""

    @abc.abstractmethod
    def __call__(self, part: PyTree, gradient: PyTree, step: int | Array) -> PyTree:
        """The adaptable part of a network after the step number `step`, from 0."""


class GradientDescent(eqx.Module):
    """`steps` plain gradient steps on a task's support loss.

        descend = arml.GradientDescent(0.1, 3)
        descend(lambda weight: jnp.sum(weight**2), jnp.ones(2))

    **Arguments**

    - `rate`: the step size on the *mean* loss: a float (constant), a scalar array (learned), or a
      pytree of arrays with the structure of `adaptable(net)` (learned, one for each parameter); or
      a `Rule`, which makes the whole step.
    - `steps`: the number of steps; `with_steps` changes it for the adaptation at test.
    - `first_order`, `clip`, `bound`, `remat`: as in `InnerOptions`.
    """

    rate: float | PyTree
    steps: int = eqx.field(static=True, default=5)
    first_order: bool = eqx.field(static=True, default=False)
    clip: float = eqx.field(static=True, default=0.0)
    bound: float = eqx.field(static=True, default=0.0)
    remat: bool = eqx.field(static=True, default=False)

    def __call__(self, loss: Callable[[N], Float[Array, ""]], start: N) -> N:
        """Descend on `loss(net)` from the network `start`; returns the adapted network."""
        if not self.steps:
            return start
        part, rest = split(start)
        small = all(array.ndim < 3 for array in jax.tree.leaves(part))
        if small and self.steps <= MAX_UNROLLED_STEPS:
            return [start, *self.path(loss, start)][-1]
        # A loop compiles one step. It does not slow down a step of convolutions.
        step, numbers = self._step(loss, rest), jnp.arange(self.steps)
        loop = jax.lax.scan(lambda p, i: (step(p, self.rate, i), None), part, numbers)
        return join(loop[0], rest)

    def path(self, loss: Callable[[N], Float[Array, ""]], start: N) -> list[N]:
        """The networks after each step of the same descent."""
        part, rest = split(start)
        step, nets = self._step(loss, rest), []
        for number in range(self.steps):
            part = step(part, self.rate, number)
            nets.append(join(part, rest))
        return nets

    def _step(self, loss: Callable[[N], Float[Array, ""]], rest: N) -> Callable[..., N]:
        """The function that takes one step: from the adaptable part, the rates and the number of
        the step."""

        def step(part: N, rate: float | PyTree, number: int | Array) -> N:
            gradient = jax.grad(lambda p: loss(join(p, rest)))(part)
            if self.first_order:
                gradient = jax.lax.stop_gradient(gradient)
            if self.clip:
                norm = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(gradient)) + 1e-12)
                factor = self.clip / jnp.maximum(norm, self.clip)
                gradient = jax.tree.map(lambda g: factor * g, gradient)
            if self.bound:
                gradient = jax.tree.map(lambda g: jnp.clip(g, -self.bound, self.bound), gradient)
            moved: N
            if isinstance(rate, Rule):
                moved = rate(part, gradient, number)
            elif isinstance(rate, float | int) or eqx.is_array(rate):
                moved = jax.tree.map(lambda p, g: p - rate * g, part, gradient)
            else:
                moved = jax.tree.map(lambda p, r, g: p - r * g, part, rate, gradient)
            return moved

        return jax.checkpoint(step) if self.remat else step


def with_steps(learner: N, steps: int) -> N:
    """The same learner with `steps` inner steps in each of its inner loops.

        longer = arml.with_steps(learner, 10)

    A learner without an inner loop stays as it is.

    **Raises** `ValueError` for a negative number.
    """
    if steps < 0:
        raise ValueError(f"steps must be 0 or more, got {steps}")

    def change(node: PyTree) -> PyTree:
        return dataclasses.replace(node, steps=steps) if is_inner(node) else node

    changed: N = jax.tree.map(change, learner, is_leaf=is_inner)
    return changed


def steps_of(learner: PyTree) -> int:
    """The inner steps of a learner; 0 for one that has no inner loop."""
    nodes = jax.tree.leaves(learner, is_leaf=is_inner)
    return max((node.steps for node in nodes if is_inner(node)), default=0)


def is_inner(node: object) -> bool:
    """Whether a part of a learner is an inner loop."""
    return isinstance(node, GradientDescent)


def usual_rate(problem: Problem) -> float:
    """The inner rate that published comparisons use, for the mean loss. The reference codes divide
    an image task's loss by the shots and sum it, so that their .01 is .01 * ways here."""
    return 0.001 if problem.kind == "regression" else 0.01 * problem.outputs


@dataclass(frozen=True, kw_only=True)
class InnerOptions(Options):
    """The options of an inner loop, which all gradient-based algorithms share.

        descend = arml.InnerOptions(inner_rate=0.1, inner_steps=3).descent(net)

    Rates are for mean losses.
    """

    inner_rate: NonNegative = 0.001
    """Inner step size on the mean loss."""
    inner_steps: Annotated[int, Meta(ge=0, le=10_000)] = 5
    """Inner gradient steps."""
    first_order: bool = False
    """Drop the second derivatives."""
    learn_rates: bool = False
    """Learn one rate for each parameter (Meta-SGD); each starts at inner_rate."""
    inner_clip: NonNegative = 0.0
    """Bound on the global norm of each inner gradient; 0 for none. It keeps the steps finite on a
    rare task whose loss is steep."""
    inner_bound: NonNegative = 0.0
    """Bound on each element of an inner gradient; 0 for none. On small networks it costs far less
    time than inner_clip: 2% of a step of `regression2d/arml`, against 18%."""
    remat: bool = False
    """Recompute inner steps in the backward pass instead of storing them: memory of one step
    instead of all, for about one more forward pass."""

    def check(self) -> None:
        super().check()
        if self.learn_rates and not self.inner_steps:
            raise ValueError(
                "learn_rates needs inner steps, got inner_steps 0: give --inner-steps 5, or leave "
                "--learn-rates out"
            )

    def descent(self, net: PyTree, rule: Rule | None = None) -> GradientDescent:
        """The inner loop for the base network `net`, by the learned `rule` if there is one."""
        rate: float | PyTree = self.inner_rate if rule is None else rule
        if self.learn_rates and rule is None:
            rate = jax.tree.map(lambda p: jnp.full_like(p, self.inner_rate), adaptable(net))
        return GradientDescent(
            rate,
            self.inner_steps,
            self.first_order,
            clip=self.inner_clip,
            bound=self.inner_bound,
            remat=self.remat,
        )
