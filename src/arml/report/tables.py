"""Tables of results, drawn from result files and never typed."""

import math
from collections.abc import Iterable, Sequence

from rich.console import Group

from arml.report.rows import Row, sections
from arml.report.table import Cell, Column, Line, Table, terminal
from arml.report.table import markdown as as_markdown
from arml.results.files import RunError

BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"

METRIC_NAMES = {"mse": "MSE", "accuracy": "Accuracy"}


def number(value: float | None, metric: str) -> str:
    """A score as text: accuracies, stored in [0, 1], as percentages."""
    if value is None or not math.isfinite(value):
        return "not finite"
    if metric == "accuracy":
        return f"{100 * value:.2f}%"
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.4g}"


def interval(mean: float | None, ci95: float | None, metric: str) -> str:
    """`mean ± half-width`."""
    if mean is None or ci95 is None:
        return number(mean, metric)
    return f"{number(mean, metric).rstrip('%')} ± {number(ci95, metric)}"


def spread(row: Row) -> str:
    """The standard deviation over seeds and the number of seeds."""
    n = len(row.seeds)
    if n == 1:
        return "1 seed"
    return f"{number(row.spread, row.metric)} ({n} seeds)"


def duration(seconds: float) -> str:
    """`40 s`, `3 min` or `1.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def percentage(value: float | None) -> str:
    """A share of one as text; a dash where it is not known."""
    return "–" if value is None else number(value, "accuracy")


def calibrates(rows: Iterable[Row]) -> bool:
    """Whether the calibration of one of the rows is known."""
    return any(row.error is not None for row in rows)


def labels(rows: Sequence[Row]) -> list[str]:
    """Names for the rows: the recipe, with its steps or its options if it occurs more than once."""
    names = [row.recipe for row in rows]
    result = []
    for row in rows:
        twin = names.count(row.recipe) > 1
        detail = f" ({row.steps:,} steps, {row.inner_steps} inner)" if twin else ""
        result.append(row.recipe + detail)
    return [
        f"{name} [options {row.options or 'unknown'}]" if result.count(name) > 1 else name
        for name, row in zip(result, rows, strict=True)
    ]


def floors(rows: Sequence[Row]) -> list[float]:
    """The floors that the rows name, each once."""
    return sorted({row.floor for row in rows if row.floor is not None})


def simple(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """The names and the scores of the classifiers that need no meta-training. They are left out if
    the rows are of different data, because such a score then belongs to some of the rows only."""
    found = [
        {n: interval(s["mean"], s["ci95"], row.metric) for n, s in row.simple.items()}
        for row in rows
        if row.simple
    ]
    same = found and all(one == found[0] for one in found)
    return [(f"{name}, no meta-training", told) for name, told in found[0].items()] if same else []


def caption(rows: Sequence[Row]) -> str:
    """The facts that the rows of one section share."""
    first = rows[0]
    steps = sorted({row.inner_steps for row in rows})
    return (
        f"{METRIC_NAMES[first.metric]} on {first.tasks:,} {first.split} tasks, "
        f"{' or '.join(map(str, steps))} inner steps. {first.protocol}".strip()
    )


def table_of(rows: Sequence[Row]) -> Table:
    """The rows of one section; the columns to compare come first."""
    metric, families = rows[0].metric, list(rows[0].families)
    known = calibrates(rows)
    direction = "lower is better" if metric == "mse" else "higher is better"
    columns = [Column("Recipe"), Column(METRIC_NAMES[metric], f"({direction})")]
    columns += [Column("SD over seeds")]
    columns += [*(Column(name, brief=True) for name in families)]
    columns += [Column("Calibration error", "after temperature")] if known else []
    columns += [Column("Training")]
    lines = []
    for name, row in zip(labels(rows), rows, strict=True):
        cells = [Cell(interval(row.mean, row.ci95, metric), kind="score")]
        cells.append(Cell(spread(row)))
        for family in families:
            half = row.families_ci95[family]
            small = "" if half is None else f"± {number(half, metric)}"
            mean = "–" if family in row.empty else number(row.families[family], metric)
            cells.append(Cell(mean, small))
        if known:
            after = f"{percentage(row.error_calibrated)} after temperature"
            cells.append(Cell("–") if row.error is None else Cell(percentage(row.error), after))
        cells.append(Cell(f"{row.steps:,} steps", duration(row.seconds)))
        lines.append(Line(name, tuple(cells), code=True))
    for floor in floors(rows):
        lines.append(Line("Bayes-optimal predictor", (Cell(number(floor, metric)),), kind="floor"))
    lines += [Line(name, (Cell(told),), kind="simple") for name, told in simple(rows)]
    return Table(
        "Mean over tasks ± 95% interval over tasks",
        tuple(columns),
        tuple(lines),
        caption(rows),
        sections=(2, 2 + len(families)),
    )


def markdown(rows: Sequence[Row]) -> str:
    """The rows of one section as a Markdown table under its caption."""
    return f"{caption(rows)}. {machines(rows)}.\n\n{as_markdown(table_of(rows))}"


def machines(rows: Sequence[Row]) -> str:
    """The devices that trained the rows; those that scored them, if a row lacks the former."""
    known = all(row.trained_on for row in rows)
    devices = {d for row in rows for d in (row.trained_on if known else row.devices)}
    return f"{'Trained' if known else 'Scored'} on: {', '.join(sorted(devices))}"


def terminal_table(rows: Sequence[Row]) -> Group:
    """Rows as a table for the terminal, one recipe a column; a table for each problem."""
    return Group(*(terminal(table_of(some)) for some in sections(rows)))


def replace_block(text: str, block: str, markers: tuple[str, str] = (BEGIN, END)) -> str:
    """`text` with the part between the two markers replaced by `block`.

    **Raises:** `RunError` unless both markers are there once, in order.
    """
    first, last = markers
    before, begin, rest = text.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end or first in rest or last in after:
        raise RunError(f"expected one {first} and, after it, one {last}; add them to the file")
    return f"{before}{first}\n\n{block}\n\n{last}{after}"
