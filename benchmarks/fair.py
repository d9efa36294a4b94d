"""Methods after the same search, on the starter pictures and on families that conflict: which is
best, how much tailoring can gain, and what it gains.

Families that conflict ask two questions about the same pictures, so that signal in one family is
noise in the other, and the support set alone shows which question a task asks. Specialists (a
scaled ProtoNet for each family, with either distance) show how much there is to gain.

Each method gets the same search: three outer rates at seed 0, of which the best on validation tasks
is kept. It is then trained at every seed, and these runs alone are scored on test tasks: 400 tasks
of each family, the same for all. `arml-N` has N vertices. A training is a run folder under
`--runs`, so the same command goes on where it stopped. `results/fair.json` has the scores. `--page`
draws the tables of a page. Several of these commands may run side by side.
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

from arml.experiment.choose import AVERAGED_SHARE
from arml.experiment.options import Experiment
from arml.experiment.recipes import recipe
from arml.experiment.running import Run, run
from arml.report.tables import Cell, Line, Table, markdown
from arml.results.comparisons import compare_seeds
from arml.results.files import write_text
from arml.results.scores import Scores
from arml.tasks.mixture import mixture
from arml.tasks.options import StarterOptions
from arml.tasks.splits import Splits
from arml.training.evaluate import score_tasks
from common import HERE, machine, replace_block, write
from conflict import QUESTIONS, ConflictOptions

RESULTS = HERE / "results" / "fair.json"
PICTURES = ("glyphs", "icons", "textures")
GROUPS: dict[str, tuple[str, ...]] = {
    **{name: tuple(q for q in QUESTIONS if q.startswith(name)) for name in PICTURES},
    "all": tuple(QUESTIONS),
    "starter": PICTURES,
}
"""Families of the same pictures under two questions, and all six; the starter families."""
SCALED = {"scale": 0.05, "learn_scale": True}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "protonet": ("protonet", SCALED),
    **{f"arml-{n}": ("arml", {"vertices": n}) for n in (1, 2, 4, 8, 16)},
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
        """The name of its run folder, and of its entry in the results."""
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
        mean: dict[str, Any] = (
            {"schedule": "constant", "average": AVERAGED_SHARE} if self.averaged else {}
        )
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
    splits = StarterOptions(shots=training.shots).build(Path())
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
    score = score_tasks(made.learner, splits, n=tasks, split="validation", progress=False)
    return {"validation": score.mean, "seconds": made.seconds, "steps": made.step}


def tested(training: Training, runs: Path, tasks: int) -> dict[str, Any]:
    """The scores on test tasks of each family."""
    learner, test = trained(training, runs).learner, {}
    for family in training.families:
        splits = tasks_of(training, (family,))
        values = score_tasks(learner, splits, n=tasks, progress=False).values
        test[family] = " ".join(f"{value:.4f}".rstrip("0") for value in values)
    return {"test": test}


class Setting(NamedTuple):
    """The trainings of a table."""

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
    "conflict": {
        **{name: Setting(name, 5, 400) for name in PICTURES},
        "all six, 1,200 steps": Setting("all", 5, 1_200),
    },
    "one-shot": {name: Setting(name, 1, 400) for name in PICTURES},
}
"""The tables of study/searched.md: settings, side by side under their titles."""


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


Rows = dict[str, dict[int, Scores]]
"""By row of a table and seed: scores on the test tasks of all families."""


def mean(runs: dict[int, Scores]) -> float:
    """The accuracy of a row."""
    return fmean(one.mean for one in runs.values())


def rows_of(found: dict[str, Any], setting: Setting) -> Rows:
    """The rows of a table, best first: the methods, and the specialists of `SPECIALISTS`, that were
    trained at three seeds or more."""
    every = scored_runs(found, setting)
    group = setting.group
    order = (group, *GROUPS[group])
    rows: Rows = {}

    def add(name: str, entries: list[dict[str, Any]], parts: int) -> None:
        entries.sort(key=lambda entry: order.index(entry["group"]))
        of = {s: [e for e in entries if e["seed"] == s] for s in sorted(e["seed"] for e in entries)}
        runs = {seed: whole(own) for seed, own in of.items() if len(own) == parts}
        if len(runs) >= 3:
            rows[name] = runs

    for method in NAMES:
        add(NAMES[method], [e for e in every if (e["method"], e["group"]) == (method, group)], 1)
    for method, name in SPECIALISTS.items() if conflicting(GROUPS[group]) else ():
        alone = [e for e in every if e["method"] == method and e["group"] in GROUPS[group]]
        add(name, alone, len(GROUPS[group]))
    return dict(sorted(rows.items(), key=lambda row: -mean(row[1])))


def difference(rows: Rows, name: str) -> str:
    """A row minus the baseline in points, with its share of the gain of a ProtoNet for each family;
    empty for the baseline itself."""
    baseline, best = rows[NAMES[BASELINE]], rows.get(SPECIALISTS[BASELINE])
    if name == NAMES[BASELINE]:
        return ""
    found = compare_seeds(rows[name], baseline)
    gain = mean(rows[name]) - mean(baseline)
    points = round(100 * gain, 1) + 0.0  # never -0.0
    text = f"{points:+.1f} ± {100 * (found.ci95 or 0):.1f}"
    return f"{text} ({gain / (mean(best) - mean(baseline)):.0%})" if best and gain > 0 else text


def table(found: dict[str, Any], settings: dict[str, Setting]) -> Table:
    """Test scores by method, over seeds, in several settings side by side."""
    of = {title: rows_of(found, setting) for title, setting in settings.items()}
    lines = []
    for name in dict.fromkeys(name for rows in of.values() for name in rows):
        cells = []
        for rows in of.values():
            texts = ("", "")
            if name in rows:
                texts = (spread([one.mean for one in rows[name].values()]), difference(rows, name))
            cells += map(Cell, texts)
        lines.append(Line(name, tuple(cells)))
    columns = [column for title in settings for column in (title, "against ProtoNet")]
    return Table("", ("method", *columns), tuple(lines))


def page(text: str, found: dict[str, Any]) -> str:
    """The text of a page with new tables."""
    for name, settings in PAGE.items():
        markers = (f"<!-- fair-{name}:begin -->", f"<!-- fair-{name}:end -->")
        text = replace_block(text, markdown(table(found, settings)), markers)
    return text


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
