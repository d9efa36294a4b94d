"""The cells of a table as numbers that a network can read, whatever their units.

The support set gives all measures: means and standard deviations, ranks, and how well a column
predicts the labels. An example is `[columns, 3]`: value, whether it is there, kind. A row without
any cell is not an example, and a column without any cell is not a column.
"""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from arml.core.episodes import Problem

FAR = 4.0
"""A value is pulled towards the others when it is more standard deviations than this away."""
DESCRIBED = 11
"""Numbers that describe a column."""


class Cells(NamedTuple):
    """Cells of rows, in units of the support set; zero where they are missing."""

    score: Float[Array, "rows columns"]
    """Value in standard deviations of the support set, pulled in beyond `FAR`."""
    rank: Float[Array, "rows columns"]
    """Share of the support set below the value, from -1.73 to 1.73."""
    there: Bool[Array, "rows columns"]
    kind: Float[Array, "rows columns"]

    @property
    def rows(self) -> Bool[Array, " rows"]:
        """Which rows are examples."""
        return jnp.any(self.there, axis=1)


def count_of(there: Bool[Array, "..."], axis: int | tuple[int, ...] | None = None) -> Array:
    """How many are `there`; one if none is."""
    return jnp.maximum(jnp.sum(there, axis=axis), 1).astype(jnp.float32)


def mean_of(x: Float[Array, "n *d"], there: Bool[Array, "n *_"]) -> Float[Array, "*d"]:
    """The mean over the first axis of the entries that are `there`; zero if none is."""
    there = there.reshape(there.shape + (1,) * (x.ndim - there.ndim))
    return jnp.sum(jnp.where(there, x, 0.0), axis=0) / count_of(there, 0)


def as_cells(x: Float[Array, "rows *features"]) -> Float[Array, "rows columns 3"]:
    """Cells as they are; plain vectors become numbers none of which is missing."""
    if x.ndim == 3:
        return x
    return jnp.stack([x, jnp.ones_like(x), jnp.zeros_like(x)], axis=-1)


class Measure(eqx.Module):
    """The measures of a support set, applied to any cells."""

    values: Float[Array, "n columns"]
    there: Bool[Array, "n columns"]
    mean: Float[Array, " columns"]
    deviation: Float[Array, " columns"]

    def __call__(self, x: Float[Array, "rows *features"]) -> Cells:
        x = as_cells(x)
        there = x[..., 1] > 0.5
        value = jnp.where(there, x[..., 0], self.mean)
        score = (value - self.mean) / self.deviation
        score = score / jnp.sqrt(1 + jnp.square(score / FAR))
        below = jnp.where(self.there, jnp.sign(value[:, None] - self.values[None]), 0.0)
        rank = jnp.sum(below, axis=1) / count_of(self.there, 0) * 1.73
        return Cells(
            jnp.where(there, score, 0.0),
            jnp.where(there, rank, 0.0),
            there,
            jnp.where(there, x[..., 2], 0.0),
        )


def measure(x: Float[Array, "n *features"]) -> Measure:
    """The measures of the support inputs `x`."""
    x = as_cells(x)
    there = x[..., 1] > 0.5
    values = jnp.where(there, x[..., 0], 0.0)
    mean = mean_of(values, there)
    deviation = jnp.sqrt(mean_of(jnp.square(values - mean), there))
    # A column without spread has no information: its scores are zero, not huge.
    flat = deviation <= 1e-6 * (jnp.abs(mean) + 1e-6)
    return Measure(values, there, mean, jnp.where(flat, 1e12, deviation))


def standard_targets(
    y: Float[Array, " n"], rows: Bool[Array, " n"]
) -> tuple[Float[Array, " n"], Float[Array, ""], Float[Array, ""]]:
    """The targets of a regression in their own standard deviations, zero for rows that are not
    there; their mean; and their standard deviation, 1 if all are equal."""
    mean = mean_of(y, rows)
    off = jnp.where(rows, y - mean, 0.0)
    deviation = jnp.sqrt(mean_of(jnp.square(off), rows))
    deviation = jnp.where(deviation > 1e-6 * (jnp.abs(mean) + 1e-6), deviation, 1.0)
    return off / deviation, mean, deviation


def one_target(problem: Problem) -> None:
    """Raise `ValueError` in one line for a regression with several targets."""
    if problem.kind == "regression" and problem.outputs != 1:
        raise ValueError(
            f"expected one target for tables, got {problem.outputs}: train a learner for each"
        )


def alike_classes(y: Array, rows: Bool[Array, " n"]) -> Float[Array, "n n"]:
    """One for each pair of different examples of the same class, zero for all other pairs."""
    same = (y[:, None] == y[None]) & rows[:, None] & rows[None]
    return (same & ~jnp.eye(len(y), dtype=bool)).astype(jnp.float32)


def alike_numbers(y: Float[Array, " n"], rows: Bool[Array, " n"]) -> Float[Array, "n n"]:
    """How near the standardised targets of two examples are, from 0 to 1; an example has 0 with
    itself."""
    near = jnp.exp(-2 * jnp.square(y[:, None] - y[None]))
    return jnp.where(rows[:, None] & rows[None] & ~jnp.eye(len(y), dtype=bool), near, 0.0)


def expected(
    values: Float[Array, "n columns"], there: Bool[Array, "n columns"], alike: Float[Array, "n n"]
) -> Float[Array, "n columns"]:
    """For each example, the mean of each column over the others, weighted by how alike their labels
    are; zero if no other label is alike."""
    weight = alike @ there.astype(values.dtype)
    return jnp.where(there, alike @ values / jnp.maximum(weight, 1e-6), 0.0)


def described(
    cells: Cells, alike: Float[Array, "n n"], classes: Float[Array, ""]
) -> Float[Array, "columns described"]:
    """Numbers that describe each column on the support set: how well other examples with the same
    label predict it (by score and by rank), gaps, ties, shape, how much other columns repeat it;
    and how many rows, columns and classes there are."""
    there, rows = cells.there, cells.rows
    n = count_of(rows)
    count = count_of(there, 0)
    mean = partial(mean_of, there=there)
    score, rank = cells.score, cells.rank
    shown = (mean(score * expected(score, there, alike)), mean(rank * expected(rank, there, alike)))
    flat = score / jnp.sqrt(mean(jnp.square(score)) + 1e-6)
    repeats = jnp.abs(flat.T @ flat) / n
    columns = count_of(jnp.any(there, axis=0))
    ties = (score[:, None] == score[None]) & there[:, None] & there[None]
    each = jnp.stack(
        [
            *shown,
            count / n,
            mean(cells.kind),
            count_of(ties, (0, 1)) / jnp.square(count),
            mean(score**3) / 3,
            mean(score**4) / 10,
            jnp.sum(repeats, axis=1) / columns,
        ],
        axis=1,
    )
    counts = jnp.stack([jnp.log(n + 1.0), jnp.log(columns), jnp.log(classes)]) / 3
    return jnp.concatenate([each, jnp.broadcast_to(counts, (len(each), 3))], axis=1)
