"""How a learner grew: its scores by stage or before and after, and its decisions."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from arml.report import render
from arml.report.measures import Stream, measured
from arml.report.render import Block
from arml.report.table import Cell, Column, Line, Table
from arml.report.tables import METRIC_NAMES, number
from arml.results.files import Json, JsonView, RunError, read_json
from arml.results.scores import said

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
