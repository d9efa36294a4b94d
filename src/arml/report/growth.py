"""The measures of a learner whose families arrived one after another.

[1] Chaudhry, Dokania, Ajanthan and Torr, Riemannian Walk for Incremental Learning, ECCV 2018:
    forgetting, against the best score of any stage.
"""

from collections.abc import Sequence

import numpy as np

from arml.results.files import Json, JsonView
from arml.results.scores import number_of


def forgetting(r: np.ndarray, first: Sequence[int], metric: str) -> float:
    """The mean over families of the loss since the best stage, as a share of the best score [1],
    from R `[stages, families]` and the stage in which each family came first. 0.1 is an error that
    is 10% higher, or an accuracy that is 10% lower, than it was. Families of the last stage are
    left out. NaN if there are no others."""
    lost = []
    for scores, start in zip(r.T, first, strict=True):
        if start < len(r) - 1:
            best = scores[start:].min() if metric == "mse" else scores[start:].max()
            lost.append(abs(scores[-1] - best) / best if best else np.nan)
    return float(np.mean(lost)) if lost else float("nan")


def measured(stages: Sequence[JsonView], metric: str) -> Json:
    """The measures of a stream from the record of each stage: its `family`, `scores` (from family
    to score), `tasks` and `replayed`.

    **Returns** `final_mean`, the mean over families after the last stage; `forgetting`; and the
    numbers of training tasks, of all (`tasks`) and of known families (`replayed`).
    """
    order = [stage["family"] for stage in stages]
    families = dict.fromkeys(order)
    r = np.array([[number_of(one["scores"][f]) for f in families] for one in stages], np.float64)
    return {
        "final_mean": float(np.mean(r[-1])),
        "forgetting": forgetting(r, [order.index(name) for name in families], metric),
        "tasks": sum(stage["tasks"] for stage in stages),
        "replayed": sum(stage["replayed"] for stage in stages),
    }
