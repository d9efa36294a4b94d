"""Verdicts: several methods, each compared with one of them over trainings and tasks.

The family of Holm's correction is all differences of one table.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any, overload

from rich.console import Console

from arml.report.tables import (
    METRIC_NAMES,
    Cell,
    Line,
    Table,
    grid,
    latex,
    markdown,
    spread_of,
    texts,
    training_cells,
)
from arml.results.comparisons import (
    MIN_SEEDS,
    Comparison,
    check_distinct,
    compare_seeds,
    compare_two,
    holm,
    over_tasks,
    over_trainings,
    probability,
)
from arml.results.files import RunError, csv_text
from arml.results.folder import read_config, seeds_in
from arml.results.scores import Scores, check_paired, read_scores

DIFFERENCE_NOTE = (
    "A difference is the method minus the reference on the same tasks, over trainings and tasks if "
    "both have two trainings or more with finite scores, and only over tasks otherwise; trainings "
    "without a finite score are left out. p has Holm's correction over "
    f"all differences of the table; it needs {MIN_SEEDS} trainings of each."
)
INTERVALS_NOTE = (
    "± over trainings is the 95% interval of the mean over trainings, by Student's t; ± over tasks "
    f"is that of the scores averaged over trainings. {DIFFERENCE_NOTE}"
)


VERDICT_COLUMNS = ("Difference", "p", "Verdict")
"""The columns of `Verdicts.cells`."""


@dataclass(frozen=True)
class Verdicts:
    """Several methods on the same tasks, each compared with the one named `against`.

        verdicts = arml.compare({"ours": scores, "maml": others}, against="maml")
        verdicts["ours"].mean, verdicts["ours"].adjusted, verdicts["ours"].verdict
        print(verdicts); verdicts.to_latex()

    `verdicts[NAME]` is the `Comparison` of that method minus the reference.
    """

    scores: Mapping[str, Sequence[Scores]]
    """The scores of each training, by method."""
    against: str
    differences: Mapping[str, Comparison]
    """The difference of each method from the reference, with adjusted p-values."""

    def __getitem__(self, name: str) -> Comparison:
        return self.differences[name]

    @property
    def metric(self) -> str:
        """accuracy or mse."""
        return next(scores.metric for some in self.scores.values() for scores in some)

    def table(self) -> Table:
        """Mean, intervals, difference, p and verdict of each method."""
        metric, first = self.metric, next(iter(self.scores.values()))[0]
        lines = [
            Line(name, tuple(map(Cell, (*score_cells(some), *self.cells(name)))))
            for name, some in self.scores.items()
        ]
        better = {"mse": "lower is better; ", "accuracy": "higher is better; "}.get(metric, "")
        about = f"{METRIC_NAMES.get(metric, 'Score')}, {better}{len(first):,} {first.split} tasks"
        columns = ("Method", *score_head(metric), *VERDICT_COLUMNS)
        return Table(
            f"Differences from {self.against}", columns, tuple(lines), f"{about}. {INTERVALS_NOTE}"
        )

    def cells(self, name: str) -> tuple[str, str, str]:
        """The difference of a method from the reference, p and the verdict, as text."""
        if name == self.against:
            return "reference", "", ""
        found = self[name]
        return difference(found), chance(found), told(found)

    def to_markdown(self) -> str:
        """The table in Markdown, with its caption."""
        table = self.table()
        return f"{markdown(table)}\n\n{table.caption}\n"

    def to_latex(self) -> str:
        """The table in LaTeX; it needs the package booktabs."""
        return latex(self.table())

    def to_html(self) -> str:
        """The table as a separate page."""
        from arml.report.render import block, html

        table = self.table()
        return html(table.title, [], {"Comparison": [block("table", table=table)]})

    def to_csv(self) -> str:
        """The unrounded numbers, a row for each method; accuracies and their differences are
        shares of one. An empty cell is a number that does not exist."""
        head = "method metric tasks trainings mean ci95_trainings ci95_tasks sd difference "
        head += "difference_ci95 p p_adjusted verdict why"
        rows: list[list[Any]] = [head.split()]
        for name, some in self.scores.items():
            means, found = [scores.mean for scores in some], self.differences.get(name)
            row: list[Any] = [name, self.metric, len(some[0]), len(some), fmean(means)]
            row += [over_trainings(means), over_tasks(some), spread_of(means)]
            if found is not None:
                row += [found.mean, found.ci95, found.p, found.adjusted, found.verdict, found.why]
            rows.append([*row, *[""] * (14 - len(row))])
        return csv_text(rows)

    def __str__(self) -> str:
        table, console = self.table(), Console(file=io.StringIO(), width=400, record=True)
        console.print(grid(table.columns, texts(table), box=None))
        return f"{console.export_text()}{table.caption}\n"


def score_head(metric: str) -> tuple[str, str, str]:
    """The columns of `score_cells`."""
    return f"{METRIC_NAMES.get(metric, 'Score')} ± over trainings", "± over tasks", "Trainings (SD)"


def score_cells(some: Sequence[Scores]) -> tuple[str, str, str]:
    """The cells of some trainings, as text; the interval over tasks is that of the scores averaged
    over trainings."""
    means, metric = [scores.mean for scores in some], some[0].metric
    return training_cells(fmean(means), means, over_tasks(some), metric)


def difference(found: Comparison) -> str:
    """The difference with its interval, accuracies in points; empty where it is not finite."""
    if found.mean is None:
        return ""
    scale, digits = (100, 2) if found.metric == "accuracy" else (1, 3)
    half = "" if found.ci95 is None else f" ± {scale * found.ci95:.{digits}f}"
    return f"{scale * found.mean:+.{digits}f}{half}"


def chance(found: Comparison) -> str:
    """The adjusted p-value: `0.03`, `< 0.001`; a dash where there is none."""
    return "–" if found.adjusted is None else probability(found.adjusted).removeprefix("= ")


def told(found: Comparison) -> str:
    """The verdict, with the reason if the data cannot tell."""
    hint = f", indicates {found.indicates}" if found.indicates else ""
    return found.verdict + (f" ({found.why}{hint})" if found.why else "")


@overload
def compare(a: object, b: object) -> Comparison: ...
@overload
def compare(a: Mapping[str, Any], *, against: str | None = None) -> Verdicts: ...
def compare(a: Any, b: Any = None, *, against: str | None = None) -> Comparison | Verdicts:
    """Compare methods on the same tasks: two of them, or all with one.

        others = arml.evaluate(learner, tasks, n=200)
        comparison = arml.compare(scores, others)
        comparison.mean, comparison.ci95, comparison.p, comparison.by_family()

        verdicts = arml.compare({"ours": scores, "maml": others}, against="maml")
        print(verdicts); verdicts.to_latex(); verdicts.to_csv(); verdicts.to_html()

    **Arguments**

    - `a`, `b`: two methods, each as scores, a run that was evaluated (`arml.Run`, or its folder), a
      folder of seeds, or a sequence of these, which are independent trainings. The result is the
      mean of `a - b`.
    - Or only `a`: a mapping of such methods by name.
    - `against`: the name of the method that the others are compared with; the first if not given.

    With two trainings of each the interval of a difference is over trainings and tasks. With one it
    is only over tasks, which is about these trained learners and not about their methods. `p`
    needs five trainings of each and is None for fewer: they give an indication. `adjusted` has
    Holm's correction for all differences of the call. A difference of accuracies is a share of one:
    0.01 is a point.

    **Raises** `ValueError` in one line if a method has no scores or one training twice, or not all
    were scored on the same tasks.
    """
    known: dict[Path, Scores] = {}
    if not isinstance(a, Mapping):
        if b is None or against is not None:
            raise ValueError("expected two methods, or a mapping of methods by name and against=")
        return compare_two(*(scores_of(side, known) for side in (a, b)))
    if b is not None:
        raise ValueError(
            "expected one mapping of methods, got a second argument: put it into the mapping"
        )
    methods = {str(name): scores_of(what, known) for name, what in a.items()}
    if len(methods) < 2 or not all(methods.values()):
        raise ValueError(
            "expected two methods or more, each with scores, got "
            + (", ".join(f"{name} with {len(some)}" for name, some in methods.items()) or "none")
        )
    reference = next(iter(methods)) if against is None else against
    if reference not in methods:
        raise ValueError(f"expected against to be one of {', '.join(methods)}, got {against!r}")
    for scores in chain(*methods.values()):
        check_paired(methods[reference][0], scores)
    for name, some in methods.items():
        check_distinct(name, some)
    sides = {name: dict(enumerate(some)) for name, some in methods.items()}
    ours = sides.pop(reference)
    found = holm([compare_seeds(side, ours) for side in sides.values()])
    return Verdicts(methods, reference, dict(zip(sides, found, strict=True)))


def scores_of(what: Any, known: dict[Path, Scores]) -> list[Scores]:
    """The scores of trainings: themselves, or those of a run, of its folder, of a folder of seeds,
    or of a sequence of these. A folder's are read once, and kept in `known`. **Raises** `RunError`
    for a run that has none."""
    match what:
        case Scores():
            return [what]
        case str() | Path() if seeds := seeds_in(what):
            return scores_of(seeds, known)
        case str() | Path():
            read_config(what)
            if not (path := Path(what) / "scores.npz").exists():
                raise RunError(
                    f"expected the scores of single tasks in {path}, found none: run `arml "
                    f"evaluate {what}` first, without --split, --steps, --ways, --shots and --out"
                )
            if path.resolve() not in known:
                known[path.resolve()] = read_scores(path)
            return [known[path.resolve()]]
        case Sequence():
            return [scores for one in what for scores in scores_of(one, known)]
    if isinstance(folder := getattr(what, "folder", None), Path):
        return scores_of(folder, known)
    raise ValueError(
        f"expected Scores, a run or its folder, got {type(what).__name__}: see arml.evaluate"
    )
