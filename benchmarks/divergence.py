"""Whether the loss stays finite: ten seeds of each recipe that states a number, 1,000 steps each.

A seed draws the initial weights and the tasks. Where inner steps are unstable, rounding decides
which seed diverges, so one seed that ends well proves little.

`results/divergence.json`, from which the tables of results take how many diverged, is written after
each training; with the same options and steps it is not made again.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np

from arml.experiment.options import Experiment, fingerprint
from arml.experiment.recipes import RECIPES, recipe
from arml.experiment.running import fresh
from arml.training.options import training_key
from arml.training.provenance import commit
from arml.training.step import make_interval, make_step
from common import HERE, machine, write

INTERVAL = 100
RESULTS = HERE.parent / "results"
CHANGED = {f"regression2d/arml, vertices {n}": {"vertices": n} for n in (0, 1)}
"""Recipes with other options, which are trained only if they are named."""


def experiment_of(name: str) -> Experiment:
    """The experiment of a recipe, or of a changed one."""
    made = recipe(name.partition(",")[0])
    if name in CHANGED:
        algorithm: Any = made.algorithm
        return replace(made, algorithm=replace(algorithm, **CHANGED[name]))
    return made


def trainer(experiment: Experiment) -> Callable[[int, int], tuple[int, str] | None]:
    """A function of a seed and a number of steps: trains, and returns the first step whose loss is
    not finite with the family of the task, if one could be named; None if all steps are finite.
    All seeds share one compiled program."""
    tasks = experiment.tasks.build(Path()).train
    optimiser = experiment.outer.build(experiment.steps)

    @eqx.filter_jit
    def interval(state: Any, key: Any) -> Any:
        step = make_step(optimiser, batch=experiment.batch, key=key)
        return make_interval(step, steps=INTERVAL, scan=True)(tasks, state)

    def train(seed: int, steps: int) -> tuple[int, str] | None:
        one = replace(experiment, seed=seed)
        state, key = fresh(one, tasks.problem).state, training_key(seed)
        for done in range(0, steps, INTERVAL):
            state, records = interval(state, key)
            finite = np.asarray(records.finite)
            if not finite.all():
                first = int(np.argmin(finite))
                family = int(records.bad_family[first])
                return done + first + 1, tasks.families[family] if family >= 0 else ""
        return None

    return train


def measure(names: Sequence[str], seeds: int, steps: int) -> None:
    """Train what `results/divergence.json` lacks, and write it there."""
    file = RESULTS / "divergence.json"
    rows = json.loads(file.read_text())["results"] if file.exists() else []
    before, source = machine(), commit()
    for name in names:
        experiment = experiment_of(name)
        train, options = trainer(experiment), fingerprint(experiment)
        rows = [row for row in rows if row["recipe"] != name or row["options"] == options]
        made = {row["seed"] for row in rows if (row["recipe"], row["steps"]) == (name, steps)}
        for seed in sorted({*range(seeds)} - made):
            bad = train(seed, steps)
            row = {"recipe": name, "options": options, "commit": source, "seed": seed}
            step, family = bad or (None, None)
            rows.append({**row, "steps": steps, "first_bad_step": step, "family": family})
            print(name, seed, "finite" if bad is None else f"not finite at step {step}", flush=True)
            write("divergence", rows, before, folder=RESULTS)


def known_recipes() -> list[str]:
    """The recipes that state a number, the quick ones first."""
    found = [(each.minutes, name) for name, each in RECIPES.items() if each.expected is not None]
    return [name for _, name in sorted(found)]


if __name__ == "__main__":
    known = known_recipes()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipes", nargs="+", choices=[*known, *CHANGED], default=known)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=1_000)
    options = parser.parse_args()
    measure(options.recipes, options.seeds, options.steps)
