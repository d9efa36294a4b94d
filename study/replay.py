"""A stream of families: replay of kept tasks among those of the family that arrives, and measures.

Shares are arrays, so that all stages run the same compiled program.

[1] Chaudhry, Dokania, Ajanthan and Torr, Riemannian Walk for Incremental Learning, ECCV 2018:
    forgetting, against the best score of any stage.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from arml.core.episodes import Problem, Task, TaskDistribution
from arml.results.files import Json, JsonView
from arml.results.scores import number_of
from arml.tasks.mixture import Mixture, equal_shares, shares_of


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


def forgetting(r: np.ndarray, first: Sequence[int], metric: str) -> float:
    """The mean over families of the loss since the best stage, as a share of the best score [1],
    from R `[stages, families]` and the stage in which each family came first. 0.1 is an error that
    is 10% higher, or an accuracy that is 10% lower, than it was. Families of the last stage are
    left out. NaN if there are no others."""
    lost = []
    for scores, start in zip(r.T, first, strict=True):
        if start < len(r) - 1:
            best = scores[start:].min() if metric == "mse" else scores[start:].max()
            lost.append(abs(scores[-1] - best) / best if best else np.nan)
    return float(np.mean(lost)) if lost else float("nan")


def measures(stages: Sequence[JsonView], metric: str) -> Json:
    """The measures of a stream from the record of each stage: its `family`, `scores` (from family
    to score), `tasks` and `replayed`.

    **Returns** `final_mean`, the mean over families after the last stage; `forgetting`; and the
    numbers of training tasks, of all (`tasks`) and of known families (`replayed`).
    """
    order = [stage["family"] for stage in stages]
    families = dict.fromkeys(order)
    r = np.array([[number_of(one["scores"][f]) for f in families] for one in stages], np.float64)
    return {
        "final_mean": float(np.mean(r[-1])),
        "forgetting": forgetting(r, [order.index(name) for name in families], metric),
        "tasks": sum(stage["tasks"] for stage in stages),
        "replayed": sum(stage["replayed"] for stage in stages),
    }
