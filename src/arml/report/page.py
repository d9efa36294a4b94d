"""The report of run folders: scores, learning curves, figures, options."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from arml.report.curves import learning_curves
from arml.report.graphs import captioned, strongest
from arml.report.render import Block, block, figure, html
from arml.report.tables import (
    Row,
    Table,
    comparable,
    duration,
    floor_of,
    labels,
    make_rows,
    number,
    simple,
    table_of,
)
from arml.report.verdicts import DIFFERENCE_NOTE, VERDICT_COLUMNS, Verdicts, compare, scores_of
from arml.results.files import RunError, write_text
from arml.results.folder import Result, RunFiles, read_run, recipe_of

PAGE_LEAD = (
    "Each run learned how to learn from many small tasks. It was then given new tasks, adapted to "
    "each from a few labelled examples (the support set), and scored on that task's other examples "
    "(the query set)."
)


def _notes(rows: Sequence[Row]) -> Block:
    """The notes that a reader of these rows needs."""
    shared = any(run.get("shared") for row in rows for run in row.runs)
    floor, no_training = floor_of(rows) is not None, bool(simple(rows))
    return block(
        "notes", difference=DIFFERENCE_NOTE, floor=floor, shared=shared, simple=no_training
    )


def _best(rows: Sequence[Row]) -> str:
    """The best row of a table in words, beside the next best."""
    metric, named = rows[0].metric, zip(reversed(labels(rows)), reversed(rows), strict=True)
    finite = [(row.mean, name) for name, row in named if row.mean is not None]
    scores = [f"{number(mean, metric)} by `{name}`" for mean, name in finite[:2]]
    if not scores:
        return "No run has a finite score."
    what, floor = "Lowest error (MSE)" if metric == "mse" else "Highest accuracy", floor_of(rows)
    best = "" if floor is None else f"; the best possible is about {number(floor, metric)}"
    return f"{what}: {', then '.join(scores)}{best}."


def _curves(runs: Sequence[RunFiles], metric: str) -> Block:
    last = []
    for run in runs:
        scores = [record["validation"] for record in run.metrics if "validation" in record]
        if scores:
            last.append(f"{recipe_of(run)} {number(scores[-1], metric)}")
    return figure(
        learning_curves(runs, metric),
        "Learning curves by step. Last validation scores: " + ("; ".join(last) or "none"),
        "The loss on the training tasks, averaged over neighbouring steps, and the score on "
        "validation tasks, which are never trained on. One line a run, one colour a recipe.",
    )


def _explained(run: RunFiles) -> list[Block]:
    found = run.explain or {}
    figures = [figure(drawn, what, caption) for _, drawn, what, caption in captioned(found)]
    if not figures:
        return []
    heading = block("heading", text=f"`{_name(run)}`")
    return [heading, block("text", text=f"{strongest(found)}."), *figures]


def _name(run: RunFiles) -> str:
    seed = f", seed {run.result['seed']}" if run.result else ""
    return f"{recipe_of(run)}{seed}"


def _details(run: RunFiles, result: Result) -> Block:
    trained = result.get("trained") or {}
    facts = {
        "Folder": run.folder.name,
        "Seed": result["seed"],
        "Steps": f"{result['steps']:,}",
        **({"Learner": result["chosen"]} if "chosen" in result else {}),
        "Inner steps at test": result["inner_steps"],
        "Meta-parameters": f"{result['parameters']:,}",
        "Training time": f"{duration(result['seconds'])} on {trained.get('device', 'unknown')}",
        **({"First weights": w["file"]} if (w := result.get("weights")) else {}),
        "Commit": result["commit"] or "unknown",
        "Versions": ", ".join(f"{key} {value}" for key, value in result["versions"].items()),
        "Protocol": result["protocol"],
        **({"Test tasks": "from the training distribution"} if result.get("shared") else {}),
    }
    config = json.dumps(run.config.get("experiment", {}), indent=2, ensure_ascii=False)
    return block(
        "details",
        summary=_name(run),
        blocks=[block("facts", pairs=facts), block("pre", text=config)],
    )


class Section(NamedTuple):
    """Rows that can be compared with each other, and their verdicts."""

    rows: list[Row]
    verdicts: Verdicts | None
    """None for a single row, or if there are no scores of single tasks."""
    why: str = ""
    """The reason if there are none."""

    def table(self) -> Table:
        """The table of the rows, with the verdicts."""
        if self.verdicts is None:
            return table_of(self.rows)
        beside: dict[str, tuple[str, ...]] = {
            name: self.verdicts.cells(name) for name in labels(self.rows)
        }
        head = (f"Difference from {self.verdicts.against}", *VERDICT_COLUMNS[1:])
        return table_of(self.rows, {"": head, **beside})


class Evaluated(NamedTuple):
    """A run that was evaluated."""

    files: RunFiles
    result: Result


def read_runs(folders: Sequence[Path]) -> list[Evaluated]:
    """The files of run folders. **Raises** `RunError` for a folder without a result."""
    if not folders:
        raise RunError("expected one or more run folders, got none; name them before --out")
    runs = []
    for run in map(read_run, folders):
        if run.result is None:
            raise RunError(
                f"expected a result.json in {run.folder}, found none: run `arml evaluate "
                f"{run.folder}` first, without --split, --steps, --ways, --shots and --out"
            )
        runs.append(Evaluated(run, run.result))
    known: dict[str, dict[str | None, dict[str, object]]] = {}
    for files, result in runs:
        same, digest = known.setdefault(result["recipe"], {}), result.get("options")
        if digest not in same:
            same[digest] = _flat(files.config.get("experiment"))
    return [
        Evaluated(run, {**one, "options": _options(one, known[one["recipe"]])}) for run, one in runs
    ]


def _options(result: Result, known: Mapping[str | None, Mapping[str, object]]) -> str | None:
    """The options of a run that differ between those that are `known` of its recipe, by their
    digests; its digest if none do."""
    digest = result.get("options")
    own, others = known[digest], known.values()
    keys = sorted({key for other in others for key in other} - {".seed"})
    odd = [key for key in keys if any(own.get(key) != other.get(key) for other in others)]
    return ", ".join(f"{key.rpartition('.')[2]} {own.get(key)}" for key in odd) or digest


def _flat(options: object, name: str = "") -> dict[str, object]:
    """Nested options by their path."""
    if not isinstance(options, dict):
        return {name: options} if name else {}
    return {k: v for key, one in options.items() for k, v in _flat(one, f"{name}.{key}").items()}


def sections_of(runs: Sequence[Evaluated], against: str | None = None) -> list[Section]:
    """The rows of runs that can be compared with each other, with their verdicts against the row of
    the name `against`, or against that of the first run. **Raises** `RunError` for two runs of one
    recipe and seed, and for an unknown name."""
    groups = comparable(make_rows(run.result for run in runs))
    known = [name for rows in groups for name in labels(rows)]
    if against is not None and against not in known:
        raise RunError(f"expected --against to be one of {', '.join(known)}, got {against}")
    places = {id(run.result): run.files.folder for run in runs}
    return [_section(rows, places, against) for rows in groups]


def _section(rows: list[Row], places: Mapping[int, Path], against: str | None) -> Section:
    named = dict(zip(labels(rows), rows, strict=True))
    if len(named) < 2:
        return Section(rows, None)
    order = [*places]
    first = min(named, key=lambda name: min(order.index(id(run)) for run in named[name].runs))
    try:
        scores = {
            name: scores_of([places[id(run)] for run in row.runs], known={})
            for name, row in named.items()
        }
        return Section(rows, compare(scores, against=against if against in named else first))
    except ValueError as error:
        return Section(rows, None, f"No verdicts: {error}.")


def write_page(evaluated: Sequence[Evaluated], sections: Sequence[Section], out: Path) -> None:
    """Write the report of runs, and of their sections, as one self-contained HTML file, atomically.
    **Raises** `RunError` if `out` cannot be written."""
    rows = [row for one in sections for row in one.rows]
    by_metric: dict[str, list[RunFiles]] = {}
    for run, result in evaluated:
        by_metric.setdefault(result["metric"], []).append(run)
    recipes = ", ".join(f"`{name}`" for name in dict.fromkeys(recipe_of(r) for r, _ in evaluated))
    tables: list[Block] = []
    for one in sections:
        lead = block("text", text=_best(one.rows), kind="lead")
        tables += [lead, block("table", table=one.table())]
        tables += [block("text", text=one.why)] if one.why else []
    inside = [part for run, _ in evaluated for part in _explained(run)]
    what = f"{len(evaluated)} run{'s' if len(evaluated) > 1 else ''} of {recipes}."
    parts = {
        "Scores on new tasks": tables,
        "Learning curves": [_curves(by_metric[m], m) for m in sorted(by_metric, reverse=True)],
        "Inside the learners": [block("graph_note"), *inside] if inside else [],
        "How to read the numbers": [_notes(rows)],
        "Runs": [_details(run, result) for run, result in evaluated],
    }
    write_text(out, html("Few-shot meta-learning", [what, PAGE_LEAD], parts))
