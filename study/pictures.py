"""The tables of real pictures: four families as one mixture, and miniImageNet.

All is drawn from `results/real.json` and `real.npz`, which `python -m study --scale real --draw
--collect study/results/real` writes of the finished runs. A table with the name `PLACE-start` has
the first steps of the trainings, and `PLACE-gpu` longer ones, made on a GPU.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from arml.report.curves import LINE_COLOURS, LINE_DASHES, heat, render, styled
from arml.report.graphs import reading as shares_of
from arml.report.tables import Cell, Line, Table, markdown, number
from arml.report.verdicts import difference, score_head
from arml.results.files import write_bytes
from arml.results.scores import summary_of
from study.claims import PAPER, Claim
from study.data import Study, StudyRow, StudyTable
from study.paper import names
from study.plan import FOUR

SHORT = {
    "bird-2010": "birds",
    "flower": "flowers",
    "omniglot": "characters",
    "mini-imagenet": "objects",
}
CODES = {"mean": "the mean code", "other_family": "another family's"}
IMAGES = Path(__file__).parents[1] / "docs" / "images"
MINUTES = (1, 2, 4, 8, 16, 32, 64)


def tables_of(study: Study, place: str) -> list[StudyTable]:
    """The tables of a place that have a run: those of more steps if the four methods that matter
    have a run there, and that of the first steps."""
    found = [study.table(name) for name in (f"{place}-gpu", place, f"{place}-start")]
    tables = [table for table in found if table is not None and table.first]
    done = {t.name: {method(row) for row in t.rows if row.scores} for t in tables}
    return [t for t in tables if t is tables[-1] or done[t.name] >= set(FOUR)]


def method(row: StudyRow) -> str:
    """The name of a row's method."""
    return row.about["run"].rpartition("/")[2]


def pace(study: Study, place: str, label: str) -> float | None:
    """Seconds of one core that a step takes, the median of the runs with all steps, or of those
    with the first; None if no run says it."""
    for table in filter(None, map(study.table, (place, f"{place}-start"))):
        row = table.row(label)
        found = [facts.get("core_seconds") for facts in row.facts.values()] if row else []
        if some := [one for one in found if one]:
            return median(some)
    return None


def summary(study: Study, place: str) -> str:
    """The methods by score, after all steps and after the first ones: all families, each family,
    the paper's figure, and the time."""
    found = [_summary(study, table, place) for table in tables_of(study, place)]
    return "\n\n".join(found) or "Not yet run."


def alike(study: Study) -> str:
    """The methods that are trained alike by score, with differences from `arml`."""
    tables = (study.table(f"searched-real-four-{n}shot{e}") for n in (1, 5) for e in ("", "-start"))
    found = [_summary(study, t, t.name, against=True) for t in tables if t is not None and t.first]
    return "\n\n".join(found) or "Not yet run."


def _summary(study: Study, table: StudyTable, place: str, against: bool = False) -> str:
    """With `against`, also the differences from the table's reference."""
    assert table.first is not None
    families = table.first["families"]
    several = families if len(families) > 1 else ()
    known = not several and any(table.paper(row) for row in table.rows)
    on_gpu = table.name.endswith("-gpu")
    minus = {label: difference(found) for label, found in table.comparisons.items()}
    rows, missing, best = (
        [],
        [],
        sorted(table.rows, key=lambda row: -row.mean if row.scores else 1.0),
    )
    for row in best:
        if not row.scores:
            missing.append(row.label)
            continue
        paper, step = table.paper(row), None if on_gpu else pace(study, place, row.label)
        steps = row.about["steps"]
        rows.append([
            row.label,
            *row.cells,
            *([minus.get(row.label, "")] if against else []),
            *(number(row.family(name), "accuracy") for name in several),
            *([f"{paper.mean:.1f} ± {paper.ci95}" if paper else ""] if known else []),
            *([] if on_gpu else [f"{step * steps / 60:.0f}" if step else ""]),
        ])  # fmt: skip
    own = study.table(f"specialists-{table.name}")
    for label in ("ProtoNet", "MAML") if several else ():
        values = specialists(own, label, families)
        if values is not None:
            mean = summary_of(values[0])
            each = [float(np.mean(values[0][values[1] == i])) for i in range(len(families))]
            cells = (number(value, "accuracy") for value in each)
            score = (number(mean["mean"], "accuracy"), f"± {number(mean['ci95'], 'accuracy')}", "1")
            rows.append([f"*four {label}s, one a family*", *score, *cells])
    head = ["Method", *score_head("accuracy")]
    head += [f"Minus {table.about['reference']}"] if against else []
    head += [SHORT[name] for name in several]
    head += ["Paper, 60,000 steps"] if known else []
    head += [] if on_gpu else ["Minutes of a core"]
    steps = max(row.about["steps"] for row in table.rows)
    facts = f"{steps:,} steps{' on a GPU' * on_gpu}; {table.first['tasks']:,} test tasks"
    facts += f", {table.first['protocol']}."
    later = f"\n\nNot yet run: {'; '.join(missing)}." if missing else ""
    return f"{facts}\n\n{drawn(head, rows)}{later}"


def specialists(
    table: StudyTable | None, label: str, families: Sequence[str]
) -> tuple[np.ndarray, np.ndarray] | None:
    """The score of each test task by the learner of its own family, and the families."""
    values, of = None, None
    if table is None:
        return None
    for i, name in enumerate(families):
        row = table.row(f"{label}, {name} alone")
        if row is None or not row.scores:
            return None
        scores = next(iter(row.scores.values()))
        of = scores.families
        values = np.zeros(len(of)) if values is None else values
        values[of == i] = scores.values[of == i]
    return None if values is None or of is None else (values, of)


def drawn(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table of texts; the first column names the rows."""
    lines = tuple(Line(row[0], tuple(map(Cell, row[1:]))) for row in rows)
    return markdown(Table("", tuple(head), lines))


def curves_of(study: Study, *places: str) -> dict[str, np.ndarray]:
    """By label of the row: steps and the mean of validation scores over its seeds,
    `[points, 2]`; the training of each in the last of the places that has one."""
    found: dict[str, np.ndarray] = {}
    for table in map(study.table, places):
        for row in table.rows if table is not None else ():
            some = [
                study.curves[key]
                for seed in row.scores
                if len(study.curves.get(key := f"{row.about['run']}/seed-{seed}", ()))
            ]
            if some:
                found[row.label] = np.mean([curve[:, :2] for curve in some], 0)
    return found


def by_minute(study: Study, place: str) -> str:
    """The validation accuracy after some minutes of one core."""
    found = curves_of(study, f"{place}-start", place)
    rows = []
    for label, curve in found.items():
        step = pace(study, place, label)
        if step is None:
            continue
        minutes = curve[:, 0] * step / 60
        cells = []
        for at in MINUTES:
            inside = minutes[0] <= at <= minutes[-1] * 1.02
            cells.append(
                number(float(np.interp(at, minutes, curve[:, 1])), "accuracy") if inside else ""
            )
        rows.append([label, f"{step:.2f}", *cells])
    shown = [i for i, at in enumerate(MINUTES) if any(row[2 + i] for row in rows)]
    head = ["Validation accuracy", "Seconds a step", *(f"{MINUTES[i]} min" for i in shown)]
    return drawn(head, [[*row[:2], *(row[2 + i] for i in shown)] for row in rows])


@styled
def figure(study: Study, place: str) -> bytes:
    """The validation accuracy by step, and by minute of one core without those on a GPU, as SVG."""
    drawing = Figure(figsize=(9.6, 3.2), layout="constrained")
    left, right = drawing.subplots(1, 2, sharey=True)
    by_time = curves_of(study, f"{place}-start", place)
    by_step = curves_of(study, f"{place}-start", place, f"{place}-gpu")
    for i, (label, curve) in enumerate(by_step.items()):
        again, i = divmod(i, len(LINE_COLOURS))
        look = {
            "color": LINE_COLOURS[i],
            "linestyle": LINE_DASHES[i % len(LINE_DASHES)],
            "marker": ".^"[again],
        }
        left.plot(curve[:, 0], 100 * curve[:, 1], label=label, markersize=5, **look)
        if step := pace(study, place, label):
            timed = by_time[label]
            right.plot(timed[:, 0] * step / 60, 100 * timed[:, 1], markersize=5, **look)
    left.set(xlabel="outer steps", ylabel="validation accuracy, %")
    right.set(xlabel="minutes of one core")
    drawing.legend(loc="outside right center", frameon=False, fontsize=7.5)
    return render(drawing, "svg")


def claims() -> list[Claim]:
    """The paper's claims that real pictures could decide."""
    found = []
    for row in ("protonet", "maml", "meta-sgd", "mumomaml", "hsml"):
        text, group = f"ARML (the paper's text) is better than {names()[row]}", "Real pictures"
        tables = tuple(f"real-four-{n}shot{end}" for n in (1, 5) for end in ("-start", ""))
        found.append(Claim(group, text, tables, PAPER, names()[row]))
    for row in ("maml", "mumomaml", "hsml"):
        text = f"On one family ARML is no better than {names()[row]}"
        alone = tuple(f"mini-imagenet-1shot{end}" for end in ("-start", "", "-gpu"))
        found.append(Claim("miniImageNet", text, alone, names()[row], PAPER, equal=True))
    return found


def reading(study: Study) -> str:
    """What each family reads of the vertices, and what it loses without the one that it reads most,
    and with other codes."""
    parts = []
    for run, one in study.explained.items():
        families = one["families"]
        read = shares_of(one)
        without = one["interventions"]["vertices"]
        rows = []
        for name, shares in zip(families, read, strict=True):
            most = int(np.argmax(shares))
            cells = [f"{share:.2f}" for share in shares]
            loss = _loss(without[most][name]) if without else ""
            used = (one["interventions"]["use"].get(code, {}).get(name) for code in CODES)
            codes = [_loss(entry) if entry else "" for entry in used]
            rows.append([SHORT[name], *cells, f"V{most}: {loss}", *codes])
        head = ["Family", *(f"V{i}" for i in range(read.shape[1]))]
        head += ["loses without its vertex", *(f"loses with {CODES[code]}" for code in CODES)]
        place, _, own = run.removesuffix("/seed-0").partition("/")
        what = f"`{own}`, {place}, {one['step']:,} steps, {one['tasks']} test tasks, in points:"
        parts.append(f"{what}\n\n{drawn(head, rows)}")
    return "\n\n".join(parts) or "Not yet run."


def _loss(entry: dict) -> str:
    if entry.get("mean") is None:
        return ""
    star = "*" if entry.get("adjusted") is not None and entry["adjusted"] < 0.05 else ""
    half = f" ± {100 * entry['ci95']:.1f}" if entry.get("ci95") is not None else ""
    return f"{100 * entry['mean']:+.1f}{half}{star}"


@styled
def links(study: Study) -> bytes:
    """How much each family reads each vertex of two learners, as SVG: ARML of the paper's text at
    one shot, and `arml` at five, each after its longest training."""
    drawing = Figure(figsize=(8.2, 2.6), layout="constrained")
    for axes, (shots, name) in zip(
        drawing.subplots(1, 2), ((1, "arml-paper"), (5, "arml")), strict=True
    ):
        runs = [f"real-four-{shots}shot{end}/{name}/seed-0" for end in ("", "-start")]
        one = next((study.explained[run] for run in runs if run in study.explained), None)
        if one is None:
            axes.set_axis_off()
            continue
        shares = shares_of(one)
        rows = [SHORT[family] for family in one["families"]]
        cells = [[f"{share:.2f}" for share in row] for row in shares]
        heat(axes, shares, rows, cells, norm=Normalize(0.0, 1.0))
        axes.set_title(f"{name}, {shots}-shot, {one['step']:,} steps", loc="left")
    return render(drawing, "svg")


def draw(study: Study) -> None:
    """Write the figures to `docs/images`."""
    for place in ("real-four", "mini-imagenet"):
        write_bytes(IMAGES / f"{place}-curves.svg", figure(study, f"{place}-1shot"))
    write_bytes(IMAGES / "real-four-links.svg", links(study))
