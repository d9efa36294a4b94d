"""The classifier of photographs' vectors: cosines in the metric of the examples, in closed form.

With v the features of a picture,

    z       = sign(v) sqrt|v|, scaled to length 1                                            [1]
    u       = z - the mean of the m_k, with weights n_k / (n_k + C) for n_k examples    [4]
    S       = the examples' scatter around the means m_k of their classes / (n - classes + NU)
    M       = (I + S / COVARIANCE_SHRINKAGE)^-1                                           [2, 3]
    w_k     = M m_k / sqrt(m_k . M m_k)
    p(k|u)  = softmax of  u . w_k / (|u| T) + log(prior of k)
    novelty = min_k (u - m_k) . M (u - m_k)  times  1 - max_k u . w_k / |u|,  divided by a bound

The prior of a class is its expected frequency; without a prior all classes are equally frequent.
The novelty is the distance to the nearest class times one minus the largest cosine. With five
examples of each class, it detects other classes better on all of seven sets of pictures than either
factor, the energy of the log-odds or the top probability (`benchmarks/results/photos.json`).

The temperature T maximises the likelihood of left-out examples, with the class frequencies of the
examples and a prior around `HEAD_TEMPERATURE` that counts as much as a few examples. The bound is
the novelty that 95% of the left-out examples do not exceed. If nothing can be left out, both have
values that suited other sets of pictures. An example with a sample weight of 2 counts twice.

`fit_metric` and `Head` compute with NumPy. With `jax.numpy` as `xp`, JAX traces them into ONNX
files, which learn and predict in a browser.

[1] Arandjelovic and Zisserman, Three Things Everyone Should Know to Improve Object Retrieval,
    CVPR 2012: the square root of features.
[2] Bateni, Goyal, Masrani, Wood and Sigal, Improved Few-Shot Visual Classification, CVPR 2020.
[3] Friedman, Regularized Discriminant Analysis, JASA 1989.
[4] Searle, Casella and McCulloch, Variance Components, 1992: in a model of random effects this is
    the best unbiased estimate of the mean over classes, for a variance within classes that is
    C times that of their means. The plain mean of the examples lies near the largest class. A
    vector near the origin has no direction, so that class was recognised less often.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from arml.predict.folds import MAX_FOLDS, Numbers, folds
from arml.predict.inputs import PRIOR_EQUAL, PRIOR_OF_EXAMPLES, Numeric, Prior
from arml.results.machine import one_blas_thread

COVARIANCE_SHRINKAGE = 0.005
"""The variance that the metric adds in every direction to that of the examples."""
DEGREES_OF_FREEDOM = 4
"""NU: the weight of the metric's prior, in degrees of freedom."""
CENTRE_VARIANCE = 8
"""C: the variance within classes divided by that of their means. Only the centre uses it."""
HEAD_TEMPERATURE = 0.11
"""The expected temperature: the centre of its prior."""
PRIOR_PRECISION = 5.0
"""The precision of the prior of log T."""
TEMPERATURE_GRID = np.geomspace(0.02, 0.6, 52)
INTERVAL_LEVEL = 0.95
"""The share of left-out examples whose novelty is below 1."""
NOVELTY_BOUND = 0.9
"""The bound if nothing can be left out, as a share of the median squared distance of classes."""
NEWTON_ITERATIONS = 16
"""Newton's iterations for the root of a matrix of a condition below 1 / COVARIANCE_SHRINKAGE."""


class Head(NamedTuple):
    """The fitted classifier."""

    middle: Numeric
    """`[d]`: the centre, a weighted mean of the m_k."""
    weights: Numeric
    """`[d, classes]`: the w_k."""
    lengths: Numeric
    """`[classes]`: the lengths of the class means in the metric."""
    factor: Numeric
    """`[rank, d]`: Q, with M = I - Q^T Q."""
    temperature: Numeric = 1.0
    bound: Numeric = 1.0
    prior: Numeric = 0.0
    """`[classes]`: the logarithms of the priors, up to a constant."""

    def answers(self, vectors: Numeric, xp: ModuleType = np) -> tuple[Numeric, Numeric]:
        """The log-odds `[n, classes]` and the novelty `[n]` of vectors `[n, d]`."""
        u = unit_roots(vectors, xp) - self.middle
        squares, along = xp.sum(u * u, axis=1, keepdims=True), u @ self.weights
        cosines = along / xp.maximum(xp.sqrt(squares), 1e-9)
        shrunk = u @ self.factor.T
        own = squares - xp.sum(shrunk * shrunk, axis=1, keepdims=True)
        away = own - 2 * along * self.lengths + self.lengths * self.lengths
        nearest = xp.maximum(-xp.max(-away, axis=1), 0)
        novelty = nearest * xp.maximum(1 - xp.max(cosines, axis=1), 0)
        return cosines / self.temperature + self.prior, novelty / self.bound

    def logits(self, vectors: Numeric, xp: ModuleType = np) -> Numeric:
        """The log-odds without the novelty."""
        return self.answers(vectors, xp)[0]


def unit_roots(vectors: Numeric, xp: ModuleType = np) -> Numeric:
    """Square roots of features with their signs, scaled to length 1."""
    roots = xp.sign(vectors) * xp.sqrt(xp.abs(vectors))
    length = xp.sqrt(xp.sum(roots * roots, axis=1, keepdims=True))
    return roots / xp.maximum(length, 1e-9)


def factor_of(rows: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "rank d"]:
    """Q, with (I + R^T R / COVARIANCE_SHRINKAGE)^-1 = I - Q^T Q, from at most `n` equations."""
    if len(rows) > rows.shape[1]:
        rows = np.asarray(np.linalg.qr(rows, mode="r"))
    system = COVARIANCE_SHRINKAGE * np.eye(len(rows)) + rows @ rows.T
    return np.linalg.solve(np.linalg.cholesky(system), rows)


def traced_factor(rows: Numeric) -> Numeric:
    """`factor_of` with products of matrices only, because ONNX cannot factorise a matrix. The
    iteration of Newton and Schulz gives the inverse square root of the system."""
    import jax.numpy as jnp

    places = jnp.arange(len(rows))
    one = (places[:, None] == places).astype(rows.dtype)
    system = COVARIANCE_SHRINKAGE * one + rows @ rows.T
    size = jnp.sqrt(jnp.sum(system * system))
    y, z = system / size, one
    for _ in range(NEWTON_ITERATIONS):
        half = 1.5 * one - 0.5 * (z @ y)
        y, z = y @ half, half @ z
    return (z / jnp.sqrt(size)) @ rows


def fit_metric(
    x: Numeric,
    member: Numeric,
    weight: Numeric,
    factor: Callable[[Numeric], Numeric] = factor_of,
    xp: ModuleType = np,
) -> Head:
    """The head of vectors `[n, d]` with their `weight` `[n]`. `member` `[n, classes]` is 1 where an
    example is of a class. The temperature and the bound of the head are 1."""
    z, counts = unit_roots(x, xp), weight @ member
    means = ((member * weight[:, None]).T @ z) / counts[:, None]
    middle = ((counts / (counts + CENTRE_VARIANCE)) @ means) / xp.sum(
        counts / (counts + CENTRE_VARIANCE)
    )
    spare = xp.maximum(xp.sum(weight) - xp.sum(counts / counts), 0) + DEGREES_OF_FREEDOM
    q = factor((z - member @ means) * xp.sqrt(weight / spare)[:, None])
    away = means - middle
    mapped = away - (away @ q.T) @ q
    lengths = xp.sqrt(xp.maximum(xp.sum(mapped * away, axis=1), 1e-12))
    return Head(middle, (mapped / lengths[:, None]).T, lengths, q)


def _metric(x: np.ndarray, y: np.ndarray, ways: int, weight: np.ndarray) -> Head:
    head = fit_metric(np.asarray(x, np.float32), np.eye(ways)[y], weight)
    return Head(*(np.asarray(part, np.float32) for part in head[:4]))


def _apart(x: np.ndarray, y: np.ndarray, head: Head) -> np.ndarray:
    z = unit_roots(x)
    return np.asarray(2 - 2 * (z @ z.T)[y[:, None] != y])


class Rule(NamedTuple):
    """How a head is fitted. The defaults are for photographs."""

    fit: Callable[..., Any] = _metric
    """From vectors, label indices, number of classes and weights to a head with `answers`, whose
    temperature and bound are 1 and whose prior is `natural`."""
    apart: Callable[..., np.ndarray] = _apart
    """From vectors, labels and head to the distances between examples of different classes."""
    natural: Prior = PRIOR_EQUAL
    temperature: float = HEAD_TEMPERATURE
    """The expected temperature."""
    tried: Float[np.ndarray, " k"] = TEMPERATURE_GRID
    folds: int = MAX_FOLDS


def fit_head(
    x: Float[np.ndarray, "n d"],
    y: Int[np.ndarray, " n"],
    ways: int,
    sample_weight: Float[np.ndarray, " n"] | None = None,
    same: Numbers | None = None,
    groups: Numbers | None = None,
    left_out: bool = True,
    prior: Prior = PRIOR_EQUAL,
    rule: Rule = Rule(),  # noqa: B008
) -> Any:
    """Fit the head of labelled vectors.

    **Arguments**

    - `same`, `groups`: a number for each example. Equal examples, and examples of one group, have
      the same number and are left out together.
    - `left_out`: whether to choose the temperature and the bound on left-out examples.
    - `prior`: `PRIOR_EQUAL`, `PRIOR_OF_EXAMPLES`, or the share of each class, in their order.
    """
    from scipy.special import log_softmax

    weight = np.ones(len(y)) if sample_weight is None else sample_weight
    counts = weight @ np.eye(ways)[y]
    natural = log_shares(rule.natural, counts)
    moved = (log_shares(prior, counts) - natural).astype(np.float32)
    with one_blas_thread():
        head = rule.fit(x, y, ways, weight)._replace(prior=moved)
        if not left_out:
            return head._replace(temperature=rule.temperature)
        found = [
            (*rule.fit(x[train], y[train], ways, weight[train]).answers(x[test]), test)
            for train, test in folds(y, same, groups, most=rule.folds)
        ]
    if not found:
        bound = max(NOVELTY_BOUND * float(np.median(rule.apart(x, y, head))), 1e-6)
        return head._replace(temperature=rule.temperature * (1 + 1 / ways), bound=bound)
    logits, novelty, places = map(np.concatenate, zip(*found, strict=True))
    shift, own = log_shares(PRIOR_OF_EXAMPLES, counts) - natural, y[places][:, None]
    gain = np.zeros(len(rule.tried))
    for i, tried in enumerate(rule.tried):  # one after another: with many classes they are large
        logs = log_softmax(logits / tried + shift, axis=1)
        gain[i] = np.take_along_axis(logs, own, axis=1)[:, 0] @ weight[places]
    gain -= PRIOR_PRECISION / 2 * np.square(np.log(rule.tried / rule.temperature))
    bound = max(float(np.quantile(novelty, INTERVAL_LEVEL, method="higher")), 1e-6)
    return head._replace(temperature=float(rule.tried[np.argmax(gain)]), bound=bound)


def log_shares(prior: Prior, counts: np.ndarray) -> Float[np.ndarray, " classes"]:
    """The logarithms of the priors of classes that have these `counts` of examples."""
    named = counts if prior == PRIOR_OF_EXAMPLES else np.ones(len(counts))
    shares = named if isinstance(prior, str) else np.array([*prior.values()])
    return np.log(shares / shares.mean())
