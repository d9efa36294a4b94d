"""Methods after the same search, on the starter pictures and on families that conflict: which is
best, how much tailoring can gain, and what it gains.

Families that conflict ask two questions about the same pictures, so that signal in one family is
noise in the other, and the support set alone shows which question a task asks. Specialists (a
scaled ProtoNet for each family, with either distance) show how much there is to gain.

Each method gets the same search: three outer rates at seed 0, of which the best on validation tasks
is kept. It is then trained at every seed, and these runs alone are scored on test tasks: 400 tasks
of each family, the same for all. `arml-N` has N vertices that own templates. A training is a run
folder under `--runs`, so the same command goes on where it stopped. `results/fair.json` has the
scores, and interventions on ARML's graph, which `arml explain` makes of a run today. `--page` draws
the tables of a page. Several of these commands may run side by side.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import numpy as np
from filelock import FileLock

from arml.datasets.decode import FILTERS
from arml.experiment.choose import AVERAGE
from arml.experiment.options import Experiment
from arml.experiment.recipes import recipe
from arml.experiment.running import Run, run
from arml.report.tables import Cell, Line, Table, markdown
from arml.results.comparisons import Comparison, compare_seeds, holm, probability
from arml.results.files import write_text
from arml.results.scores import Scores
from arml.tasks.mixture import mixture
from arml.tasks.options import Splits, StarterOptions
from arml.training.evaluate import evaluate
from common import HERE, machine, replace_block, write
from conflict import QUESTIONS, ConflictOptions

RESULTS = HERE / "results" / "fair.json"
PICTURES = ("glyphs", "icons", "textures")
GROUPS: dict[str, tuple[str, ...]] = {
    **{name: tuple(q for q in QUESTIONS if q.startswith(name)) for name in PICTURES},
    "all": tuple(QUESTIONS),
    "starter": PICTURES,
    "starter-art": (*PICTURES, *(f"{name}-{kind}" for kind in FILTERS for name in PICTURES)),
}
"""Families of the same pictures under two questions, and all six; the starter families, without and
with the blur and the pencil filter."""
SCALED = {"scale": 0.05, "learn_scale": True}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "protonet": ("protonet", SCALED),
    **{f"arml-{n}": ("arml", {"vertices": n}) for n in (1, 2, 4, 8, 16)},
    **{
        f"arml-{n}-mahalanobis": ("arml", {"vertices": n, "head": "mahalanobis"}) for n in (2, 4, 8)
    },
    "mahalanobis": ("protonet", {**SCALED, "metric": "mahalanobis"}),
    "tadam": ("tadam", {**SCALED, "metric": "squared"}),
    "tapnet": ("tapnet", SCALED),
    **{name: (name, {}) for name in ("proto-maml", "maml", "anil", "mumomaml", "hsml")},
    **{name: (name, {}) for name in ("arml-paper", "arml-film", "r2d2", "tnp")},
}
"""The method of a recipe, and what is changed of it."""
RATES = (0.003, 0.001, 0.01)
"""The outer rates of the search."""
SEARCH_SEED = 0
"""The seed of the search, whichever seeds are trained with the rate that it kept."""
BASELINE = "protonet"
"""The method that all others are compared with."""
SPECIALISTS = {
    "protonet": "a ProtoNet for each family",
    "mahalanobis": "a Mahalanobis ProtoNet for each family",
}
"""Methods that are also trained on each family alone, and the names of their rows."""
WAYS = 5
"""Classes of every task that is scored, and of training tasks if `--train-ways` is not given."""


@dataclass(frozen=True)
class Training:
    """One training on some families."""

    method: str
    families: tuple[str, ...]
    shots: int
    steps: int
    rate: float
    seed: int
    ways: int = WAYS
    """Classes of a training task."""
    averaged: bool = False
    """The learner is the mean of the weights of the last half, at a constant outer rate."""

    @property
    def name(self) -> str:
        """Of its run folder, and in the results."""
        ways = f"{self.ways}way-" if self.ways != WAYS else ""
        ways += "averaged-" if self.averaged else ""
        about = f"{self.shots}shot-{ways}{self.steps}-{self.method}-{self.rate:g}-{self.seed}"
        return f"{self.group}-{about}"

    @property
    def group(self) -> str:
        """The name of its families together."""
        return next((g for g, names in GROUPS.items() if names == self.families), self.families[0])

    def experiment(self) -> Experiment:
        """Conflicting families, and tasks of more classes, have 5 queries a class, to save time."""
        method, changes = METHODS[self.method]
        conflict = conflicting(self.families)
        base = recipe(f"{'starter-conflict' if conflict else self.group}/{method}")
        asked: dict[str, Any] = {"queries": 5} if conflict or self.ways != WAYS else {}
        asked |= {"families": self.families} if conflict else {}
        asked |= {"train_ways": self.ways} if self.ways != WAYS else {}
        mean: dict[str, Any] = {"schedule": "constant", "average": AVERAGE} if self.averaged else {}
        return replace(
            base,
            tasks=replace(base.tasks, shots=self.shots, **asked),
            algorithm=replace(base.algorithm, **changes),
            outer=replace(base.outer, outer_rate=self.rate, **mean),
            steps=self.steps,
            seed=self.seed,
            checkpoint_every=20,
            validate_every=self.steps,
            validation_tasks=10,
        )


def conflicting(families: Sequence[str]) -> bool:
    """Whether families ask questions of the same pictures. Only these have specialists here."""
    return families[0] in QUESTIONS


def tasks_of(training: Training, families: Sequence[str]) -> Splits:
    """The splits of all families of a training, or of one."""
    if conflicting(families):
        options = ConflictOptions(shots=training.shots, queries=10, families=tuple(families))
        return options.build(Path("none"))
    splits = StarterOptions(shots=training.shots, art=training.group == "starter-art").build(Path())
    if len(families) > 1:
        return splits
    return splits._replace(test=mixture(splits.test).only(families[0]))


def trained(training: Training, runs: Path) -> Run:
    """Its finished run folder."""
    folder = runs / training.name
    run(training.experiment(), folder)
    return Run(folder)


def validated(training: Training, runs: Path, tasks: int) -> dict[str, Any]:
    """Train, and score on validation tasks of all its families."""
    made = trained(training, runs)
    splits = tasks_of(training, training.families)
    score = evaluate(made.learner, splits, n=tasks, split="validation", progress=False)
    return {"validation": score.mean, "seconds": made.seconds, "steps": made.step}


def tested(training: Training, runs: Path, tasks: int) -> dict[str, Any]:
    """The scores on test tasks of each family."""
    learner, test = trained(training, runs).learner, {}
    for family in training.families:
        splits = tasks_of(training, (family,))
        values = evaluate(learner, splits, n=tasks, progress=False).values
        test[family] = " ".join(f"{value:.4f}".rstrip("0") for value in values)
    return {"test": test}


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
    "tadam": "TADAM",
    "tapnet": "TapNet",
    "proto-maml": "Proto-MAML",
    "maml": "MAML",
    "anil": "ANIL",
    "mumomaml": "MUMOMAML",
    "hsml": "HSML",
    "arml-paper": "`arml-paper`, ARML as in the text",
    "arml-film": "`arml-film`",
    "r2d2": "R2-D2",
    "tnp": "TNP, which learns in context",
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
    return Table(title, tuple(columns), tuple(lines))


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
    return Table("", ("method", *columns), tuple(lines))


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
    keep = [i for i, column in enumerate(table.columns) if column != title]
    lines = [
        replace(line, cells=tuple(line.cells[i - 1] for i in keep[1:] if i <= len(line.cells)))
        for line in table.lines
    ]
    return replace(table, columns=tuple(table.columns[i] for i in keep), lines=tuple(lines))


def results() -> dict[str, Any]:
    """The entries that the file holds, by the names of their trainings."""
    return json.loads(RESULTS.read_text())["results"] if RESULTS.exists() else {}


def main() -> None:
    """Train and score what is missing, one training after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs/fair"))
    parser.add_argument("--group", default="glyphs", choices=list(GROUPS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--steps", type=int, default=400, help="divided among the specialists")
    parser.add_argument("--shots", type=int, default=5)
    parser.add_argument("--train-ways", type=int, default=WAYS, help="classes of a training task")
    parser.add_argument(
        "--averaged", action="store_true", help="average the weights of the last half"
    )
    parser.add_argument("--rates", type=float, nargs="+", default=list(RATES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--tasks", type=int, default=400, help="test tasks of a family")
    parser.add_argument("--page", type=Path, help="redraw the tables of study/searched.md and end")
    options = parser.parse_args()
    entries, before = results(), machine()
    if options.page:
        write_text(options.page, page(options.page.read_text(encoding="utf-8"), entries))
        return

    def done(training: Training, part: str) -> dict[str, Any]:
        """Its entry with a part, `validation` or `test`, which is made if it is missing."""
        entry = entries.get(training.name, {})
        if part not in entry:
            make = validated if part == "validation" else tested
            keys = ("method", "shots", "rate", "seed", "ways", "averaged")
            about = {key: getattr(training, key) for key in keys}
            entry = {"group": training.group, **about, **entry}
            entry |= make(training, options.runs, options.tasks)
            print(training.name, f"validation {entry['validation']:.4f}", flush=True)
            with FileLock(options.runs / "fair.lock"):
                entries.update({**results(), training.name: entry})
                write("fair", entries, before)
        return entry

    whole_group = GROUPS[options.group]
    for method in options.methods:
        parts = [whole_group]
        if method in SPECIALISTS and conflicting(whole_group):
            parts += [(family,) for family in whole_group]
        for families in parts:
            steps = options.steps * len(families) // len(whole_group)
            about = options.shots, steps, options.rates[0], SEARCH_SEED, options.train_ways
            first = Training(method, families, *about, averaged=options.averaged)
            tried = [replace(first, rate=rate) for rate in options.rates]
            best = max(tried, key=lambda one: done(one, "validation")["validation"])
            for seed in options.seeds:
                done(replace(best, seed=seed), "validation")
                done(replace(best, seed=seed), "test")


if __name__ == "__main__":
    main()
