"""A task of a table's rows: which of them are the support set, and which the queries."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from arml.core.episodes import Examples


def of_classes(
    key: PRNGKeyArray,
    x: Float[Array, "rows columns 3"],
    label: Int[Array, " rows"],
    there: Bool[Array, " rows"],
    *,
    support: int,
    query: int,
    most: int,
) -> tuple[Examples, Examples]:
    """A support set of at most `support` rows and `query` queries of the classes that it has.

    Half of the tasks have as many examples of each class, from 1 to `most`; the other half has the
    classes as often as the table, at least one of each. Where fewer rows than `support` are taken,
    the rest of the support set is empty rows, which learners ignore. `there` are the rows that
    exist; those without a single cell do not.
    """
    there = there & jnp.any(x[..., 1] > 0, axis=1)
    rows = len(label)
    order, u = jnp.split(jax.random.uniform(key, (rows + 2,)), (rows,))
    same = (label[:, None] == label) & there
    rank = jnp.sum(same & (order[None] < order[:, None]), axis=1)
    exists = jnp.zeros(rows, bool).at[label].max(there, mode="drop")
    classes = jnp.maximum(jnp.sum(exists), 1)
    limit = jnp.clip(support // classes, 1, most)
    each = jnp.floor(jnp.power(limit.astype(jnp.float32) + 0.99, u[0])).astype(jnp.int32)
    balanced = u[1] < 0.6
    # First the best of each class, then in random order up to as many as a balanced task has.
    first = jnp.where(rank == 0, order - 1, order)
    turn = jnp.argsort(jnp.argsort(jnp.where(there, first, 9.0)))
    chosen = there & jnp.where(balanced, rank < each, turn < jnp.minimum(each * classes, support))
    queue = jnp.argsort(jnp.where(chosen, order - 9.0, jnp.where(there, order, 9.0)))
    taken = queue[:support]
    kept = chosen[taken]
    own = jnp.sum(kept)
    left = jnp.maximum(jnp.sum(there) - own, 1)
    # A table with too few rows asks some twice.
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
    least: int = 4,
) -> tuple[Examples, Examples]:
    """The same of a regression: from `least` to `support` rows of the support set are there."""
    there = there & jnp.any(x[..., 1] > 0, axis=1)
    u = jax.random.uniform(key, (len(target) + 1,))
    order = jnp.where(there, u[1:], 9.0)
    queue = jnp.argsort(order)
    size = jnp.floor(least * jnp.power((support + 0.99) / least, u[0]))
    size = jnp.minimum(size.astype(jnp.int32), jnp.maximum(jnp.sum(there) - 1, 1))
    kept = jnp.arange(support) < size
    taken = queue[:support]
    left = jnp.maximum(jnp.sum(there) - size, 1)
    asked = queue[size + jnp.arange(query) % left]
    given = Examples(
        jnp.where(kept[:, None, None], x[taken], 0.0), jnp.where(kept, target[taken], 0.0)[:, None]
    )
    return given, Examples(x[asked], target[asked][:, None])
