"""Columns of free text in a table: notes, reviews, descriptions.

The other columns predict first. A ridge regression on the words of a text then learns the
residual r = y - p for examples that were left out, and its answers are added to the log-odds of
the classes, or to the number, as in a step of gradient boosting [1]:

    f(x) = f_0(x) + sum_c w_c (k_c(x) - mean k_c) a_c, (K_c + RIDGE_PENALTY I) a_c = r - mean r  (1)

with K_c the products of TF-IDF vectors, which are of length 1 and hold words and the n-grams of
characters within words, centred on the examples. The weight w_c is the best of `SCORE_WEIGHTS` for
examples that were left out, by the gain of their likelihood less `MIN_STANDARD_ERRORS`. A column
without this gain is not used. Document frequencies are counted on the examples of each fold only.
A predictor keeps hashed counts of its texts.

[1] Friedman, Greedy Function Approximation: A Gradient Boosting Machine, Annals of Statistics 2001.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array, hstack

from arml.predict.folds import Places
from arml.results.machine import one_blas_thread

WORD_HASHES = 2**18
"""Hashes of words, and of n-grams of characters."""
MAX_LETTERS = 5_000
"""The letters of a text that are read, from its start."""
MAX_EXAMPLES = 2_000
"""The most examples from which a column's words are learned. Of more, every k-th is used."""
RIDGE_PENALTY = 1.0
SCORE_WEIGHTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Candidate weights w_c of the scores that are added to log-odds."""
MIN_STANDARD_ERRORS = 2.0
"""Standard errors to subtract from a gain. With one, shuffled texts of reviews were often used."""

_Outputs = Float[np.ndarray, "n outputs"]


def counts_of(texts: Sequence[str], hashes: int = WORD_HASHES) -> csr_array:
    """The counts of words, and of n-grams of two to five characters within words, by `hashes` hash
    values each `[n, 2 * hashes]`."""
    from sklearn.feature_extraction.text import HashingVectorizer  # rare, and slow to load

    plain = {"n_features": hashes, "norm": None, "alternate_sign": False}
    kinds = (
        HashingVectorizer(**plain),
        HashingVectorizer(analyzer="char_wb", ngram_range=(2, 5), **plain),
    )
    return csr_array(hstack([kind.transform(texts) for kind in kinds]))


class Words(NamedTuple):
    """The part of the outputs that the words of one column add."""

    column: int
    """The index of the column among those of texts."""
    weight: float
    rows: Places
    """The examples from which they were learned."""
    dual: Float[np.ndarray, "m outputs"]
    """Their a of Eq. (1)."""

    def function(self, examples: csr_array) -> Callable[[csr_array], _Outputs]:
        """Maps the counts of texts to the added outputs; zero for an empty text."""
        tfidf, known = _tfidf(examples[self.rows])
        offset = (known @ known.mean(axis=0)) @ self.dual

        def added(counts: csr_array) -> _Outputs:
            found = (tfidf(counts) @ known.T) @ self.dual - offset
            return self.weight * np.where(np.diff(counts.indptr)[:, None] > 0, found, 0.0)

        return added


def fit_words(
    texts: Sequence[csr_array],
    places: Places,
    rest: Callable[[_Outputs], _Outputs],
    outputs: _Outputs,
    likelihood: Callable[[_Outputs], Float[np.ndarray, " n"]],
    parts: Sequence[Places],
) -> list[Words]:
    """What the words of columns add to the `outputs` of other columns for examples that were left
    out, the most helpful column first.

    **Arguments**

    - `places`: of these examples in the `texts`.
    - `rest`: the part of the answers that outputs leave.
    - `likelihood`: how well outputs fit the answer of each left-out example.
    - `parts`: the examples that were left out together, by their indices in `places`.
    """
    found, columns = list[Words](), {*range(len(texts))}
    while columns:
        r, before, best = rest(outputs), likelihood(outputs), None
        for column in columns:
            some, dual, own = _fitted(texts[column][places], r, parts)
            for weight in SCORE_WEIGHTS:
                gain = likelihood(outputs + weight * own) - before
                sure = gain.sum() - MIN_STANDARD_ERRORS * np.sqrt(len(gain)) * gain.std()
                if sure > (0.0 if best is None else best[0]):
                    best = sure, Words(column, weight, places[some], dual), outputs + weight * own
        if best is None:
            break
        _, one, outputs = best
        columns.remove(one.column)
        found.append(one)
    return found


def _fitted(
    counts: csr_array, r: _Outputs, parts: Sequence[Places]
) -> tuple[Places, np.ndarray, _Outputs]:
    """The examples that teach, their a, and the scores of the left-out examples."""
    (there,) = np.nonzero(np.diff(counts.indptr))
    some, own = there[:: 1 + len(there) // MAX_EXAMPLES], np.zeros(r.shape)
    if not len(some):
        return some, r[some], own
    tfidf, known = _tfidf(counts[some])
    with one_blas_thread():
        products = (tfidf(counts) @ known.T).toarray()
        for part in parts:
            test, kept = np.intersect1d(part, there), ~np.isin(some, part)
            if kept.any():
                among = products[np.ix_(some[kept], kept)]
                dual = _ridge(among, r[some[kept]])
                own[test] = (products[np.ix_(test, kept)] - among.mean(axis=0)) @ dual
        return some, _ridge(products[some], r[some]), own


def _tfidf(counts: csr_array) -> tuple[Callable[[csr_array], csr_array], csr_array]:
    """The function from counts to TF-IDF vectors, fitted to these, and theirs."""
    from sklearn.feature_extraction.text import TfidfTransformer

    made = TfidfTransformer(sublinear_tf=True).fit(counts)
    return lambda some: csr_array(made.transform(some)), csr_array(made.transform(counts))


def _ridge(k: Float[np.ndarray, "m m"], r: _Outputs) -> np.ndarray:
    """a of Eq. (1)."""
    middle = k.mean(axis=0)
    centred = k - middle - middle[:, None] + middle.mean() + RIDGE_PENALTY * np.eye(len(k))
    return np.linalg.solve(centred, r - r.mean(axis=0))
