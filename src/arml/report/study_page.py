"""The page of a study: the verdicts on the paper's claims, every table beside the paper's figures,
learning curves, and the learned structures to explore.

It needs no network and no other file. The verdicts (`claims.json`) and the numbers of the tables
(`tables.json`) are written beside it.
"""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from arml.report import charts, claims, render, wording
from arml.report.explained import captioned, explorer, graph_like
from arml.report.growth_study import growing_sections
from arml.report.paper import titles
from arml.report.render import Block, Report, Section
from arml.report.study import Study, StudyRow, StudyTable, load_study
from arml.report.study_tables import NEEDS, papers_table, table_of
from arml.report.table import Cell, Column, Line, Table
from arml.report.tables import METRIC_NAMES
from arml.results.files import Json, write_json, write_text
from arml.results.folder import FORMAT, RunFiles, recipe_of

NOTES = [
    "Every row of a table is scored on the same test tasks. No choice was made on them. A task "
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
    "A run that failed counts: a row with a failed run is never called better or worse.",
    "The paper's figures are copied from the paper: they are for its own tasks and were not "
    "measured here. If it has figures of families only, their mean is shown, without an interval.",
    "The Bayes-optimal predictor knows the families and their priors: no learner can be expected "
    "to have a lower error.",
]
CARDS = {
    claims.HOLDS: ("claims hold", "good"),
    claims.FAILS: ("do not hold", "bad"),
    claims.UNCLEAR: ("these data cannot decide", ""),
}
"""The words on the card of each group of verdicts, and its style."""


def write_study(folder: Path, named: Path | None = None) -> list[Path]:
    """Write the page, the claims and the tables of a study; returns the files, the page first.
    Commands on the page write to the folder `named`, which is that of the study by default.

    **Raises** `RunError` as `load_study` does, or if they cannot be written.
    """
    study = load_study(folder)
    verdicts = claims.judge(study)
    facts = {"format": FORMAT, "scale": study.scale}
    write_json(folder / "claims.json", {**facts, "claims": [v.plain() for v in verdicts]})
    data = {table.name: _data(table) for table in study.tables if table.first}
    write_json(folder / "tables.json", {**facts, "tables": data})
    write_text(folder / "index.html", render.html(study_report(study, verdicts, named or folder)))
    return [folder / name for name in ("index.html", "claims.json", "tables.json")]


def study_report(study: Study, verdicts: Sequence[claims.Verdict], named: Path) -> Report:
    """The page, before it is drawn; its commands write to the folder `named`."""
    smoke = study.scale == "smoke"
    lead = [
        f"Scale: {study.scale}. Each row was meta-trained, then adapted to each of the test tasks "
        "from a few labelled examples, and scored on the task's other examples."
    ]
    if smoke:
        lead.append(
            "These are twenty steps of tiny networks: they show only that everything works."
        )
    findings = [
        Section("findings", "The paper's claims", _findings(verdicts, ours=False), "Findings"),
        Section("ours", "Our own presets, not in the paper", _findings(verdicts, ours=True)),
    ]
    covered = {table.paper_table for table in study.tables if table.first}
    unrun = [
        Section(f"paper-{name}", title, _unrun(name), kind="unrun")
        for name, title in titles().items()
        if name not in covered and not smoke
    ]
    sections = [
        *([] if smoke else findings),
        *(Section(table.name, table.title, _table(study, table, named)) for table in study.tables),
        *growing_sections(study.folder / "growing.json"),
        Section("structures", "What was learned inside", _structures(study), "Inside"),
        Section("reading", "How to read the numbers", [render.items(NOTES)]),
        *unrun,
    ]
    return Report("The ARML paper, run again", lead, sections, scripted=True)


def _findings(verdicts: Sequence[claims.Verdict], *, ours: bool) -> list[Block]:
    """Counts, then the verdicts in their three groups."""
    own = [v for v in verdicts if v.claim.ours is ours]
    known = [v for v in own if v.why not in claims.NONE]
    prefix = "ours" if ours else "paper"
    missing = [
        render.text(f"{why.capitalize()}: {names}.", "soft")
        for why, names in claims.without_figures(own).items()
    ]
    cards, blocks = [], []
    for kind, (words, style) in CARDS.items():
        some = [v for v in known if v.verdict == kind]
        to = f"{prefix}-{kind.replace(' ', '-')}"
        cards.append({"count": len(some), "text": words, "kind": style, "to": to})
        shown: list[Block] = [render.text("None.", "soft")]
        if some and kind == claims.UNCLEAR:
            shown = [
                render.details("Each claim and table", [render.table(_matrix(some))]),
                *missing,
            ]
        elif some:
            shown = [render.items([f"{v.claim.text} (`{v.table}`): {v.said}" for v in some])]
        blocks += [render.heading(claims.TITLES[kind], to), *shown]
    return [{"macro": "cards", "cards": cards}, render.text(claims.counted(own), "soft"), *blocks]


def _matrix(verdicts: Sequence[claims.Verdict]) -> Table:
    """A row for each claim, a column for each table."""
    names = list(dict.fromkeys(v.table for v in verdicts))
    lines = []
    for claim in dict.fromkeys(v.claim.text for v in verdicts):
        found = {v.table: v for v in verdicts if v.claim.text == claim}
        lines.append(Line(claim, tuple(_unclear(found.get(name)) for name in names)))
    columns = (Column("Claim"), *(Column(name) for name in names))
    return Table(claims.TITLES[claims.UNCLEAR], columns, tuple(lines), kind="claims")


def _unclear(found: claims.Verdict | None) -> Cell:
    """Why, and the figures."""
    if found is None:
        return Cell()
    figures, _, indication = found.said.partition("; ")
    return Cell(indication or found.why, figures, "text")


def _unrun(name: str) -> list[Block]:
    words = (
        f"The paper's table. Ours {NEEDS}: `arml data prepare`, a GPU, and `arml reproduce --scale "
        "paper`."
    )
    return [
        render.text(words, "soft"),
        render.details("The paper's figures", [render.table(papers_table(name))]),
    ]


def _table(study: Study, table: StudyTable, named: Path) -> list[Block]:
    if table.first is None:
        failures = [f for row in table.rows for f in row.failures.values()]
        why = f" ({len(failures)} runs failed: {failures[0]})" if failures else ""
        return [render.text(table.about), render.text(f"Not yet run{why}.", "soft")]
    metric, printed = table.first["metric"], any(table.paper(row) for row in table.rows)
    runs: dict[str, list[RunFiles]] = {}
    names = {row.run: row.label for row in table.rows if row.scored == "as trained"}
    for run in study.runs(table):
        label = names.get(run.folder.parent.relative_to(study.folder / "runs").as_posix())
        if label:
            runs.setdefault(label, []).append(run)
    learned = charts.curves(
        {name: runs[name] for name in names.values() if name in runs},
        table.reference,
        metric,
        f"{METRIC_NAMES[metric]} on validation tasks by step, a line a run. "
        f"Grey: {table.reference}.",
    )
    out = shlex.join(("--out", named.as_posix()))
    commands = "\n".join(
        # A study of an earlier version has the folder in its commands.
        f"{row.about['command'].partition(' --out ')[0]} {out}   # {_minutes(row)}"
        + (f", expected {row.about['expected']:g}" if row.about["expected"] is not None else "")
        for row in table.rows
    )
    numbers = render.table(table_of(table), sortable=True)
    return [
        render.text(table.about),
        _forest(table, metric),
        render.details("All numbers", [numbers], opened=printed),
        *([render.details("Learning curves", [learned])] if learned else []),
        render.details("Commands", [render.pre(commands)]),
    ]


def _forest(table: StudyTable, metric: str) -> Block:
    """All rows on one scale, beside the paper's figures."""
    rows = []
    for row in table.rows:
        if not row.results:
            continue
        found, paper = table.comparisons.get(row.label), table.paper(row)
        kind = wording.standing(found, metric) if found else "reference"
        scale = 100 if metric == "accuracy" else 1
        rows.append(
            {
                "label": row.label,
                "mean": row.mean,
                "ci95": row.ci95,
                "paper": paper and paper.mean / scale,
                "kind": kind or "soft",
            }
        )
    caption = (
        f"{METRIC_NAMES[metric]}: mean and 95% interval over tasks. Blue: better than "
        f"{table.reference}; orange: worse; hollow: these data cannot tell."
    )
    diamond = (
        " A diamond is the paper's figure." if any(r["paper"] is not None for r in rows) else ""
    )
    return charts.forest(rows, metric, caption + diamond)


def _minutes(row: StudyRow) -> str:
    """The time that a seed took, or should take."""
    if not row.results:
        return f"about {row.about['minutes']:g} min a seed on one core"
    taken = [r["seconds"] / 60 for r in row.results.values()]
    low, high = f"{min(taken):.0f}", f"{max(taken):.0f}"
    return f"took {low if low == high else f'{low} to {high}'} min a seed"


def _data(table: StudyTable) -> Json:
    """The numbers of a table that has a result."""
    assert table.first is not None
    return {
        "metric": table.first["metric"],
        "reference": table.reference,
        "rows": [
            {
                "label": row.label,
                "mean": row.mean,
                "ci95": row.ci95,
                "sd_over_seeds": row.spread,
                "seeds": row.seeds,
                "failed": sorted(row.failures),
                "families": {name: row.family(name) for name in row.first["families"]},
                "paper": (paper := table.paper(row)) and list(paper),
                "difference": vars(found) if (found := table.comparisons.get(row.label)) else None,
            }
            for row in table.rows
            if row.first
        ],
    }


def _structures(study: Study) -> list[Block]:
    """A look inside the explained runs, each once."""
    explained: dict[str, RunFiles] = {}
    for table in study.tables:
        for run in study.runs(table):
            if run.explain:
                explained.setdefault(str(run.folder), run)
    blocks: list[Block] = []
    # Graphs come first, because they can be explored.
    for run in sorted(explained.values(), key=lambda run: not graph_like(run.explain or {})):
        assert run.explain is not None
        graph = graph_like(run.explain)
        # The explorer has the graph, and the means over tasks make the example superfluous.
        parts = [
            one for one in captioned(run.explain) if one[0] not in ("knowledge-graph", "links")
        ]
        inner = explorer(run, run.explain) if graph else []
        inner += [render.figure(*one[1:]) for one in parts]
        slug = re.sub(r"[^a-z0-9]+", "-", recipe_of(run).lower())
        blocks.append(render.details(recipe_of(run), inner, f"inside-{slug}", opened=not blocks))
    return blocks or [render.text("No run has been looked into yet.", "soft")]
