"""The cells of a study's tables as text, the same on its page and in a document."""

from arml.report.statistics import Comparison
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
        f"{first['protocol']}. Differences are from {table.reference}, "
        f"{'over the seeds that both have' if known else 'which has not run yet'}."
    )


def paper(table: StudyTable, row: StudyRow) -> str:
    """The paper's figure; empty where it prints none."""
    found = table.paper(row)
    if found is None:
        return ""
    return f"{found.mean:.2f}" + ("" if found.ci95 is None else f" ± {found.ci95:.2f}")


def difference(found: Comparison, accuracy: bool) -> str:
    """The difference from the reference, accuracies in points; empty where it is not finite."""
    if found.mean is None:
        return ""
    scale, digits = (100, 2) if accuracy else (1, 3)
    half = "" if found.ci95 is None else f" ± {scale * found.ci95:.{digits}f}"
    return f"{scale * found.mean:+.{digits}f}{half}"


def probability(p: float) -> str:
    """A p-value as text: `= 0.03`, `< 0.001`."""
    return "< 0.001" if p < 0.001 else f"= {p:.2g}"


def adjusted(found: Comparison) -> str:
    """Its corrected p-value."""
    return "" if found.adjusted is None else probability(found.adjusted).removeprefix("= ")


def standing(found: Comparison, metric: str) -> str:
    """Whether a row is `better` or `worse` than the reference; empty if neither can be said."""
    if not found.counts or found.mean is None:
        return ""
    return "better" if (found.mean > 0) == (metric == "accuracy") else "worse"


def verdict(found: Comparison, metric: str) -> str:
    """The same with a sign, so that no colour is needed."""
    words = {"better": "▲ better", "worse": "▼ worse"}
    neither = "≈ the seeds disagree" if found.over_tasks else "≈ no difference"
    return words.get(standing(found, metric), neither)


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
