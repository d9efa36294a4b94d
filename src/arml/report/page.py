"""The report of run folders and predictors: scores, learning curves, classes, figures, options."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from arml.report import render
from arml.report.curves import learning_curves
from arml.report.graphs import captioned, graph_like, strongest
from arml.report.growth import growth_of
from arml.report.render import Block, Report, Section
from arml.report.tables import (
    Cell,
    Column,
    Line,
    Row,
    Table,
    duration,
    floors,
    interval,
    labels,
    make_rows,
    number,
    sections,
    simple,
    table_of,
    told_apart,
)
from arml.results.files import RunError, write_text
from arml.results.folder import (
    Marked,
    Mistake,
    Result,
    RunFiles,
    read_marks,
    read_run,
    recipe_of,
)

SHOWN = 12
"""Classes of the largest confusion matrix that is shown whole."""
PAIRS = 10
"""Confusions that are shown where there are more classes."""


def accuracy_of(marked: Marked) -> str:
    """The accuracy with its interval, as a sentence."""
    right = sum(marked.confusion[k][k] for k in range(len(marked.classes)))
    by = f", predicted by {marked.by}" if marked.by else ""
    return (
        f"Accuracy {marked.accuracy:.1%} ({right} of {marked.n}; 95% interval {marked.low:.0%} to "
        f"{marked.high:.0%}) on {marked.query}{by}."
    )


def accuracies(marked: Marked) -> Table:
    """The accuracy of each class, the lowest first."""
    counts = {name: sum(row) for name, row in zip(marked.classes, marked.confusion, strict=True)}
    lines = [
        Line(name, (Cell(f"{share:.1%}"), Cell(str(counts[name]))))
        for name, share in sorted(marked.by_class.items(), key=lambda pair: pair[1])
    ]
    columns = (Column("Class"), Column("Accuracy"), Column("Queries"))
    return Table("Accuracy of each class", columns, tuple(lines))


def confusion(marked: Marked) -> Table:
    """How many of each class were predicted as each class; of many classes, the pairs that are
    confused most."""
    if len(marked.classes) > SHOWN:
        return _pairs(marked)
    lines = []
    for k, (name, row) in enumerate(zip(marked.classes, marked.confusion, strict=True)):
        cells = [
            Cell(str(n), kind="better" if j == k else "worse") if n else Cell()
            for j, n in enumerate(row)
        ]
        lines.append(Line(f"{k + 1} {name}", tuple(cells)))
    # Names as headings would not fit a terminal or a phone.
    columns = (Column("Labelled"), *(Column(f"as {k + 1}") for k in range(len(marked.classes))))
    return Table("How each class was predicted", columns, tuple(lines))


def _pairs(marked: Marked) -> Table:
    found = [
        (count, name, marked.classes[j])
        for k, (name, row) in enumerate(zip(marked.classes, marked.confusion, strict=True))
        for j, count in enumerate(row)
        if count and j != k
    ]
    lines = [
        Line(name, (Cell(other), Cell(str(count))))
        for count, name, other in sorted(found, key=lambda pair: -pair[0])[:PAIRS]
    ]
    columns = (Column("Labelled"), Column("Predicted as"), Column("Queries"))
    return Table("The most frequent confusions", columns, tuple(lines))


def mistakes(found: Sequence[Mistake]) -> list[Block]:
    """The worst mistakes with their pictures, under a heading; nothing without a mistake."""
    cards = [
        {
            "data": one.picture,
            "text": f"{one.name}: labelled {one.label} ({one.own:.0%}), predicted as "
            f"{one.predicted} ({one.probability:.0%})",
        }
        for one in found
    ]
    words = "The worst mistakes, the most confident first"
    return [render.heading(words), render.gallery(cards)] if cards else []


LEAD = (
    "Each run learned how to learn from many small tasks. It was then given new tasks, adapted to "
    "each from a few labelled examples (the support set), and scored on that task's other examples "
    "(the query set)."
)
PREDICTORS = (
    "A predictor learned its classes from a few labelled examples. It was then given labelled "
    "queries, which it had not seen."
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


def _notes(rows: Sequence[Row]) -> list[str]:
    """The notes that a reader of these rows needs."""
    notes = [*NOTES]
    notes += [FLOOR_NOTE] if floors(rows) else []
    return notes + ([SIMPLE_NOTE] if simple(rows) else [])


def _scores(rows: Sequence[Row]) -> list[Block]:
    """A table under its best rows."""
    best = _best(rows)
    return [*([render.text(best, "lead")] if best else []), render.table(table_of(rows))]


def _best(rows: Sequence[Row]) -> str:
    """The best row of a table in words, beside the next best."""
    named = zip(reversed(labels(rows)), reversed(rows), strict=True)
    finite = [(name, row) for name, row in named if row.mean is not None]
    if not finite:
        return ""
    metric = rows[0].metric
    what = "Lowest error (MSE)" if metric == "mse" else "Highest accuracy"
    scores = [f"{interval(row.mean, row.ci95, metric)} by `{name}`" for name, row in finite[:2]]
    floor = "".join(f"; the best possible is about {number(f, metric)}" for f in floors(rows)[:1])
    return f"{what}: {', then '.join(scores)}{floor}."


def _curves(runs: Sequence[RunFiles], metric: str) -> Block:
    last = [
        f"{recipe_of(run)} {number(scores[-1], metric)}"
        for run in runs
        if (scores := [m["validation"] for m in run.metrics if "validation" in m])
    ]
    return render.figure(
        learning_curves(runs, metric),
        "Learning curves by step. Last validation scores: " + ("; ".join(last) or "none"),
        "The loss on the training tasks, averaged over neighbouring steps, as far as the files "
        "have it, and the score on validation tasks, which are never trained on. One line a run, "
        "one colour a recipe.",
    )


def _explained(run: RunFiles) -> list[Block]:
    if not run.explain:
        return []
    words = [render.text(f"{strongest(run.explain)}.")] if graph_like(run.explain) else []
    figures = [
        render.figure(drawn, what, caption) for _, drawn, what, caption in captioned(run.explain)
    ]
    return [*words, *figures]


def _name(run: RunFiles) -> str:
    seed = f", seed {run.result['seed']}" if run.result else ""
    return f"{recipe_of(run)}{seed}"


def _details(run: RunFiles, result: Result) -> Block:
    trained = result.get("trained") or {}
    facts = {
        "Folder": run.folder.name,
        "Seed": result["seed"],
        "Steps": f"{result['steps']:,}",
        "Inner steps at test": result["inner_steps"],
        "Meta-parameters": f"{result['parameters']:,}",
        "Training time": f"{duration(result['seconds'])} on {trained.get('device', 'unknown')}",
        "Commit": result["commit"] or "unknown",
        "Versions": ", ".join(f"{key} {value}" for key, value in result["versions"].items()),
        "Protocol": result["protocol"],
    }
    config = json.dumps(run.config.get("experiment", {}), indent=2, ensure_ascii=False)
    return render.details(_name(run), [{"macro": "facts", "pairs": facts}, render.pre(config)])


def _predictor(folder: Path, place: int) -> Section:
    """The part of the report about one predictor."""
    marked = read_marks(folder)
    blocks: list[Block] = [
        render.text(accuracy_of(marked), "lead"),
        render.table(accuracies(marked)),
    ]
    blocks += [render.table(confusion(marked)), *mistakes(marked.mistakes)]
    return Section(f"predictor-{place}", f"Predictor {folder.name}", blocks, folder.name)


def write_page(folders: Sequence[Path], out: Path) -> None:
    """Write the report of the folders of runs and of predictors as one self-contained HTML file,
    atomically.

    **Raises:** `RunError` for a folder that is neither or has not been evaluated, a damaged file,
    two runs of one recipe and seed, or if `out` cannot be written.
    """
    write_text(out, page_of(folders))


def page_of(folders: Sequence[Path]) -> str:
    """The page itself. **Raises** as `write_page`."""
    if not folders:
        raise RunError("expected one or more run folders, got none; name them before --out")
    predictors = [folder for folder in folders if (folder / "support.safetensors").is_file()]
    runs = [folder for folder in folders if folder not in predictors]
    marked = [_predictor(one, i) for i, one in enumerate(predictors)]
    report = _runs_report(runs) if runs else Report("Few-shot predictions", [], [])
    lead = [PREDICTORS] if marked else []
    whole = replace(report, lead=lead + report.lead, sections=marked + report.sections)
    return render.html(whole)


def _runs_report(runs: Sequence[Path]) -> Report:
    loaded = told_apart([read_run(folder) for folder in runs])
    scored: list[tuple[RunFiles, Result]] = []
    for run in loaded:
        if run.result is None:
            raise RunError(
                f"expected a result.json in {run.folder}, found none: run `arml evaluate "
                f"{run.folder}` first, if it is a run"
            )
        scored.append((run, run.result))
    rows = make_rows(result for _, result in scored)
    metrics = sorted({result["metric"] for _, result in scored}, reverse=True)
    recipes = ", ".join(f"`{name}`" for name in dict.fromkeys(map(recipe_of, loaded)))
    tables = [block for some in sections(rows) for block in _scores(some)]
    curves = [_curves([r for r, result in scored if result["metric"] == m], m) for m in metrics]

    def of_runs(look: Callable[[RunFiles], list[Block]]) -> list[Block]:
        """A part about each run that has one, under the run's name."""
        parts = [(run, look(run)) for run in loaded]
        return [b for run, own in parts if own for b in (render.heading(f"`{_name(run)}`"), *own)]

    inside = Section("inside", "Inside the learners", of_runs(_explained), "Inside")
    if any(run.explain and graph_like(run.explain) for run in loaded):
        blocks = [render.text(GRAPH_NOTE), *inside.blocks]
        inside = Section("graph", "The meta-knowledge graph", blocks, "Graph")
    parts = [
        Section("scores", "Scores on new tasks", tables, "Scores"),
        Section("curves", "Learning curves", curves, "Curves"),
        inside,
        Section("growth", "How it grew", of_runs(lambda run: growth_of(run.folder)), "Growth"),
        Section("reading", "How to read the numbers", [render.items(_notes(rows))], "Reading"),
        Section("runs", "Runs", [_details(run, result) for run, result in scored]),
    ]
    return Report(
        "Few-shot meta-learning",
        [f"{len(runs)} run{'s' if len(runs) > 1 else ''} of {recipes}.", LEAD],
        [part for part in parts if part.blocks],
    )
