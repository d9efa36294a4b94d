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
from arml.report.claims import CANNOT, CONFIRMED, NOT, Verdict, counted
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
    "± is the 95% interval over test tasks of the scores averaged over seeds (1.96 s / √n). It "
    "says what other tasks would change. SD over seeds is the standard deviation of the runs' "
    "means, and says what another training run would change.",
    "The difference is the row minus the table's reference row, task by task. p is two-sided and "
    "corrected by Holm's method for all differences of the table. A difference is called better or "
    "worse where p is below 0.05 and every seed agrees on its sign; one seed says nothing about "
    "another training run.",
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
    """A table for each group of claims, a column for each table that can decide them here."""
    parts = [tag("p", counted(verdicts))]
    for group in dict.fromkeys(v.claim.group for v in verdicts):
        own = [v for v in verdicts if v.claim.group == group]
        here = list(dict.fromkeys(v.table for v in own if v.verdict != CANNOT))
        rows = []
        for text in dict.fromkeys(v.claim.text for v in own):
            found = {v.table: v for v in own if v.claim.text == text}
            cells = "".join(_verdict(found.get(name)) for name in here)
            head = tag("th", escape(text), scope="row", data_value=text)
            rows.append(tag("tr", head + cells))
        table = _head(["Claim", *here]) + tag("tbody", "\n".join(rows))
        shown = scrolling(tag("table", table, class_="sortable claims"), group)
        elsewhere = ", ".join(dict.fromkeys(v.table for v in own if v.verdict == CANNOT))
        note = f"{CANNOT.capitalize()}: {elsewhere} (`arml data prepare`, and a GPU)."
        parts += [tag("h3", escape(group)), shown]
        parts += [tag("p", code(note), class_="soft")] if elsewhere else []
    return parts


def _verdict(found: Verdict | None) -> str:
    if found is None:
        return tag("td", "", data_value="")
    kind = {CONFIRMED: "confirmed", NOT: "not"}.get(found.verdict, "soft")
    text = tag("span", found.verdict, class_=kind) + tag("small", escape(found.said))
    return tag("td", text, data_value=found.verdict)


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
    kind = cells_of.standing(found, metric)
    text = escape(cells_of.difference(found, metric == "accuracy"))
    text += tag("small", cells_of.verdict(found, metric))
    p = _cell(cells_of.adjusted(found), found.adjusted)
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
