"""The page of a study: every table beside the paper's figures, what the differences say about the
paper's claims, learning curves, and the learned structures to explore.

It needs no network and no other file. Each figure is also written beside it as SVG, and its data as
JSON.
"""

import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any

from arml.report import study_cells as cells_of
from arml.report import wording
from arml.report.claims import CANNOT, FAILS, HOLDS, NOT_YET, UNCLEAR, Verdict, counted
from arml.report.curves import learning_curves
from arml.report.elements import code, document, image, scrolling, section, tag
from arml.report.explained import captioned, explorer, graph_like
from arml.report.study import Study, StudyRow, StudyTable
from arml.report.style import render
from arml.report.tables import METRIC_NAMES, interval, number
from arml.results.folder import Result, Run, recipe_of

Files = dict[str, Any]
"""What is written beside the page: SVG as bytes, data as an object."""

NOTES = (
    "Every row of a table is scored on the same test tasks, which no choice was made on. A task "
    "gives one score.",
    "± of a score is the 95% interval over test tasks of the scores averaged over seeds "
    "(1.96 s / √n). It says what other tasks would change. SD over seeds is the standard deviation "
    "of the runs' means, and says what another training run would change.",
    "The difference is the row minus the table's reference row. Where both have three runs or "
    "more, its interval and p are over runs and tasks (Welch's test over the means of the runs, "
    "with the differences of single tasks as a third source of variance), and p is corrected by "
    "Holm's method for all differences of the table. With fewer runs the interval is over tasks "
    "alone: it is about these trained learners, and no more than an indication of what other "
    "training runs would give.",
    "A run that failed counts: a row with one is never called better or worse.",
    "The paper's figures are printed there, for its own tasks, and were not measured here. Where "
    "it prints families only, their mean is shown, without an interval.",
    "The Bayes-optimal predictor knows the families and their priors: no learner can be expected "
    "to have a lower error.",
)


def study_page(study: Study, verdicts: Sequence[Verdict]) -> tuple[str, Files]:
    """The page, and the files beside it by name."""
    beside: Files = {}
    parts = [_table(study, table, beside) for table in study.tables]
    contents = "".join(
        tag("li", tag("a", escape(table.title), href=f"#{table.name}")) for table in study.tables
    )
    lead = (
        f"Scale: {study.scale}. Each row was meta-trained, then adapted to each of the test tasks "
        "from a few labelled examples, and scored on the task's other examples."
    )
    smoke = study.scale == "smoke"
    warning = "These are twenty steps of tiny networks: they show that it works, and nothing else."
    body = [
        tag("header", tag("h1", "The ARML paper, run again") + tag("p", lead)),
        tag("p", tag("strong", warning)) if smoke else "",
        tag("nav", tag("ul", contents), aria_label="Tables"),
        section("claims", "The paper's claims", _claims(verdicts)) if not smoke else "",
        *(section(t.name, t.title, [p]) for t, p in zip(study.tables, parts, strict=True)),
        section("structures", "What was learned inside", _structures(study, beside)),
        section("reading", "How to read the numbers", [tag("ul", "".join(map(_item, NOTES)))]),
    ]
    here = files("arml.report")
    style = here.joinpath("study.css").read_text(encoding="utf-8")
    script = here.joinpath("study.js").read_text(encoding="utf-8")
    return document("The ARML paper, run again", body, style=style, script=script), beside


def _item(text: str) -> str:
    return tag("li", code(text))


def _claims(verdicts: Sequence[Verdict]) -> list[str]:
    """The paper's claims in three groups, then those about our own preset."""
    parts: list[str] = []
    for ours, title in ((False, "The paper's claims"), (True, "Our own preset")):
        own = [v for v in verdicts if v.claim.ours is ours]
        if not own:
            continue
        parts += [tag("h3", title), tag("p", escape(counted(own)))]
        for kind in (HOLDS, FAILS, UNCLEAR):
            some = [v for v in own if v.verdict == kind and v.said]
            if some:
                parts += [tag("h4", kind.capitalize()), _verdicts(some)]
        rest = dict.fromkeys(f"{v.table} ({v.why})" for v in own if v.why in (CANNOT, NOT_YET))
        if rest:
            parts.append(tag("p", escape(f"No figures: {', '.join(rest)}."), class_="soft"))
    return parts


def _verdicts(verdicts: Sequence[Verdict]) -> str:
    rows = [
        tag("th", escape(v.claim.text), scope="row", data_value=v.claim.text)
        + _cell(v.table, None)
        + tag("td", escape(v.said) + tag("small", v.why))
        for v in verdicts
    ]
    body = "".join(tag("tr", row) for row in rows)
    table = _head(["Claim", "Table", "Figures"]) + tag("tbody", body)
    return scrolling(tag("table", table, class_="sortable claims"), "Claims")


def _head(texts: Sequence[str]) -> str:
    cells = (tag("th", tag("button", text, type="button"), scope="col") for text in texts)
    return tag("thead", tag("tr", "".join(cells)))


def _table(study: Study, table: StudyTable, beside: Files) -> str:
    first = table.first
    about = tag("p", code(table.about))
    if first is None:
        failures = [f for row in table.rows for f in row.failures.values()]
        why = f" ({len(failures)} runs failed: {failures[0]})" if failures else ""
        return about + tag("p", tag("em", escape(f"Not yet run{why}.")))
    metric, families = first["metric"], list(first["families"])
    head = ["Row", f"{METRIC_NAMES[metric]} ± tasks", "Paper", "Difference", "p", "SD over seeds"]
    printed = any(table.paper(row) for row in table.rows)
    head = [text for text in head if text != "Paper" or printed]
    rows = [_row(table, row, metric, families, printed) for row in table.rows]
    rows += _floor(first, len(head) + len(families) - 1)
    content = _head([*map(escape, head), *map(escape, families), "Training"]) + tag(
        "tbody", "\n".join(rows)
    )
    _write_data(table, metric, beside)
    files_ = _files(f"{table.name}-curves.svg", f"{table.name}.json")
    return (
        about
        + tag("p", escape(cells_of.caption(table)), class_="soft")
        + scrolling(tag("table", content, class_="sortable"), table.title)
        + _commands(table)
        + _curves(study, table, metric, beside)
        + files_
    )


def _row(table: StudyTable, row: StudyRow, metric: str, families: list[str], printed: bool) -> str:
    note = row.about["note"]
    name = escape(row.label) + (tag("small", escape(note)) if note else "")
    cells = tag("th", name, scope="row", data_value=row.label)
    reference = {"class_": "reference"} if row.label == table.reference else {}
    if not row.results:
        width, why = 5 + printed + len(families), escape(cells_of.missing(row))
        return tag("tr", cells + tag("td", why, colspan=str(width), class_="missing"))
    cells += _cell(interval(row.mean, row.ci95, metric), row.mean, "score")
    if printed:
        paper = table.paper(row)
        cells += _cell(cells_of.paper(table, row), paper and paper.mean, "paper")
    cells += _difference(table, row, metric)
    cells += _cell(cells_of.seeds(row, metric), row.spread)
    reported = table.paper_by_family(row)
    for family in families:
        mean = row.family(family)
        text = escape(number(mean, metric))
        if family in reported:
            text += tag("small", f"paper {reported[family].mean:g}%")
        cells += tag("td", text, data_value="" if mean is None else f"{mean:.6g}")
    minutes = sum(r["seconds"] for r in row.results.values()) / len(row.results) / 60
    steps = f"{row.about['steps']:,} steps" + tag("small", f"{minutes:.0f} min")
    cells += tag("td", steps, data_value=f"{minutes:.3g}")
    return tag("tr", cells, **reference)


def _cell(text: str, value: float | None, kind: str = "") -> str:
    given = {"class_": kind} if kind else {}
    return tag("td", escape(text), data_value="" if value is None else f"{value:.6g}", **given)


def _difference(table: StudyTable, row: StudyRow, metric: str) -> str:
    """The cells of the difference from the reference and of its p-value."""
    if row.label == table.reference:
        return _cell("reference", None, "soft") + _cell("", None)
    found = table.comparisons.get(row.label)
    if found is None or found.mean is None:
        return _cell("", None) + _cell("", None)
    kind = wording.standing(found, metric)
    text = escape(wording.difference(found, metric == "accuracy"))
    text += tag("small", wording.verdict(found, metric))
    p = _cell(wording.adjusted(found), found.adjusted)
    return tag("td", text, class_=kind, data_value=f"{found.mean:.6g}") + p


def _floor(first: Result, width: int) -> list[str]:
    if first["floor"] is None:
        return []
    cells = tag("th", "Bayes-optimal predictor", scope="row", data_value="Bayes")
    cells += _cell(number(first["floor"], first["metric"]), first["floor"])
    return [tag("tr", cells + "<td></td>" * (width - 1), class_="floor")]


def _commands(table: StudyTable) -> str:
    lines = [
        f"{row.about['command']}   # about {row.about['minutes']:g} min a seed on one core"
        + (f", expected {row.about['expected']:g}" if row.about["expected"] is not None else "")
        for row in table.rows
    ]
    return tag(
        "details", tag("summary", "Commands") + tag("pre", tag("code", escape("\n".join(lines))))
    )


def _curves(study: Study, table: StudyTable, metric: str, beside: Files) -> str:
    runs = [run for run in study.runs(table) if any("validation" in m for m in run.metrics)]
    if not runs:
        return ""
    names = {row.run: row.label for row in table.rows if row.scored == "as trained"}
    named = [
        run._replace(config={**run.config, "recipe": names.get(recipe_of(run), recipe_of(run))})
        for run in runs
    ]
    svg = render(learning_curves(named, metric), "svg")
    beside[f"{table.name}-curves.svg"] = svg
    text = (
        "The loss on the training tasks, as far as the files have it, and the score on validation "
        "tasks. One line a seed."
    )
    what = f"Learning curves of {table.title}"
    return tag("figure", scrolling(image(svg, what), "Figure") + tag("figcaption", text))


def _write_data(table: StudyTable, metric: str, beside: Files) -> None:
    beside[f"{table.name}.json"] = {
        "table": table.name,
        "metric": metric,
        "reference": table.reference,
        "rows": [
            {
                "label": row.label,
                "mean": row.mean,
                "ci95": row.ci95,
                "sd_over_seeds": row.spread,
                "seeds": row.seeds,
                "families": {name: row.family(name) for name in row.first["families"]},
                "paper": (paper := table.paper(row)) and list(paper),
                "difference": vars(found) if (found := table.comparisons.get(row.label)) else None,
            }
            for row in table.rows
            if row.first
        ],
    }


def _files(*names: str) -> str:
    links = ", ".join(tag("a", escape(name), href=f"figures/{name}") for name in names)
    return tag("p", f"Beside this page: {links}", class_="files soft")


def _structures(study: Study, beside: Files) -> list[str]:
    """What is inside the explained runs, each once."""
    explained: dict[str, Run] = {}
    for table in study.tables:
        for run in study.runs(table):
            if run.explain:
                explained.setdefault(str(run.folder), run)
    parts = []
    for run in explained.values():
        explain = run.explain
        assert explain is not None
        slug = re.sub(r"[^a-z0-9]+", "-", recipe_of(run).lower())
        parts.append(tag("h3", tag("code", escape(recipe_of(run)))))
        beside[f"{slug}.json"] = explain
        if graph_like(explain):
            parts.append(explorer(run, explain))
        names = []
        for name, figure, what, caption in captioned(explain):
            svg = render(figure, "svg")
            beside[f"{slug}-{name}.svg"] = svg
            names.append(f"{slug}-{name}.svg")
            shown = scrolling(image(svg, what), "Figure") + tag("figcaption", escape(caption))
            parts.append(tag("figure", shown))
        parts.append(_files(*names, f"{slug}.json"))
    return parts or [tag("p", tag("em", "No run has been looked into yet."))]
