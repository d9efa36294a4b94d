"""What it is worth to train on a family: learners of the starter pictures that never saw a family,
that saw all three, and that saw it alone.

ARML and a scaled ProtoNet are trained without a family, on the other two. A ProtoNet is trained on
the family alone, for a third of the steps, so that it sees as many tasks of it as a learner of all
three: no tailoring can be expected to do better. Each is scored on the 400 test tasks of the family
on which `fair.py` scored the learners of all three. The rates are those that its search kept. The
same command goes on where it stopped: a finished training is in `results/left_out.json`. `--table`
prints the table.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import arml
from arml.report.statistics import compare, holm
from arml.report.table import Cell, Column, Line, Table, markdown
from arml.results.scores import Scores
from arml.tasks.mixture import mixture
from arml.tasks.options import StarterOptions
from common import HERE, machine, write
from fair_tables import Setting, difference, scored_runs, spread, whole
from fair_trainings import GROUPS, Training

RESULTS = HERE / "results" / "left_out.json"
FAMILIES = GROUPS["starter"]
WAYS = {
    "ARML, all three": ("arml-4", "all"),
    "ProtoNet, all three": ("protonet", "all"),
    "ARML, the other two": ("arml-4", "others"),
    "ProtoNet, the other two": ("protonet", "others"),
    "ProtoNet, this one alone": ("protonet", "alone"),
}
"""The method of a column of the table, and the families that it was trained on."""
PAIRS = (
    ("ARML, the other two", "ProtoNet, the other two"),
    ("ProtoNet, this one alone", "ProtoNet, all three"),
)
"""The columns that are compared."""


def scored(method: str, kind: str, left: str, seed: int, *, rate: float, given: Any) -> str:
    """Train on a family alone or on the others, and score on test tasks of the family."""
    training = Training(method, FAMILIES, given.shots, given.steps, rate, seed)
    experiment = training.experiment()
    families = [name for name in FAMILIES if (name == left) == (kind == "alone")]
    shares = {name: 1 / len(families) for name in families}
    train = mixture(experiment.tasks.build(Path()).train).of(shares)
    steps = given.steps // len(FAMILIES) if kind == "alone" else given.steps
    learner = arml.build(experiment, train)
    fitted = arml.fit(
        learner, train, steps=steps, seed=seed, outer=experiment.outer, progress=False
    )
    splits = StarterOptions(shots=given.shots).build(Path())
    tasks = splits._replace(test=mixture(splits.test).only(left))
    values = arml.evaluate(fitted.learner, tasks, n=given.tasks, progress=False).values
    return " ".join(f"{value:.4f}".rstrip("0") for value in values)


def table(found: dict[str, Any], every: list[dict[str, Any]], shots: int, steps: int) -> Table:
    """Accuracy on each family by training, and the paired differences."""
    rows: dict[str, dict[str, dict[int, Scores]]] = {}
    for left in FAMILIES:
        for title, (method, kind) in WAYS.items():
            own = [e for e in every if e["method"] == method]
            if kind != "all":
                own = [e for e in found.values() if (e["method"], e["trained"]) == (method, kind)]
                own = [e for e in own if e["left"] == left and e["shots"] == shots]
                own = [e for e in own if e["steps"] == steps]
            runs = {e["seed"]: whole([{"test": {left: e["test"][left]}}]) for e in own}
            rows.setdefault(left, {})[title] = runs
    compared = iter(holm([compare(of[a], of[b]) for of in rows.values() for a, b in PAIRS]))
    lines = []
    for left, of in rows.items():
        cells = [
            Cell(spread([s.mean for s in runs.values()]) if runs else "") for runs in of.values()
        ]
        cells += [difference(next(compared)) for _ in PAIRS]
        lines.append(Line(left, tuple(cells)))
    headings = ("family", *WAYS, *(" against ".join(pair) for pair in PAIRS))
    return Table(f"{shots}-shot, {steps} steps", tuple(map(Column, headings)), tuple(lines))


def main() -> None:
    """Train and score what is missing, one training after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--shots", type=int, default=1)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--tasks", type=int, default=400, help="test tasks")
    parser.add_argument("--table", action="store_true", help="print the table and end")
    given = parser.parse_args()
    searched = json.loads((HERE / "results" / "fair.json").read_text())["results"]
    every = scored_runs(searched, Setting("starter", given.shots, given.steps))
    found = json.loads(RESULTS.read_text())["results"] if RESULTS.exists() else {}
    if given.table:
        print(markdown(table(found, every, given.shots, given.steps)))
        return
    before = machine()
    for seed in given.seeds:
        for method, kind in WAYS.values():
            for left in FAMILIES:
                name = f"{left}-{kind}-{given.shots}shot-{given.steps}-{method}-{seed}"
                if kind == "all" or name in found:
                    continue
                rate = next(e["rate"] for e in every if e["method"] == method)
                values = scored(method, kind, left, seed, rate=rate, given=given)
                about = {"method": method, "trained": kind, "left": left, "seed": seed}
                more = {"shots": given.shots, "steps": given.steps, "rate": rate}
                found[name] = {**about, **more, "test": {left: values}}
                print(name, f"{whole([found[name]]).mean:.4f}", flush=True)
                write("left_out", found, before)


if __name__ == "__main__":
    main()
