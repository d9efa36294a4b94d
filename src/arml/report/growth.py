"""How a learner grew: its scores by stage, its decisions, and the graph through time."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from arml.report import render
from arml.report.measures import Stream, measured
from arml.report.render import Block, Report, Section
from arml.report.style import heat, styled
from arml.report.table import Cell, Column, Line, Table
from arml.report.tables import METRIC_NAMES, number
from arml.results.files import JsonView, write_text
from arml.results.growth import read_grown, read_growth
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
    "trained": "trained",
}


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
    shares = ", ".join(f"{name} {share:.0%}" for name, share in record["stage_shares"].items())
    return f"{record['tasks']:,} tasks, {record['replayed']:,} replayed; the stage: {shares}"


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.2f}"


def _score(score: JsonView, sign: str = "") -> str:
    mean, half = score["mean"], score["ci95"]
    if mean is None:
        return "a number that is not finite"
    return f"{mean:{sign}.3f}" + ("" if half is None else f" ± {half:.3f}")


@styled
def reading_figure(records: Records) -> Figure | None:
    """A heat map a stage: how much each family reads each vertex. None without vertices."""
    reads = [record for record in records if record["decision"] == "read"]
    if not reads:
        return None
    vertices = list(dict.fromkeys(name for record in reads for name in record["vertices"]))
    families = list(dict.fromkeys(name for record in reads for name in record["families"]))
    height = 0.32 * len(families) + 0.9
    drawn = Figure(figsize=((0.42 * len(vertices) + 0.4) * len(reads) + 1.6, height))
    drawn.set_layout_engine("constrained")
    grid = drawn.subplots(1, len(reads), sharey=True, squeeze=False)[0]
    for axes, record in zip(grid, reads, strict=True):
        values = np.full((len(families), len(vertices)), np.nan)
        for family, row in record["families"].items():
            for vertex, share in zip(record["vertices"], row, strict=True):
                values[families.index(family), vertices.index(vertex)] = share
        numbers = [[f"{v:.2f}" if np.isfinite(v) else "" for v in row] for row in values]
        heat(axes, values, families, vertices, numbers, norm=Normalize(0, 1))
        axes.set_title(f"stage {record['stage'] + 1}", loc="left")
    return drawn


def before_after(outcome: JsonView) -> Table:
    """The scores of each family before and after `arml grow`."""
    metric = outcome["metric"]
    lines = []
    for name, before in outcome["before"].items():
        gain = outcome["gains"][name]
        told = "not finite" if gain["mean"] is None else said(metric, gain, sign="+")
        scores = (number(before, metric), number(outcome["after"][name], metric), told)
        lines.append(Line(name, tuple(map(Cell, scores))))
    headings = ("family", "before", "after", "gain on held-out classes ± 95%")
    caption = f"{METRIC_NAMES[metric]} on test tasks of each family before and after."
    return Table("Before and after", tuple(map(Column, headings)), tuple(lines), caption)


def growth_of(folder: Path) -> list[Block]:
    """The growth of the learner of a run folder.

    **Raises** `RunError` for a damaged file.
    """
    outcome = folder / "growth.json"
    return growth_blocks(
        read_growth(folder / "growth.jsonl"), read_grown(outcome) if outcome.exists() else None
    )


def growth_blocks(records: Records, outcome: JsonView | None = None) -> list[Block]:
    """The scores by stage or before and after, the decisions, and the graph through time."""
    found = [] if outcome is None else [render.table(before_after(outcome))]
    stages = [{**one, "stage": one["shares"]} for one in records if one["decision"] == "scored"]
    if stages:
        metric = stages[0]["metric"]
        found += [
            render.text(summary(measured(stages, metric), metric), "lead"),
            render.table(scores(stages, metric)),
            render.text(MEASURES, "soft"),
        ]
    found.append(render.table(decisions(records)))
    drawn = reading_figure(records)
    if drawn is not None:
        last = [record for record in records if record["decision"] == "read"][-1]
        most = ", ".join(
            f"{family} {last['vertices'][int(np.argmax(row))]}"
            for family, row in last["families"].items()
        )
        found.append(
            render.figure(
                drawn,
                f"Heat maps of reading by stage. Vertex read most at the end: {most}",
                "The graph through time: the share of its reading that each family (row) gives to "
                "each vertex (column) after each stage, on held-out tasks. An empty cell is a "
                "vertex that is not there, or a family that has not come.",
            )
        )
    return found


def write_growth(
    records: Records, out: Path, *, title: str, lead: str, outcome: JsonView | None = None
) -> None:
    """Write the page of a learner's growth as one self-contained HTML file, atomically."""
    section = Section("decisions", "How it grew", growth_blocks(records, outcome), "Growth")
    write_text(out, render.html(Report(title, [render.text(lead)["text"]], [section])))
