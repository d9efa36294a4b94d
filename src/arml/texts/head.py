"""The classifier of vectors of texts: logistic regression on their meaning and their words.

A vector of a text holds the encoder's vector e, of length 1, and the hashed counts [1] of its words
and of its n-grams of characters. With w and c the TF-IDF [2] of these counts, each of length 1, by
the document frequencies of the examples,

    z         = [e, WORDS_LENGTH (w, c) / sqrt(2)]
    p(k|z)    = softmax of  (z . w_k + b_k) / T + log(prior of k / share of k among the examples)
    novelty   = (1 - max_k cos(z, m_k)) / a bound

with m_k the mean z of class k. The penalty is that of `arml.predict.scikit.logistic`, and
`arml.predict.head.fit_head` finds T and the bound. Each fold computes all of this again, including
the document frequencies, from the examples that it learns from.

`WORDS_LENGTH`, `TEXT_TEMPERATURE` and the measure of novelty suited three sets of texts (SMS spam,
film reviews, questions); `benchmarks/results/texts.json` reports them on others.

[1] Weinberger et al., Feature Hashing for Large Scale Multitask Learning, ICML 2009.
[2] As scikit-learn's `TfidfVectorizer(sublinear_tf=True)` computes it.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array, hstack

from arml.predict.head import Rule
from arml.predict.inputs import PRIOR_OF_EXAMPLES
from arml.predict.scikit import logistic

HASH_BUCKETS = 2**16
"""The number of hashes of words, and also of n-grams of characters."""
TERM_SLOTS = 4096
"""The largest number of words and n-grams that are kept of a text."""
COUNT_BASE = 128
"""Counts are smaller. A slot holds hash * COUNT_BASE + count in 32 bits, or 0 if it is empty."""
WORDS_LENGTH = 0.4
"""The length of the vector of words, beside the encoder's vector of length 1."""
TEXT_TEMPERATURE = 0.8
"""The expected temperature: the centre of its prior."""


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
    """Added to the log-odds, which assume `PRIOR_OF_EXAMPLES`, if the prior is another."""

    def answers(self, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The log-odds `[n, classes]` and the novelty `[n]` of vectors `[n, d]`."""
        z = features(vectors, self.rarity)
        logits = (z @ self.weights + self.offsets) / self.temperature
        cosines = (z @ self.means.T).max(axis=1) / np.maximum(lengths(z), 1e-9)
        return logits + self.prior, np.maximum(1 - cosines, 0) / self.bound

    def logits(self, vectors: np.ndarray) -> np.ndarray:
        """The log-odds without the novelty."""
        return self.answers(vectors)[0]


def counts_of(vectors: Float[np.ndarray, "n d"]) -> csr_array:
    """The counts of words and n-grams `[n, hashes]` in vectors of texts."""
    slots = vectors[:, -TERM_SLOTS:].astype(np.int64)
    rows, places = np.nonzero(slots)
    hashes, counts = np.divmod(slots[rows, places], COUNT_BASE)
    return csr_array((counts.astype(np.float64), (rows, hashes)), (len(vectors), 2 * HASH_BUCKETS))


def features(vectors: Float[np.ndarray, "n d"], rarity: Float[np.ndarray, " hashes"]) -> csr_array:
    """z `[n, dimension + hashes]`, from the vectors of texts."""
    z, meaning = counts_of(vectors), vectors[:, :-TERM_SLOTS]
    rows = np.repeat(np.arange(len(vectors)), np.diff(z.indptr))
    block = 2 * rows + (z.indices >= HASH_BUCKETS)
    values = (1 + np.log(z.data)) * rarity[z.indices]
    sizes = np.sqrt(np.bincount(block, values**2, minlength=2 * len(vectors)))
    length = (WORDS_LENGTH if meaning.shape[1] else 1.0) / np.sqrt(2)
    z.data = length * values / np.maximum(sizes, 1e-9)[block]
    return csr_array(hstack([csr_array(meaning.astype(np.float64)), z]))


def lengths(z: csr_array) -> Float[np.ndarray, " n"]:
    """The length of each row."""
    return np.sqrt(np.asarray(z.multiply(z).sum(axis=1)))


def rarity_of(
    vectors: Float[np.ndarray, "n d"], weight: Float[np.ndarray, " n"]
) -> Float[np.ndarray, " hashes"]:
    """The inverse document frequencies of texts with these weights."""
    often = weight @ counts_of(vectors).astype(bool).astype(np.float64)
    return np.where(often > 0, np.log((1 + weight.sum()) / (1 + often)) + 1, 0)


class Axes(NamedTuple):
    """The principal axes of examples: no more axes than examples, with the same linear fit."""

    rarity: Float[np.ndarray, " hashes"]
    z: csr_array
    """The `features` of the examples."""
    turn: Float[np.ndarray, "n k"]
    middle: Float[np.ndarray, " k"]

    def places(self, vectors: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "m k"]:
        """The coordinates of texts on the axes. Those of the examples have the mean square 1."""
        products = features(vectors, self.rarity) @ self.z.T
        return products.toarray() @ self.turn - self.middle


def axes_of(x: Float[np.ndarray, "n d"], weight: Float[np.ndarray, " n"]) -> Axes:
    """The axes of texts, by the document frequencies among them."""
    share, rarity = weight / weight.sum(), rarity_of(x, weight)
    z = features(x, rarity)
    products = (z @ z.T).toarray()
    across = products @ share
    centred = products - across[:, None] - across + share @ across
    sizes, axes = np.linalg.eigh(centred)
    kept = sizes > 1e-9 * max(sizes.max(), 1e-12)
    scale = np.sqrt(share @ np.maximum(np.diag(centred), 0)) + 1e-12
    turn = axes[:, kept] / np.sqrt(sizes[kept]) / scale
    turn -= share[:, None] * turn.sum(axis=0)
    return Axes(rarity, z, turn, across @ turn)


def _fitted(x: np.ndarray, y: np.ndarray, ways: int, weight: np.ndarray) -> TextHead:
    axes, member = axes_of(x, weight), weight[:, None] * np.eye(ways)[y]
    means = (axes.z.T @ (member / np.maximum(member.sum(axis=0), 1e-9))).T
    means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-9)
    each, offsets = logistic(axes.places(x), y, ways, weight)
    weights = axes.z.T @ (axes.turn @ each.T)
    parts = axes.rarity, weights, offsets - each @ axes.middle, means
    return TextHead(parts[0], *(part.astype(np.float32) for part in parts[1:]))


def _apart(x: np.ndarray, y: np.ndarray, head: TextHead) -> np.ndarray:
    z = features(x, head.rarity)
    size = np.maximum(lengths(z), 1e-9)
    return (1 - (z @ z.T).toarray() / size / size[:, None])[y[:, None] != y]


TEXT_RULE = Rule(
    _fitted,
    _apart,
    PRIOR_OF_EXAMPLES,
    TEXT_TEMPERATURE,
    TEXT_TEMPERATURE * np.geomspace(0.06, 10, 80),
    5,
)
