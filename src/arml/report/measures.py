"""Measures of how a learner changes over a stream of families, from the matrix R[stage, family] of
its scores.

The names are those of the literature on continual learning [1, 2]. All measures are stated so that
they can be read without knowing whether a score is an error or an accuracy: `gain` is above zero if
the second score is better than the first.

[1] Lopez-Paz and Ranzato, Gradient Episodic Memory for Continual Learning, NIPS 2017: R and
    backward transfer.
[2] Chaudhry, Dokania, Ajanthan and Torr, Riemannian Walk for Incremental Learning, ECCV 2018:
    forgetting, against the best score of any stage.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from arml.results.files import Json, JsonView
from arml.results.scores import number_of

SHARE = 0.9
"""Of the bound's score, that a new family has to reach."""


def gain(before: float, after: float, metric: str) -> float:
    """How much better `after` is: points of accuracy, or the error that was lost."""
    return before - after if metric == "mse" else after - before


def first_stages(stages: Sequence[Sequence[str]], families: Sequence[str]) -> np.ndarray:
    """The stage in which each family came first, `[families]`.

    **Raises** `ValueError` for a family that never came.
    """
    found = []
    for name in families:
        seen = [i for i, stage in enumerate(stages) if name in stage]
        if not seen:
            raise ValueError(f"expected a stage with {name!r}, got none: leave the family out")
        found.append(seen[0])
    return np.array(found)


def final_mean(r: np.ndarray) -> float:
    """The mean over families after the last stage, of R `[stages, families]`."""
    return float(np.mean(r[-1]))


def backward_transfer(r: np.ndarray, first: np.ndarray, metric: str) -> float:
    """The mean over families of the gain from the stage in which each came first to the last
    stage; families of the last stage are left out [1]. NaN if there are no others."""
    gains = [
        gain(r[first[f], f], r[-1, f], metric) for f in range(r.shape[1]) if first[f] < len(r) - 1
    ]
    return float(np.mean(gains)) if gains else float("nan")


def forgetting(r: np.ndarray, first: np.ndarray, metric: str) -> float:
    """The mean over families of the loss since the best stage, as a share of the best score [2].
    0.1 is an error that is 10% higher, or an accuracy that is 10% lower, than it was. Families
    of the last stage are left out. NaN if there are no others."""
    lost = []
    for f in range(r.shape[1]):
        if first[f] == len(r) - 1:
            continue
        scores = r[first[f] :, f]
        best = scores.min() if metric == "mse" else scores.max()
        lost.append(-gain(best, scores[-1], metric) / best if best else float("nan"))
    return float(np.mean(lost)) if lost else float("nan")


def reaches(score: float, bound: float, metric: str) -> bool:
    """Whether a score is at least `SHARE` of the bound's; an error at most the bound's divided by
    `SHARE`."""
    return score <= bound / SHARE if metric == "mse" else score >= bound * SHARE


def tasks_to(
    tasks: Sequence[int], scores: Sequence[float], bound: float, metric: str
) -> int | None:
    """The tasks after which a learner first reached `SHARE` of the score of the `bound`; None if it
    never did."""
    pairs = zip(tasks, scores, strict=True)
    return next((seen for seen, score in pairs if reaches(score, bound, metric)), None)


class Stream(NamedTuple):
    """The measures of one way through one stream."""

    families: tuple[str, ...]
    """In the order in which they came."""
    r: np.ndarray
    """R `[stages, families]`."""
    first: np.ndarray
    """The stage in which each family came first, `[families]`."""
    final_mean: float
    backward_transfer: float
    forgetting: float
    vertices: int
    tasks: int
    """Training tasks of all stages, with those of rejected candidates."""
    replayed: int
    """Of these, tasks of known families."""

    def plain(self) -> Json:
        """Its numbers by name."""
        names = ("final_mean", "backward_transfer", "forgetting", "vertices", "tasks", "replayed")
        return {name: getattr(self, name) for name in names}


def measured(stages: Sequence[JsonView], metric: str) -> Stream:
    """The measures of a stream from the record of each stage: its `stage` (from family to share),
    `scores` (from family to score; those of families that never came are left out), `vertices`,
    `tasks` and `replayed`."""
    came = [list(record["stage"]) for record in stages]
    families = tuple(dict.fromkeys(name for names in came for name in names))
    r = np.array([[number_of(one["scores"][f]) for f in families] for one in stages], np.float64)
    first = first_stages(came, families)
    return Stream(
        families,
        r,
        first,
        final_mean(r),
        backward_transfer(r, first, metric),
        forgetting(r, first, metric),
        stages[-1]["vertices"],
        sum(record["tasks"] for record in stages),
        sum(record["replayed"] for record in stages),
    )


def tasks_to_bound(
    stages: Sequence[JsonView], bound: Sequence[JsonView], metric: str
) -> list[int | None]:
    """For each stage of one family, the training tasks until the family reaches `SHARE` of the
    bound's test score after the same stage; None if it does not.

    The tasks are counted along the curve of validation scores, which are those of the part that is
    trained: a new vertex is scored as if each task read it. So a family counts only if the whole
    learner reaches the score on test tasks at the end of the stage, too. The tasks of the loser of
    a trial are counted.
    """
    found: list[int | None] = []
    for record, best in zip(stages, bound, strict=True):
        if len(record["stage"]) > 1:
            continue
        (family,) = record["stage"]
        score = best["scores"][family]
        if score is None or not reaches(number_of(record["scores"][family]), score, metric):
            found.append(None)
            continue
        curve = record["curve"]
        most = max((point["tasks"] for point in curve), default=0)
        trial = record["tasks"] - most
        tasks = [point["tasks"] + min(point["tasks"], trial) for point in curve]
        found.append(tasks_to(tasks, [number_of(one["score"]) for one in curve], score, metric))
    return found
