"""How a learner grew: its decisions as a table, and the graph through time."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from arml.report.render import Block, Report, Section, figure, html, text
from arml.report.render import table as table_block
from arml.report.style import BLUES, styled
from arml.report.table import Cell, Column, Line, Table
from arml.results.files import JsonView
from arml.results.folder import write_text

Records = Sequence[JsonView]
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
                    Cell(DECISIONS[record["decision"]]),
                    Cell(str(record.get("vertex", ""))),
                    Cell(_because(record)),
                ),
            )
        )
    columns = (Column("stage"), Column("decision"), Column("vertex"), Column("because"))
    return Table("Decisions", columns, tuple(lines))


def _because(record: JsonView) -> str:
    match record["decision"]:
        case "propose" | "keep":
            return (
                f"median log loss of fresh tasks {record['fresh'][1]:.2f} (from "
                f"{record['fresh'][0]:.2f}; the band of known families ends at "
                f"{record['reference'][2]:.2f}), novelty "
                f"{record['novelty']:.2f}"
            )
        case "accept" | "reject":
            gain = record["gain"]
            if gain["mean"] is None:
                return "a loss is not finite"
            against = "its rival" if record["against"] == "old" else "the learner before"
            return (
                f"after {record['steps']:,} steps the log loss of held-out tasks is lower than "
                f"that of {against} by {gain['mean']:.3f} ± {gain['ci95']:.3f}"
            )
        case "keep stage" | "undo stage":
            changes = {"the stage": record["gain"]} | {
                name: {**lost, "mean": None if lost["mean"] is None else -lost["mean"]}
                for name, lost in record["lost"].items()
            }
            return "fall of the log loss: " + ", ".join(
                f"{name} not finite"
                if one["mean"] is None
                else f"{name} {one['mean']:+.3f} ± {one['ci95']:.3f}"
                for name, one in changes.items()
            )
        case "prune":
            return "its removal hurts no family"
    shares = ", ".join(f"{name} {share:.0%}" for name, share in record["stage_shares"].items())
    return f"{record['tasks']:,} tasks, {record['replayed']:,} replayed; the stage: {shares}"


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
        axes.imshow(values, cmap=BLUES, norm=Normalize(0, 1), aspect="auto")
        for (i, j), value in np.ndenumerate(values):
            if np.isfinite(value):
                colour = "white" if value > 0.56 else "#12263a"
                axes.text(j, i, f"{value:.2f}", ha="center", va="center", color=colour, size=7)
        axes.set_xticks(range(len(vertices)), vertices)
        axes.set_yticks(range(len(families)), families)
        axes.tick_params(length=0)
        axes.set_title(f"stage {record['stage'] + 1}", loc="left")
    return drawn


def growth_blocks(records: Records) -> list[Block]:
    """The decisions, and the graph through time."""
    found = [table_block(decisions(records))]
    drawn = reading_figure(records)
    if drawn is not None:
        last = [record for record in records if record["decision"] == "read"][-1]
        most = ", ".join(
            f"{family} {last['vertices'][int(np.argmax(row))]}"
            for family, row in last["families"].items()
        )
        found.append(
            figure(
                drawn,
                f"Heat maps of reading by stage. Vertex read most at the end: {most}",
                "The graph through time: the share of its reading that each family (row) gives to "
                "each vertex (column) after each stage, on held-out tasks. An empty cell is a "
                "vertex that is not there, or a family that has not come.",
            )
        )
    return found


def write_growth(records: Records, out: Path, *, title: str, lead: str) -> None:
    """Write the page of a learner's growth as one self-contained HTML file, atomically."""
    section = Section("decisions", "How it grew", growth_blocks(records), "Growth")
    write_text(out, html(Report(title, [text(lead)["text"]], [section])))
