"""The report: one HTML file with the scores, learning curves, figures and configurations of runs.

It needs no network, no script and no other file, so it can be mailed, archived and printed.
"""

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from arml.report.elements import code, document, image, scrolling, section, tag
from arml.report.explained import captioned, graph_like, strongest
from arml.report.figures import learning_curves
from arml.report.rows import Row, make_rows, sections, told_apart
from arml.report.style import render
from arml.report.tables import (
    CALIBRATION,
    METRIC_NAMES,
    calibrates,
    calibration,
    caption,
    duration,
    floors,
    interval,
    labels,
    number,
    paper,
    spread,
)
from arml.results.folder import Result, Run, RunError, load_run, recipe_of, write_text

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
PAPER_NOTE = (
    "The column of the paper is what Yao et al. (ICLR 2020) print for 10-shot 2-D regression, with "
    "their own tasks and their 95% interval. It was not measured here."
)
FLOOR_NOTE = (
    "The Bayes-optimal predictor knows the families and their priors; no learner can be expected "
    "to have a lower error."
)
CALIBRATION_NOTE = (
    "The calibration error is the mean gap between how sure a prediction was and how often such "
    "predictions were right, in 15 bins; in brackets, after dividing the logits by one temperature "
    "that was set on validation tasks."
)
GRAPH_NOTE = (
    "ARML turns the support examples of a task into a few prototypes, and every prototype reads "
    "from a graph of vertices that all tasks share. Families that read the same vertices share "
    "what was learned; families that read different ones are kept apart."
)


def _notes(rows: Sequence[Row]) -> list[str]:
    """What a reader of these rows has to know, and no more."""
    notes = [*NOTES]
    notes += [PAPER_NOTE] if any(row.paper for row in rows) else []
    notes += [CALIBRATION_NOTE] if calibrates(rows) else []
    return notes + ([FLOOR_NOTE] if floors(rows) else [])


def _best(rows: Sequence[Row]) -> str:
    """The best row of a table in words, beside the next best."""
    named = zip(reversed(labels(rows)), reversed(rows), strict=True)
    finite = [(name, row) for name, row in named if row.mean is not None]
    if not finite:
        return ""
    metric = rows[0].metric
    what = "Lowest error (MSE)" if metric == "mse" else "Highest accuracy"
    scores = [
        f"{tag('strong', interval(row.mean, row.ci95, metric))} by {tag('code', escape(name))}"
        for name, row in finite[:2]
    ]
    floor = "".join(f"; the best possible is about {number(f, metric)}" for f in floors(rows)[:1])
    return tag("p", f"{what}: {', then '.join(scores)}{floor}.", class_="lead")


def _table(rows: Sequence[Row]) -> str:
    metric, names = rows[0].metric, list(rows[0].families)
    direction = "lower is better" if metric == "mse" else "higher is better"
    from_paper = any(row.paper for row in rows)
    # What one compares stands together, so that a narrow screen shows it without scrolling.
    head = [escape("Recipe"), f"{METRIC_NAMES[metric]}<br>({direction})"]
    head += ["Paper<br>(not measured here)"] if from_paper else []
    head += ["SD over seeds", *map(escape, names)]
    head += [CALIBRATION] if calibrates(rows) else []
    head += ["Training"]
    header = "".join(
        tag("th", text, scope="col", **({"class_": "paper"} if text.startswith("Paper<") else {}))
        for text in head
    )
    body = []
    for name, row in zip(labels(rows), rows, strict=True):
        # A long name may break after its problem, and nowhere within a word.
        cells = tag("th", tag("code", escape(name).replace("/", "/<wbr>")), scope="row")
        cells += tag("td", escape(interval(row.mean, row.ci95, metric)), class_="score")
        cells += tag("td", escape(paper(row)), class_="paper") if from_paper else ""
        cells += tag("td", escape(spread(row)))
        for family in names:
            cells += tag("td", number(row.families[family], metric))
        cells += tag("td", calibration(row)) if calibrates(rows) else ""
        cells += tag("td", f"{row.steps:,} steps" + tag("small", escape(duration(row.seconds))))
        body.append(tag("tr", cells))
    for floor in floors(rows):
        empty = "<td></td>" * (len(head) - 2)
        cells = tag("th", "Bayes-optimal predictor", scope="row")
        body.append(tag("tr", cells + tag("td", number(floor, metric)) + empty, class_="floor"))
    table = tag("table", tag("thead", tag("tr", header)) + tag("tbody", "\n".join(body)))
    # Outside the table, whose width on a narrow screen is more than one can see.
    what = tag("p", escape(caption(rows)), class_="soft")
    return _best(rows) + what + scrolling(table, "Table of scores")


def _figure(figure: Figure, alternative: str, text: str) -> str:
    shown = scrolling(image(render(figure, "svg"), alternative), "Figure")
    return tag("figure", shown + tag("figcaption", escape(text)))


def _curves(runs: Sequence[Run], metric: str) -> str:
    last = [
        f"{recipe_of(run)} {number(scores[-1], metric)}"
        for run in runs
        if (scores := [m["validation"] for m in run.metrics if "validation" in m])
    ]
    return _figure(
        learning_curves(runs, metric),
        "Learning curves by step. Last validation scores: " + ("; ".join(last) or "none"),
        "The loss on the training tasks, averaged over neighbouring steps, as far as the files "
        "have it, and the score on validation tasks, which are never trained on. One line a run, "
        "one colour a recipe.",
    )


def _explained(run: Run, explain: dict[str, Any]) -> str:
    figures = [_figure(figure, what, caption) for _, figure, what, caption in captioned(explain)]
    words = tag("p", f"{escape(strongest(explain))}.") if graph_like(explain) else ""
    return tag("h3", tag("code", escape(_name(run)))) + words + "".join(figures)


def _name(run: Run) -> str:
    seed = f", seed {run.result['seed']}" if run.result else ""
    return f"{recipe_of(run)}{seed}"


def _details(run: Run, result: Result) -> str:
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
    items = "".join(tag("dt", escape(k)) + tag("dd", escape(str(v))) for k, v in facts.items())
    config = json.dumps(run.config.get("experiment", {}), indent=2, ensure_ascii=False)
    return tag(
        "details",
        tag("summary", escape(_name(run)))
        + tag("dl", items)
        + tag("pre", tag("code", escape(config))),
    )


def write_page(runs: Sequence[Path], out: Path) -> None:
    """Write the report of run folders as one self-contained HTML file, atomically.

    **Raises:** `RunError` for a folder that is no run or has not been evaluated, a damaged file,
    two runs of one recipe and seed, or if `out` cannot be written.
    """
    if not runs:
        raise RunError("expected one or more run folders, got none; name them before --out")
    loaded = told_apart([load_run(folder) for folder in runs])
    scored: list[tuple[Run, Result]] = []
    for run in loaded:
        if run.result is None:
            raise RunError(
                f"expected a result.json in {run.folder}, found none; "
                f"run `arml evaluate {run.folder}` first"
            )
        scored.append((run, run.result))
    rows = make_rows(result for _, result in scored)
    metrics = sorted({result["metric"] for _, result in scored}, reverse=True)
    explained = [_explained(run, run.explain) for run in loaded if run.explain]
    graphs = [tag("p", GRAPH_NOTE), *explained]
    title = "Few-shot meta-learning"
    recipes = ", ".join(tag("code", escape(name)) for name in dict.fromkeys(map(recipe_of, loaded)))
    curves = [_curves([r for r, result in scored if result["metric"] == m], m) for m in metrics]
    count = f"{len(runs)} run{'s' if len(runs) > 1 else ''} of {recipes}."
    body = [
        tag("header", tag("h1", escape(title)) + tag("p", count, class_="soft") + tag("p", LEAD)),
        section("scores", "Scores on new tasks", map(_table, sections(rows))),
        section("curves", "Learning curves", curves),
        section("graph", "What the meta-knowledge graph learned", graphs) if explained else "",
        section(
            "reading",
            "How to read the numbers",
            [tag("ul", "".join(tag("li", code(note)) for note in _notes(rows)))],
        ),
        section("runs", "Runs", (_details(run, result) for run, result in scored)),
    ]
    write_text(out, document(title, body))
