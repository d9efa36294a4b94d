"""The Bayes-optimal predictor of the 2-D regression families: the floor of every learner's error.

It knows the six families, their priors and the noise. From one support set it predicts the mean of
the noiseless function under the posterior; no predictor has a smaller mean squared error. The
posterior is a set of weighted draws of the coefficients of each family. Its Gaussian parts are in
closed form, so a few thousand draws are enough:

- line, quadratic, cubic and surface are linear in their coefficients: the posterior is a Gaussian
  truncated to the prior's box, drawn one coefficient after another [1, 2];
- a sinusoid a sin(w x + b) is linear in (a cos b, a sin b) once w is drawn;
- a ripple is linear in its offset once its frequency is drawn.

The uniform numbers are not independent: they are a randomly shifted lattice [3], whose error is
smaller for the same number of draws.

[1] J. Geweke, Efficient simulation from the multivariate normal and Student-t distributions subject
    to linear constraints, 1991.
[2] V. Hajivassiliou, D. McFadden, P. Ruud, Simulation of multivariate normal rectangle
    probabilities, J. Econometrics 72, 1996.
[3] R. Cranley, T. Patterson, Randomization of number theoretic methods for multiple integration,
    SIAM J. Numer. Anal. 13, 1976.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, logsumexp, ndtri
from jaxtyping import Array, Float, PRNGKeyArray

import arml
from arml.core.compilation import unbatched
from arml.tasks.functions import (
    FAMILY_FUNCTIONS,
    FAMILY_NAMES,
    FLAT_FAMILIES,
    PRIOR_HIGH,
    PRIOR_LOW,
    Functions,
)

LINEAR = np.array([1, 2, 3, 4])
"""The families that are linear in all their coefficients."""

IMPOSSIBLE = -1e30
"""Log weight of a draw outside its prior. It is finite, so that a family without any draw inside
has probability zero, and not NaN."""

SPREAD = 4.0
"""Standard deviation of the Gaussian that replaces a sinusoid's prior in its proposal: so wide that
the weights stay bounded up to the largest amplitude, 5."""


class Posterior(NamedTuple):
    """Weighted draws: `coefficients` in the order of the priors' table; `log_weights` holds
    log(likelihood * prior / proposal) up to one constant shared by all families; `log_prior` the
    families' prior given the support inputs alone."""

    coefficients: Float[Array, "families draws 4"]
    log_weights: Float[Array, "families draws"]
    log_prior: Float[Array, " families"]

    def family(self) -> Float[Array, " families"]:
        """Probability of each family; sums to one."""
        return jax.nn.softmax(self.log_prior + logsumexp(self.log_weights, axis=1))

    def mean(self, x: Float[Array, "m 2"]) -> Float[Array, "m 1"]:
        """Posterior mean of the noiseless function at the points `x`."""
        weights = jax.nn.softmax(self.log_weights, axis=1) * self.family()[:, None]
        total = jnp.zeros(x.shape[0], x.dtype)
        for function, coefficients, weight in zip(
            FAMILY_FUNCTIONS, self.coefficients, weights, strict=True
        ):
            values = jax.vmap(function, in_axes=(0, None, None))(coefficients, x[:, 0], x[:, 1])
            total = total + weight @ values
        return total[:, None]


def posterior(
    tasks: Functions, support: arml.Examples, *, key: PRNGKeyArray, draws: int = 4096
) -> Posterior:
    """The posterior of ONE task given its support set (`x` `[n, 2]`, `y` `[n, 1]`).

    Raises `ValueError` if the tasks have no noise (the likelihood is then no density) or `draws`
    is below 1.
    """
    if tasks.noise <= 0:
        raise ValueError(
            f"the Bayes-optimal predictor needs noise > 0, got {tasks.noise}: "
            "noiseless tasks have no likelihood to weigh by"
        )
    if draws < 1:
        raise ValueError(f"draws must be 1 or more, got {draws}: a few thousand are usual")
    x, y, z = support.x[:, 0], support.x[:, 1], support.y[:, 0]
    shifts = jax.random.uniform(key, (len(FAMILY_NAMES), 1, 4), x.dtype)
    uniform = (jnp.asarray(_lattice(draws), x.dtype) + shifts) % 1.0

    # Columns of the design matrices: each linear family's function of the unit vectors.
    units = jnp.eye(4, dtype=x.dtype)
    designs = jnp.stack(
        [jax.vmap(FAMILY_FUNCTIONS[i], in_axes=(0, None, None))(units, x, y).T for i in LINEAR]
    )
    linear = jax.vmap(_linear, in_axes=(0, 0, 0, 0, None, None))(
        uniform[LINEAR],
        jnp.asarray(PRIOR_LOW[LINEAR], x.dtype),
        jnp.asarray(PRIOR_HIGH[LINEAR], x.dtype),
        designs,
        z,
        tasks.noise,
    )
    sinusoid = _sinusoid(uniform[0], x, z, tasks.noise)
    ripple = _ripple(uniform[5], x, y, z, tasks.noise)
    coefficients, log_weights = (
        jnp.concatenate([first[None], middle, last[None]])
        for first, middle, last in zip(sinusoid, linear, ripple, strict=True)
    )

    log_prior = jnp.zeros(len(FAMILY_NAMES), x.dtype)
    if tasks.flat:
        # The places of the points show whether the family ignores the second input.
        ignores = jnp.arange(len(FAMILY_NAMES)) < FLAT_FAMILIES
        log_prior = jnp.where(ignores == jnp.all(y == 1), log_prior, IMPOSSIBLE)
    return Posterior(coefficients, log_weights, log_prior)


Drawn = tuple[Float[Array, "draws 4"], Float[Array, " draws"]]


def _lattice(draws: int) -> np.ndarray:
    """The additive recurrence with the generalised golden ratio g, g^5 = g + 1, in 4 dimensions."""
    golden = np.roots([1, 0, 0, 0, -1, -1])
    golden = golden[np.isreal(golden)].real.max()
    steps = golden ** -np.arange(1.0, 5.0)
    return np.arange(draws)[:, None] * steps % 1.0


def _conditional(
    scale: Float[Array, "..."],
    target: Float[Array, " draws"],
    low: Float[Array, ""],
    high: Float[Array, ""],
    uniform: Float[Array, " draws"],
) -> tuple[Float[Array, " draws"], Float[Array, " draws"]]:
    """Draw c from exp(-(scale c - target)^2 / 2) on [low, high]; also return the log of the factor
    that weighs the draw: the mean of that density over the interval. If the density hardly changes
    there, c is drawn uniformly and the factor is the density at c."""
    sign = jnp.where(scale < 0, -1.0, 1.0).astype(target.dtype)
    start, stop = sign * (scale * low - target), sign * (scale * high - target)
    # The distribution function keeps its relative precision in the left tail: mirror to there.
    mirrored = start + stop > 0
    left, right = jnp.where(mirrored, -stop, start), jnp.where(mirrored, -start, stop)
    width = right - left
    narrow = width < 1e-2
    log_right = log_ndtr(right)
    # The mass of a narrow interval would be lost to cancellation.
    ratio = jnp.where(narrow, -1.0, log_ndtr(left) - log_right)
    log_mass = log_right + jnp.log1p(-jnp.exp(ratio)) + 0.5 * math.log(2 * math.pi)
    log_mean = log_mass - jnp.log(jnp.where(narrow, 1.0, width))
    share = jnp.where(mirrored, 1 - uniform, uniform)
    position = jnp.exp(log_right) * (share + (1 - share) * jnp.exp(ratio))
    # Beyond 13 standard deviations the mass underflows; it is all at the end nearest to the centre.
    quantile = jnp.clip(jnp.where(position > 0, ndtri(position), right), left, right)
    fraction = jnp.where(narrow, share, (quantile - left) / jnp.where(narrow, 1.0, width))
    fraction = jnp.where(mirrored, 1 - fraction, fraction)
    value = low + (high - low) * fraction
    return value, jnp.where(narrow, -0.5 * (scale * value - target) ** 2, log_mean)


_qr = unbatched(jnp.linalg.qr)


def _linear(
    uniform: Float[Array, "draws 4"],
    low: Float[Array, "4"],
    high: Float[Array, "4"],
    design: Float[Array, "n 4"],
    z: Float[Array, " n"],
    noise: float,
) -> Drawn:
    """A function linear in its coefficients, [1, 2]: with design = Q R the likelihood factors into
    one Gaussian a coefficient, each given the ones after it. A column of zeros (a coefficient that
    the family lacks) or too few points give R a zero on its diagonal: the prior, unchanged."""
    missing = max(0, 4 - z.shape[0])
    design = jnp.pad(design / noise, ((0, missing), (0, 0)))
    z = jnp.pad(z / noise, (0, missing))
    q, r = _qr(design)
    projected = q.T @ z
    residual = z - q @ projected
    draws = uniform.shape[0]
    log_weights = jnp.full(draws, -0.5 * residual @ residual)
    coefficients = jnp.zeros((draws, 4), z.dtype)
    for i in (3, 2, 1, 0):
        target = projected[i] - coefficients @ jnp.where(jnp.arange(4) > i, r[i], 0.0)
        value, factor = _conditional(r[i, i], target, low[i], high[i], uniform[:, i])
        coefficients = coefficients.at[:, i].set(value)
        log_weights = log_weights + factor
    return coefficients, log_weights


def _sinusoid(
    uniform: Float[Array, "draws 4"], x: Float[Array, " n"], z: Float[Array, " n"], noise: float
) -> Drawn:
    """a sin(w x + b) = p sin(w x) + q cos(w x): w from its prior, (p, q) from the Gaussian
    posterior under a Gaussian prior of standard deviation `SPREAD`. The true prior of (p, q) has
    density 1 / (2 pi (a_high - a_low) a) on the ring a_low < a < a_high, a^2 = p^2 + q^2."""
    low, high = PRIOR_LOW[0].tolist(), PRIOR_HIGH[0].tolist()
    w = low[1] + (high[1] - low[1]) * uniform[:, :1]
    sine, cosine = jnp.sin(w * x), jnp.cos(w * x)
    variance = noise * noise
    # The Cholesky factor [[l11, 0], [l21, l22]] of the 2 x 2 precision, for all draws at once.
    l11 = jnp.sqrt(jnp.sum(sine * sine, axis=1) / variance + SPREAD**-2)
    l21 = jnp.sum(sine * cosine, axis=1) / variance / l11
    # Rounding may take the difference below the prior's share, which is its smallest value.
    square = jnp.sum(cosine * cosine, axis=1) / variance + SPREAD**-2 - l21 * l21
    l22 = jnp.sqrt(jnp.maximum(square, SPREAD**-2))
    tiny = jnp.finfo(x.dtype).eps
    normal = ndtri(jnp.clip(uniform[:, 1:3], tiny, 1 - tiny))
    h1 = sine @ z / variance / l11
    h2 = (cosine @ z / variance - l21 * h1) / l22
    q = (h2 + normal[:, 1]) / l22
    p = (h1 + normal[:, 0] - l21 * q) / l11
    a, b = jnp.hypot(p, q), jnp.arctan2(q, p) % (2 * math.pi)
    residual = (z - p[:, None] * sine - q[:, None] * cosine) / noise
    log_weights = (
        -0.5 * jnp.sum(residual * residual, axis=1)
        - jnp.log((high[0] - low[0]) * a)
        - jnp.log(l11 * l22)
        + 0.5 * jnp.sum(normal * normal, axis=1)
    )
    log_weights = jnp.where((a >= low[0]) & (a <= high[0]), log_weights, IMPOSSIBLE)
    return jnp.stack([a, w[:, 0], b, jnp.zeros_like(a)], axis=1), log_weights


def _ripple(
    uniform: Float[Array, "draws 4"],
    x: Float[Array, " n"],
    y: Float[Array, " n"],
    z: Float[Array, " n"],
    noise: float,
) -> Drawn:
    """sin(-a (x^2 + y^2)) + b: a from its prior, b given a."""
    low, high = PRIOR_LOW[5].tolist(), PRIOR_HIGH[5].tolist()
    a = low[0] + (high[0] - low[0]) * uniform[:, 0]
    only_a = jnp.zeros((a.shape[0], 4), x.dtype).at[:, 0].set(a)
    rest = (z - jax.vmap(FAMILY_FUNCTIONS[5], in_axes=(0, None, None))(only_a, x, y)) / noise
    centre = jnp.mean(rest, axis=1)
    root = math.sqrt(z.shape[0])
    scale = jnp.asarray(root / noise, x.dtype)
    b, factor = _conditional(
        scale,
        root * centre,
        jnp.asarray(low[1], x.dtype),
        jnp.asarray(high[1], x.dtype),
        uniform[:, 1],
    )
    spread = rest - centre[:, None]
    return only_a.at[:, 1].set(b), factor - 0.5 * jnp.sum(spread * spread, axis=1)
