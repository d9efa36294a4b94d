"""The classes of a run's tasks: the hardest, the pairs that are confused, the worst mistakes."""

from arml.report.render import Block, gallery, heading, text
from arml.report.render import table as table_block
from arml.report.table import Cell, Column, Line, Table
from arml.results.by_class import ByClass

CLASSES, PAIRS = 20, 10
"""Rows of the tables."""


def hardest(found: ByClass, most: int = CLASSES) -> Table:
    """The accuracy of the hardest classes, the lowest first."""
    lines = [
        Line(one.name, (Cell(f"{one.accuracy:.1%}", value=one.accuracy), Cell(f"{one.n:,}")))
        for one in found.classes[:most]
    ]
    columns = (Column("Class"), Column("Accuracy"), Column("Queries"))
    title = f"The hardest of {len(found.classes)} {found.split} classes"
    return Table(title, columns, tuple(lines))


def confused(found: ByClass, most: int = PAIRS) -> Table:
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
        for pair in found.pairs[:most]
    ]
    columns = (Column("Class"), Column("Predicted as"), Column("Queries"), Column("Share"))
    return Table(
        "The most frequent confusions, of queries in tasks with both", columns, tuple(lines)
    )


def by_class_blocks(found: ByClass) -> list[Block]:
    """The part of the report."""
    blocks: list[Block] = [
        text(
            f"Each of {found.tasks:,} tasks draws its classes anew; a class counts in all tasks "
            "that it was drawn for."
        ),
        table_block(hardest(found)),
    ]
    if found.pairs:
        blocks.append(table_block(confused(found)))
    if found.mistakes:
        cards: list[dict[str, str | None]] = [
            {
                "data": one.picture,
                "text": f"{one.label} ({one.own:.0%}), predicted as {one.predicted} "
                f"({one.probability:.0%}); {one.name}",
            }
            for one in found.mistakes
        ]
        blocks += [heading("The worst mistakes, the most confident first"), gallery(cards)]
    return blocks
