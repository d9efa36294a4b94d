"""The report of run folders: scores, learning curves, figures, options."""

import json
from collections.abc import Sequence
from pathlib import Path

from arml.report.curves import learning_curves
from arml.report.graphs import captioned, strongest
from arml.report.render import Block, block, figure, html
from arml.report.tables import (
    Row,
    comparable,
    duration,
    floor_of,
    interval,
    labels,
    make_rows,
    number,
    simple,
    table_of,
)
from arml.results.files import RunError, write_text
from arml.results.folder import Result, RunFiles, read_run, recipe_of

LEAD = (
    "Each run learned how to learn from many small tasks. It was then given new tasks, adapted to "
    "each from a few labelled examples (the support set), and scored on that task's other examples "
    "(the query set)."
)
NOTES = (
    "Every method is scored on the same test tasks, drawn from one fixed key. A task gives one "
    "score, on its query examples, after adapting to its support examples.",
    "± is the 95% interval over tasks: 1.96 times the standard deviation of the tasks' scores, "
    "divided by the square root of their number, then averaged over seeds. It says how much the "
    "mean would change with other tasks, not with another training run.",
    "SD over seeds is the standard deviation of the means of runs that differ in their random "
    "seed only. It says how much the mean would change with another training run.",
    "Two intervals that overlap do not show that two methods are equal: their difference on the "
    "same tasks has a smaller interval, which `arml evaluate DIR --against DIR2` gives.",
)
SIMPLE_NOTE = (
    "Classifiers without meta-training learn each task from its support set alone. A method that "
    "is not above them has learned nothing useful."
)
FLOOR_NOTE = (
    "The Bayes-optimal predictor knows the families and their priors; no learner can be expected "
    "to have a lower error."
)
GRAPH_NOTE = (
    "ARML turns the support examples of a task into a few prototypes, and every prototype reads "
    "from a graph of vertices that all tasks share. Families that read the same vertices share "
    "knowledge; families that read different vertices are kept apart."
)


SHARED_NOTE = (
    "Test tasks of a run whose details say so are drawn from the distribution of its training "
    "tasks. That is right for families of functions; for classes it is no score on new classes."
)


def _notes(rows: Sequence[Row]) -> list[str]:
    """The notes that a reader of these rows needs."""
    notes = [*NOTES] + ([FLOOR_NOTE] if floor_of(rows) is not None else [])
    notes += [SHARED_NOTE] if any(run.get("shared") for row in rows for run in row.runs) else []
    return notes + ([SIMPLE_NOTE] if simple(rows) else [])


def _best(rows: Sequence[Row]) -> str:
    """The best row of a table in words, beside the next best."""
    metric, named = rows[0].metric, zip(reversed(labels(rows)), reversed(rows), strict=True)
    scores = [
        f"{interval(row.mean, row.ci95, metric)} by `{name}`"
        for name, row in named
        if row.mean is not None
    ]
    if not scores:
        return "No run has a finite score."
    what = "Lowest error (MSE)" if metric == "mse" else "Highest accuracy"
    floor = floor_of(rows)
    best = "" if floor is None else f"; the best possible is about {number(floor, metric)}"
    return f"{what}: {', then '.join(scores[:2])}{best}."


def _curves(runs: Sequence[RunFiles], metric: str) -> Block:
    last = [
        f"{recipe_of(run)} {number(scores[-1], metric)}"
        for run in runs
        if (scores := [m["validation"] for m in run.metrics if "validation" in m])
    ]
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


def write_page(folders: Sequence[Path], out: Path) -> None:
    """Write the report of run folders as one self-contained HTML file, atomically.

    **Raises:** `RunError` for a folder that is no run or has not been evaluated, a damaged file,
    two runs of one recipe and seed, or if `out` cannot be written.
    """
    if not folders:
        raise RunError("expected one or more run folders, got none; name them before --out")
    runs, results = [*map(read_run, folders)], list[Result]()
    for run in runs:
        if run.result is None:
            raise RunError(
                f"expected a result.json in {run.folder}, found none: run `arml evaluate "
                f"{run.folder}` first, without --split, --steps, --ways, --shots and --out"
            )
        results.append(run.result)
    scored, rows = [*zip(runs, results, strict=True)], make_rows(results)
    metrics = sorted({result["metric"] for result in results}, reverse=True)
    recipes = ", ".join(f"`{name}`" for name in dict.fromkeys(map(recipe_of, runs)))
    tables: list[Block] = []
    for some in comparable(rows):
        lead = block("text", text=_best(some), kind="lead")
        tables += [lead, block("table", table=table_of(some))]
    curves = [_curves([run for run, result in scored if result["metric"] == m], m) for m in metrics]
    inside = [part for run in runs for part in _explained(run)]
    what = f"{len(runs)} run{'s' if len(runs) > 1 else ''} of {recipes}."
    sections = {
        "Scores on new tasks": tables,
        "Learning curves": curves,
        "Inside the learners": [block("text", text=GRAPH_NOTE), *inside] if inside else [],
        "How to read the numbers": [block("items", texts=_notes(rows))],
        "Runs": [_details(run, result) for run, result in scored],
    }
    write_text(out, html("Few-shot meta-learning", [what, LEAD], sections))
