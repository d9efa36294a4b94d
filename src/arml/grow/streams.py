"""Streams: families that arrive in stages, or drift from one to the next, and a memory of them.

A stream is a list of stages; a stage says in which share each family arrives. Shares are arrays, so
that all stages run the same compiled program.
"""

from collections.abc import Sequence
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from arml.core.episodes import Problem, Task, TaskDistribution
from arml.tasks.mixture import Mixture, Stage, either, mixture, shares_of, uniform

__all__ = [
    "Mixture",
    "Replay",
    "Stage",
    "drifting",
    "in_stages",
    "kept",
    "mixture",
    "replay",
    "uniform",
    "with_replay",
]


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
    """The stage with `share` of its tasks in equal parts from `known` families outside it; the
    stage itself if there are no such families."""
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
        return either(is_old, old, self.stream.sample(task_key))


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
    """`n` tasks of each family, `[families, n, ...]`, for a memory."""
    draw = eqx.filter_jit(lambda tasks, keys: jax.vmap(tasks.sample)(keys))
    keys = jax.random.split(key, n)
    drawn = [draw(stream.only(name), keys)._replace(classes=None) for name in stream.families]
    return jax.tree.map(lambda *rows: jnp.stack(rows), *drawn)
