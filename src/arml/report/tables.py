"""Tables of results, drawn from result files and never typed.

`python -m arml.report.tables README.md results/` redraws the table between the two markers of the
README; `--check` only says whether it is up to date.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from arml.report.rows import Row, make_rows, sections
from arml.results.folder import RunError, write_text

BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"

METRIC_NAMES = {"mse": "MSE", "accuracy": "Accuracy"}

NOTE = (
    "± is the 95% interval over test tasks (1.96 s / √n, averaged over seeds); "
    "SD over seeds is the standard deviation of the runs' means."
)


def number(value: float | None, metric: str) -> str:
    """A score as text: accuracies, stored in [0, 1], as percentages."""
    if value is None:
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
    """Seconds below two minutes, then minutes, then hours."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def paper(row: Row) -> str:
    """The paper's figure, or a dash."""
    return f"{row.paper.mean:.2f} ± {row.paper.ci95:.2f}" if row.paper else "–"


CALIBRATION = "Calibration error (after temperature)"


def percentage(value: float | None) -> str:
    """A share of one as text; a dash where it is not known."""
    return "–" if value is None else number(value, "accuracy")


def calibration(row: Row) -> str:
    """The expected calibration error, and in brackets that after temperature."""
    return f"{percentage(row.error)} ({percentage(row.error_calibrated)})"


def calibrates(rows: Iterable[Row]) -> bool:
    """Whether the calibration of one of the rows is known."""
    return any(row.error is not None for row in rows)


def labels(rows: Sequence[Row]) -> list[str]:
    """Names for the rows: the recipe; where it is there twice, its steps, or else its options."""
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


def caption(rows: Sequence[Row]) -> str:
    """What the rows of one section share."""
    first = rows[0]
    steps = sorted({row.inner_steps for row in rows})
    return (
        f"{METRIC_NAMES[first.metric]} on {first.tasks:,} {first.split} tasks, "
        f"{' or '.join(map(str, steps))} inner steps. {first.protocol}".strip()
    )


def line_of(cells: Iterable[str]) -> str:
    """One line of a Markdown table."""
    escaped = (text.replace("|", "\\|").replace("\n", " ") for text in cells)
    return f"| {' | '.join(escaped)} |"


def markdown(rows: Sequence[Row]) -> str:
    """The rows of one section as a Markdown table under its caption."""
    metric, names = rows[0].metric, list(rows[0].families)
    arrow = "↓" if metric == "mse" else "↑"
    head = ["Recipe", f"{METRIC_NAMES[metric]} {arrow}", "SD over seeds", *names, "Training"]
    known = calibrates(rows)
    head += [CALIBRATION] if known else []
    head += ["Paper"] if any(row.paper for row in rows) else []
    body = []
    for name, row in zip(labels(rows), rows, strict=True):
        scores = [number(row.families[family], metric) for family in names]
        overall = interval(row.mean, row.ci95, metric)
        training = f"{row.steps:,} steps, {duration(row.seconds)}"
        cells = [f"`{name}`", overall, spread(row), *scores, training]
        cells += [calibration(row)] if known else []
        cells.append(paper(row))
        body.append(cells[: len(head)])
    for floor in floors(rows):
        cells = ["*Bayes-optimal predictor*", number(floor, metric)]
        body.append(cells + [""] * (len(head) - len(cells)))
    rule = ["---", *["---:"] * (len(head) - 1)]
    lines = map(line_of, [head, rule, *body])
    return f"{caption(rows)}. {machines(rows)}.\n\n" + "\n".join(lines)


def machines(rows: Sequence[Row]) -> str:
    """Where the rows were trained; where they were scored, if a row does not say the former."""
    known = all(row.trained_on for row in rows)
    devices = {d for row in rows for d in (row.trained_on if known else row.devices)}
    return f"{'Trained' if known else 'Scored'} on: {', '.join(sorted(devices))}"


def readme_table(results_dir: Path | str) -> str:
    """The tables of every `result.json` under a folder, as Markdown; those of a study (`arml
    reproduce`) have a page of their own, and are left out.

    **Raises:** `RunError` if there is no such folder, or for a damaged file.
    """
    folder = Path(results_dir)
    if not folder.is_dir():
        raise RunError(f"expected a folder of results at {folder}, found none; check its name")
    studies = [path.parent for path in folder.rglob("study.json")]
    found = (path for path in folder.rglob("result.json") if not {*path.parents} & {*studies})
    rows = make_rows(sorted(found))
    if not rows:
        return "*No results yet.*"
    return "\n\n".join([*map(markdown, sections(rows)), NOTE])


def terminal_table(rows: Sequence[Row]) -> Table:
    """Rows as a table for the terminal, one recipe a column, so that many families fit."""
    table = Table(title="Mean over tasks ± 95% interval over tasks", title_style="bold")
    table.add_column("", no_wrap=True)
    for name in labels(rows):
        # A break after the problem keeps columns narrow.
        table.add_column(Text(name.replace("/", "/\n")), justify="right", overflow="fold")

    def add(name: str, cells: Iterable[str]) -> None:
        # Text, not str: a family's name may look like markup.
        table.add_row(Text(name), *map(Text, cells))

    metrics = sorted({METRIC_NAMES[row.metric] for row in rows})
    add(" / ".join(metrics), [interval(row.mean, row.ci95, row.metric) for row in rows])
    if any(row.floor is not None for row in rows):
        best = [number(r.floor, r.metric) if r.floor is not None else "–" for r in rows]
        add("best possible", best)
    if any(row.paper for row in rows):
        add("in the paper", map(paper, rows))
    if calibrates(rows):
        add("calibration error", (percentage(row.error) for row in rows))
        add("  after temperature", (percentage(row.error_calibrated) for row in rows))
    table.add_section()
    for family in dict.fromkeys(family for row in rows for family in row.families):
        cells = (
            interval(row.families[family], row.families_ci95[family], row.metric)
            if family in row.families
            else "–"
            for row in rows
        )
        add(family, cells)
    table.add_section()
    add("SD over seeds", map(spread, rows))
    add("test tasks", (f"{row.tasks:,}" for row in rows))
    add("training steps", (f"{row.steps:,}" for row in rows))
    add("training time", (duration(row.seconds) for row in rows))
    return table


def replace_block(text: str, block: str, markers: tuple[str, str] = (BEGIN, END)) -> str:
    """`text` with what is between the two markers replaced.

    **Raises:** `RunError` unless both markers are there once, in order.
    """
    first, last = markers
    before, begin, rest = text.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end or first in rest or last in after:
        raise RunError(f"expected one {first} and, after it, one {last}; add them to the file")
    return f"{before}{first}\n\n{block}\n\n{last}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Redraw, or with `--check` compare, the results of a README. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m arml.report.tables", description=main.__doc__)
    parser.add_argument("readme", type=Path, help="a Markdown file with the two markers")
    parser.add_argument("results", type=Path, help="a folder with result.json files below it")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when stale")
    options = parser.parse_args(arguments)
    try:
        if not options.readme.is_file():
            raise RunError(f"expected a file {options.readme}, found none; check its name")
        old = options.readme.read_text(encoding="utf-8")
        new = replace_block(old, readme_table(options.results))
        if options.check and new != old:
            command = f"python -m arml.report.tables {options.readme} {options.results}"
            raise RunError(f"the results in {options.readme} are stale; run `{command}`")
        if new != old:
            write_text(options.readme, new)
    except RunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
