"""Measures of how a learner changes over a stream of families, from the matrix R[stage, family] of
its scores.

The names are those of the literature on continual learning [1, 2]. All measures are stated so that
they can be read without knowing whether a score is an error or an accuracy: `gain` is above zero if
the second score is better than the first.

[1] Lopez-Paz and Ranzato, Gradient Episodic Memory for Continual Learning, NIPS 2017: R and
    backward transfer.
[2] Chaudhry, Dokania, Ajanthan and Torr, Riemannian Walk for Incremental Learning, ECCV 2018:
    forgetting, against the best score of any stage.

The tables of a learner that grew follow: its scores by stage and its decisions.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from arml.report import render
from arml.report.render import Block
from arml.report.tables import METRIC_NAMES, Cell, Column, Line, Table, number
from arml.results.files import Json, JsonView, RunError, read_json
from arml.results.scores import number_of, said


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


Records = Sequence[JsonView]
MEASURES = (
    "Forgetting is the mean share of its best score that a family has lost since. Backward "
    "transfer is the mean gain of a family from the stage in which it came to the last one."
)
DECISIONS = {
    "propose": "a vertex is proposed",
    "keep": "no vertex is proposed",
    "accept": "the vertex is accepted",
    "reject": "the vertex is rejected",
    "keep stage": "the stage is kept",
    "undo stage": "the stage is undone",
    "prune": "a vertex is removed",
    "read": "vertices are read",
    "trained": "trained",
}


def stages_of(records: Records) -> list[Json]:
    """The scores of each stage, for `scores` and `measures.measured`."""
    return [{**one, "stage": one["shares"]} for one in records if one["decision"] == "scored"]


def scores(stages: Sequence[JsonView], metric: str) -> Table:
    """R[stage, family]: a row for each stage, a column for each family."""
    stream = measured(stages, metric)
    lines = []
    for i, record in enumerate(stages):
        cells = [
            Cell(number(record["scores"][name], metric), kind="" if first <= i else "soft")
            for name, first in zip(stream.families, stream.first, strict=True)
        ]
        mean = Cell(number(stream.r[i, stream.first <= i].mean(), metric))
        came = ", ".join(f"{name} {share:.0%}" for name, share in record["stage"].items())
        name = came if len(record["stage"]) > 1 else next(iter(record["stage"]))
        lines.append(Line(f"{i + 1}: {name}", (*cells, mean, Cell(f"{record['vertices']}"))))
    columns = ("stage", *stream.families, "mean so far", "vertices")
    return Table(
        "Scores by stage",
        tuple(map(Column, columns)),
        tuple(lines),
        f"{METRIC_NAMES[metric]} on test tasks of each family after each stage; "
        "grey where the family has not come yet.",
    )


def summary(stream: Stream, metric: str) -> str:
    """The measures of a stream in a sentence or two."""
    forgot = f"{stream.forgetting:+.0%}" if np.isfinite(stream.forgetting) else "none to measure"
    back = stream.backward_transfer
    transfer = f"{back:+.3f}" if np.isfinite(back) else "none to measure"
    return (
        f"Final mean {number(stream.final_mean, metric)}, forgetting {forgot}, backward transfer "
        f"{transfer}; vertices {stream.vertices}, {stream.tasks:,} training tasks, of which "
        f"{stream.replayed:,} were replayed."
    )


def decisions(records: Records) -> Table:
    """Each decision with its numbers."""
    lines = []
    for record in records:
        if record["decision"] not in DECISIONS:
            continue
        lines.append(
            Line(
                f"{record['stage'] + 1}",
                (
                    Cell(DECISIONS[record["decision"]], kind="text"),
                    Cell(str(record.get("vertex", ""))),
                    Cell(because(record), kind="text"),
                ),
            )
        )
    columns = (Column("stage"), Column("decision"), Column("vertex"), Column("because"))
    return Table("Decisions", columns, tuple(lines))


def because(record: JsonView) -> str:
    """The numbers of a decision in words."""
    match record["decision"]:
        case "propose" | "keep":
            return (
                f"median log loss of fresh tasks {_number(record['fresh'][1])} (from "
                f"{_number(record['fresh'][0])}; the band of known families ends at "
                f"{_number(record['reference'][2])}), novelty {_number(record['novelty'])}"
            )
        case "accept" | "reject":
            against = "its rival" if record["against"] == "old" else "the learner before"
            return (
                f"after {record['steps']:,} steps the log loss of held-out tasks is lower than "
                f"that of {against} by {_score(record['gain'])}"
            )
        case "keep stage" | "undo stage":
            changes = {"the stage": record["gain"]} | {
                name: {**lost, "mean": None if lost["mean"] is None else -lost["mean"]}
                for name, lost in record["lost"].items()
            }
            told = (f"{name} {_score(one, '+')}" for name, one in changes.items())
            return f"fall of the log loss: {', '.join(told)}"
        case "prune":
            return "its removal hurts no family"
        case "read":
            most = (
                f"{family} {record['vertices'][int(np.argmax(row))]} ({max(row):.0%})"
                for family, row in record["families"].items()
            )
            return f"most by each family: {', '.join(most)}"
    shares = ", ".join(f"{name} {share:.0%}" for name, share in record["stage_shares"].items())
    return f"{record['tasks']:,} tasks, {record['replayed']:,} replayed; the stage: {shares}"


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.2f}"


def _score(score: JsonView, sign: str = "") -> str:
    mean, half = score["mean"], score["ci95"]
    if mean is None:
        return "a number that is not finite"
    return f"{mean:{sign}.3f}" + ("" if half is None else f" ± {half:.3f}")


def before_after(outcome: JsonView) -> Table:
    """The scores of each family before and after `arml grow`."""
    metric = outcome["metric"]
    lines = []
    for name, before in outcome["before"].items():
        gain = outcome["gains"][name]
        told = "not finite" if gain["mean"] is None else said(metric, gain, sign="+")
        scores = (number(before, metric), number(outcome["after"][name], metric), told)
        lines.append(Line(name, tuple(map(Cell, scores))))
    headings = ("family", "before", "after", "gain ± 95%")
    caption = (
        f"{METRIC_NAMES[metric]} on {outcome['tasks']} test tasks of each family before and after; "
        "the gain is over the same tasks."
    )
    return Table("Before and after", tuple(map(Column, headings)), tuple(lines), caption)


def growth_of(folder: Path) -> list[Block]:
    """The growth of the learner of a run folder; nothing without `growth.json`.

    **Raises** `RunError` for a damaged file.
    """
    file = folder / "growth.json"
    if not file.is_file():
        return []
    content = read_json(file)
    try:
        outcome = content.get("outcome")
        first = [] if outcome is None else [render.table(before_after(outcome))]
        stages = stages_of(content["records"])
        if stages:
            stream = measured(stages, content["metric"])
            first = [
                render.text(summary(stream, content["metric"]), "lead"),
                render.table(scores(stages, content["metric"])),
                render.text(MEASURES, "soft"),
            ]
        return [*first, render.table(decisions(content["records"]))]
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise RunError(f"{file} is damaged ({error!r}): restore it, or delete it") from error
