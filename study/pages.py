"""The pages of the study, drawn from its results and never typed.

`python -m study.pages` writes `tables.md` and `real-tables.md`, the tables between markers in
`README.md` and `real.md`, the figures of `pictures`, and the scores that `arml list` shows
(`src/arml/data/measured.json`). `--check` writes nothing, and fails if one of them, except for the
figures, is not what it would write.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import arml
from arml.report.tables import interval, number
from arml.report.verdicts import chance, difference, score_head
from arml.results.comparisons import CANNOT_TELL
from arml.results.files import read_json
from study import inner, pictures
from study.claims import (
    CANNOT,
    FAILS,
    HOLDS,
    NOT_YET,
    Verdict,
    counted,
    judge,
)
from study.data import RESULTS, Study, StudyRow, StudyTable, load
from study.pictures import drawn
from study.plan import PLACES

HERE = Path(__file__).parent
MEASURED = HERE.parent / "src" / "arml" / "data" / "measured.json"
SETTINGS = {
    "regression2d": "regression2d",
    "starter": "starter-1shot",
    "starter-art": "starter-art-1shot",
}
"""The table of the study that measures the recipes of each setting."""


def page(study: Study) -> str:
    """The claims, if the results are worth one, and every table that has a row."""
    smoke = "These are twenty steps of tiny networks: they show only that everything works."
    parts = [f"# The paper's tables, scale {study.scale}", NOTES]
    if study.scale != "real":  # whose claims are in real.md
        parts += [smoke] if study.scale == "smoke" else [claims(study)]
    return "\n\n".join([*parts, tables(study)]) + "\n"


NOTES = (
    "All rows of a table are scored on the same test tasks. ± of a score is its 95% interval over "
    "trainings (Student's t); a row of one training has none. ± over tasks is 1.96 s / √n of the "
    "scores averaged over trainings; SD is over trainings. A difference is the row minus the "
    "table's reference, for accuracies in points. Its interval is over trainings and tasks if both "
    "rows have two trainings or more (Welch's test with the tasks as a further component); "
    "otherwise it is over tasks alone, and is about these trained learners. A p-value needs five "
    "trainings of both. In a table it has Holm's correction over all differences of that table, "
    "and beside a claim over all claims that the table decides, those about our presets included. "
    "The paper's figures are for its own tasks. Claims that cannot be decided: ↑ marks figures "
    "that indicate that the claim holds, ↓ that it does not; their intervals exclude zero, but "
    "there are too few trainings."
)


def claims(study: Study) -> str:
    """The paper's claims, then those about our own presets: a table of those that are decided, and
    for each group of the others a table of their figures."""
    verdicts, lines = judge(study), []
    for ours, title in ((False, "The paper's claims"), (True, "Our own presets, not in the paper")):
        own = [v for v in verdicts if v.claim.ours is ours]
        lines += [f"## {title}", decided(own)]
    return "\n\n".join(lines)


def decided(verdicts: Sequence[Verdict]) -> str:
    """How many claims hold; those that are decided, and the figures of the others."""
    lines = [counted(verdicts)]
    rows = [
        (
            kind,
            v.claim.text,
            f"`{v.table}`",
            difference(v.comparison),
            chance(v.comparison),
        )
        for kind in (HOLDS, FAILS)
        for v in verdicts
        if v.verdict == kind and v.comparison
    ]
    if rows:
        lines.append(drawn(("Verdict", "Claim", "Table", "Difference", "p"), rows))
    open_ = [v for v in verdicts if v.verdict == CANNOT_TELL and v.comparison]
    for group in dict.fromkeys(v.claim.group for v in open_):
        lines.append(undecided([v for v in open_ if v.claim.group == group]))
    for why in (NOT_YET, CANNOT):
        names = dict.fromkeys(f"`{v.table}`" for v in verdicts if v.why == why)
        lines += [f"No figures ({why}): {', '.join(names)}."] if names else []
    return "\n\n".join(lines)


def undecided(verdicts: Sequence[Verdict]) -> str:
    """The figures of a group of claims that cannot be decided: a row for each claim, a column for
    each table. An arrow says what too few runs indicate."""
    arrows = {"better": " ↑", "": "", "worse": " ↓"}
    tables = list(dict.fromkeys(v.table for v in verdicts))
    rows: dict[str, dict[str, str]] = {}
    for v in verdicts:
        assert v.comparison is not None
        cell = difference(v.comparison) + arrows[v.comparison.indicates]
        rows.setdefault(v.claim.text, {})[v.table] = cell
    head = ("Cannot tell", *(f"`{name}`" for name in tables))
    return drawn(head, [[text, *(r.get(t, "") for t in tables)] for text, r in rows.items()])


def tables(study: Study) -> str:
    """Every table that has a row."""
    return "\n\n".join(
        f"## {table.about['title']}\n\n{table.about['about']} {caption(table)}\n\n{rows_of(table)}"
        for table in study.tables
        if table.first
    )


def caption(table: StudyTable) -> str:
    """The facts that the rows share."""
    first = table.first
    assert first is not None
    what = "Accuracy, higher is better" if table.accuracy else "MSE, lower is better"
    steps = max(row.about["steps"] for row in table.rows)
    return (
        f"{what}; {steps:,} steps, {first['tasks']:,} test tasks, {first['protocol']}. Differences "
        f"are from {table.about['reference']}."
    )


def rows_of(table: StudyTable) -> str:
    """A table: score, the paper's figure, the difference from the reference, spread over seeds; of
    a main table also the score of each family, and the time of a training."""
    assert table.first is not None
    main = table.name in PLACES
    families = table.first["families"] if main else ()
    shown = {
        "Paper": any(table.paper(row) for row in table.rows),
        "p": any(one.adjusted is not None for one in table.comparisons.values()),
        "Minutes": main,
    }
    head = [
        "Row",
        *score_head(table.metric),
        "Paper",
        "Difference",
        "p",
    ]
    head += [*families, "Minutes"]
    rows = [_cells(table, row, families) for row in table.rows]
    if main and table.first["floor"] is not None:
        rows.append(["*Bayes-optimal predictor*", number(table.first["floor"], table.metric)])
    kept = [i for i, name in enumerate(head) if shown.get(name, True)]
    return drawn([head[i] for i in kept], [[row[i] for i in kept if i < len(row)] for row in rows])


def _cells(table: StudyTable, row: StudyRow, families: Sequence[str]) -> Sequence[str]:
    metric, found = table.metric, table.comparisons.get(row.label)
    if not row.scores:
        return [row.label, next(iter(row.failures.values()), "not yet run")]
    paper = table.paper(row)
    half = "" if paper is None or paper.ci95 is None else f" ± {paper.ci95:.2f}"
    reference = row.label == table.about["reference"]
    seconds = np.mean([facts["seconds"] for facts in row.facts.values()])
    return [
        row.label,
        *row.cells,
        f"{paper.mean:.2f}{half}" if paper else "",
        "reference" if reference else difference(found) if found else "",
        "" if found is None else chance(found),
        *(number(row.family(name), metric) for name in families),
        f"{seconds / 60:.0f}",
    ]


STEPS = (5_000, 10_000, 20_000, 30_000, 50_000, 70_000)


def by_steps(study: Study) -> str:
    """Validation error on 2-D regression around some steps: for each seed the mean at, before and
    after the step; of the seeds the mean and the range."""
    table, rows = study.table("regression2d"), []
    assert table is not None
    for label in (
        *("MAML", "MT-Net", "MUMOMAML", "HSML", "ARML, authors' code"),
        *("ARML, paper's text", "ARML, FiLM", "ARML, extended"),
    ):
        row = table.row(label)
        assert row is not None
        cells = []
        for step in STEPS:
            each = []
            for seed in row.about["seeds"]:
                steps, scores, _ = study.curves[f"{row.about['run']}/seed-{seed}"].T
                at = int(np.argmin(np.abs(steps - step)))
                each.append(float(np.mean(scores[max(at - 1, 0) : at + 2])))
            cells.append(f"{np.mean(each):.2f} ({min(each):.2f} to {max(each):.2f})")
        rows.append([label, *cells])
    return drawn(["steps", *(f"{step:,}" for step in STEPS)], rows)


def others() -> str:
    """Recipes that are in no table of the study."""
    rows = []
    for one in read_json(RESULTS / "others.json")["results"]:
        score = interval(one["score"]["mean"], one["score"]["ci95"], one["metric"])
        rows.append([f"`{one['recipe']}`", score, one["protocol"], f"{one['steps']:,}"])
    return drawn(("Recipe", "Score", "Tasks", "Steps"), rows)


PARTS = {
    "links": "no links",
    "equal_vertices": "equal vertices",
    "mean": "mean code",
    "own_family": "code of its family",
    "other_family": "code of another family",
    "mean_reading": "mean attention",
    "own_family_reading": "attention of its family",
    "other_family_reading": "attention of another family",
}
"""The changes to a learner in `explained.json`, and the heads of their columns."""


def interventions() -> str:
    """The mean loss by each kind of change to each learner of `explained.json`."""
    rows = []
    for learner, one in read_json(RESULTS / "explained.json")["learners"].items():
        found = one.get("interventions")
        if not found or learner.startswith("shipped-"):  # those are runs that are in the list, too
            continue
        scale = 100 if found["metric"] == "accuracy" else 1
        parts = {**found, **found.get("use", {})}
        vertices = [entry["all"] for entry in found["vertices"]]
        worst = max(vertices, key=lambda entry: entry["mean"] or 0.0)
        cells = [_loss(worst, scale)]
        cells += [_loss(parts[key]["all"], scale) if key in parts else "" for key in PARTS]
        rows.append([f"`{learner}`", f"1 of {len(vertices)}: {cells[0]}", *cells[1:]])
    table = drawn(("Learner", "without its most useful vertex", *PARTS.values()), rows)
    return (
        "How much worse the error, or the accuracy in points, is on average over tasks when a part "
        "of a trained learner is taken away, or replaced by that of other tasks; * marks p < 0.05 "
        "after Holm's correction.\n\n" + table
    )


def _loss(entry: dict[str, Any], scale: int) -> str:
    mean, half, p = (entry.get(key) for key in ("mean", "ci95", "adjusted"))
    if mean is None:
        return "not finite"
    if not mean and not half:
        return "0"
    interval = "" if half is None else f" ± {scale * half:.2g}"
    return f"{scale * mean:+.3g}{interval}{'*' if p is not None and p < 0.05 else ''}"


def summary(study: Study) -> str:
    """The 2-D regression in short."""
    table = study.table("regression2d")
    assert table is not None
    rows = []
    for row in sorted(table.rows, key=lambda row: row.mean):
        paper = table.paper(row)
        rows.append([row.label, *row.cells, f"{paper.mean:g}" if paper else ""])
    floor = number(table.first["floor"] if table.first else None, "mse")
    rows.insert(0, ["*Bayes-optimal predictor*", floor])
    return drawn(("Method", *score_head("mse"), "Paper"), rows)


BLOCKS: dict[str, Callable[[Study], str]] = {
    "summary": summary,
    "steps": by_steps,
    "inner": inner.page,
}
"""The tables that `README.md` has between `<!-- NAME:begin -->` and `<!-- NAME:end -->`."""
REAL_BLOCKS: dict[str, Callable[[Study], str]] = {
    "four": lambda study: pictures.summary(study, "real-four-1shot"),
    "five": lambda study: pictures.summary(study, "real-four-5shot"),
    "alike": pictures.alike,
    "minutes": lambda study: pictures.by_minute(study, "real-four-1shot"),
    "five-minutes": lambda study: pictures.by_minute(study, "real-four-5shot"),
    "reading": pictures.reading,
    "mini": lambda study: pictures.summary(study, "mini-imagenet-1shot"),
    "mini-five": lambda study: pictures.summary(study, "mini-imagenet-5shot"),
    "mini-minutes": lambda study: pictures.by_minute(study, "mini-imagenet-1shot"),
    "claims": lambda study: decided(judge(study, pictures.claims())),
}
"""Those of `real.md`."""


def measured(study: Study) -> str:
    """By setting: how the recipes were scored, and each recipe's mean over seeds."""
    content: dict[str, Any] = {}
    for setting, name in SETTINGS.items():
        table = study.table(name)
        assert table is not None
        assert table.first is not None
        first = table.first
        content[setting] = {key: first[key] for key in ("metric", "steps", "protocol", "tasks")}
        scores, minutes = {}, {}
        for row in table.rows:
            method = row.about["run"].rpartition("/")[2]
            then = f"{setting}/{method}"
            recipe = study.renamed.get(then, then).rpartition("/")[2]
            if f"{setting}/{recipe}" not in arml.RECIPES or "inductive" in recipe:
                continue
            scores[recipe] = round(row.mean, 4)
            seconds = [facts["seconds"] for facts in row.facts.values()]
            minutes[recipe] = round(sum(seconds) / len(seconds) / 60, 1)
        content[setting] |= {"scores": scores, "minutes": minutes}
    return json.dumps(content, indent=2) + "\n"


def filled(path: Path, blocks: Mapping[str, Callable[[Study], str]], study: Study) -> str:
    """The page with its blocks drawn anew."""
    text = path.read_text(encoding="utf-8")
    for name, draw in blocks.items():
        before, begin, rest = text.partition(f"<!-- {name}:begin -->")
        _, end, after = rest.partition(f"<!-- {name}:end -->")
        if not begin or not end:
            raise ValueError(f"study/{path.name}: expected the markers of the table {name!r}")
        text = f"{before}{begin}\n\n{draw(study)}\n\n{end}{after}"
    return text


def written() -> dict[Path, str]:
    """All pages by their file."""
    study = load(RESULTS / "laptop")
    names = "; ".join(f"`{old}` is `{new}` today" for old, new in study.renamed.items())
    parts = [
        page(study).strip(),
        f"## Recipes outside these tables\n\n{others()}",
        f"## Without a part of the graph\n\n{interventions()}",
        f"Runs keep the names that their recipes had then: {names}.",
    ]
    real = load(RESULTS / "real")
    return {
        HERE / "tables.md": "\n\n".join(parts) + "\n",
        HERE / "README.md": filled(HERE / "README.md", BLOCKS, study),
        HERE / "real.md": filled(HERE / "real.md", REAL_BLOCKS, real),
        HERE / "real-tables.md": page(real),
        MEASURED: measured(study),
    }


def main() -> int:
    check = "--check" in sys.argv[1:]
    for path, text in written().items():
        if not check:
            path.write_text(text, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != text:
            print(f"{path} is out of date: run `python -m study.pages`", file=sys.stderr)
            return 1
    if not check:
        pictures.draw(load(RESULTS / "real"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
