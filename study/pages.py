"""The pages of the study, drawn from its results and never typed.

`python -m study.pages` writes `tables.md`, the tables between markers in `README.md`, and the
scores that `arml list` shows (`src/arml/data/measured.json`). `--check` writes nothing, and fails
if one of them is not what it would write.
"""

import json
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import arml
from arml.report.tables import Cell, Column, Line, Table, markdown
from arml.results.files import read_json
from study.claims import (
    CANNOT,
    CHANCE,
    FAILS,
    HOLDS,
    NOT_YET,
    UNCLEAR,
    counted,
    difference,
    judge,
    probability,
)
from study.data import RESULTS, Study, StudyRow, StudyTable, load
from study.paper import by_family

HERE = Path(__file__).parent
MEASURED = HERE.parent / "src" / "arml" / "data" / "measured.json"
SETTINGS = {
    "regression2d": "regression2d",
    "starter": "starter-1shot",
    "starter-art": "starter-art-1shot",
}
"""The table of the study that measures the recipes of each setting."""


def drawn(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table of texts; the first column names the rows."""
    lines = tuple(Line(row[0], tuple(map(Cell, row[1:]))) for row in rows)
    return markdown(Table("", tuple(map(Column, head)), lines))


def number(value: float | None, accuracy: bool) -> str:
    """A score as text: accuracies as percentages."""
    if value is None or not math.isfinite(value):
        return "not finite"
    return f"{100 * value:.2f}%" if accuracy else f"{value:.3f}"


def interval(mean: float | None, half: float | None, accuracy: bool) -> str:
    """`mean ± half-width`."""
    told = number(mean, accuracy)
    return told if half is None else f"{told.rstrip('%')} ± {number(half, accuracy)}"


def page(study: Study) -> str:
    """The claims, if the results are worth one, and every table that has a row."""
    smoke = "These are twenty steps of tiny networks: they show only that everything works."
    parts = [f"# The paper's tables, scale {study.scale}", NOTES]
    parts += [smoke] if study.scale == "smoke" else [claims(study)]
    return "\n\n".join([*parts, tables(study)]) + "\n"


NOTES = (
    "Every row of a table is scored on the same test tasks. ± of a score is its 95% interval over "
    "test tasks (1.96 s / √n of the scores averaged over seeds); SD is over seeds. A difference is "
    "the row minus the table's reference. Where both have two runs or more, its interval is "
    "over runs and tasks (Welch's test with the tasks as a further component), and over tasks "
    "alone otherwise: then it is about these trained learners. A p-value needs five runs of both, "
    "and is corrected by Holm's method for all differences of the table. The paper's figures are "
    "copied from the paper; they are for its own tasks."
)


def claims(study: Study) -> str:
    """The paper's claims in three groups under their counts, then those about our own presets."""
    verdicts, lines = judge(study), []
    for ours, title in ((False, "The paper's claims"), (True, "Our own presets, not in the paper")):
        own = [v for v in verdicts if v.claim.ours is ours]
        lines += [f"## {title}", counted(own)]
        for kind in (HOLDS, FAILS, UNCLEAR):
            some = [v for v in own if v.verdict == kind and v.said]
            rows = [
                (v.claim.text, f"`{v.table}`", v.said + (f" ({v.why})" if v.why == CHANCE else ""))
                for v in some
            ]
            table = drawn(("Claim", "Table", "Figures"), rows) if rows else "*None.*"
            lines += [f"### {kind.capitalize()}", table]
        for why in (NOT_YET, CANNOT):
            names = dict.fromkeys(f"`{v.table}`" for v in own if v.why == why)
            lines += [f"No figures ({why}): {', '.join(names)}."] if names else []
    return "\n\n".join(lines)


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
    return (
        f"{what}; {first['tasks']:,} test tasks, {first['protocol']}. Differences are from "
        f"{table.about['reference']}."
    )


def rows_of(table: StudyTable) -> str:
    """A table: score, the paper's figure, the difference from the reference, families, time."""
    assert table.first is not None
    families, accuracy = table.first["families"], table.accuracy
    printed = any(table.paper(row) for row in table.rows)
    head = ["Row", "Accuracy" if accuracy else "MSE", *(["Paper"] if printed else [])]
    head += ["Difference", "p", "SD", *families, "Training"]
    rows = [_cells(table, row, families, printed) for row in table.rows]
    if table.first["floor"] is not None:
        rows.append(["*Bayes-optimal predictor*", number(table.first["floor"], accuracy)])
    return drawn(head, rows)


def _cells(
    table: StudyTable, row: StudyRow, families: Sequence[str], printed: bool
) -> Sequence[str]:
    accuracy, found = table.accuracy, table.comparisons.get(row.label)
    if not row.scores:
        return [row.label, next(iter(row.failures.values()), "not yet run")]
    cells = [row.label, interval(row.mean, row.ci95, accuracy)]
    if printed:
        paper = table.paper(row)
        half = "" if paper is None or paper.ci95 is None else f" ± {paper.ci95:.2f}"
        cells.append(f"{paper.mean:.2f}{half}" if paper else "")
    reference = row.label == table.about["reference"]
    cells += ["reference" if reference else difference(found, accuracy) if found else ""]
    cells += ["" if found is None else probability(found.adjusted)]
    count = f"{len(row.scores)} seed{'s' if len(row.scores) > 1 else ''}"
    count += f", {len(row.failures)} failed" if row.failures else ""
    cells.append(count if row.spread is None else f"{number(row.spread, accuracy)} ({count})")
    figures = by_family(table.about["paper"], row.about["paper"])
    for name in families:
        theirs = f", paper {figures[name].mean:g}%" if name in figures else ""
        cells.append(number(row.family(name), accuracy) + theirs)
    seconds = np.mean([facts["seconds"] for facts in row.facts.values()])
    return [*cells, f"{row.about['steps']:,} steps, {seconds / 60:.0f} min"]


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


def others(study: Study) -> str:
    """Recipes that are in no table of the study."""
    rows = []
    for one in read_json(RESULTS / "others.json")["results"]:
        accuracy, score = one["metric"] == "accuracy", one["score"]
        families = "; ".join(
            f"{name} {number(s['mean'], accuracy)}" for name, s in one["families"].items()
        )
        told = interval(score["mean"], score["ci95"], accuracy)
        rows.append([f"`{one['recipe']}`", told, one["protocol"], f"{one['steps']:,}", families])
    return drawn(("Recipe", "Score", "Tasks", "Steps", "Families"), rows)


NAMES = {
    "links": "links between vertices",
    "equal_vertices": "differences between vertices (all made equal)",
    "mean": "its code (the mean of all in its place)",
    "own_family": "its code (that of another task of its family)",
    "other_family": "its code (that of a task of another family)",
    "mean_reading": "its reading (the mean of all in its place)",
    "own_family_reading": "its reading (that of another task of its family)",
    "other_family_reading": "its reading (that of a task of another family)",
}


def interventions(study: Study) -> str:
    """The cost of each kind of intervention in each learner of `explained.json`."""
    rows = []
    for learner, one in read_json(RESULTS / "explained.json")["learners"].items():
        found = one.get("interventions")
        if not found:
            continue
        scale = 100 if found["metric"] == "accuracy" else 1
        named = {"links": found["links"], **found.get("use", {})}
        vertices = [entry["all"] for entry in found["vertices"]]
        if vertices:
            worst = max(range(len(vertices)), key=lambda i: vertices[i]["mean"] or 0.0)
            what = f"V{worst}, the vertex with the largest mean loss of {len(vertices)}"
            rows.append(_effect(learner, what, vertices[worst], scale))
        rows += [_effect(learner, NAMES[key], each["all"], scale) for key, each in named.items()]
    head = ("Learner", "Without", "Mean loss ± 95%", "p", "Median", "Tasks worse", "p (sign)")
    return drawn(head, rows)


def _effect(learner: str, what: str, entry: dict[str, Any], scale: int) -> list[str]:
    mean, half, median, worse = (entry.get(k) for k in ("mean", "ci95", "median", "worse"))
    told = "not finite" if mean is None else f"{scale * mean:+.3g}"
    return [
        f"`{learner}`",
        what,
        told + ("" if half is None else f" ± {scale * half:.2g}"),
        probability(entry.get("adjusted")),
        "–" if median is None else f"{scale * median:+.2g}",
        "–" if worse is None else f"{worse:.0%}",
        probability(entry.get("adjusted_sign")),
    ]


def rates(study: Study) -> str:
    """How often each rule for verdicts finds a difference although there is none (simulated)."""
    found = read_json(RESULTS / "false-positives.json")["tables"]
    rules = list(dict.fromkeys(rule for entry in found.values() for rule in entry["equal"]["3"]))
    truths = {"retrained": "one method, trained again", "equal": "two methods, equal in the mean"}
    rows = [
        [f"`{name}`", truth, runs, *(f"{r[rule]:.0%}" if r.get(rule) else "–" for rule in rules)]
        for name, entry in found.items()
        for kind, truth in truths.items()
        for runs, r in entry[kind].items()
    ]
    return drawn(("Table", "Truth", "Runs of each", *rules), rows)


def diverged(study: Study) -> str:
    """How many trainings of each recipe had a loss that is not finite."""
    counts: dict[str, list[bool]] = {}
    steps = set()
    for one in read_json(RESULTS / "divergence.json")["results"]:
        counts.setdefault(one["recipe"], []).append(one["first_bad_step"] is not None)
        steps.add(one["steps"])
    bad = {name: f"{sum(each)} of {len(each)}" for name, each in counts.items() if any(each)}
    least = min(steps)
    if not bad:
        total = sum(map(len, counts.values()))
        return f"None of {total} trainings of {len(counts)} recipes, over {least:,} steps or more."
    return drawn(("Recipe", "Diverged"), list(bad.items()))


def summary(study: Study) -> str:
    """The 2-D regression in short."""
    table = study.table("regression2d")
    assert table is not None
    rows = []
    for row in sorted(table.rows, key=lambda row: row.mean):
        paper = table.paper(row)
        seeds = f"{len(row.scores)} ({number(row.spread, False)})" if row.spread else "1"
        cells = (interval(row.mean, row.ci95, False), f"{paper.mean:g}" if paper else "", seeds)
        rows.append([row.label, *cells])
    floor = number(table.first["floor"] if table.first else None, False)
    rows.insert(0, ["*Bayes-optimal predictor*", floor])
    return drawn(("Method", "MSE ± 95%", "Paper", "Seeds (SD)"), rows)


BLOCKS: dict[str, Callable[[Study], str]] = {"summary": summary, "steps": by_steps}
"""The tables that `README.md` has between `<!-- NAME:begin -->` and `<!-- NAME:end -->`."""


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


def written() -> dict[Path, str]:
    """All pages by their file."""
    study = load(RESULTS / "laptop")
    names = "; ".join(f"`{old}` is `{new}` today" for old, new in study.renamed.items())
    more = {
        "Recipes outside these tables": others,
        "Validation error by step": by_steps,
        "What a learner loses without a part": interventions,
        "How often verdicts err": rates,
        "Trainings whose loss became infinite": diverged,
    }
    parts = [page(study).strip(), *(f"## {title}\n\n{draw(study)}" for title, draw in more.items())]
    parts.append(f"Runs keep the names that their recipes had then: {names}.")
    readme = (HERE / "README.md").read_text(encoding="utf-8")
    for name, draw in BLOCKS.items():
        before, begin, rest = readme.partition(f"<!-- {name}:begin -->")
        _, end, after = rest.partition(f"<!-- {name}:end -->")
        if not begin or not end:
            raise ValueError(f"study/README.md: expected the markers of the table {name!r}")
        readme = f"{before}{begin}\n\n{draw(study)}\n\n{end}{after}"
    return {
        HERE / "tables.md": "\n\n".join(parts) + "\n",
        HERE / "README.md": readme,
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
    return 0


if __name__ == "__main__":
    sys.exit(main())
