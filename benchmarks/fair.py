"""Methods after the same search, on the starter pictures, on one's own, and on families that
conflict: which is best, how much tailoring can gain, and whether ARML's graph is the reason.

Families that conflict ask two questions about the same pictures, so that signal in one family is
noise in the other, and the support set alone shows which question a task asks. Specialists (a
scaled ProtoNet for each family, with either distance) show how much there is to gain.

Each method gets the same search: three outer rates at seed 0, of which the best on validation tasks
is kept. It is then trained at every seed, and these runs alone are scored on test tasks: 400 tasks
of each family, the same for all. `arml-N` has N vertices that own templates; its graph is tested by
the interventions of `arml explain`. A training is a run folder under `--runs`, so the same command
goes on where it stopped. `results/fair.json` has the scores and, for long trainings, the validation
scores during training. `--table` prints them. Several of these commands may run side by side.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from filelock import FileLock

from arml.core.learner import Conditioned
from arml.datasets.filters import FILTERS
from arml.experiment.choose import choose
from arml.experiment.loaded import Run
from arml.experiment.options import Experiment
from arml.experiment.recipes import recipe
from arml.experiment.running import run
from arml.explain.interventions import interventions
from arml.report.statistics import compare, holm
from arml.report.table import Cell, Column, Line, Table, markdown
from arml.report.wording import probability
from arml.results.scores import Scores
from arml.tasks.conflict import QUESTIONS, ConflictOptions
from arml.tasks.mixture import mixture
from arml.tasks.options import Splits, StarterOptions
from arml.training.evaluate import evaluate
from common import HERE, machine, write

PICTURES = ("glyphs", "icons", "textures")
GROUPS: dict[str, tuple[str, ...]] = {
    **{name: tuple(q for q in QUESTIONS if q.startswith(name)) for name in PICTURES},
    "all": tuple(QUESTIONS),
    "starter": PICTURES,
    "starter-art": (*PICTURES, *(f"{name}-{kind}" for kind in FILTERS for name in PICTURES)),
}
"""Families of the same pictures under two questions, and all six; the starter families, without and
with the blur and the pencil filter."""
RESULTS = HERE / "results" / "fair.json"
SCALED = {"scale": 0.05, "learn_scale": True}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "protonet": ("protonet", SCALED),
    **{f"arml-{n}": ("arml-templates", {"vertices": n}) for n in (1, 2, 4, 8, 16)},
    **{
        f"arml-{n}-mahalanobis": ("arml-templates", {"vertices": n, "head": "mahalanobis"})
        for n in (2, 4, 8)
    },
    "mahalanobis": ("protonet", {**SCALED, "metric": "mahalanobis"}),
    "protonet-auxiliary": ("protonet", {**SCALED, "auxiliary": 0.395}),
    "tadam": ("tadam", {**SCALED, "metric": "squared"}),
    "tapnet": ("tapnet", SCALED),
    **{name: (name, {}) for name in ("proto-maml", "maml", "anil", "mumomaml", "hsml")},
    **{name: (name, {}) for name in ("arml-paper", "arml")},
}
"""The method of a recipe, and what is changed of it."""
RATES = (0.003, 0.001, 0.01)
"""The outer rates of the search."""
BASELINE = "protonet"
"""The method that all others are compared with."""
SPECIALISTS = {"protonet": "ProtoNet for each family", "mahalanobis": "Mahalanobis for each family"}
"""Methods that are also trained on each family alone, and the names of their rows."""
WAYS = 5
"""Classes of every task that is scored, and of training tasks if `--train-ways` is not given."""
LONG = 2_000
"""Trainings of at least this many steps are validated ten times."""


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
    data: str = ""
    """Pictures of one's own, in place of those in the package."""

    @property
    def name(self) -> str:
        """Of its run folder, and in the results."""
        ways = f"{self.ways}way-" if self.ways != WAYS else ""
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
        setting = "folders" if self.data else "starter-conflict" if conflict else self.group
        base = recipe(f"{setting}/{method}")
        if self.data:
            own = choose([self.data], fixed={"steps": self.steps}).experiment
            base = replace(base, tasks=own.tasks, network=own.network)
        asked: dict[str, Any] = {"queries": 5} if conflict or self.ways != WAYS else {}
        asked |= {"families": self.families} if conflict else {}
        asked |= {"train_ways": self.ways} if self.ways != WAYS else {}
        parts, validation = (10, 200) if self.steps >= LONG else (1, 10)
        return replace(
            base,
            tasks=replace(base.tasks, shots=self.shots, **asked),
            algorithm=replace(base.algorithm, **changes),
            outer=replace(base.outer, outer_rate=self.rate),
            steps=self.steps,
            seed=self.seed,
            checkpoint_every=20,
            validate_every=max(20, self.steps // parts // 20 * 20),
            validation_tasks=validation,
        )


def conflicting(families: Sequence[str]) -> bool:
    """Whether families ask questions of the same pictures. Only these have specialists here."""
    return families[0] in QUESTIONS


def tasks_of(training: Training, families: Sequence[str], made: Run) -> Splits:
    """The splits of all families of a training, or of one."""
    if training.data:
        return made.splits
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


def validated(training: Training, runs: Path, *, tasks: int) -> dict[str, Any]:
    """Train, and score on validation tasks of all its families."""
    made = trained(training, runs)
    splits = tasks_of(training, training.families, made)
    found = evaluate(made.learner, splits, n=tasks, split="validation", progress=False)
    entry = {"validation": found.mean, "seconds": made.seconds, "steps": made.step}
    if training.steps < LONG:
        return entry
    return entry | {
        "curve": {m["step"]: m["validation"] for m in made.metrics if "validation" in m}
    }


def tested(training: Training, runs: Path, *, tasks: int) -> dict[str, Any]:
    """The scores on test tasks of each family, and what each part of the graph does."""
    made = trained(training, runs)
    learner = made.learner
    found: dict[str, Any] = {"test": {}}
    for family in training.families:
        splits = tasks_of(training, (family,), made)
        values = evaluate(learner, splits, n=tasks, progress=False).values
        found["test"][family] = " ".join(f"{value:.4f}".rstrip("0") for value in values)
    if isinstance(learner, Conditioned) and METHODS[training.method][0] == "arml-templates":
        test = tasks_of(training, training.families, made).test
        known = interventions(learner, test, n=tasks, chunk=10)
        found["interventions"] = {
            name: {
                group: {key: entry[key] for key in ("mean", "ci95", "adjusted")}
                for group, entry in groups.items()
            }
            for name, groups in {
                **known["use"],
                **{f"V{i}": groups for i, groups in enumerate(known["vertices"])},
            }.items()
        }
    return found


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


def results() -> dict[str, Any]:
    """The entries that the file holds, by the names of their trainings."""
    return json.loads(RESULTS.read_text())["results"] if RESULTS.exists() else {}


def main() -> None:
    """Train and score what is missing, one training after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs/fair"))
    parser.add_argument("--group", default="glyphs", choices=list(GROUPS))
    parser.add_argument(
        "--data", type=Path, help="a zip of one's own pictures, in place of a group"
    )
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--steps", type=int, default=400, help="divided among the specialists")
    parser.add_argument("--shots", type=int, default=5)
    parser.add_argument("--train-ways", type=int, default=WAYS, help="classes of a training task")
    parser.add_argument("--rates", type=float, nargs="+", default=list(RATES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--tasks", type=int, default=400, help="test tasks of a family")
    parser.add_argument("--table", action="store_true", help="print the tables and end")
    given = parser.parse_args()
    if given.data:
        given.group = f"own-{given.data.stem}"
        GROUPS[given.group] = (given.group,)
    found = results()
    if given.table:
        asked = (given.group, given.shots, given.steps, given.train_ways)
        made = [of(found, *asked) for of in (table, lost, curves)]
        print(*(markdown(one) for one in made if one.lines), sep="\n\n")
        return
    before = machine()

    def done(training: Training, part: str) -> dict[str, Any]:
        """Its entry with a part, `validation` or `test`, which is made if it is missing."""
        entry = found.get(training.name, {})
        if part not in entry:
            made = validated if part == "validation" else tested
            keys = ("method", "shots", "rate", "seed", "ways")
            about = {key: getattr(training, key) for key in keys}
            entry = {"group": training.group, **about, **entry}
            entry |= made(training, given.runs, tasks=given.tasks)
            told = f"{part} {entry['validation']:.4f}" if part == "validation" else part
            print(training.name, told, f"{entry['seconds']:.0f} s", flush=True)
            with FileLock(given.runs / "fair.lock"):
                found.update({**results(), training.name: entry})
                write("fair", found, before)
        return entry

    whose: list[tuple[str, tuple[str, ...]]] = []
    for method in given.methods:
        whose.append((method, GROUPS[given.group]))
        if method in SPECIALISTS and conflicting(GROUPS[given.group]):
            whose += [(method, (family,)) for family in GROUPS[given.group]]
    for method, families in whose:
        steps = given.steps * len(families) // len(GROUPS[given.group])
        about = given.shots, steps, given.rates[0], given.seeds[0], given.train_ways
        first = Training(method, families, *about, str(given.data or ""))
        tried = [replace(first, rate=rate) for rate in given.rates]
        best = max(tried, key=lambda one: done(one, "validation")["validation"])
        for seed in given.seeds:
            done(replace(best, seed=seed), "validation")
            done(replace(best, seed=seed), "test")


if __name__ == "__main__":
    main()
