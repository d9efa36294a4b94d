"""The labelled queries of a predictor: its accuracy, its confusions and its worst mistakes."""

from arml.report.table import Cell, Column, Line, Table
from arml.results.folder import Marked

SHOWN = 12
"""Classes of the largest confusion matrix that is shown whole."""
PAIRS = 10
"""Confusions that are shown where there are more classes."""


def summary(marked: Marked) -> str:
    """The accuracy with its interval, as a sentence."""
    right = sum(marked.confusion[k][k] for k in range(len(marked.classes)))
    by = f", predicted by {marked.by}" if marked.by else ""
    return (
        f"Accuracy {marked.accuracy:.1%} ({right} of {marked.n}; 95% interval {marked.low:.0%} to "
        f"{marked.high:.0%}) on {marked.query}{by}."
    )


def by_class(marked: Marked) -> Table:
    """The accuracy of each class, the lowest first."""
    counts = {name: sum(row) for name, row in zip(marked.classes, marked.confusion, strict=True)}
    lines = [
        Line(name, (Cell(f"{share:.1%}", value=share), Cell(str(counts[name]))))
        for name, share in sorted(marked.by_class.items(), key=lambda pair: pair[1])
    ]
    columns = (Column("Class"), Column("Accuracy"), Column("Queries"))
    return Table("Accuracy of each class", columns, tuple(lines))


def confusion(marked: Marked) -> Table:
    """How many of each class were predicted as each class; of many classes, the pairs that are
    confused most."""
    if len(marked.classes) > SHOWN:
        return _pairs(marked)
    lines = []
    for k, (name, row) in enumerate(zip(marked.classes, marked.confusion, strict=True)):
        cells = [
            Cell(str(n), kind="better" if j == k else "worse") if n else Cell()
            for j, n in enumerate(row)
        ]
        lines.append(Line(f"{k + 1} {name}", tuple(cells)))
    # Names as headings would not fit a terminal or a phone.
    columns = (Column("Labelled"), *(Column(f"as {k + 1}") for k in range(len(marked.classes))))
    return Table("How each class was predicted", columns, tuple(lines))


def _pairs(marked: Marked) -> Table:
    found = [
        (count, name, marked.classes[j])
        for k, (name, row) in enumerate(zip(marked.classes, marked.confusion, strict=True))
        for j, count in enumerate(row)
        if count and j != k
    ]
    lines = [
        Line(name, (Cell(other), Cell(str(count))))
        for count, name, other in sorted(found, key=lambda pair: -pair[0])[:PAIRS]
    ]
    columns = (Column("Labelled"), Column("Predicted as"), Column("Queries"))
    return Table("The most frequent confusions", columns, tuple(lines))
