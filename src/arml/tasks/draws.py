"""From the rows of a table to a task: which rows are the support set, and which the queries."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from arml.core.episodes import Examples

MOST_SHOTS = 20
"""The most examples of a class in a balanced task."""


def of_classes(
    key: PRNGKeyArray,
    x: Float[Array, "rows columns 3"],
    label: Int[Array, " rows"],
    there: Bool[Array, " rows"],
    *,
    support: int,
    query: int,
) -> tuple[Examples, Examples]:
    """A support set of at most `support` rows, and `query` queries of the classes that it has.

    About 60% of the tasks are balanced: they have the same number of examples of each class, from 1
    to `MOST_SHOTS`. In the others the classes are as frequent as in the table, with at least one
    example of each. If a task takes fewer rows than `support`, the rest of the support set is empty
    rows, which learners ignore. `there` says which rows exist; a row without any cell does not.
    """
    there = there & jnp.any(x[..., 1] > 0, axis=1)
    rows = len(label)
    order, u = jnp.split(jax.random.uniform(key, (rows + 2,)), (rows,))
    same = (label[:, None] == label) & there
    rank = jnp.sum(same & (order[None] < order[:, None]), axis=1)
    exists = jnp.zeros(rows, bool).at[label].max(there, mode="drop")
    classes = jnp.maximum(jnp.sum(exists), 1)
    limit = jnp.clip(support // classes, 1, MOST_SHOTS)
    each = jnp.floor(jnp.power(limit.astype(jnp.float32) + 0.99, u[0])).astype(jnp.int32)
    balanced = u[1] < 0.6
    # First one row of each class, then the other rows in random order.
    first = jnp.where(rank == 0, order - 1, order)
    turn = jnp.argsort(jnp.argsort(jnp.where(there, first, 9.0)))
    chosen = there & jnp.where(balanced, rank < each, turn < jnp.minimum(each * classes, support))
    queue = jnp.argsort(jnp.where(chosen, order - 9.0, jnp.where(there, order, 9.0)))
    taken = queue[:support]
    kept = chosen[taken]
    own = jnp.sum(kept)
    left = jnp.maximum(jnp.sum(there) - own, 1)
    # If the table has too few rows, some are asked twice.
    asked = queue[own + jnp.arange(query) % left]
    given = jnp.where(kept[:, None, None], x[taken], 0.0)
    return Examples(given, jnp.where(kept, label[taken], 0)), Examples(x[asked], label[asked])


def of_numbers(
    key: PRNGKeyArray,
    x: Float[Array, "rows columns 3"],
    target: Float[Array, " rows"],
    there: Bool[Array, " rows"],
    *,
    support: int,
    query: int,
) -> tuple[Examples, Examples]:
    """A support set and queries of a regression: the support set has 4 to `support` rows."""
    there = there & jnp.any(x[..., 1] > 0, axis=1)
    u = jax.random.uniform(key, (len(target) + 1,))
    order = jnp.where(there, u[1:], 9.0)
    queue = jnp.argsort(order)
    size = jnp.floor(4 * jnp.power((support + 0.99) / 4, u[0]))
    size = jnp.minimum(size.astype(jnp.int32), jnp.maximum(jnp.sum(there) - 1, 1))
    kept = jnp.arange(support) < size
    taken = queue[:support]
    left = jnp.maximum(jnp.sum(there) - size, 1)
    asked = queue[size + jnp.arange(query) % left]
    given = Examples(
        jnp.where(kept[:, None, None], x[taken], 0.0), jnp.where(kept, target[taken], 0.0)[:, None]
    )
    return given, Examples(x[asked], target[asked][:, None])
