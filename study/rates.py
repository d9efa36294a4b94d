"""One equal search of the outer optimiser for methods on real pictures, by validation tasks.

    python -m study.rates                       # one shot; resumable, in runs/rates and the result
    python -m study.rates --shots 5             # the two best of one shot
    python -m study.rates maml protonet         # some methods, so that several processes share it
    python -m study.rates --collect             # write results/rates.json of what is finished

Each method is trained for 1,000 steps with an outer rate of 0.003, then with the next lower and the
next higher one, until neither neighbour of the best is better. A rate falls as half a cosine while
the weights of the last fifth are averaged; the best is also held constant. The two best at one shot
are trained at five shots. The best at each number of shots is then trained once more with augmented
pictures. 1,000 validation tasks choose; no test task is drawn.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import tyro
from tyro.conf import Positional

import arml
from arml.experiment.recipes import changed
from arml.results.files import Json, read_json, write_json
from arml.training.provenance import commit
from study.plan import RATES, SEARCHED, TRIALS, training_of

OUT = Path("runs/rates")
OUTER_RATES = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03)
FIRST_RATE = 0.003
STEPS, TASKS = 1_000, 1_000


@dataclass(frozen=True)
class Trial:
    """One training of the search."""

    method: str
    shots: int
    rate: float
    schedule: Literal["constant", "cosine"]
    augment: bool = False

    @property
    def name(self) -> str:
        varied = "-augmented" if self.augment else ""
        return f"{self.method}-{self.shots}shot-{self.rate:g}-{self.schedule}{varied}"

    @property
    def experiment(self) -> arml.Experiment:
        recipe, options = SEARCHED[self.method]
        made = arml.recipe(f"real-four/{recipe}", shots=self.shots)
        parts = {"algorithm": options, **training_of(self.rate, self.schedule, self.augment)}
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
        known = [read_json(file)] if file.is_file() else TRIALS
        wanted = {**vars(self), "steps": STEPS}.items()
        return next((t for t in known if wanted <= t.items()), None)

    def carry_out(self) -> float:
        """The accuracy on the validation tasks; the training is resumed if it was interrupted."""
        if (known := self.found) is not None:
            return float(known["accuracy"])
        folder = OUT / self.name
        arml.run(self.experiment, folder)
        run = arml.Run(folder)
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


def search(method: str, shots: int) -> Iterator[Trial]:
    """The trials of a method, in order; each is finished before the next one is chosen."""
    if shots == 1:
        new, tried = [Trial(method, shots, FIRST_RATE, "cosine")], list[Trial]()
        while new:
            yield from new
            tried += new
            best = max(tried, key=Trial.carry_out)
            at = OUTER_RATES.index(best.rate)
            near = [replace(best, rate=rate) for rate in OUTER_RATES[max(0, at - 1) : at + 2]]
            new = [trial for trial in near if trial not in tried]
        constant = replace(best, schedule="constant")
        yield constant
        tried.append(constant)
    else:
        known = [t for t in search(method, 1) if not t.augment]
        ranked = sorted(known, key=Trial.carry_out, reverse=True)
        tried = [replace(t, shots=shots) for t in ranked[:2]]
        yield from tried
    yield replace(max(tried, key=Trial.carry_out), augment=True)


def finished(method: str, shots: int) -> Iterator[Trial]:
    """The finished trials, up to the first one that is not."""
    for trial in search(method, shots):
        if trial.found is None:
            return
        yield trial


def collect() -> None:
    """Write the finished trials to `results/rates.json`."""
    rows = []
    for method in SEARCHED:
        for shots in (1, 5):
            if shots == 5 and not any(trial.augment for trial in finished(method, 1)):
                continue
            rows += [{**vars(t), **(t.found or {})} for t in finished(method, shots)]
    content = {
        "command": "python -m study.rates",
        "commit": commit(),
        "steps": STEPS,
        "validation_tasks": TASKS,
        "trials": rows,
    }
    RATES.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Options:
    """Search the outer rate and schedule of methods on four families of real pictures."""

    methods: Positional[tuple[str, ...]] = ()
    """Methods; all if none is named."""
    shots: int = 1
    """1 or 5."""
    collect: bool = False
    """Write what is finished, and train nothing."""


def main() -> int:
    options = tyro.cli(Options, prog="python -m study.rates")
    if options.collect:
        collect()
        return 0
    for method in options.methods or SEARCHED:
        for trial in search(method, options.shots):
            trial.carry_out()
    return 0


if __name__ == "__main__":
    sys.exit(main())
