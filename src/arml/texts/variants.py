"""Whether several texts are variants of one, such as replies that quote a mail, or edited copies.

These texts must be left out together, or the check is too optimistic: see `arml.predict.together`.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from arml.predict.folds import MAX_COMPARED_IN_PAIRS
from arml.texts.head import HASH_BUCKETS, TERM_SLOTS, features, rarity_of

MAX_DISTANCE_OF_VARIANTS = 0.4
"""Two texts may be variants of one if their distance is below this share of the median distance
within their class. The median of independent reviews, news, questions and SMS is 0.8 to 0.97, that
of 40 questions of one kind to a bank 0.50 to 0.57, and of 100 about 0.4. For copies of which every
tenth word was replaced, or replies that quote a mail three times as long, it is below 0.4."""


def has_variants(vectors: Float[np.ndarray, "n d"], labels: Sequence[object]) -> bool:
    """Whether half of the texts are much nearer to another one of their class than usual in this
    class. A distance is one minus the cosine of the TF-IDF of n-grams of characters. Copies count
    once. A class with fewer than four texts is not checked."""
    slots, shares = vectors[:, -TERM_SLOTS:], [np.zeros(0)]
    rarity = rarity_of(slots, np.ones(len(slots)))
    for label in dict.fromkeys(labels):
        own = np.unique(slots[[one == label for one in labels]], axis=0)[:MAX_COMPARED_IN_PAIRS]
        grams = features(own, rarity)[:, HASH_BUCKETS:]  # of length 1 / sqrt(2)
        away = 1 - 2 * (grams @ grams.T).toarray()
        if len(own) > 3 and (usual := np.median(away[np.triu_indices(len(own), 1)])) > 0:
            np.fill_diagonal(away, np.inf)
            shares.append(away.min(axis=1) / usual)
    every = np.concatenate(shares)
    return 2 * len(every) >= len(labels) and bool(np.median(every) < MAX_DISTANCE_OF_VARIANTS)
