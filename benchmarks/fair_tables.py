"""Tables of the fair comparison, from the scores that its trainings wrote."""

from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any

import numpy as np

from arml.report.statistics import compare, holm
from arml.report.table import Cell, Column, Line, Table
from arml.report.wording import probability
from arml.results.scores import Scores
from fair_trainings import BASELINE, GROUPS, METHODS, SPECIALISTS, WAYS, conflicting


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
    whose = ("method", "group", "shots", "steps", "ways", "seed")
    first = {**entry, "seed": min(e["seed"] for e in found.values())}
    tried = [e for e in found.values() if all(e[key] == first[key] for key in whose)]
    return bool(entry["rate"] == max(tried, key=lambda e: e["validation"])["rate"])


def scored_runs(
    found: dict[str, Any], group: str, shots: int, steps: int, ways: int = WAYS
) -> list[dict[str, Any]]:
    """The runs of a table: of all families of a group and of its specialists."""
    of = {group: steps}
    if conflicting(GROUPS[group]):
        of |= dict.fromkeys(GROUPS[group], steps // len(GROUPS[group]))
    entries = [e for e in found.values() if (e["shots"], e["ways"]) == (shots, ways)]
    entries = [e for e in entries if e["steps"] == of.get(e["group"]) and "test" in e]
    return [e for e in entries if chosen(found, e)]


def table(found: dict[str, Any], group: str, shots: int, steps: int, ways: int = WAYS) -> Table:
    """Test scores by method, over seeds, and the share of the specialists' gain."""
    every = scored_runs(found, group, shots, steps, ways)
    rows: dict[str, dict[int, Scores]] = {}
    for method in METHODS:
        own = [e for e in every if e["method"] == method and e["group"] == group]
        if own:
            rows[method] = {e["seed"]: whole([e]) for e in own}
    for method, name in SPECIALISTS.items() if conflicting(GROUPS[group]) else ():
        alone = [e for e in every if e["group"] in GROUPS[group] and e["method"] == method]
        alone.sort(key=lambda e: GROUPS[group].index(e["group"]))
        by_seed = {
            s: own
            for s in sorted({e["seed"] for e in alone})
            if len(own := [e for e in alone if e["seed"] == s]) == len(GROUPS[group])
        }
        if by_seed:
            rows[name] = {s: whole(own) for s, own in by_seed.items()}
    if BASELINE not in rows:
        raise SystemExit(f"no test scores of {BASELINE} for this table yet: train it first")
    others = [name for name in rows if name != BASELINE]
    to = dict(zip(others, holm([compare(rows[n], rows[BASELINE]) for n in others]), strict=True))
    best = to.get(SPECIALISTS[BASELINE])
    lines = []
    for name, runs in sorted(rows.items(), key=lambda row: -fmean(s.mean for s in row[1].values())):
        cells = [Cell(", ".join(map(str, runs))), Cell(spread([s.mean for s in runs.values()]))]
        for i in range(len(GROUPS[group])):
            own_tasks = [float(s.values[s.families == i].mean()) for s in runs.values()]
            cells.append(Cell(f"{100 * fmean(own_tasks):.1f}%"))
        if name in to and (mean := to[name].mean) is not None:
            half, p = to[name].ci95, to[name].adjusted
            told = f"{100 * mean:+.1f} ± {100 * (half or 0):.1f}"
            cells.append(Cell(told, small="" if p is None else f"p {probability(p)}"))
            if best is not None and best.mean:
                cells.append(Cell(f"{mean / best.mean:.0%}"))
        lines.append(Line(name, tuple(cells)))
    headings = ("method", "seeds", "accuracy", *GROUPS[group], "against ProtoNet", "share")
    return Table(
        f"{group}, {shots}-shot, {steps} steps", tuple(map(Column, headings)), tuple(lines)
    )


def lost(found: dict[str, Any], group: str, shots: int, steps: int, ways: int = WAYS) -> Table:
    """What the interventions take from ARML, in points, over seeds."""
    lines = []
    every = scored_runs(found, group, shots, steps, ways)
    for entry in [e for e in every if "interventions" in e]:
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
    columns = ("replaced or removed", "all", *GROUPS[group])
    return Table("Interventions", tuple(map(Column, columns)), tuple(lines))


def curves(found: dict[str, Any], group: str, shots: int, steps: int, ways: int = WAYS) -> Table:
    """Scores on validation tasks along long trainings."""
    every = scored_runs(found, group, shots, steps, ways)
    of = [e for e in every if e["group"] == group and "curve" in e]
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
