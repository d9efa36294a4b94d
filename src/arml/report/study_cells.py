"""The cells of a study's tables as text, the same on its page and in a document."""

from arml.report.study import StudyRow, StudyTable
from arml.report.tables import METRIC_NAMES, number


def caption(table: StudyTable) -> str:
    """What the rows share. The table must have a result."""
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


def paper(table: StudyTable, row: StudyRow) -> str:
    """The paper's figure; empty where it prints none."""
    found = table.paper(row)
    if found is None:
        return ""
    return f"{found.mean:.2f}" + ("" if found.ci95 is None else f" ± {found.ci95:.2f}")


def seeds(row: StudyRow, metric: str) -> str:
    """The standard deviation over seeds, and how many there are."""
    count, failed = len(row.seeds), len(row.failures)
    to_come = len(row.planned) - count - failed
    said = f"{number(row.spread, metric)} ({count} seeds)" if count > 1 else "1 seed"
    said += f", {failed} failed" if failed else ""
    return said + (f", {to_come} to come" if to_come else "")


def missing(row: StudyRow) -> str:
    """Why a row has no figures."""
    return next(iter(row.failures.values()), "not yet run")
