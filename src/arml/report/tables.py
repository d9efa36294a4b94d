"""One table and its renderers: Markdown, LaTeX, the terminal, and HTML (`templates/blocks.html`);
and the tables of runs, drawn from their results."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from rich.console import Group
from rich.table import Table as Grid
from rich.text import Text

from arml.results.comparisons import over_trainings
from arml.results.files import RunError
from arml.results.folder import Result
from arml.results.scores import number_of


@dataclass(frozen=True)
class Cell:
    """One cell."""

    text: str = ""
    kind: str = ""
    """The name of its style on a page."""
    image: str = ""
    """A picture before the text on a page, as a data URI."""


@dataclass(frozen=True)
class Line:
    """A row: its name, and a cell for each other column; missing ones are empty."""

    name: str
    cells: tuple[Cell, ...]
    kind: str = ""


LINE_KINDS = {"floor": "best possible", "simple": "for comparison"}
"""Kinds of lines that are not recipes, and their labels."""


@dataclass(frozen=True)
class Table:
    """Rows under their headings, the first of which is that of the rows' names."""

    title: str
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    caption: str = ""


def markdown(table: Table) -> str:
    """The table in Markdown, without its caption."""
    rule = ["---", *["---:"] * (len(table.columns) - 1)]
    lines = []
    for cells in (table.columns, rule, *texts(table)):
        escaped = (text.replace("|", "\\|").replace("\n", " ") for text in cells)
        lines.append(f"| {' | '.join(escaped)} |")
    return "\n".join(lines)


def texts(table: Table) -> list[list[str]]:
    """The texts of each row, as many as there are columns."""
    rows = [[line.name, *(cell.text for cell in line.cells)] for line in table.lines]
    return [row + [""] * (len(table.columns) - len(row)) for row in rows]


_LATEX_SIGNS = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "±": r"$\pm$",
        "–": "--",
        "−": "$-$",
        "<": "$<$",
        ">": "$>$",
        "|": r"\textbar{}",
        "≥": r"$\geq$",
        "≤": r"$\leq$",
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    }
)


def latex(table: Table) -> str:
    """The table in LaTeX, with the rules of booktabs, its caption as a comment before it."""
    head, *body = (
        " & ".join(text.translate(_LATEX_SIGNS) for text in cells) + r" \\"
        for cells in (table.columns, *texts(table))
    )
    caption = f"% {' '.join(table.caption.split())}\n" if table.caption else ""
    begin = rf"\begin{{tabular}}{{l{'r' * (len(table.columns) - 1)}}}"
    rules = (r"\toprule", head, r"\midrule", *body, r"\bottomrule")
    return caption + "\n".join((begin, *rules, r"\end{tabular}")) + "\n"


def grid(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left: Sequence[int] = (0,),
    **style: Any,
) -> Grid:
    """A table for the terminal; the columns that are not `left` are aligned to the right. All cells
    are plain text, because a name may look like markup."""
    found = Grid(**{"title_style": "bold", "title_justify": "left", **style})
    for place, heading in enumerate(headings):
        found.add_column(
            Text(heading), justify="left" if place in left else "right", overflow="fold"
        )
    for row in rows:
        found.add_row(*map(Text, row))
    return found


def terminal(table: Table) -> Group:
    """The table for a terminal, turned on its side, so that many columns fit."""
    lines = [line for line in table.lines if line.kind not in LINE_KINDS]
    # A break after the problem keeps columns narrow.
    names = [line.name.replace("/", "/\n") for line in lines]
    titles = enumerate(table.columns[1:])
    rows = [[title, *(line.cells[i].text for line in lines)] for i, title in titles]
    turned = grid(["", *names], rows)
    turned.columns[0].no_wrap = True
    others = [line for line in table.lines if line.kind in LINE_KINDS]
    notes = [f"{LINE_KINDS[line.kind]} ({line.name}): {line.cells[0].text}" for line in others]
    # Beside the grid, because the title and the caption of a grid are wrapped at its width.
    return Group(Text(table.title, style="bold"), turned, *map(Text, [table.caption, *notes]))


METRIC_NAMES = {"mse": "MSE", "accuracy": "Accuracy"}


@dataclass(frozen=True)
class Row:
    """One recipe under one protocol, over its seeds.

    A number is None where it does not exist: a score that is not finite, an interval over one
    task, a spread over one seed.
    """

    recipe: str
    runs: tuple[Result, ...]
    """The results of the runs, in the order of their seeds."""

    @property
    def first(self) -> Result:
        """The facts that its runs share."""
        return self.runs[0]

    @property
    def metric(self) -> str:
        """accuracy or mse."""
        return self.first["metric"]

    @property
    def mean(self) -> float | None:
        """The mean over tasks and runs."""
        return mean_score([run["score"]["mean"] for run in self.runs])

    @property
    def ci95(self) -> float | None:
        """The half-width of the interval over tasks, averaged over runs."""
        return mean_score([run["score"]["ci95"] for run in self.runs])

    @property
    def spread(self) -> float | None:
        """The standard deviation of the runs' means."""
        return spread_of([run["score"]["mean"] for run in self.runs])

    def family(self, name: str) -> str:
        """The score of a family; a dash if no task was of it."""
        if not self.first["families"][name]["n"]:
            return "–"
        scores = [run["families"][name] for run in self.runs]
        mean, half = (mean_score([one[part] for one in scores]) for part in ("mean", "ci95"))
        return interval(mean, half, self.metric)


def mean_score(values: Sequence[float | None]) -> float | None:
    """The mean, or None if a value is missing: a run that diverged must not be left out."""
    numbers = [value for value in values if value is not None]
    return fmean(numbers) if numbers and len(numbers) == len(values) else None


def spread_of(values: Sequence[float | None]) -> float | None:
    """The standard deviation, or None if a value is missing or not finite, or there is only one."""
    numbers = [value for value in values if value is not None and math.isfinite(value)]
    return stdev(numbers) if len(numbers) == len(values) > 1 else None


def make_rows(results: Iterable[Result]) -> list[Row]:
    """Group results by recipe over seeds, worst mean first. Results of one recipe are one row only
    if they share everything that a score depends on. **Raises** `RunError` for two results of the
    same seed in one row."""
    keys = ("recipe", "split", "metric", "protocol", "inner_steps", "parameters")
    groups: dict[tuple[object, ...], list[Result]] = {}
    for run in results:
        steps = None if _is_validated(run) else run["steps"]
        alike = (*(run.get(key) for key in keys), steps, run.get("options"), run["score"]["n"])
        groups.setdefault((*alike, tuple(run["families"])), []).append(run)
    rows = []
    for runs in groups.values():
        runs.sort(key=lambda run: run["seed"])
        seeds, recipe = [run["seed"] for run in runs], runs[0]["recipe"]
        if len(set(seeds)) < len(seeds):
            raise RunError(
                f"expected one result for each seed of {recipe} with {runs[0]['steps']} steps, "
                f"got seeds {', '.join(map(str, seeds))}; leave one of the equal ones out"
            )
        if len({digest for run in runs if (digest := run.get("tasks"))}) > 1:
            raise RunError(
                f"the runs of {recipe} with seeds {', '.join(map(str, seeds))} were scored on "
                "different tasks, because their data differ: report them apart"
            )
        rows.append(Row(recipe, tuple(runs)))

    signs = {"mse": -1, "accuracy": 1}
    return sorted(
        rows, key=lambda r: (r.mean is not None, signs[r.metric] * (r.mean or 0.0), r.recipe)
    )


def _is_validated(run: Result) -> bool:
    """Whether validation scores decided at which step the learner of a run was saved."""
    chosen = run.get("chosen", "")
    return chosen.startswith("the best of") or "; the training ended after" in chosen


def _steps_of(row: Row) -> str:
    """The steps of a row's trainings, in words."""
    few, most = (f"{pick(run['steps'] for run in row.runs):,}" for pick in (min, max))
    return f"{few} steps" if few == most else f"{few} to {most} steps"


def comparable(rows: Iterable[Row]) -> list[list[Row]]:
    """The rows that can be compared with each other: the same metric, families, tasks, protocol."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        run = row.first
        same = (run["metric"], run["split"], run["protocol"], tuple(run["families"]))
        groups.setdefault((*same, run["score"]["n"]), []).append(row)
    return [groups[key] for key in sorted(groups, key=str)]


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


def duration(seconds: float) -> str:
    """`40 s`, `3 min` or `1.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def labels(rows: Sequence[Row]) -> list[str]:
    """Names for the rows: the recipe, with its steps or its options if it occurs more than once."""
    recipes, names = [row.recipe for row in rows], []
    for row in rows:
        detail = f" ({_steps_of(row)}, {row.first['inner_steps']} inner)"
        names.append(row.recipe + detail * (recipes.count(row.recipe) > 1))
    return [
        f"{name} [options {row.first.get('options')}]" if names.count(name) > 1 else name
        for name, row in zip(names, rows, strict=True)
    ]


def floor_of(rows: Sequence[Row]) -> float | None:
    """The best possible score on the tasks of the rows, if it is known."""
    return next((row.first["floor"] for row in rows if row.first["floor"] is not None), None)


def simple(rows: Sequence[Row]) -> dict[str, str]:
    """The scores of the classifiers that need no meta-training. They are left out if the rows are
    of different data, because the score then belongs only to some of the rows."""
    scores = [
        {name: interval(s["mean"], s["ci95"], row.metric) for name, s in found.items()}
        for row in rows
        for found in (run.get("simple") for run in row.runs)
        if found
    ]
    return scores[0] if scores and all(one == scores[0] for one in scores) else {}


def table_of(rows: Sequence[Row], beside: Mapping[str, Sequence[str]] | None = None) -> Table:
    """The rows of one section; the columns to compare come first. If a row has several trainings,
    ± is over trainings, and its part over tasks stands beside it.

    `beside` has the texts of more cells: the heads by the empty name, and those of each row by its
    name in `labels`."""
    first, metric, beside = rows[0].first, rows[0].metric, beside or {}
    families, several = list(first["families"]), any(len(row.runs) > 1 for row in rows)
    what, over = METRIC_NAMES[metric], "trainings" if several else "tasks"
    more = ("± over tasks", "Trainings (SD)") if several else ()
    columns = ("Recipe", f"{what} ± over {over}", *more, *beside.get("", ()), *families)
    lines = []
    for name, row in zip(labels(rows), rows, strict=True):
        means = [number_of(run["score"]["mean"]) for run in row.runs]
        texts = list(training_cells(row.mean, means, row.ci95, metric))
        if not several:
            texts = [interval(row.mean, row.ci95, metric)]
        texts += [*beside.get(name, ()), *map(row.family, families)]
        seconds = duration(fmean(run["seconds"] for run in row.runs))
        texts += [f"{_steps_of(row)}, {seconds}"]
        kinds = ("score", *[""] * (len(texts) - 1))
        lines.append(Line(name, tuple(map(Cell, texts, kinds))))
    if (floor := floor_of(rows)) is not None:
        lines.append(Line("Bayes-optimal predictor", (Cell(number(floor, metric)),), kind="floor"))
    for name, score in simple(rows).items():
        lines.append(Line(f"{name}, no meta-training", (Cell(score),), kind="simple"))
    steps = " or ".join(map(str, sorted({row.first["inner_steps"] for row in rows})))
    return Table(
        f"Mean ± 95% interval over {over}",
        (*columns, "Time of a training"),
        tuple(lines),
        f"{what} on {first['score']['n']:,} {first['split']} tasks, {steps} inner steps. "
        f"{first['protocol']}".strip(),
    )


def training_cells(
    mean: float | None, means: Sequence[float], over_tasks: float | None, metric: str
) -> tuple[str, str, str]:
    """The mean of some trainings with its interval over trainings, the interval over tasks, and
    their number with the standard deviation of their means, as text."""
    sd = spread_of([one if math.isfinite(one) else None for one in means])
    spread = f" ({number(sd, metric)})" if len(means) > 1 else ""
    whole = interval(mean, over_trainings(means), metric)
    return whole, f"± {number(over_tasks, metric)}", f"{len(means)}{spread}"
