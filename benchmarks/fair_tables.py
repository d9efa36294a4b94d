"""Tables of the fair comparison, from the scores that its trainings wrote."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any, NamedTuple

import numpy as np

from arml.report.tables import Cell, Column, Line, Table, markdown, replace_block
from arml.results.comparisons import Comparison, compare_seeds, holm, probability
from arml.results.scores import Scores
from fair_trainings import BASELINE, GROUPS, METHODS, SEARCH_SEED, SPECIALISTS, WAYS, conflicting


class Setting(NamedTuple):
    """What a table is about."""

    group: str
    shots: int
    steps: int
    ways: int = WAYS
    """Classes of a training task."""
    averaged: bool = False
    """Whether the learners are means of the weights of the last half."""


NAMES = {
    "protonet": "ProtoNet, one for all families",
    "mahalanobis": "ProtoNet with Mahalanobis distances",
    "protonet-auxiliary": "ProtoNet with TADAM's auxiliary task",
    "tadam": "TADAM",
    "tapnet": "TapNet",
    "proto-maml": "Proto-MAML",
    "maml": "MAML",
    "anil": "ANIL",
    "mumomaml": "MUMOMAML",
    "hsml": "HSML",
    "arml-paper": "`arml-paper`, ARML as in the text",
    "arml-film": "`arml-film`",
    **{f"arml-{n}": f"`arml`, {n} {'vertices' if n > 1 else 'vertex'}" for n in (1, 2, 4, 8, 16)},
    **{f"arml-{n}-mahalanobis": f"`arml --head mahalanobis`, {n} vertices" for n in (2, 4, 8)},
}
"""The methods in a table."""
PAGE: dict[str, dict[str, Setting]] = {
    "starter": {
        "1 shot, 400 steps": Setting("starter", 1, 400),
        "5 shots, 200 steps": Setting("starter", 5, 200),
    },
    "averaged": {
        "1 shot, 400 steps, 20 classes": Setting("starter", 1, 400, 20, averaged=True),
        "5 shots, 200 steps": Setting("starter", 5, 200, averaged=True),
    },
    **{name: {"": Setting(name, 5, 400)} for name in ("glyphs", "icons", "textures")},
    "all": {"": Setting("all", 5, 1_200)},
    "one-shot": {name: Setting(name, 1, 400) for name in ("glyphs", "icons", "textures")},
}
"""The tables of study/searched.md: one setting, or several side by side under their titles."""


def whole(entries: Sequence[dict[str, Any]]) -> Scores:
    """The scores on the test tasks of all families, in their order."""
    each = {f: np.array(v.split(), float) for e in entries for f, v in e["test"].items()}
    families = np.repeat(np.arange(len(each)), [len(v) for v in each.values()])
    return Scores(np.concatenate([*each.values()]), families, "test", tuple(each), "accuracy")


def spread(values: Sequence[float]) -> str:
    """A mean in percent, and its SD over seeds."""
    sd = f" (SD {100 * stdev(values):.1f})" if len(values) > 1 else ""
    return f"{100 * fmean(values):.1f}%{sd}"


def chosen(found: dict[str, Any], entry: dict[str, Any]) -> bool:
    """Whether a run has the rate that the search kept."""
    whose = ("method", "group", "shots", "steps", "ways", "averaged", "seed")
    first = {**entry, "seed": SEARCH_SEED}
    tried = [
        e
        for e in found.values()
        if all(e.get(key, False) == first.get(key, False) for key in whose)
    ]
    return bool(entry["rate"] == max(tried, key=lambda e: e["validation"])["rate"])


def scored_runs(found: dict[str, Any], setting: Setting) -> list[dict[str, Any]]:
    """The runs of a table: of all families of a group and of its specialists."""
    group, shots, steps, ways, averaged = setting
    of = {group: steps}
    if conflicting(GROUPS[group]):
        of |= dict.fromkeys(GROUPS[group], steps // len(GROUPS[group]))
    entries = [e for e in found.values() if (e["shots"], e["ways"]) == (shots, ways)]
    entries = [e for e in entries if e.get("averaged", False) == averaged]
    entries = [e for e in entries if e["steps"] == of.get(e["group"]) and "test" in e]
    return [e for e in entries if chosen(found, e)]


@dataclass(frozen=True)
class Row:
    """The trainings of a method, or of its specialists."""

    runs: dict[int, Scores]
    """Scores on the test tasks of all families, by seed."""
    rates: tuple[float, ...]
    """The outer rates that the search kept: one, or those of the specialists."""

    @property
    def mean(self) -> float:
        """Its accuracy."""
        return fmean(one.mean for one in self.runs.values())


def rows_of(found: dict[str, Any], setting: Setting, *, seeds: int = 1) -> dict[str, Row]:
    """The rows of a table, best first: the methods, and the specialists of `SPECIALISTS`, that were
    trained at so many seeds or more."""
    every = scored_runs(found, setting)
    group = setting.group
    order = (group, *GROUPS[group])
    rows: dict[str, Row] = {}

    def add(name: str, entries: list[dict[str, Any]], parts: int) -> None:
        entries.sort(key=lambda entry: order.index(entry["group"]))
        of = {s: [e for e in entries if e["seed"] == s] for s in sorted(e["seed"] for e in entries)}
        runs = {seed: whole(own) for seed, own in of.items() if len(own) == parts}
        if len(runs) >= seeds:
            rows[name] = Row(runs, tuple(dict.fromkeys(e["rate"] for e in entries)))

    for method in METHODS:
        add(NAMES[method], [e for e in every if (e["method"], e["group"]) == (method, group)], 1)
    for method, name in SPECIALISTS.items() if conflicting(GROUPS[group]) else ():
        alone = [e for e in every if e["method"] == method and e["group"] in GROUPS[group]]
        add(name, alone, len(GROUPS[group]))
    if NAMES[BASELINE] not in rows:
        raise SystemExit(f"no test scores of {BASELINE} for this table yet: train it first")
    return dict(sorted(rows.items(), key=lambda row: -row[1].mean))


def against(rows: dict[str, Row]) -> dict[str, Comparison]:
    """Each row but ProtoNet's against it, with Holm's correction over the rows."""
    others = {name: row.runs for name, row in rows.items() if name != NAMES[BASELINE]}
    found = [compare_seeds(runs, rows[NAMES[BASELINE]].runs) for runs in others.values()]
    return dict(zip(others, holm(found), strict=True))


def difference(found: Comparison | None) -> Cell:
    """A comparison in points; empty without one."""
    if found is None or found.mean is None:
        return Cell()
    mean = round(100 * found.mean, 1) + 0.0  # never -0.0
    text = f"{mean:+.1f} ± {100 * (found.ci95 or 0):.1f}"
    return Cell(text, small="" if (p := found.adjusted) is None else f"p {probability(p)}")


def table(found: dict[str, Any], setting: Setting, *, seeds: int = 1) -> Table:
    """Test scores by method, over seeds, and the share of the specialists' gain."""
    group, shots, steps, *_ = setting
    rows = rows_of(found, setting, seeds=seeds)
    to = against(rows)
    best = to.get(SPECIALISTS[BASELINE])
    lines = []
    for name, row in rows.items():
        cells = [
            Cell(", ".join(map(str, row.runs))),
            Cell(", ".join(f"{rate:g}" for rate in row.rates)),
            Cell(spread([one.mean for one in row.runs.values()])),
        ]
        for i in range(len(GROUPS[group])):
            own = [float(s.values[s.families == i].mean()) for s in row.runs.values()]
            cells.append(Cell(f"{100 * fmean(own):.1f}%"))
        cells.append(difference(to.get(name)))
        if name in to and (gain := to[name].mean or 0) > 0 and best is not None and best.mean:
            cells.append(Cell(f"{gain / best.mean:.0%}"))
        lines.append(Line(name, tuple(cells)))
    columns = ("method", "seeds", "outer rate", "accuracy", *GROUPS[group], "against ProtoNet")
    columns += ("share of the gain",) if best is not None else ()
    title = f"{group}, {shots}-shot, {steps} steps"
    return Table(title, tuple(map(Column, columns)), tuple(lines))


def beside(found: dict[str, Any], settings: dict[str, Setting], *, seeds: int = 1) -> Table:
    """The same of several settings, side by side, without the families."""
    of = {title: rows_of(found, setting, seeds=seeds) for title, setting in settings.items()}
    to = {title: against(rows) for title, rows in of.items()}
    lines = []
    for name in dict.fromkeys(name for rows in of.values() for name in rows):
        cells = []
        for title, rows in of.items():
            there = [one.mean for one in rows[name].runs.values()] if name in rows else []
            cells += [Cell(spread(there) if there else ""), difference(to[title].get(name))]
        lines.append(Line(name, tuple(cells)))
    columns = [column for title in settings for column in (title, "against ProtoNet")]
    return Table("", tuple(map(Column, ("method", *columns))), tuple(lines))


def page(text: str, found: dict[str, Any]) -> str:
    """A page with its tables redrawn, of the methods that were trained at three seeds or more."""
    for name, settings in PAGE.items():
        (first, *others) = settings.values()
        drawn = beside(found, settings, seeds=3) if others else table(found, first, seeds=3)
        drawn = without(drawn, "seeds")
        markers = (f"<!-- fair-{name}:begin -->", f"<!-- fair-{name}:end -->")
        text = replace_block(text, markdown(drawn), markers)
    return text


def without(table: Table, title: str) -> Table:
    """The table without a column."""
    keep = [i for i, column in enumerate(table.columns) if column.title != title]
    lines = [
        replace(line, cells=tuple(line.cells[i - 1] for i in keep[1:] if i <= len(line.cells)))
        for line in table.lines
    ]
    return replace(table, columns=tuple(table.columns[i] for i in keep), lines=tuple(lines))


def lost(found: dict[str, Any], setting: Setting) -> Table:
    """What the interventions take from ARML, in points, over seeds."""
    lines = []
    for entry in [e for e in scored_runs(found, setting) if "interventions" in e]:
        for name, groups in entry["interventions"].items():
            cells = [
                Cell(
                    f"{0 - 100 * one['mean']:+.1f} ± {100 * one['ci95']:.1f}",
                    small="" if (p := one["adjusted"]) is None else f"p {probability(p)}",
                )
                for one in groups.values()
            ]
            title = f"{entry['method']}, seed {entry['seed']}: {name}"
            lines.append(Line(title, tuple(cells)))
    columns = ("replaced or removed", "all", *GROUPS[setting.group])
    return Table("Interventions", tuple(map(Column, columns)), tuple(lines))


def curves(found: dict[str, Any], setting: Setting) -> Table:
    """Scores on validation tasks along long trainings."""
    every = scored_runs(found, setting)
    of = [e for e in every if e["group"] == setting.group and "curve" in e]
    steps_of = list(of[0]["curve"]) if of else []
    lines = [
        Line(
            f"{e['method']}, seed {e['seed']}, rate {e['rate']:g}",
            tuple(Cell(f"{100 * score:.1f}%") for score in (*e["curve"].values(), whole([e]).mean)),
        )
        for e in sorted(of, key=lambda e: -whole([e]).mean)
    ]
    headings = (*(f"{int(step):,}" for step in steps_of), "test")
    return Table("Validation by step", tuple(map(Column, ("training", *headings))), tuple(lines))
