"""The classifier of vectors of texts: logistic regression on their meaning and their words.

A vector of a text holds the encoder's vector e, of length 1, and the counts of its words and of
its n-grams of characters, by their hashes [1]. With w and c their TF-IDF [2], each of length 1, by
the document frequencies of the examples,

    z         = [e, WORDS (w, c) / sqrt(2)]
    p(k|z)    = softmax of  (z . w_k + b_k) / T + log(prior of k / share of k among the examples)
    novelty   = (1 - max_k cos(z, m_k)) / a bound

with m_k the mean z of class k. The penalty of the logistic regression is the one of
`arml.predict.models`, and T maximises the likelihood of examples that were left out, with a prior
around `TEMPERATURE`. The bound is the novelty below which 95% of these are. All of it, the document
frequencies too, comes from the examples that are kept, so each fold learns it anew.

`WORDS`, `TEMPERATURE` and the measure of novelty suited three sets of texts (SMS spam, film
reviews, questions); `benchmarks/results/texts.json` reports them on others.

[1] Weinberger et al., Feature Hashing for Large Scale Multitask Learning, ICML 2009.
[2] As scikit-learn's `TfidfVectorizer(sublinear_tf=True)` computes it.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array, hstack
from sklearn.linear_model import LogisticRegression

from arml.predict.folds import Numbers, folds
from arml.predict.head import APART, LEVEL, log_shares, temperature_of
from arml.predict.inputs import EXAMPLES, Prior
from arml.results.machine import one_blas_thread

HASHED = 2**16
"""Hashes of words, and of n-grams of characters."""
SLOTS = 4096
"""Words and n-grams of a text that are kept, at most."""
MOST = 128
"""Above the largest count. A slot holds (hash MOST + count), exactly in 32 bits; 0 is empty."""
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

    rarity: Float[np.ndarray, " hashes"]
    """The inverse document frequencies."""
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
        cosines = (z @ self.means.T).max(axis=1) / np.maximum(lengths(z), 1e-9)
        return logits + self.prior, np.maximum(1 - cosines, 0) / self.bound

    def logits(self, vectors: np.ndarray) -> np.ndarray:
        """The log-odds alone."""
        return self.answers(vectors)[0]


def counts_of(vectors: Float[np.ndarray, "n d"]) -> csr_array:
    """The counts of words and n-grams `[n, hashes]` in vectors of texts."""
    slots = vectors[:, -SLOTS:].astype(np.int64)
    rows, places = np.nonzero(slots)
    hashes, counts = np.divmod(slots[rows, places], MOST)
    return csr_array((counts.astype(np.float64), (rows, hashes)), (len(vectors), 2 * HASHED))


def features(vectors: Float[np.ndarray, "n d"], rarity: Float[np.ndarray, " hashes"]) -> csr_array:
    """z `[n, dimension + hashes]`, from the vectors of texts."""
    z, meaning = counts_of(vectors), vectors[:, :-SLOTS]
    rows = np.repeat(np.arange(len(vectors)), np.diff(z.indptr))
    block = 2 * rows + (z.indices >= HASHED)
    values = (1 + np.log(z.data)) * rarity[z.indices]
    sizes = np.sqrt(np.bincount(block, values**2, minlength=2 * len(vectors)))
    length = (WORDS if meaning.shape[1] else 1.0) / np.sqrt(2)
    z.data = length * values / np.maximum(sizes, 1e-9)[block]
    return csr_array(hstack([csr_array(meaning.astype(np.float64)), z]))


def lengths(z: csr_array) -> Float[np.ndarray, " n"]:
    """The length of each row."""
    return np.sqrt(np.asarray(z.multiply(z).sum(axis=1)))


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
        size = np.maximum(lengths(z), 1e-9)
        bound = APART * np.median((1 - (z @ z.T).toarray() / size / size[:, None])[y[:, None] != y])
        return head._replace(temperature=TEMPERATURE * (1 + 1 / ways), bound=max(bound, 1e-6))
    logits, novelty, places = map(np.concatenate, zip(*parts, strict=True))
    temperature = temperature_of(logits, y[places], weight[places], TEMPERATURE, TEMPERATURES)
    bound = float(np.quantile(novelty, LEVEL, method="higher"))
    return head._replace(temperature=temperature, bound=max(bound, 1e-6))


def _fitted(x: np.ndarray, y: np.ndarray, ways: int, weight: np.ndarray) -> TextHead:
    counts = counts_of(x)
    often = weight @ counts.astype(bool).astype(np.float64)
    rarity = np.where(often > 0, np.log((1 + weight.sum()) / (1 + often)) + 1, 0)
    z, member = features(x, rarity), weight[:, None] * np.eye(ways)[y]
    means = (z.T @ (member / np.maximum(member.sum(axis=0), 1e-9))).T
    means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-9)
    # In the axes of the centred examples, of which there are fewer than numbers: it changes no fit.
    share = weight / weight.sum()
    products = (z @ z.T).toarray()
    across = products @ share
    centred = products - across[:, None] - across + share @ across
    sizes, axes = np.linalg.eigh(centred)
    kept = sizes > 1e-9 * max(sizes.max(), 1e-12)
    scale = np.sqrt(share @ np.maximum(np.diag(centred), 0)) + 1e-12
    weights, offsets, kinds = np.zeros((z.shape[1], ways)), np.full(ways, -50.0), np.unique(y)
    offsets[kinds] = 0
    if len(kinds) > 1 and kept.any():
        logistic = LogisticRegression(C=1 / (_PENALTY * weight.sum()), max_iter=1000)
        logistic.fit(axes[:, kept] * np.sqrt(sizes[kept]) / scale, y, weight)
        coefficients, offset = logistic.coef_, logistic.intercept_
        if len(kinds) == 2:  # of two classes it states the log-odds of the second
            coefficients, offset = (np.stack([-a[0], a[0]]) / 2 for a in (coefficients, offset))
        each = axes[:, kept] / np.sqrt(sizes[kept]) @ coefficients.T / scale
        each -= share[:, None] * each.sum(axis=0)
        weights[:, kinds], offsets[kinds] = z.T @ each, offset - across @ each
    narrow = np.float32
    return TextHead(rarity, weights.astype(narrow), offsets.astype(narrow), means.astype(narrow))
