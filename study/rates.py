"""One equal search of the outer rate for methods on real pictures, by validation tasks.

    python -m study.rates                       # resumable, in runs/rates and the result
    python -m study.rates maml protonet         # some methods, so that several processes share it
    python -m study.rates --collect             # write results/rates.json of what is finished

Each method is trained for 1,000 steps at one shot with an outer rate of 0.003, then with the next
lower and the next higher one, until neither neighbour of the best is better. The rate falls as half
a cosine, the weights of the last fifth are averaged, and pictures are not augmented. 1,000
validation tasks choose; no test task is drawn. So short a training does not show which pictures and
schedules are best for a long one, because these methods overfit later; all are therefore trained
alike (`study.plan.searched`).
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import tyro
from tyro.conf import Positional

import arml
from arml.experiment.recipes import changed
from arml.results.files import Json, read_json, write_json
from arml.training.fit import NotFiniteError
from arml.training.provenance import commit
from study.plan import FOUND, RATES, SEARCHED, training_of

OUT = Path("runs/rates")
OUTER_RATES = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03)
FIRST_RATE = 0.003
STEPS, TASKS = 1_000, 1_000


@dataclass(frozen=True)
class Trial:
    """One training of the search."""

    method: str
    rate: float

    @property
    def name(self) -> str:
        return f"{self.method}-{self.rate:g}"

    @property
    def experiment(self) -> arml.Experiment:
        recipe, options = SEARCHED[self.method]
        made = arml.recipe(f"real-four/{recipe}", shots=1)
        parts = {"algorithm": options, **training_of(self.rate, augment=False)}
        return replace(
            changed(made, parts),
            recipe=f"rates/{self.name}",
            steps=STEPS,
            validate_every=STEPS // 2,
            validation_tasks=TASKS,
            checkpoint_every=50,
            interval=10,
        )

    @property
    def found(self) -> Json | None:
        """What a finished training found, in its folder or in the result; None if it is not
        finished."""
        file = OUT / self.name / "found.json"
        known = [read_json(file)] if file.is_file() else FOUND["trials"]
        wanted = {**vars(self), "steps": STEPS}.items()
        return next((t for t in known if wanted <= t.items()), None)

    def carry_out(self) -> float:
        """The accuracy on the validation tasks; the training is resumed if it was interrupted."""
        if (known := self.found) is not None:
            return float(known["accuracy"])
        folder = OUT / self.name
        try:
            run = arml.run(self.experiment, folder)
        except NotFiniteError as error:
            print(f"{self.name}: {error}", flush=True)
            write_json(folder / "found.json", {**vars(self), "steps": STEPS, "accuracy": 0.0})
            return 0.0
        looks = [[m["step"], m["validation"]] for m in run.metrics if "validation" in m]
        write_json(
            folder / "found.json",
            {
                **vars(self),
                "steps": STEPS,
                "accuracy": looks[-1][1],
                "looks": looks,
                "seconds": run.seconds,
                "made": run.made,
            },
        )
        print(f"{self.name}: {100 * looks[-1][1]:.2f}%", flush=True)
        return float(looks[-1][1])


def search(method: str) -> Iterator[Trial]:
    """The trials of a method, in order; each is finished before the next one is chosen."""
    new, tried = [Trial(method, FIRST_RATE)], list[Trial]()
    while new:
        yield from new
        tried += new
        best = max(tried, key=Trial.carry_out)
        at = OUTER_RATES.index(best.rate)
        near = [replace(best, rate=rate) for rate in OUTER_RATES[max(0, at - 1) : at + 2]]
        new = [trial for trial in near if trial not in tried]


def collect() -> None:
    """Write the finished trials to `results/rates.json`."""
    rows, over = [], []
    for method in SEARCHED:
        for trial in search(method):
            if trial.found is None:
                break
            rows.append(trial.found)
        else:
            over.append(method)
    content = {
        "command": "python -m study.rates",
        "commit": commit(),
        "steps": STEPS,
        "validation_tasks": TASKS,
        "finished": over,
        "trials": rows,
    }
    RATES.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Options:
    """Search the outer rate of methods on four families of real pictures."""

    methods: Positional[tuple[str, ...]] = ()
    """Methods; all if none is named."""
    collect: bool = False
    """Write what is finished, and train nothing."""


def main() -> int:
    options = tyro.cli(Options, prog="python -m study.rates")
    if options.collect:
        collect()
        return 0
    if unknown := [method for method in options.methods if method not in SEARCHED]:
        sys.exit(f"expected methods among {', '.join(SEARCHED)}, got {unknown[0]!r}")
    for method in options.methods or SEARCHED:
        for trial in search(method):
            trial.carry_out()
    return 0


if __name__ == "__main__":
    sys.exit(main())
