"""A learner that grew: its scores by stage, what it forgot, and its scores before and after `arml
grow`.

[1] Chaudhry, Dokania, Ajanthan and Torr, Riemannian Walk for Incremental Learning, ECCV 2018:
    forgetting, against the best score of any stage.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from arml.report.tables import METRIC_NAMES, Cell, Line, Table, number
from arml.results.files import Json, JsonView
from arml.results.scores import format_score, number_of

Records = Sequence[JsonView]


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


class Stream(NamedTuple):
    """The measures of one way through one stream."""

    families: tuple[str, ...]
    """In the order in which they came."""
    r: np.ndarray
    """R `[stages, families]`: the score of each family after each stage."""
    first: tuple[int, ...]
    """The stage in which each family came first, `[families]`."""
    final_mean: float
    """The mean over families after the last stage."""
    forgetting: float
    tasks: int
    """Training tasks of all stages."""
    replayed: int
    """Of these, tasks of known families."""

    def plain(self) -> Json:
        """Its numbers by name."""
        names = ("final_mean", "forgetting", "tasks", "replayed")
        return {name: getattr(self, name) for name in names}


def measured(stages: Records, metric: str) -> Stream:
    """The measures of a stream from the record of each stage: its `family`, `scores` (from family
    to score), `tasks` and `replayed`."""
    order = [record["family"] for record in stages]
    families = tuple(dict.fromkeys(order))
    r = np.array([[number_of(one["scores"][f]) for f in families] for one in stages], np.float64)
    first = tuple(order.index(name) for name in families)
    return Stream(
        families,
        r,
        first,
        float(np.mean(r[-1])),
        forgetting(r, first, metric),
        sum(record["tasks"] for record in stages),
        sum(record["replayed"] for record in stages),
    )


def stages_table(stages: Records, metric: str) -> Table:
    """R[stage, family]: a row for each stage, a column for each family."""
    stream = measured(stages, metric)
    lines = []
    for i, record in enumerate(stages):
        cells = [
            Cell(number(record["scores"][name], metric), kind="" if first <= i else "soft")
            for name, first in zip(stream.families, stream.first, strict=True)
        ]
        mean = number(float(stream.r[i, np.array(stream.first) <= i].mean()), metric)
        lines.append(Line(f"{i + 1}: {record['family']}", (*cells, Cell(mean))))
    columns = ("stage", *stream.families, "mean so far")
    return Table(
        "Scores by stage",
        columns,
        tuple(lines),
        f"{METRIC_NAMES[metric]} on test tasks of each family after each stage; "
        "grey where the family has not come yet.",
    )


def summary(stream: Stream, metric: str) -> str:
    """The measures of a stream in a sentence or two."""
    forgot = ""
    if np.isfinite(stream.forgetting):
        forgot = f", forgetting {stream.forgetting:+.0%} (the mean share of its best score that a "
        forgot += "family has lost since)"
    return (
        f"Final mean {number(stream.final_mean, metric)}{forgot}; "
        f"{stream.tasks:,} training tasks, of which {stream.replayed:,} were replayed."
    )


def before_after(outcome: JsonView) -> Table:
    """The scores of each family before and after `arml grow`."""
    metric = outcome["metric"]
    lines = []
    for name, before in outcome["before"].items():
        gain = format_score(metric, outcome["gains"][name], sign="+")
        scores = (number(before, metric), number(outcome["after"][name], metric), gain)
        lines.append(Line(name, tuple(map(Cell, scores))))
    columns = ("family", "before", "after", "gain ± 95%")
    caption = (
        f"{METRIC_NAMES[metric]} on {outcome['tasks']} test tasks of each family before and after; "
        "the gain is over the same tasks."
    )
    return Table("Before and after", columns, tuple(lines), caption)
