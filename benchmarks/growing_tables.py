"""Ways to meet a stream of families, compared: the table of `growing.json`, and its page."""

from collections.abc import Mapping, Sequence
from statistics import fmean, median, stdev

import numpy as np

from arml.report.growth import measured
from arml.report.tables import METRIC_NAMES, Cell, Column, Line, Table
from arml.results.files import JsonView
from arml.results.scores import number_of

BOUND = "joint"
"""The way that trains from scratch on all families so far."""
OF_ALL = (BOUND, "ftml", "hsml-dynamic")
"""Ways that train on all families so far: their curves are not those of the new family."""
NOTE = (
    "Each way takes as many steps in a stage; joint training takes those of all stages so far, "
    "from scratch. `Tasks to 90%` is the median, over stages and seeds, of the training tasks "
    "until a new family has 90% of the score of joint training after the same stage; the number "
    "of stages in which it has that at the end is in brackets. Tasks are counted on validation "
    "tasks, for the part that is trained; the loser of a trial counts. An SD is over seeds; with "
    "one seed or two a figure is an indication."
)


SHARE = 0.9
"""Of the bound's score, that a new family has to reach."""


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


def growing_table(study: JsonView) -> Table:
    """A row for each way through each order, over its seeds."""
    metric, rows = study["metric"], study["rows"]
    groups: dict[tuple[str, str], list[JsonView]] = {}
    for row in rows.values():
        groups.setdefault((row["order"], row["way"]), []).append(row)
    orders = list(dict.fromkeys(order for order, _ in groups))
    lines = []
    for order in orders:
        own = [(way, found) for (name, way), found in groups.items() if name == order]
        sign = 1 if metric == "mse" else -1
        own.sort(
            key=lambda one: sign * fmean([measured(r["stages"], metric).final_mean for r in one[1]])
        )
        lines += [Line(f"{order}: {way}", _cells(way, found, rows, metric)) for way, found in own]
    columns = (
        *("order: way", "seeds", f"final {METRIC_NAMES[metric]}", "forgetting"),
        *("backward transfer", "vertices", "training tasks", "replayed"),
        f"tasks to {SHARE:.0%} of {BOUND} (stages)",
    )
    return Table("Ways to meet a stream", tuple(map(Column, columns)), tuple(lines))


def _cells(
    way: str, found: Sequence[JsonView], rows: Mapping[str, JsonView], metric: str
) -> tuple[Cell, ...]:
    streams = [measured(row["stages"], metric) for row in found]
    seeds = sorted(row["seed"] for row in found)
    reached: list[int | None] = []
    for row in found:
        bound = rows.get(f"{row['order']}/{row['seed']}/{BOUND}")
        if bound is not None and way not in OF_ALL:
            reached += tasks_to_bound(row["stages"], bound["stages"], metric)
    told = [n for n in reached if n is not None]
    to = f"{median(told):,.0f} ({len(told)} of {len(reached)})" if told else "never"
    return (
        Cell(", ".join(map(str, seeds))),
        Cell(_spread([s.final_mean for s in streams], metric)),
        Cell(_share([s.forgetting for s in streams])),
        Cell(f"{fmean([s.backward_transfer for s in streams]):+.3f}"),
        Cell(" / ".join(f"{s.vertices}" for s in streams)),
        Cell(f"{fmean([s.tasks for s in streams]):,.0f}"),
        Cell(f"{fmean([s.replayed for s in streams]):,.0f}"),
        Cell(to if reached else "-"),
    )


def _spread(values: Sequence[float], metric: str) -> str:
    scale, digits = (100, 1) if metric == "accuracy" else (1, 3)
    spread = f" (SD {scale * stdev(values):.{digits}f})" if len(values) > 1 else ""
    return f"{scale * fmean(values):.{digits}f}{'%' if metric == 'accuracy' else ''}{spread}"


def _share(values: Sequence[float]) -> str:
    """The mean of shares, with their range where there are several."""
    if not np.isfinite(values).all():
        return "-"
    several = f" ({min(values):+.0%} to {max(values):+.0%})" if len(values) > 1 else ""
    return f"{fmean(values):+.0%}{several}"
