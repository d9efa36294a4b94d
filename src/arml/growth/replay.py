"""Replay: tasks of known families among those of the family that arrives, drawn anew or kept.

Shares are arrays, so that all stages run the same compiled program.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from arml.core.episodes import Problem, Task, TaskDistribution
from arml.tasks.mixture import Mixture, Stage, equal_shares, shares_of


def with_replay(stage: Stage, known: Sequence[str], share: float) -> dict[str, float]:
    """The stage with `share` of its tasks drawn anew, in equal parts, from the `known` families
    outside it; the stage itself if there are none."""
    old = [name for name in known if name not in stage]
    if not old or not share:
        return dict(stage)
    fresh = {name: part * (1 - share) for name, part in stage.items()}
    return fresh | {name: share / len(old) for name in old}


class Replay(TaskDistribution):
    """A mixture, of which a share is replaced by kept tasks. Build it with `replay`."""

    families: tuple[str, ...] = eqx.field(static=True)
    problem: Problem = eqx.field(static=True)
    stream: Mixture
    memory: Task
    """The kept tasks of each family `[families, kept, ...]`."""
    known: Float[Array, " families"]
    """The share of each family among the replayed tasks."""
    share: Float[Array, ""]
    """The share of replayed tasks among all."""

    def sample(self, key: PRNGKeyArray) -> Task:
        chance_key, family_key, place_key, task_key = jax.random.split(key, 4)
        family = jax.random.choice(family_key, len(self.families), p=self.known)
        place = jax.random.randint(place_key, (), 0, self.memory.family.shape[1])
        old = jax.tree.map(lambda rows: rows[family, place], self.memory)
        is_old = jax.random.uniform(chance_key) < self.share
        # Kept tasks have no numbers of classes.
        new = self.stream.sample(task_key)._replace(classes=None)
        return jax.tree.map(lambda kept, drawn: jnp.where(is_old, kept, drawn), old, new)


def replay(stream: Mixture, memory: Task, known: Sequence[str], share: float) -> Replay:
    """`stream`, of which `share` is replaced by kept tasks of the `known` families that it lacks,
    in equal parts; nothing is replaced if it lacks none.

    `memory` has tasks of all families, so that each stage runs the same compiled program.
    """
    own = np.asarray(stream.shares) > 0
    old = [n for n, is_own in zip(stream.families, own, strict=True) if n in known and not is_own]
    shares = shares_of(equal_shares(old or stream.families), stream.families)
    chance = jnp.asarray(share if old else 0.0, jnp.float32)
    return Replay(stream.families, stream.problem, stream, memory, shares, chance)


def kept(stream: Mixture, n: int, *, key: PRNGKeyArray) -> Task:
    """`n` tasks of each family, `[families, n, ...]`, for a memory."""
    draw = eqx.filter_jit(lambda tasks, keys: jax.vmap(tasks.sample)(keys))
    keys = jax.random.split(key, n)
    drawn = [draw(stream.only(name), keys)._replace(classes=None) for name in stream.families]
    return jax.tree.map(lambda *rows: jnp.stack(rows), *drawn)
