"""Whether several texts are variants of one, such as replies that quote a mail, or edited copies.

These texts must be left out together, or the check is too optimistic: see `arml.predict.together`.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from arml.predict.together import near_in_class
from arml.texts.head import HASH_BUCKETS, TERM_SLOTS, features, rarity_of

MAX_DISTANCE_OF_VARIANTS = 0.4
"""Two texts may be variants of one if their distance is below this share of the median distance
within their class. The median of independent reviews, news, questions and SMS is 0.8 to 0.97, that
of 40 questions of one kind to a bank 0.50 to 0.57, and of 100 about 0.4. For copies of which every
tenth word was replaced, or replies that quote a mail three times as long, it is below 0.4."""


def has_variants(vectors: Float[np.ndarray, "n d"], labels: Sequence[object]) -> bool:
    """Whether half of the texts are much nearer to another one of their class than usual in this
    class: see `near_in_class`. A distance is one minus the cosine of the TF-IDF of n-grams of
    characters."""
    slots = vectors[:, -TERM_SLOTS:]
    rarity = rarity_of(slots, np.ones(len(slots)))

    def distances(own: Float[np.ndarray, "m slots"]) -> Float[np.ndarray, "m m"]:
        grams = features(own, rarity)[:, HASH_BUCKETS:]  # of length 1 / sqrt(2)
        return np.asarray(1 - 2 * (grams @ grams.T).toarray())

    nearest = [near[:, 0] for near in near_in_class(slots, labels, distances)]
    return bool(nearest) and bool(np.median(np.concatenate(nearest)) < MAX_DISTANCE_OF_VARIANTS)
