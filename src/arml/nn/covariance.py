"""The regularised Mahalanobis distance, which takes the spread of each class into account.

d_k(f) = (f - c_k)^T Q_k^-1 (f - c_k), Q_k = l_k S_k + (1 - l_k) S + I, l_k = n_k / (n_k + 1): here
S_k is the covariance of class k, S that of all the task's examples. Directions in which the
examples of a class differ count for less. With one Q for all classes, W + I with the covariance W
within classes, the classifier is linear (`arml.nn.heads.discriminant`).

[1] Bateni, Goyal, Masrani, Wood and Sigal, Improved Few-Shot Visual Classification, CVPR 2020
    (Simple CNAPS). Equation numbers are this paper's.

Differences
- One example has no covariance: for a class of one shot Q_k is the identity, which gives the plain
  distance. The paper takes S, whose largest directions are those that tell the classes apart.
- Covariances divide by the number of examples, so that a class of any size has one.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from arml.core.compilation import unbatched
from arml.nn.prototypes import class_means


@jax.custom_jvp
def inverse(matrix: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """The inverse of a matrix, whose derivatives are products of the inverse."""
    return unbatched(jnp.linalg.inv)(matrix)


@inverse.defjvp
def _inverse_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    inverted = inverse(primals[0])
    return inverted, -inverted @ tangents[0] @ inverted


def solved(
    matrix: Float[Array, "d d"], given: Float[Array, "d k"]
) -> tuple[Float[Array, "d k"], Float[Array, ""]]:
    """The solution X of A X = B for a positive definite A, and the logarithm of A's determinant."""
    solution, volume, _ = _factored(matrix, given)
    return solution, volume


@jax.custom_jvp
def _factored(matrix: Array, given: Array) -> tuple[Array, Array, Array]:
    """The solution, the logarithm of the determinant, and the inverse, by one Cholesky factor.
    Their derivatives are products with the inverse."""

    def found(one: Array, right: Array) -> tuple[Array, Array, Array]:
        factor = jnp.linalg.cholesky(one)
        both = jnp.concatenate([right, jnp.eye(len(one), dtype=one.dtype)], axis=1)
        both = jax.scipy.linalg.cho_solve((factor, True), both)
        width = right.shape[1]
        return both[:, :width], 2 * jnp.sum(jnp.log(jnp.diag(factor))), both[:, width:]

    return unbatched(found)(matrix, given)


@_factored.defjvp
def _factored_jvp(
    primals: tuple[Array, Array], tangents: tuple[Array, Array]
) -> tuple[tuple[Array, Array, Array], tuple[Array, Array, Array]]:
    (matrix, _), (moved, shifted) = primals, tangents
    solution, volume, inverted = _factored(*primals)
    wanted = shifted - moved @ solution
    first = inverted @ wanted
    # Refined once, because float32 loses digits in the inverse.
    change = first + inverted @ (wanted - matrix @ first)
    return (
        (solution, volume, inverted),
        (change, jnp.sum(inverted.T * moved), -inverted @ moved @ inverted),
    )


STEPS = 64
"""Steps of conjugate gradients."""
TINY = 1e-30
"""The least number to divide by, when nothing is left to solve."""


@jax.jit
def shrunk(spread: Float[Array, "n d"], given: Float[Array, "k d"]) -> Float[Array, "k d"]:
    """The rows of B (A^T A + I)^-1, by the smaller of two systems, as in `Precisions`."""
    few = len(spread) < spread.shape[1]
    system = spread @ spread.T if few else spread.T @ spread
    system = system + jnp.eye(len(system), dtype=spread.dtype)
    if few:
        return given - solved(system, spread @ given.T)[0].T @ spread
    return solved(system, given.T)[0].T


def shrunk_by_products(
    spread: Float[Array, "n d"], given: Float[Array, "k d"]
) -> Float[Array, "k d"]:
    """As `shrunk`, by conjugate gradients: for a place that can do products alone, and where the
    number of examples is not known. They need about a step for each large eigenvalue of A^T A."""
    found, left = jnp.zeros_like(given), given
    way, size = left, jnp.sum(left**2, axis=1, keepdims=True)
    for _ in range(STEPS):
        ahead = way + (way @ spread.T) @ spread
        step = size / jnp.maximum(jnp.sum(way * ahead, axis=1, keepdims=True), TINY)
        found, left = found + step * way, left - step * ahead
        before, size = size, jnp.sum(left**2, axis=1, keepdims=True)
        way = left + size / jnp.maximum(before, TINY) * way
    return found


def spreads(
    features: Float[Array, "n d"], y: Int[Array, " n"], ways: int
) -> Float[Array, "ways 2*n d"]:
    """A_k of each class, where Q_k = A_k^T A_k + I: the weighted distances of the examples from the
    mean of the class, and from the mean of all. Eq. (2)."""
    n = len(features)
    member = jax.nn.one_hot(y, ways, axis=0, dtype=features.dtype)
    size = jnp.sum(member, axis=1, keepdims=True)
    means, _ = class_means(features, y, ways)
    share = size / (size + 1)
    own = member * share / jnp.maximum(size, 1)
    task = jnp.broadcast_to((1 - share) / n, member.shape)
    weights = jnp.where(size > 1, jnp.concatenate([own, task], axis=1), 0)
    away = features - jnp.mean(features, axis=0)
    apart = features - means[:, None]
    both = jnp.concatenate([apart, jnp.broadcast_to(away, apart.shape)], axis=1)
    return jnp.sqrt(weights)[..., None] * both


class Precisions(NamedTuple):
    """Q_k^-1 of each class: the matrices, or what gives them where there are fewer examples than
    features, Q^-1 = I - A^T (A A^T + I)^-1 A."""

    matrices: Float[Array, "ways m m"]
    """Q_k^-1, or (A_k A_k^T + I)^-1."""
    spreads: Float[Array, "ways m d"] | None
    """A_k, where the matrices are of this kind."""


def precisions(features: Float[Array, "n d"], y: Int[Array, " n"], ways: int) -> Precisions:
    """Q_k^-1 of each class, by the smaller of two systems."""
    spread = spreads(features, y, ways)
    rows, width = spread.shape[1:]
    few = rows < width
    product = jnp.einsum("kmd,kld->kml" if few else "kmd,kme->kde", spread, spread)
    system = product + jnp.eye(min(rows, width), dtype=spread.dtype)
    return Precisions(jax.vmap(inverse)(system), spread if few else None)


def mahalanobis(
    x: Float[Array, "n d"], means: Float[Array, "ways d"], precisions: Precisions
) -> Float[Array, "n ways"]:
    """d_k of each query."""
    away = x[:, None] - means
    if precisions.spreads is None:
        return jnp.sum(jnp.einsum("nkd,kde->nke", away, precisions.matrices) * away, axis=-1)
    seen = jnp.einsum("nkd,kmd->nkm", away, precisions.spreads)
    explained = jnp.sum(jnp.einsum("nkm,kml->nkl", seen, precisions.matrices) * seen, axis=-1)
    return jnp.sum(away**2, axis=-1) - explained
