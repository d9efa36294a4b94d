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
scores during training. `--table` prints them; `--page` writes the tables of a page. Several of
these commands may run side by side.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from filelock import FileLock

from arml.report.tables import markdown
from arml.results.files import write_text
from common import HERE, machine, write
from fair_tables import Setting, curves, lost, page, table
from fair_trainings import (
    GROUPS,
    METHODS,
    RATES,
    SEARCH_SEED,
    SPECIALISTS,
    WAYS,
    Training,
    conflicting,
    tested,
    validated,
)

RESULTS = HERE / "results" / "fair.json"


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
    parser.add_argument(
        "--averaged", action="store_true", help="average the weights of the last half"
    )
    parser.add_argument("--rates", type=float, nargs="+", default=list(RATES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--tasks", type=int, default=400, help="test tasks of a family")
    parser.add_argument("--page", type=Path, help="redraw the tables of study/searched.md and end")
    parser.add_argument("--table", action="store_true", help="print the tables and end")
    given = parser.parse_args()
    if given.data:
        given.group = f"own-{given.data.stem}"
        GROUPS[given.group] = (given.group,)
    found = results()
    if given.page:
        write_text(given.page, page(given.page.read_text(encoding="utf-8"), found))
        return
    if given.table:
        asked = Setting(
            given.group, given.shots, given.steps, given.train_ways, averaged=given.averaged
        )
        made = [of(found, asked) for of in (table, lost, curves)]
        print(*(markdown(one) for one in made if one.lines), sep="\n\n")
        return
    before = machine()

    def done(training: Training, part: str) -> dict[str, Any]:
        """Its entry with a part, `validation` or `test`, which is made if it is missing."""
        entry = found.get(training.name, {})
        if part not in entry:
            made = validated if part == "validation" else tested
            keys = ("method", "shots", "rate", "seed", "ways", "averaged")
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
        about = given.shots, steps, given.rates[0], SEARCH_SEED, given.train_ways
        first = Training(
            method, families, *about, data=str(given.data or ""), averaged=given.averaged
        )
        tried = [replace(first, rate=rate) for rate in given.rates]
        best = max(tried, key=lambda one: done(one, "validation")["validation"])
        for seed in given.seeds:
            done(replace(best, seed=seed), "validation")
            done(replace(best, seed=seed), "test")


if __name__ == "__main__":
    main()
