"""Streams: the families of one or more task distributions in shares that change over time.

A stream is a list of stages; a stage says in which share each family arrives. `Mixture` draws
tasks in such shares. The shares are an array, so that all stages run the same compiled program.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from arml.core.episodes import Problem, Task, TaskDistribution

Stage = Mapping[str, float]
"""The share of each family among the tasks of a stage. The shares sum to one."""
TRIES = 100_000
"""Draws after which a family that never comes is given up."""


class Mixture(TaskDistribution):
    """The families of `parts` in given shares. Build it with `mixture`.

    A part is asked for tasks until one is of the wanted family. Only the family of the others is
    computed, not their examples.
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
            task = drawn if task is None else _either(chosen, drawn, task)
            first += len(part.families)
        assert task is not None
        # Classes of different parts have the same numbers, so they would be mistaken.
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
    return Mixture(families, problems[0], parts, shares_of(stage or uniform(families), families))


def one_of(part: TaskDistribution, wanted: Int[Array, ""], *, key: PRNGKeyArray) -> Task:
    """ONE task of the family `wanted` of `part`; any task if `part` has no such family."""
    known = (wanted >= 0) & (wanted < len(part.families))
    if len(part.families) == 1:
        return part.sample(key)

    def other(state: tuple[PRNGKeyArray, Int[Array, ""]]) -> Array:
        key, tries = state
        return known & (part.sample(key).family != wanted) & (tries < TRIES)

    def again(
        state: tuple[PRNGKeyArray, Int[Array, ""]],
    ) -> tuple[PRNGKeyArray, Int[Array, ""]]:
        return jax.random.split(state[0])[0], state[1] + 1

    found, _ = jax.lax.while_loop(other, again, (key, jnp.zeros((), jnp.int32)))
    return part.sample(found)


def _either(chosen: Array, a: Task, b: Task) -> Task:
    a, b = a._replace(classes=None), b._replace(classes=None)
    return jax.tree.map(lambda x, y: jnp.where(chosen, x, y), a, b)


def uniform(families: Sequence[str]) -> dict[str, float]:
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


def in_stages(families: Sequence[str]) -> list[dict[str, float]]:
    """One family after another. A family may come back."""
    return [{name: 1.0} for name in families]


def drifting(families: Sequence[str], *, between: int = 3) -> list[dict[str, float]]:
    """One family after another; in the `between` stages between two the next one gains share in
    equal steps."""
    stages = in_stages(families[:1])
    for old, new in pairwise(families):
        for step in range(1, between + 1):
            share = step / (between + 1)
            stages.append({old: 1 - share, new: share} if old != new else {old: 1.0})
        stages.append({new: 1.0})
    return stages


def with_replay(stage: Stage, known: Sequence[str], share: float) -> dict[str, float]:
    """The stage, with `share` of its tasks from the `known` families that it lacks, in equal parts;
    the stage alone if there is none."""
    old = [name for name in known if name not in stage]
    if not old or not share:
        return dict(stage)
    fresh = {name: part * (1 - share) for name, part in stage.items()}
    return fresh | {name: share / len(old) for name in old}


class Replay(TaskDistribution):
    """A mixture, of which a share is replaced by tasks that were kept. Build it with `replay`."""

    families: tuple[str, ...] = eqx.field(static=True)
    problem: Problem = eqx.field(static=True)
    stream: Mixture
    memory: Task
    """The kept tasks of each family `[families, kept, ...]`."""
    known: Float[Array, " families"]
    """The share of each family among the replayed tasks."""
    share: Float[Array, ""]

    def sample(self, key: PRNGKeyArray) -> Task:
        chance_key, family_key, place_key, task_key = jax.random.split(key, 4)
        family = jax.random.choice(family_key, len(self.families), p=self.known)
        place = jax.random.randint(place_key, (), 0, self.memory.family.shape[1])
        old = jax.tree.map(lambda rows: rows[family, place], self.memory)
        is_old = jax.random.uniform(chance_key) < self.share
        return _either(is_old, old, self.stream.sample(task_key))


def replay(stream: Mixture, memory: Task, known: Sequence[str], share: float) -> Replay:
    """`stream`, of which `share` is replaced by kept tasks of the `known` families that it lacks,
    in equal parts; none is replaced if there are none.

    All families have room in `memory`, so that each stage runs the same compiled program.
    """
    lacking = np.asarray(stream.shares) == 0
    old = [
        name for name, out in zip(stream.families, lacking, strict=True) if out and name in known
    ]
    shares = shares_of(uniform(old or stream.families), stream.families)
    chance = jnp.asarray(share if old else 0.0, jnp.float32)
    return Replay(stream.families, stream.problem, stream, memory, shares, chance)


def kept(stream: Mixture, n: int, *, key: PRNGKeyArray) -> Task:
    """`n` tasks of each family, `[families, n, ...]`: what a memory may keep."""
    draw = eqx.filter_jit(lambda tasks, keys: jax.vmap(tasks.sample)(keys))
    keys = jax.random.split(key, n)
    drawn = [draw(stream.only(name), keys)._replace(classes=None) for name in stream.families]
    stacked: Task = jax.tree.map(lambda *rows: jnp.stack(rows), *drawn)
    return stacked
