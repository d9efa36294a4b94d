"""One table, three renderers: Markdown, the terminal, and HTML (`templates/blocks.html`);
and the tables of runs, drawn from their results.

A cell is text with an optional second line. Nothing here knows the meaning
of the numbers.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import cast

from rich.console import Group
from rich.table import Table as Grid
from rich.text import Text

from arml.results.files import RunError
from arml.results.folder import Result, RunFiles, read_result
from arml.results.scores import Score


@dataclass(frozen=True)
class Cell:
    """One cell."""

    text: str = ""
    small: str = ""
    """A second line, smaller."""
    kind: str = ""
    """The name of its style on a page."""


@dataclass(frozen=True)
class Column:
    """The heading of a column."""

    title: str
    small: str = ""
    brief: bool = False
    """Whether Markdown leaves out the second lines of its cells."""


@dataclass(frozen=True)
class Line:
    """A row: its name, and a cell for each other column; missing ones are empty."""

    name: str
    cells: tuple[Cell, ...]
    note: str = ""
    kind: str = ""
    code: bool = False
    """Whether the name is a word to type."""


BESIDE = {"floor": "best possible", "simple": "for comparison"}
"""Kinds of lines that are no recipes, and the words for them."""


@dataclass(frozen=True)
class Table:
    """Rows under their headings, the first of which is that of the rows' names."""

    title: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    caption: str = ""
    kind: str = ""
    sections: tuple[int, ...] = field(default=())
    """Columns (without the first) before which the terminal draws a rule."""


def markdown(table: Table) -> str:
    """The table in Markdown, without its caption."""
    head = [column.title for column in table.columns]
    rule = ["---", *["---:"] * (len(head) - 1)]
    body = []
    for line in table.lines:
        name = f"`{line.name}`" if line.code else line.name
        cells = [
            cell.text if column.brief or not cell.small else f"{cell.text}, {cell.small}"
            for cell, column in zip(line.cells, table.columns[1:], strict=False)
        ]
        body.append([f"*{name}*" if line.kind in BESIDE else name, *cells])
    whole = [row + [""] * (len(head) - len(row)) for row in [head, rule, *body]]
    return "\n".join(map(line_of, whole))


def line_of(cells: Iterable[str]) -> str:
    """One line of a Markdown table."""
    escaped = (text.replace("|", "\\|").replace("\n", " ") for text in cells)
    return f"| {' | '.join(escaped)} |"


def terminal(table: Table) -> Group:
    """The table for a terminal, turned on its side, so that many columns fit."""
    rows = [line for line in table.lines if line.kind not in BESIDE]
    beside = [(line, BESIDE[line.kind]) for line in table.lines if line.kind in BESIDE]
    notes = [
        table.caption,
        *(f"{what} ({line.name}): {line.cells[0].text}" for line, what in beside),
    ]
    grid = Grid()
    grid.add_column("", no_wrap=True)
    for line in rows:
        # A break after the problem keeps columns narrow.
        grid.add_column(Text(line.name.replace("/", "/\n")), justify="right", overflow="fold")
    for index, column in enumerate(table.columns[1:]):
        if index in table.sections:
            grid.add_section()
        # Text, not str: a family's name may look like markup.
        cells = (_drawn(line.cells[index]) for line in rows)
        grid.add_row(Text(column.title), *cells)
    # Beside the grid, because the title and the caption of a grid are wrapped at its width.
    return Group(Text(table.title, style="bold"), grid, *map(Text, notes))


def _drawn(cell: Cell) -> Text:
    return Text(_plain(cell), style="dim" if cell.kind == "soft" else "")


def _plain(cell: Cell) -> str:
    if cell.small.startswith("±"):
        return f"{cell.text.rstrip('%')} {cell.small}"
    return f"{cell.text}, {cell.small}" if cell.small else cell.text


@dataclass(frozen=True)
class Row:
    """One recipe under one protocol, over its seeds.

    A number is None where it does not exist: a score that is not finite, an interval over one
    task, a spread over one seed.
    """

    recipe: str
    metric: str
    split: str
    protocol: str
    steps: int
    inner_steps: int
    seeds: tuple[int, ...]
    tasks: int
    mean: float | None
    ci95: float | None
    spread: float | None
    families: dict[str, float | None]
    families_ci95: dict[str, float | None]
    empty: frozenset[str]
    """The families of which no task was scored."""
    seconds: float
    devices: tuple[str, ...]
    """Where it was scored."""
    trained_on: tuple[str, ...]
    """Where it was trained; empty unless every result says so."""
    options: str | None
    """The options in which runs of one recipe differ; None in older results."""
    floor: float | None
    simple: dict[str, Score]
    """Scores of classifiers that need no meta-training, on the same tasks."""


def mean_of(values: Sequence[float | None]) -> float | None:
    """The mean, or None if a value is missing: a run that diverged must not be left out."""
    numbers = [value for value in values if value is not None]
    return fmean(numbers) if numbers and len(numbers) == len(values) else None


def spread_of(values: Sequence[float | None]) -> float | None:
    """The standard deviation, or None if a value is missing or there is only one."""
    numbers = [value for value in values if value is not None]
    return stdev(numbers) if len(numbers) == len(values) > 1 else None


def _row(runs: Sequence[Result]) -> Row:
    runs = sorted(runs, key=lambda run: run["seed"])
    first = runs[0]
    seeds = tuple(run["seed"] for run in runs)
    if len(set(seeds)) < len(seeds):
        raise RunError(
            f"expected one result for each seed of {first['recipe']} with {first['steps']} steps, "
            f"got seeds {', '.join(map(str, seeds))}; leave one of the equal ones out"
        )
    means = [run["score"]["mean"] for run in runs]
    trained = [(run.get("trained") or {}).get("device") for run in runs]
    names = first["families"]
    return Row(
        recipe=first["recipe"],
        metric=first["metric"],
        split=first["split"],
        protocol=first["protocol"],
        steps=first["steps"],
        inner_steps=first["inner_steps"],
        seeds=seeds,
        tasks=first["score"]["n"],
        mean=mean_of(means),
        ci95=mean_of([run["score"]["ci95"] for run in runs]),
        spread=spread_of(means),
        families={name: mean_of([run["families"][name]["mean"] for run in runs]) for name in names},
        families_ci95={
            name: mean_of([run["families"][name]["ci95"] for run in runs]) for name in names
        },
        empty=frozenset(name for name in names if not first["families"][name]["n"]),
        seconds=fmean(run["seconds"] for run in runs),
        devices=tuple(sorted({run["device"] for run in runs})),
        trained_on=tuple(sorted(set(map(str, trained)))) if all(trained) else (),
        options=next((run["options"] for run in runs if run.get("options")), None),
        floor=first["floor"],
        simple=next((run["simple"] for run in runs if run.get("simple")), {}),
    )


def _by_options(runs: Sequence[Result]) -> list[list[Result]]:
    """The runs apart by their options."""
    found = list(dict.fromkeys(run.get("options") for run in runs))
    if len(set(found) - {None}) < 2:
        return [list(runs)]
    return [[run for run in runs if run.get("options") == options] for options in found]


def make_rows(results: Iterable[Result | Path]) -> list[Row]:
    """Group results (or paths of `result.json`) by recipe over seeds, worst mean first.

    Results of one recipe are one row only if they share everything that a score depends on: split,
    metric, protocol, tasks, families, steps, inner steps, size and options. An older result without
    its options joins the others if the others have the same options.

    **Raises:** `RunError` for a damaged file, or two results of the same seed in one row.
    """
    groups: dict[tuple[object, ...], list[Result]] = {}
    for item in results:
        run = read_result(item) if isinstance(item, Path) else item
        keys = ("recipe", "split", "metric", "protocol", "steps", "inner_steps", "parameters")
        same = (*(run.get(key) for key in keys), run["score"]["n"], tuple(run["families"]))
        groups.setdefault(same, []).append(run)
    alike = [part for group in groups.values() for part in _by_options(group)]

    def goodness(row: Row) -> tuple[bool, float, str]:
        sign = -1 if row.metric == "mse" else 1
        return (row.mean is not None, sign * (row.mean or 0.0), row.recipe)

    return sorted(map(_row, alike), key=goodness)


def sections(rows: Iterable[Row]) -> list[list[Row]]:
    """The rows that can be compared with each other: the same metric, families, tasks, protocol."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        same = (row.metric, tuple(row.families), row.split, row.tasks, row.protocol)
        groups.setdefault(same, []).append(row)
    return [groups[key] for key in sorted(groups, key=str)]


def _options(value: object, name: str = "") -> dict[str, str]:
    """A nested configuration as flat names and texts, without the seed."""
    if not isinstance(value, dict):
        return {name: str(value)}
    found: dict[str, str] = {}
    for key, item in value.items():
        if key != "seed":
            found.update(_options(item, f"{name}.{key}" if name else key))
    return found


def told_apart(runs: Sequence[RunFiles]) -> list[RunFiles]:
    """The runs. If runs of one recipe have different options, these are added to the name, so that
    such runs are not averaged as if they were seeds of one experiment.
    """
    options = [_options(run.config.get("experiment", {})) for run in runs]
    named = []
    for run, own in zip(runs, options, strict=True):
        recipe = run.config.get("recipe")
        pairs = zip(runs, options, strict=True)
        others = [found for other, found in pairs if other.config.get("recipe") == recipe]
        names = sorted({name for found in others for name in found})
        differing = [name for name in names if len({found.get(name) for found in others}) > 1]
        if differing:
            label = f"{recipe} ({', '.join(f'{name}={own.get(name)}' for name in differing)})"
            result = cast(Result, {**run.result, "recipe": label}) if run.result else None
            run = run._replace(config={**run.config, "recipe": label}, result=result)
        named.append(run)
    return named


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
    direction = "lower is better" if metric == "mse" else "higher is better"
    columns = [Column("Recipe"), Column(METRIC_NAMES[metric], f"({direction})")]
    columns += [Column("SD over seeds")]
    columns += [*(Column(name, brief=True) for name in families)]
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


def markdown_of(rows: Sequence[Row]) -> str:
    """The rows of one section as a Markdown table under its caption."""
    return f"{caption(rows)}. {machines(rows)}.\n\n{markdown(table_of(rows))}"


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
