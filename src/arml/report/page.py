"""The report: one HTML file with the scores, learning curves, figures and configurations of runs.

It needs no network, no script and no other file, so it can be mailed, archived and printed.
"""

import json
from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from arml.report.figures import (
    average_heat_maps,
    heat_maps,
    knowledge_graph,
    learning_curves,
)
from arml.report.rows import Row, make_rows, sections, told_apart
from arml.report.style import render
from arml.report.tables import (
    METRIC_NAMES,
    caption,
    duration,
    floors,
    interval,
    labels,
    number,
    paper,
    spread,
)
from arml.results import Result, Run, RunError, load_run, write_text

CSS = """
:root { color-scheme: light dark; --ink: #1c2733; --soft: #5a6672; --line: #d5dce3;
  --page: #ffffff; --tint: #f3f6f9; --accent: #0b5d9c; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9ee; --soft: #9fabb7; --line: #39434d;
  --page: #14191f; --tint: #1d242c; --accent: #6db7ef; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 70rem; padding: 2rem 1.25rem 4rem; background: var(--page);
  color: var(--ink); font: 16px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: 1.8rem; line-height: 1.2; margin: 0 0 .25rem; }
h2 { font-size: 1.3rem; margin: 2.5rem 0 .75rem; padding-top: .75rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 1.5rem 0 .5rem; }
p, li { max-width: 46rem; }
.soft, figcaption, caption { color: var(--soft); }
code, pre { font: .88em/1.45 ui-monospace, "SF Mono", Consolas, monospace;
  overflow-wrap: anywhere; }
.scroll { overflow-x: auto; margin: 1rem 0; }
.scroll:focus-visible { outline: 2px solid var(--accent); }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums;
  min-width: 100%; }
caption { text-align: left; padding: .25rem 0 .6rem; caption-side: top; }
th, td { padding: .45rem .7rem; text-align: right; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
thead th { vertical-align: bottom; background: var(--tint); font-weight: 600; }
th[scope=row], thead th:first-child { text-align: left; font-weight: 600; }
td.score { font-weight: 600; }
.paper { border-left: 3px double var(--line); color: var(--soft); }
tr.floor th, tr.floor td { color: var(--soft); font-style: italic; font-weight: 400; }
figure { margin: 1.25rem 0; }
figure img { display: block; width: 100%; height: auto; background: #ffffff; padding: .75rem;
  border: 1px solid var(--line); border-radius: 6px; }
figcaption { font-size: .9rem; margin-top: .4rem; max-width: 46rem; }
details { border: 1px solid var(--line); border-radius: 6px; margin: .6rem 0;
  padding: .5rem .9rem; }
summary { cursor: pointer; font-weight: 600; overflow-wrap: anywhere; }
pre { background: var(--tint); padding: .75rem; border-radius: 4px; white-space: pre-wrap; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 40rem) { body { padding: 1.25rem .9rem 3rem; }
  dl { grid-template-columns: 1fr; } dd { margin-bottom: .4rem; } }
@media print { :root { --ink: #000; --soft: #444; --line: #bbb; --page: #fff; --tint: #f3f3f3; }
  body { max-width: none; padding: 0; font-size: 10pt; } table { font-size: 7.5pt; }
  th, td { padding: .25rem .35rem; white-space: normal; } .scroll { overflow: visible; }
  figure, tr { break-inside: avoid; } h2, h3 { break-after: avoid; } }
"""

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
    "The column of the paper is what Yao et al. (ICLR 2020) print for 10-shot 2-D regression, with "
    "their own tasks and their 95% interval. It was not measured here.",
    "The Bayes-optimal predictor knows the families and their priors; no learner can be expected "
    "to have a lower error.",
)


def _tag(name: str, content: str, **attributes: str) -> str:
    """One element; `content` is HTML already, attributes are escaped here."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(v)}"' for key, v in attributes.items()
    )
    return f"<{name}{given}>{content}</{name}>"


def _code(text: str) -> str:
    """Escaped text, with what stands between backticks as code."""
    parts = escape(text).split("`")
    return "".join(_tag("code", p) if i % 2 else p for i, p in enumerate(parts))


def _table(rows: Sequence[Row]) -> str:
    metric, names = rows[0].metric, list(rows[0].families)
    direction = "lower is better" if metric == "mse" else "higher is better"
    from_paper = any(row.paper for row in rows)
    head = ["Recipe", f"{METRIC_NAMES[metric]} ({direction})", "SD over seeds", *names, "Training"]
    header = "".join(_tag("th", escape(text), scope="col") for text in head)
    if from_paper:
        header += _tag("th", "Paper<br>(not measured here)", scope="col", class_="paper")
    body = []
    for name, row in zip(labels(rows), rows, strict=True):
        cells = _tag("th", _tag("code", escape(name)), scope="row")
        cells += _tag("td", escape(interval(row.mean, row.ci95, metric)), class_="score")
        cells += _tag("td", escape(spread(row)))
        for family in names:
            cells += _tag("td", number(row.families[family], metric))
        cells += _tag("td", escape(duration(row.seconds)))
        cells += _tag("td", escape(paper(row)), class_="paper") if from_paper else ""
        body.append(_tag("tr", cells))
    for floor in floors(rows):
        empty = "<td></td>" * (len(head) - 2) + ('<td class="paper"></td>' if from_paper else "")
        cells = _tag("th", "Bayes-optimal predictor", scope="row")
        body.append(_tag("tr", cells + _tag("td", number(floor, metric)) + empty, class_="floor"))
    table = _tag(
        "table",
        _tag("caption", escape(caption(rows)))
        + _tag("thead", _tag("tr", header))
        + _tag("tbody", "\n".join(body)),
    )
    # A wide table scrolls within its own box, which the keyboard can reach.
    return _tag(
        "div", table, class_="scroll", tabindex="0", role="region", aria_label="Table of scores"
    )


def _figure(figure: Figure, alternative: str, text: str) -> str:
    """A figure as an image within the page, so that its inner names cannot collide."""
    data = b64encode(render(figure, "svg")).decode()
    image = f'<img alt="{escape(alternative)}" src="data:image/svg+xml;base64,{data}">'
    return _tag("figure", image + _tag("figcaption", escape(text)))


def _curves(runs: Sequence[Run], metric: str) -> str:
    last = [
        f"{_recipe(run)} {number(scores[-1], metric)}"
        for run in runs
        if (scores := [m["validation"] for m in run.metrics if "validation" in m])
    ]
    return _figure(
        learning_curves(runs, metric),
        "Learning curves by step. Last validation scores: " + ("; ".join(last) or "none"),
        "Training loss (each point the mean of a run of steps) and validation score; one line a "
        "run, one colour a recipe.",
    )


def _strongest(explain: dict[str, Any]) -> str:
    """The figures' content in words: the vertex that each family reads most."""
    said = []
    for family, average in explain["average"].items():
        totals = [sum(column) for column in zip(*average["mean"], strict=True)]
        said.append(f"{family} V{totals.index(max(totals))}")
    return "Vertex read most by each family: " + ", ".join(said)


def _explained(run: Run, explain: dict[str, Any]) -> str:
    heat, average = heat_maps(explain), average_heat_maps(explain)
    knowledge = knowledge_graph(explain)
    words = _strongest(explain)
    return (
        _tag("h3", _tag("code", escape(_name(run))))
        + _figure(
            heat,
            f"Heat maps of prototype-to-vertex links, one task of each family. {words}",
            "How strongly each prototype (P) of one task is linked to each vertex (V) of the "
            "meta-knowledge graph. Each row sums to one.",
        )
        + _figure(
            average,
            f"Heat maps of the average prototype-to-vertex links by family. {words}",
            f"The same links averaged over tasks ({explain['tasks']:,} in all).",
        )
        + _figure(
            knowledge,
            f"The meta-knowledge graph of {explain['vertices']} vertices. {words}",
            f"Left: how much each family reads each vertex. Right: the links between vertices; "
            f"those under {explain['threshold']:g} are left out.",
        )
    )


def _recipe(run: Run) -> str:
    return str(run.config.get("recipe", run.folder.name))


def _name(run: Run) -> str:
    seed = f", seed {run.result['seed']}" if run.result else ""
    return f"{_recipe(run)}{seed}"


def _details(run: Run, result: Result) -> str:
    facts = {
        "Folder": run.folder.name,
        "Seed": result["seed"],
        "Steps": f"{result['steps']:,}",
        "Inner steps at test": result["inner_steps"],
        "Meta-parameters": f"{result['parameters']:,}",
        "Training time": f"{duration(result['seconds'])} on {result['device']}",
        "Commit": result["commit"] or "unknown",
        "Versions": ", ".join(f"{key} {value}" for key, value in result["versions"].items()),
        "Protocol": result["protocol"],
    }
    items = "".join(_tag("dt", escape(k)) + _tag("dd", escape(str(v))) for k, v in facts.items())
    config = json.dumps(run.config.get("experiment", {}), indent=2, ensure_ascii=False)
    return _tag(
        "details",
        _tag("summary", escape(_name(run)))
        + _tag("dl", items)
        + _tag("pre", _tag("code", escape(config))),
    )


def _section(identifier: str, title: str, parts: Iterable[str]) -> str:
    return _tag("section", _tag("h2", title) + "\n".join(parts), id=identifier)


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
    title = "Few-shot meta-learning"
    recipes = ", ".join(_tag("code", escape(name)) for name in dict.fromkeys(map(_recipe, loaded)))
    curves = [_curves([r for r, result in scored if result["metric"] == m], m) for m in metrics]
    count = f"{len(runs)} run{'s' if len(runs) > 1 else ''} of {recipes}."
    body = [
        _tag("header", _tag("h1", escape(title)) + _tag("p", count, class_="soft")),
        _section("scores", "Scores on new tasks", map(_table, sections(rows))),
        _section("curves", "Learning curves", curves),
        _section("graph", "What the meta-knowledge graph learned", explained) if explained else "",
        _section(
            "reading",
            "How to read the numbers",
            [_tag("ul", "".join(_tag("li", _code(note)) for note in NOTES))],
        ),
        _section("runs", "Runs", (_details(run, result) for run, result in scored)),
    ]
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{escape(title)}</title><style>{CSS}</style></head>\n"
        f"<body>{_tag('main', chr(10).join(body))}</body></html>\n"
    )
    write_text(out, page)
