"""The classifier of vectors of texts: logistic regression on their meaning and their words.

A vector of a text holds the encoder's vector e, of length 1, and the signs of hashed words and of
hashed n-grams of characters [1]. With the inverse document frequencies f of the examples,

    z         = [e, WORDS (f w / |f w|, f c / |f c|) / sqrt(2)]
    p(k|z)    = softmax of  (z . w_k + b_k) / T + log(prior of k / share of k among the examples)
    novelty   = (1 - max_k cos(z, m_k)) / a bound

with m_k the mean z of class k. The hashed part is TF-IDF in 4,096 numbers. The penalty of the
logistic regression is the one of `arml.predict.models`, and T maximises the likelihood of examples
that were left out, with a prior around `TEMPERATURE`. The bound is the novelty below which 95% of
these are. All of it, f too, comes from the examples that are kept, so each fold learns it anew.

`WORDS`, `TEMPERATURE` and the measure of novelty suited three sets of texts (SMS spam, film
reviews, questions); `benchmarks/results/texts.json` reports them on others.

[1] Weinberger et al., Feature Hashing for Large Scale Multitask Learning, ICML 2009.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from sklearn.linear_model import LogisticRegression

from arml.predict.folds import Numbers, folds
from arml.predict.head import APART, LEVEL, log_shares, temperature_of
from arml.predict.inputs import EXAMPLES, Prior
from arml.results.machine import one_blas_thread

BLOCKS = (1024, 3072)
"""Numbers of the hashed words, and of the hashed n-grams of characters."""
HASHED = sum(BLOCKS)
WORDS = 0.4
"""The length of the words beside an encoder's vector of length 1."""
TEMPERATURE = 0.8
"""The temperature around which that of left-out examples is expected."""
TEMPERATURES = TEMPERATURE * np.geomspace(0.06, 10, 80)
FOLDS = 5
"""By which the temperature and the bound are chosen."""
_PENALTY = 0.001
"""Weight of half the squared weights beside the mean loss, for inputs of mean square 1."""


class TextHead(NamedTuple):
    """The fitted classifier."""

    rarity: Float[np.ndarray, " hashed"]
    """The inverse document frequencies f."""
    weights: Float[np.ndarray, "d classes"]
    offsets: Float[np.ndarray, " classes"]
    means: Float[np.ndarray, "classes d"]
    """The m_k, scaled to length 1."""
    temperature: float = 1.0
    bound: float = 1.0
    prior: Float[np.ndarray, " classes"] | float = 0.0
    """What another prior than `EXAMPLES`, of which the log-odds are, adds to them."""

    def answers(self, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The log-odds `[n, classes]` and the novelty `[n]` of vectors `[n, d]`."""
        z = features(vectors, self.rarity)
        logits = (z @ self.weights + self.offsets) / self.temperature
        cosines = (z @ self.means.T).max(axis=1) / np.maximum(np.linalg.norm(z, axis=1), 1e-9)
        return logits + self.prior, np.maximum(1 - cosines, 0) / self.bound

    def logits(self, vectors: np.ndarray) -> np.ndarray:
        """The log-odds alone."""
        return self.answers(vectors)[0]


def features(
    vectors: Float[np.ndarray, "n d"], rarity: Float[np.ndarray, " hashed"]
) -> Float[np.ndarray, "n d"]:
    """z, from the vectors of texts."""
    words, grams = np.split(vectors[:, -HASHED:] * rarity, [BLOCKS[0]], axis=1)
    scaled = [
        x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9) for x in (words, grams)
    ]
    length = (WORDS if vectors.shape[1] > HASHED else 1.0) / np.sqrt(2)
    return np.concatenate([vectors[:, :-HASHED], *(length * x for x in scaled)], axis=1)


def fit_text_head(
    x: Float[np.ndarray, "n d"],
    y: Int[np.ndarray, " n"],
    ways: int,
    sample_weight: Float[np.ndarray, " n"] | None = None,
    same: Numbers | None = None,
    groups: Numbers | None = None,
    left_out: bool = True,
    prior: Prior = EXAMPLES,
) -> TextHead:
    """The classifier of labelled vectors; for the arguments see `arml.predict.head.fit_head`."""
    weight = np.ones(len(y)) if sample_weight is None else sample_weight
    with one_blas_thread():
        counts = weight @ np.eye(ways)[y]
        moved = log_shares(prior, counts) - log_shares(EXAMPLES, counts)
        head = _fitted(x, y, ways, weight)._replace(prior=moved)
        if not left_out:
            return head._replace(temperature=TEMPERATURE)
        parts = [
            (*_fitted(x[train], y[train], ways, weight[train]).answers(x[test]), test)
            for train, test in folds(y, same, groups, most=FOLDS)
        ]
    if not parts:
        z = features(x, head.rarity)
        z /= np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-9)
        bound = APART * np.median((1 - z @ z.T)[y[:, None] != y])
        return head._replace(temperature=TEMPERATURE * (1 + 1 / ways), bound=max(bound, 1e-6))
    logits, novelty, places = map(np.concatenate, zip(*parts, strict=True))
    temperature = temperature_of(logits, y[places], weight[places], TEMPERATURE, TEMPERATURES)
    bound = float(np.quantile(novelty, LEVEL, method="higher"))
    return head._replace(temperature=temperature, bound=max(bound, 1e-6))


def _fitted(x: np.ndarray, y: np.ndarray, ways: int, weight: np.ndarray) -> TextHead:
    often = weight @ (x[:, -HASHED:] != 0)
    rarity = (np.log((1 + weight.sum()) / (1 + often)) + 1).astype(np.float32)
    z, member = features(x, rarity).astype(np.float64), weight[:, None] * np.eye(ways)[y]
    means = member.T @ z / np.maximum(member.sum(axis=0), 1e-9)[:, None]
    means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-9)
    middle = np.average(z, axis=0, weights=weight)
    centred = z - middle
    # In the axes of the examples, of which there are fewer than numbers; it changes no fit.
    sizes, axes = np.linalg.eigh(centred @ centred.T)
    kept = sizes > 1e-9 * max(sizes.max(), 1e-12)
    turn = centred.T @ (axes[:, kept] / np.sqrt(sizes[kept]))
    scale = np.sqrt(np.average((centred**2).sum(axis=1), weights=weight)) + 1e-12
    weights, offsets, kinds = np.zeros((z.shape[1], ways)), np.full(ways, -50.0), np.unique(y)
    offsets[kinds] = 0
    if len(kinds) > 1 and kept.any():
        logistic = LogisticRegression(C=1 / (_PENALTY * weight.sum()), max_iter=1000)
        logistic.fit(centred @ turn / scale, y, weight)
        coefficients, offset = logistic.coef_, logistic.intercept_
        if len(kinds) == 2:  # of two classes it states the log-odds of the second
            coefficients, offset = (np.stack([-a[0], a[0]]) / 2 for a in (coefficients, offset))
        weights[:, kinds] = turn @ coefficients.T / scale
        offsets[kinds] = offset - middle @ weights[:, kinds]
    narrow = np.float32
    return TextHead(rarity, weights.astype(narrow), offsets.astype(narrow), means.astype(narrow))
