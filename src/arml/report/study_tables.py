"""The tables of a study: each row with the paper's figure and its difference from the reference,
and the paper's tables for which nothing was run."""

from arml.report import wording
from arml.report.paper import names, overall, reported_by_family, rows_of, titles
from arml.report.study import StudyRow, StudyTable
from arml.report.table import Cell, Column, Line, Table
from arml.report.tables import METRIC_NAMES, interval, number

NEEDS = "needs the data"


def caption(table: StudyTable) -> str:
    """The facts that the rows share. The table must have a result."""
    first = table.first
    assert first is not None
    direction = "lower is better" if first["metric"] == "mse" else "higher is better"
    reference = table.row(table.reference)
    known = reference is not None and reference.results
    return (
        f"{METRIC_NAMES[first['metric']]}, {direction}; {first['score']['n']:,} test tasks, "
        f"{first['protocol']}. Differences are from {table.reference}"
        f"{'' if known else ', which has not run yet'}."
    )


def table_of(table: StudyTable) -> Table:
    """A table that has a result."""
    first = table.first
    assert first is not None
    metric, families = first["metric"], list(first["families"])
    printed = any(table.paper(row) for row in table.rows)
    columns = [Column("Row"), Column(METRIC_NAMES[metric], "± tasks")]
    columns += [Column("Paper", "not measured here")] if printed else []
    columns += [Column("Difference", "± runs and tasks"), Column("p"), Column("SD over seeds")]
    columns += [*(Column(name, brief=True) for name in families), Column("Training", brief=True)]
    lines = [_line(table, row, metric, families, printed) for row in table.rows]
    if first["floor"] is not None:
        floor = Cell(number(first["floor"], metric), value=first["floor"])
        lines.append(Line("Bayes-optimal predictor", (floor,), kind="floor"))
    return Table(table.title, tuple(columns), tuple(lines), caption(table))


def _line(
    table: StudyTable, row: StudyRow, metric: str, families: list[str], printed: bool
) -> Line:
    note, same = row.about["note"], row.label == table.reference
    if not row.results:
        why = next(iter(row.failures.values()), "not yet run")
        return Line(row.label, (Cell(why, kind="missing"),), note)
    cells = [Cell(interval(row.mean, row.ci95, metric), kind="score", value=row.mean)]
    if printed:
        found = table.paper(row)
        said = "" if found is None else f"{found.mean:.2f}"
        said += "" if found is None or found.ci95 is None else f" ± {found.ci95:.2f}"
        cells.append(Cell(said, kind="paper", value=found and found.mean))
    cells += _difference(table, row, metric)
    cells.append(Cell(seeds(row, metric), value=row.spread))
    paper = reported_by_family(table.paper_table, row.about["paper"])
    for family in families:
        mean = row.family(family)
        small = f"paper {paper[family].mean:g}%" if family in paper else ""
        cells.append(Cell(number(mean, metric), small, value=mean))
    minutes = sum(r["seconds"] for r in row.results.values()) / len(row.results) / 60
    cells.append(Cell(f"{row.about['steps']:,} steps", f"{minutes:.0f} min", value=minutes))
    return Line(row.label, tuple(cells), note, "reference" if same else "")


def _difference(table: StudyTable, row: StudyRow, metric: str) -> list[Cell]:
    """The cells of the difference from the reference and of its p-value."""
    if row.label == table.reference:
        return [Cell("reference", kind="soft"), Cell()]
    found = table.comparisons.get(row.label)
    if found is None:
        return [Cell(), Cell()]
    said = wording.difference(found, metric == "accuracy")
    kind, verdict = wording.standing(found, metric), wording.verdict(found, metric)
    return [
        Cell(said, verdict, kind, found.mean),
        Cell(wording.adjusted(found), value=found.adjusted),
    ]


def seeds(row: StudyRow, metric: str) -> str:
    """The standard deviation over seeds, and their number."""
    count, failed = len(row.seeds), len(row.failures)
    to_come = len(row.planned) - count - failed
    said = f"{count} of {len(row.planned)}" if to_come else f"{count}"
    said += " seed" if said == "1" else " seeds"
    said = f"{number(row.spread, metric)} ({said})" if count > 1 else said
    return said + (f", {failed} failed" if failed else "")


def papers_table(name: str) -> Table:
    """A table of the paper for which nothing was run."""
    rows = rows_of(name)
    families = list(reported_by_family(name, rows[0]))
    columns = [Column("Row"), Column("Ours"), Column("Paper")]
    columns += [Column(family) for family in families if family != "all"]
    lines = []
    for row in rows:
        found, whole = reported_by_family(name, row), overall(name, row)
        cells = [Cell(NEEDS, kind="missing"), Cell(f"{whole.mean:.2f}" if whole else "")]
        cells += [
            Cell(f"{v.mean:.2f}", "" if v.ci95 is None else f"± {v.ci95:.2f}")
            for family, v in found.items()
            if family != "all"
        ]
        lines.append(Line(names().get(row, row), tuple(cells)))
    return Table(titles()[name], tuple(columns), tuple(lines))
