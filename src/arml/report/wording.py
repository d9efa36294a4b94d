"""Numbers of comparisons as text, the same in every table, page and verdict."""

from arml.report.statistics import SEEDS, Comparison


def difference(found: Comparison, accuracy: bool) -> str:
    """The difference with its interval, accuracies in points; empty where it is not finite."""
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
    if any(found.failed):
        return failures(found)
    neither = "indication only" if min(found.runs) < SEEDS else "≈ may be chance"
    return words.get(standing(found, metric), neither)


def failures(found: Comparison) -> str:
    """How many runs failed: `2 of 3 runs failed`."""
    lost, runs = max(zip(found.failed, found.runs, strict=True))
    return f"{lost} of {lost + runs} runs failed"


def figures(found: Comparison, accuracy: bool) -> str:
    """A comparison as text: mean, interval, adjusted p, tasks and runs."""
    if found.mean is None:
        return failures(found) if any(found.failed) else "not finite"
    unit = " points" if accuracy else ""
    p = "" if found.adjusted is None else f", p {probability(found.adjusted)}"
    a, b = found.runs
    if any(found.failed):
        runs = f", {failures(found)}"
    elif min(a, b) < SEEDS:
        runs = " over tasks, " + ("one run each" if a == b == 1 else f"{a} and {b} runs")
    else:
        runs = f", {a} runs each" if a == b else f", {a} and {b} runs"
    return f"{difference(found, accuracy)}{unit}{p}{runs}"
