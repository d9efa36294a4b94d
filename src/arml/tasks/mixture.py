"""The families of a task distribution in given shares."""

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

State = tuple[PRNGKeyArray, Int[Array, ""]]
"""The key of a draw, and the number of draws before it."""


class Mixture(TaskDistribution):
    """The families of `tasks` in given shares. Build it with `mixture`. Tasks are drawn until one
    has the wanted family; of the others only the family is computed."""

    families: tuple[str, ...] = eqx.field(static=True)
    problem: Problem = eqx.field(static=True)
    tasks: TaskDistribution
    shares: Float[Array, " families"]

    def sample(self, key: PRNGKeyArray) -> Task:
        family_key, key = jax.random.split(key)
        family = jax.random.choice(family_key, len(self.families), p=self.shares)

        def other(state: State) -> Array:
            key, tries = state
            return (self.tasks.sample(key).family != family) & (tries < 100_000)

        def again(state: State) -> State:
            return jax.random.split(state[0])[0], state[1] + 1

        if len(self.families) > 1:
            key, _ = jax.lax.while_loop(other, again, (key, jnp.zeros((), jnp.int32)))
        return self.tasks.sample(key)._replace(family=family.astype(jnp.int32))

    def of(self, stage: Stage) -> "Mixture":
        """The same families in other shares. **Raises** `ValueError` as `shares_of`."""
        return eqx.tree_at(lambda m: m.shares, self, shares_of(stage, self.families))

    def only(self, family: str) -> "Mixture":
        return self.of({family: 1.0})

    def identity(self) -> str:
        shares = np.asarray(self.shares, np.float64).round(6).tolist()
        return json.dumps([[self.tasks.identity()], dict(zip(self.families, shares, strict=True))])


def mixture(tasks: TaskDistribution) -> Mixture:
    """The families of a task distribution in equal shares. **Raises** `ValueError` in one line if
    two families have one name."""
    families = tuple(tasks.families)
    if twice := [name for name in families if families.count(name) > 1]:
        raise ValueError(f"expected families of different names, got {twice[0]} twice: rename one")
    return Mixture(families, tasks.problem, tasks, shares_of(equal_shares(families), families))


def equal_shares(families: Sequence[str]) -> dict[str, float]:
    return {name: 1 / len(families) for name in families}


def shares_of(stage: Stage, families: Sequence[str]) -> Float[Array, " families"]:
    """The shares of a stage in the order of `families`. **Raises** `ValueError` in one line for an
    unknown family, and for shares that do not sum to 1."""
    odd = next((name for name in stage if name not in families), None)
    if odd is not None:
        raise ValueError(f"unknown family {odd!r}: expected one of {', '.join(families)}")
    shares = np.array([stage.get(name, 0.0) for name in families])
    if not (shares >= 0).all() or abs(shares.sum() - 1) > 1e-6:
        raise ValueError(
            f"expected shares of 0 or more that sum to 1, got {dict(stage)}: change them"
        )
    return jnp.asarray(shares / shares.sum(), jnp.float32)
