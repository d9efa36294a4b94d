"""A short race between experiments on the same tasks, to see which method suits the data.

Each experiment trains from the start for the same time, and is scored on the same validation
tasks. Logistic regression on the raw inputs, which learns each task from its support set alone, is
the floor: a method that is not above it has learned nothing useful.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from arml.core.episodes import TaskDistribution
from arml.core.learner import MetaLearner
from arml.datasets.folders import Progress
from arml.experiment.options import Experiment
from arml.experiment.running import Begun, fresh
from arml.experiment.simple import FLOOR, SIMPLE
from arml.tasks.options import Splits, splits_of
from arml.training.devices import mesh_of
from arml.training.evaluate import evaluate
from arml.training.fit import intervals
from arml.training.options import FitOptions, training_key

TASKS = 60
"""Validation tasks of a score."""
TRIAL = 2.0
"""Seconds of training that are enough to measure the seconds of a step."""
START, AFTER = 20.0, 8.0
"""About how many seconds a training takes before its first step, and after its last besides the
validation."""
LONGER = 1.05
"""How much longer than one of the first a step of a whole training takes: checkpoints are written,
and the machine is not always free."""
MOST = 5_000
"""Steps after which short trainings gain little."""


class Place(NamedTuple):
    """The result of one entrant of the race."""

    name: str
    """The name of a recipe, or `FLOOR`."""
    score: float
    """Mean accuracy on validation tasks."""
    ci95: float
    step: float
    """Seconds of a step."""
    begun: Begun | None

    @property
    def steps(self) -> int:
        """Outer steps of its training in the race."""
        return self.begun.step if self.begun else 0


def race(
    entrants: Sequence[Experiment],
    *,
    seconds: float,
    least: int = 20,
    ends: float | None = None,
    tasks: int = TASKS,
    devices: int = 1,
    progress: Progress | None = None,
    said: Callable[[Place], None] = lambda place: None,
    doing: Callable[[str], None] = lambda text: None,
) -> list[Place]:
    """Train each of the experiments for about `seconds`, or a tenth of its steps, and score them on
    validation tasks.

    **Arguments**

    - `entrants`: experiments that differ in their method, not in their tasks.
    - `least`: the fewest steps that each makes, unless its experiment has fewer.
    - `ends`: the time, by `time.monotonic`, at which the training of the winner must end. Each
      entrant then gets as many steps as fit; if None, the steps of its experiment.
    - `devices`: how many devices share the tasks of a step.
    - `said`: called with each place as soon as it is known, the floor first.
    - `doing`: called with a line about what is done next, and after each interval of steps.

    **Returns** a place for the floor and for each entrant, in this order.
    """
    splits = _splits(entrants[0], progress)
    chunk = min(entrants[0].chunk, tasks)
    places: list[Place] = []

    def scored(name: str, learner: MetaLearner, step: float, begun: Begun | None) -> None:
        doing(f"scoring {name}")
        score = evaluate(
            learner, splits, tasks, split="validation", chunk=chunk, progress=False
        ).score
        places.append(Place(name, score["mean"] or 0.0, score["ci95"] or 0.0, step, begun))
        said(places[-1])

    scored(FLOOR, SIMPLE[FLOOR](splits.validation.problem.outputs), 0.0, None)
    for i, entrant in enumerate(entrants):
        others = (seconds + START) * (len(entrants) - i - 1)
        made = entrant if ends is None else _paced(entrant, splits, ends - others, devices, doing)
        begun, step = trained(
            made, splits.train, seconds=seconds, least=least, devices=devices, doing=doing
        )
        scored(made.recipe, begun.state.learner, step, begun)
    return places


def paced(
    experiment: Experiment,
    *,
    ends: float,
    devices: int = 1,
    progress: Progress | None = None,
    doing: Callable[[str], None] = lambda text: None,
) -> Experiment:
    """The experiment with as many steps as fit until about `ends`, by `time.monotonic`. A few steps
    are timed for it."""
    return _paced(experiment, _splits(experiment, progress), ends, devices, doing)


def _paced(
    experiment: Experiment,
    splits: Splits,
    ends: float,
    devices: int,
    doing: Callable[[str], None],
) -> Experiment:
    if not experiment.steps:
        return experiment
    doing(f"compiling and timing a few steps of {experiment.recipe}")
    trial, every = replace(experiment, interval=1), experiment.interval
    _, step = trained(trial, splits.train, seconds=TRIAL, least=6, devices=devices)
    step *= LONGER
    # A validation task takes about a third of a training task: it has no gradient.
    validation = step * experiment.validation_tasks / experiment.batch / 3
    left = ends - time.monotonic() - AFTER - validation
    step += validation / experiment.validate_every
    steps = int(left / step) // every * every
    return replace(experiment, steps=max(min(steps, MOST), every))


def _splits(experiment: Experiment, progress: Progress | None) -> Splits:
    with TemporaryDirectory() as folder:
        return splits_of(experiment.tasks.build(Path(folder) / "split.json", progress=progress))


def trained(
    experiment: Experiment,
    tasks: TaskDistribution,
    *,
    seconds: float,
    least: int,
    devices: int = 1,
    doing: Callable[[str], None] = lambda text: None,
) -> tuple[Begun, float]:
    """The first steps of the experiment's training, for about `seconds` or a tenth of all its
    steps, and the seconds of a step: the median over the intervals, so that a moment in which the
    machine is busy does not count. The first interval is left out if there are more, because it
    compiles."""
    state, records = fresh(experiment, tasks.problem).state, []
    most = max(least, experiment.steps // 10)
    times = [time.monotonic()]
    doing(f"compiling {experiment.recipe}")
    loop = intervals(
        FitOptions.of(experiment),
        state,
        tasks,
        None,
        key=training_key(experiment.seed),
        mesh=mesh_of(devices),
    )
    with closing(loop):
        for moment in loop:
            state = moment.state
            times.append(time.monotonic())
            records.append((moment.step, moment.record))
            doing(f"training {experiment.recipe}, step {moment.step:,}")
            enough = moment.step >= least and times[-1] - times[1] >= seconds
            if moment.step >= most or enough:
                break
    took = np.diff(times) / np.diff([0, *(step for step, _ in records)])
    step = float(np.median(took[1:] if len(took) > 1 else took)) if records else 0.0
    return Begun(experiment, state, tuple(records), times[-1] - times[0]), step
