"""Kernels between rows of tables: how alike two rows are, by cells and by learned places."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from arml.nn.attention import Remembered
from arml.nn.cells import Cells, Measure

Places = Float[Array, "rows place"]


class Read(NamedTuple):
    """The parts of a support set that queries need."""

    reading: Float[Array, " vertices"]
    """How much the task reads each vertex; the sum is one."""
    measure: Measure
    cells: Cells
    columns: Float[Array, "columns described"]
    films: Float[Array, "layers 2 d"]
    remembered: list[Remembered]
    places: Float[Array, "n place"]
    weights: Float[Array, "3 columns"]
    """w, v and u of Eq. (1)."""
    numbers: Float[Array, " numbers"]


class Solved(NamedTuple):
    """A task's kernel, and the solution of its ridge regression."""

    similar: Callable[[Array], Float[Array, "rows n"]]
    """k(x) of inputs."""
    itself: Callable[[Array], Float[Array, " rows"]]
    """k(x, x)."""
    factor: Float[Array, "n n"]
    """Cholesky factor of K + l I."""
    ridge: Float[Array, ""]
    dual: Float[Array, "n outputs"]
    mean: Float[Array, " outputs"]
    """Of the labels."""
    deviation: Float[Array, ""]
    """Of the targets; 1 for classes."""
    numbers: Float[Array, " numbers"]


def mixture(
    shares: Float[Array, "4"],
    weights: Float[Array, "3 columns"],
    ours: tuple[Cells, Places],
    theirs: tuple[Cells, Float[Array, "n place"]],
) -> Float[Array, "rows n"]:
    """A mixture of four kernels, all positive definite: linear in the standardised values, Gaussian
    in them, Laplacian in the ranks, Gaussian in the places. The first three have weights for each
    column. A missing cell is at distance one, along an axis of its own, from each cell that is
    there."""
    (cells, places), (others, other_places) = ours, theirs
    linear, smooth, steps = weights
    here, there = (c.there.astype(jnp.float32) for c in (cells, others))
    apart = squares(cells.score, others.score, smooth) + squares(here, there, smooth)
    ranked = jnp.abs(cells.rank[:, None] - others.rank) + jnp.square(here[:, None] - there)
    far = squares(places, other_places, jnp.ones(places.shape[1]))
    mixed: Array = (
        shares[0] * (cells.score * linear) @ others.score.T
        + shares[1] * jnp.exp(-apart / 2)
        + shares[2] * jnp.exp(-ranked @ steps)
        + shares[3] * jnp.exp(-far / 2)
    )
    return mixed


def squares(
    x: Float[Array, "rows d"], y: Float[Array, "n d"], weights: Float[Array, " d"]
) -> Float[Array, "rows n"]:
    """sum_d w_d (x_d - y_d)^2, by matrix products: their rounding matters little to a kernel."""
    own = jnp.square(x) @ weights
    other = jnp.square(y) @ weights
    return jnp.maximum(own[:, None] + other - 2 * (x * weights) @ y.T, 0.0)
