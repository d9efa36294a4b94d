"""The choice between the learners `photos` and `starter` for pictures that name no learner."""

import numpy as np

from arml.photographs.reading import pixels_of, single_pictures
from arml.predict.base import Predictor
from arml.predict.loading import load
from arml.predict.reliability import Reliability

_SAMPLED = 15
"""How many pictures are looked at to tell whether they are grey."""
GREY = 8
"""Pictures whose channels differ by less, in the mean, are grey: most such are drawings."""


def starter_if_better(
    predictor: Predictor, pictures: object, labels: object
) -> tuple[Predictor | None, str]:
    """The predictor of `starter` if it predicts the examples better than `predictor`, else None;
    and the reason in words. `starter` was trained on grey drawings and is tried on grey pictures.
    Where no example can be left out (a class has one, or copies of one), `starter` is chosen.
    """
    pictures = single_pictures(pictures)
    sampled = pixels_of(pictures[:: max(1, -(-len(pictures) // _SAMPLED))])
    spread = np.mean(np.ptp(sampled.astype(np.int16), axis=3), axis=(1, 2))
    if np.median(spread) > GREY:
        return None, "a network that was trained on photographs"
    groups = predictor.groups
    starter = load("starter").adapt(pixels_of(pictures), labels, groups=groups)
    starter = starter.using(starter.models[-1])
    likely = {}
    for name, one in (("photos", predictor), ("starter", starter)):
        found = one.reliability()
        assert isinstance(found, Reliability)
        if not len(found.labels):
            return starter, "the pictures are grey like drawings, and starter was trained on such"
        own = found.probabilities[np.arange(len(found.labels)), found.labels]
        likely[name] = np.exp(np.mean(np.log(np.maximum(own, 1e-9))))  # their geometric mean
    best, other = sorted(likely, key=lambda name: -likely[name])
    return starter if best == "starter" else None, (
        f"the pictures are grey like drawings, and {best} gives the labels of left-out examples "
        f"more probability, {likely[best]:.0%} against {likely[other]:.0%}"
    )
