"""Families of one or more task distributions in given shares."""

import json
from collections.abc import Mapping, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from arml.core.episodes import Problem, Task, TaskDistribution

Stage = Mapping[str, float]
"""The share of each family among the tasks of a stage. The shares sum to one."""
TRIES = 100_000
"""The most draws to find a task of one family."""
State = tuple[PRNGKeyArray, Int[Array, ""]]
"""The key of a draw, and how many draws were made before it."""


class Mixture(TaskDistribution):
    """The families of `parts` in given shares. Build it with `mixture`.

    A part draws tasks until one is of the wanted family. Of the others only the family is computed,
    not the examples.
    """

    families: tuple[str, ...] = eqx.field(static=True)
    problem: Problem = eqx.field(static=True)
    parts: tuple[TaskDistribution, ...]
    shares: Float[Array, " families"]

    def sample(self, key: PRNGKeyArray) -> Task:
        family_key, task_key = jax.random.split(key)
        family = jax.random.choice(family_key, len(self.families), p=self.shares)
        task, first = None, 0
        for part in self.parts:
            drawn = one_of(part, family - first, key=task_key)
            chosen = family >= first
            task = drawn if task is None else either(chosen, drawn, task)
            first += len(part.families)
        assert task is not None
        # Classes of different parts have the same numbers, so they could be confused.
        classes = task.classes if len(self.parts) == 1 else None
        return task._replace(family=family.astype(jnp.int32), classes=classes)

    def of(self, stage: Stage) -> "Mixture":
        """The same families in other shares."""
        return eqx.tree_at(lambda m: m.shares, self, shares_of(stage, self.families))

    def only(self, family: str) -> "Mixture":
        """The tasks of one family."""
        return self.of({family: 1.0})

    def identity(self) -> str:
        shares = np.asarray(self.shares, np.float64).round(6).tolist()
        names = dict(zip(self.families, shares, strict=True))
        return json.dumps([[part.identity() for part in self.parts], names])


def mixture(*parts: TaskDistribution, stage: Stage | None = None) -> Mixture:
    """The families of task distributions of one problem, in equal shares or in those of `stage`.

    **Raises** `ValueError` in one line if the problems differ, or two families have one name.
    """
    families = tuple(name for part in parts for name in part.families)
    twice = next((name for name in families if families.count(name) > 1), None)
    if not families or twice is not None:
        raise ValueError(
            f"expected families of different names, got {twice or 'none'} twice: rename one"
        )
    problems = [part.problem for part in parts]
    shapes = {(p.kind, p.features, p.outputs, p.shots, p.queries) for p in problems}
    if len(shapes) > 1:
        raise ValueError(
            f"expected families of one problem, got {' and '.join(map(str, sorted(shapes)))}: give "
            "them the same ways, shots, queries and size"
        )
    return Mixture(
        families, problems[0], parts, shares_of(stage or equal_shares(families), families)
    )


def one_of(part: TaskDistribution, wanted: Int[Array, ""], *, key: PRNGKeyArray) -> Task:
    """ONE task of the family `wanted` of `part`; any task if `part` has no such family."""
    known = (wanted >= 0) & (wanted < len(part.families))
    if len(part.families) == 1:
        return part.sample(key)

    def other(state: State) -> Array:
        key, tries = state
        return known & (part.sample(key).family != wanted) & (tries < TRIES)

    def again(state: State) -> State:
        return jax.random.split(state[0])[0], state[1] + 1

    found, _ = jax.lax.while_loop(other, again, (key, jnp.zeros((), jnp.int32)))
    return part.sample(found)


def either(chosen: Array, a: Task, b: Task) -> Task:
    """Task `a` where `chosen`, and `b` otherwise."""
    a, b = a._replace(classes=None), b._replace(classes=None)
    return jax.tree.map(lambda x, y: jnp.where(chosen, x, y), a, b)


def equal_shares(families: Sequence[str]) -> dict[str, float]:
    """Equal shares."""
    return {name: 1 / len(families) for name in families}


def shares_of(stage: Stage, families: Sequence[str]) -> Float[Array, " families"]:
    """The shares of a stage in the order of `families`.

    **Raises** `ValueError` in one line for an unknown family, and for shares that do not sum to 1.
    """
    odd = next((name for name in stage if name not in families), None)
    if odd is not None:
        raise ValueError(f"unknown family {odd!r}: expected one of {', '.join(families)}")
    shares = np.array([stage.get(name, 0.0) for name in families])
    if not (shares >= 0).all() or abs(shares.sum() - 1) > 1e-6:
        raise ValueError(
            f"expected shares of 0 or more that sum to 1, got {dict(stage)}: change them"
        )
    return jnp.asarray(shares / shares.sum(), jnp.float32)
