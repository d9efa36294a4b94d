"""What a stream of families did to a learner, from the matrix R[stage, family] of its scores.

The names are those of the literature on continual learning [1, 2]. All measures are stated so that
they can be read without knowing whether a score is an error or an accuracy: `gain` is above zero if
the second score is better than the first.

[1] Lopez-Paz and Ranzato, Gradient Episodic Memory for Continual Learning, NIPS 2017: R and
    backward transfer.
[2] Chaudhry, Dokania, Ajanthan and Torr, Riemannian Walk for Incremental Learning, ECCV 2018:
    forgetting, against the best score of any stage.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int


def gain(before: float, after: float, metric: str) -> float:
    """How much better `after` is: points of accuracy, or the error that was lost."""
    return before - after if metric == "mse" else after - before


def first_stages(stages: Sequence[Sequence[str]], families: Sequence[str]) -> Int[np.ndarray, " f"]:
    """The stage in which each family came first.

    **Raises** `ValueError` for a family that never came.
    """
    found = []
    for name in families:
        seen = [i for i, stage in enumerate(stages) if name in stage]
        if not seen:
            raise ValueError(f"expected a stage with {name!r}, got none: leave the family out")
        found.append(seen[0])
    return np.array(found)


def final_mean(r: Float[np.ndarray, "stages families"]) -> float:
    """The mean over families after the last stage."""
    return float(np.mean(r[-1]))


def backward_transfer(
    r: Float[np.ndarray, "stages families"], first: Int[np.ndarray, " families"], metric: str
) -> float:
    """The mean over families of the gain from the stage in which each came first to the last
    stage; families of the last stage are left out [1]. NaN if there are no others."""
    gains = [
        gain(r[first[f], f], r[-1, f], metric) for f in range(r.shape[1]) if first[f] < len(r) - 1
    ]
    return float(np.mean(gains)) if gains else float("nan")


def forgetting(
    r: Float[np.ndarray, "stages families"], first: Int[np.ndarray, " families"], metric: str
) -> float:
    """The mean over families of what was lost since the best stage, as a share of the best score
    [2]. 0.1 is an error that is 10% higher, or an accuracy that is 10% lower, than it was. Families
    of the last stage are left out. NaN if there are no others."""
    lost = []
    for f in range(r.shape[1]):
        if first[f] == len(r) - 1:
            continue
        scores = r[first[f] :, f]
        best = scores.min() if metric == "mse" else scores.max()
        lost.append(-gain(best, scores[-1], metric) / best)
    return float(np.mean(lost)) if lost else float("nan")


def tasks_to(
    tasks: Sequence[int], scores: Sequence[float], bound: float, metric: str, share: float = 0.9
) -> int | None:
    """The tasks after which a learner first reached `share` of the score of the `bound`; None if it
    never did. For an error it is the bound's error divided by `share`."""
    for seen, score in zip(tasks, scores, strict=True):
        if (score <= bound / share) if metric == "mse" else (score >= bound * share):
            return seen
    return None
