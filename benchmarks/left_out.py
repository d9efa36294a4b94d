"""A starter family that was left out of training: ARML against a scaled ProtoNet, both trained on
the other two families alone.

Both methods have the rates that the search of `fair.py` kept on all three families. Each learner is
scored on 400 test tasks of the family that it never saw, the same for both. The same command goes
on where it stopped: a finished training is in `results/left_out.json`, whose tables `--table`
prints.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import arml
from arml.report.statistics import compare, holm
from arml.report.table import Cell, Column, Line, Table, markdown
from arml.report.wording import probability
from arml.tasks.mixture import mixture
from arml.tasks.options import StarterOptions
from common import HERE, machine, write
from fair import GROUPS, Training, chosen, spread, whole

RESULTS = HERE / "results" / "left_out.json"
FAMILIES = GROUPS["starter"]
METHODS = ("arml-4", "protonet")


def scored(method: str, left: str, seed: int, *, rate: float, given: Any) -> dict[str, Any]:
    """Train on the other families, and score on test tasks of the one that was left out."""
    training = Training(method, FAMILIES, given.shots, given.steps, rate, seed)
    experiment = training.experiment()
    splits = StarterOptions(shots=given.shots).build(Path())
    others = {name: 1 / (len(FAMILIES) - 1) for name in FAMILIES if name != left}
    train = mixture(experiment.tasks.build(Path()).train).of(others)
    learner = arml.build(experiment, train)
    fitted = arml.fit(
        learner, train, steps=given.steps, seed=seed, outer=experiment.outer, progress=False
    )
    tasks = splits._replace(test=mixture(splits.test).only(left))
    values = arml.evaluate(fitted.learner, tasks, n=given.tasks, progress=False).values
    found = " ".join(f"{value:.4f}".rstrip("0") for value in values)
    return {"method": method, "left": left, "seed": seed, "test": {left: found}}


def table(found: dict[str, Any], shots: int, steps: int) -> Table:
    """Accuracy on the family that was left out, and the paired difference."""
    entries = [e for e in found.values() if (e["shots"], e["steps"]) == (shots, steps)]
    runs = {
        left: {
            method: {
                e["seed"]: whole([e]) for e in entries if (e["left"], e["method"]) == (left, method)
            }
            for method in METHODS
        }
        for left in FAMILIES
        if any(e["left"] == left for e in entries)
    }
    compared = holm([compare(*of.values()) for of in runs.values()])
    lines = []
    for (left, of), to in zip(runs.items(), compared, strict=True):
        cells = [Cell(spread([s.mean for s in of[method].values()])) for method in METHODS]
        told = f"{100 * (to.mean or 0):+.1f} ± {100 * (to.ci95 or 0):.1f}"
        small = "" if to.adjusted is None else f"p {probability(to.adjusted)}"
        lines.append(Line(left, (*cells, Cell(told, small=small))))
    headings = ("left out", *METHODS, "difference")
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
    found = json.loads(RESULTS.read_text())["results"] if RESULTS.exists() else {}
    if given.table:
        print(markdown(table(found, given.shots, given.steps)))
        return
    searched = json.loads((HERE / "results" / "fair.json").read_text())["results"]
    rates = {}
    for method in METHODS:
        tried = [
            e
            for e in searched.values()
            if (e["group"], e["method"], e["shots"]) == ("starter", method, given.shots)
        ]
        rates[method] = next(e["rate"] for e in tried if chosen(searched, e))
    before = machine()
    for seed in given.seeds:
        for left in FAMILIES:
            for method in METHODS:
                name = f"{left}-{given.shots}shot-{given.steps}-{method}-{seed}"
                if name in found:
                    continue
                entry = scored(method, left, seed, rate=rates[method], given=given)
                found[name] = {**entry, "shots": given.shots, "steps": given.steps}
                found[name]["rate"] = rates[method]
                print(name, f"{whole([found[name]]).mean:.4f}", flush=True)
                write("left_out", found, before)


if __name__ == "__main__":
    main()
