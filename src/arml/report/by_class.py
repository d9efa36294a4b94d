"""The classes of a run's tasks: the hardest, the pairs that are confused, the worst mistakes."""

from collections.abc import Sequence

from arml.report import render
from arml.report.render import Block
from arml.report.table import Cell, Column, Line, Table
from arml.results.folder import ByClass, Mistake

CLASSES, PAIRS = 20, 10
"""Rows of the tables."""


def hardest(found: ByClass) -> Table:
    """The accuracy of the hardest classes, the lowest first."""
    lines = [
        Line(one.name, (Cell(f"{one.accuracy:.1%}", value=one.accuracy), Cell(f"{one.n:,}")))
        for one in found.classes[:CLASSES]
    ]
    columns = (Column("Class"), Column("Accuracy"), Column("Queries"))
    title = f"The hardest of {len(found.classes)} {found.split} classes"
    return Table(title, columns, tuple(lines))


def confused(found: ByClass) -> Table:
    """The most frequent confusions."""
    lines = [
        Line(
            pair.label,
            (
                Cell(pair.predicted),
                Cell(f"{pair.count:,} of {pair.of:,}"),
                Cell(f"{pair.count / max(pair.of, 1):.0%}"),
            ),
        )
        for pair in found.pairs[:PAIRS]
    ]
    columns = (Column("Class"), Column("Predicted as"), Column("Queries"), Column("Share"))
    return Table(
        "The most frequent confusions, of queries in tasks with both", columns, tuple(lines)
    )


def by_class_blocks(found: ByClass) -> list[Block]:
    """The part of the report."""
    blocks: list[Block] = [
        render.text(
            f"Each of {found.tasks:,} tasks draws its classes anew; a class counts in all tasks "
            "that it was drawn for."
        ),
        render.table(hardest(found)),
    ]
    if found.pairs:
        blocks.append(render.table(confused(found)))
    return [*blocks, *mistakes(found.mistakes)]


def mistakes(found: Sequence[Mistake]) -> list[Block]:
    """The worst mistakes with their pictures, under a heading; nothing without a mistake."""
    cards = [
        {
            "data": one.picture,
            "text": f"{one.name}: labelled {one.label} ({one.own:.0%}), predicted as "
            f"{one.predicted} ({one.probability:.0%})",
        }
        for one in found
    ]
    words = "The worst mistakes, the most confident first"
    return [render.heading(words), render.gallery(cards)] if cards else []
