"""`arml train --data FOLDER...` without a recipe: an experiment that suits the data, with reasons,
and the number of steps that fit in the minutes of a training.

ProtoNet learns your own pictures and vectors: no other method was significantly better there
(`benchmarks/results/time_to_accuracy.json`), and it is the simplest.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from math import inf
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from arml.datasets.decode import size_of
from arml.datasets.features import feature_folders, load_features
from arml.datasets.folders import Parts, family_name, open_source
from arml.experiment.options import Experiment
from arml.experiment.recipes import recipe, started
from arml.nn.networks import Conv4Options
from arml.results.files import Json
from arml.tasks.options import FoldersOptions, VectorsOptions
from arml.tasks.splits import splits_of
from arml.training.devices import mesh_of
from arml.training.fit import intervals, seeded

MAX_WAYS, MAX_SHOTS, _MAX_QUERIES, _MAX_SIZE = 5, 5, 15, 32
SHORT_MINUTES = 5.0
"""A training of fewer minutes takes twice as many steps of half as many tasks."""
AVERAGED_SHARE = 0.5
"""The learner is the mean of the weights over this last part of the training."""
DEFAULT_MINUTES = 10.0
"""How long a training takes by default. Learners of pictures were nearly as good after three
minutes as after ten (`benchmarks/results/time_to_accuracy.json`)."""
TRIAL_SECONDS = 2.0
"""Seconds of training that are enough to measure the seconds of a step."""
END_SECONDS = 8.0
"""About how many seconds a training takes after its last step, besides the validation."""
MAX_STEPS = 5_000
"""Steps after which a training on your own pictures gains little."""


class _Family(NamedTuple):
    """The facts about a family that a choice depends on."""

    name: str
    counts: dict[str, int]
    """Examples of each class."""
    sides: Sequence[int] = ()
    """The shorter sides of some of its pictures in pixels."""
    split: Parts | None = None
    """The split that its folders state."""
    left_out: int = 0
    """Its files that are not pictures."""


def choose(
    data: Sequence[str], *, fixed: Mapping[str, int] | None = None, minutes: float = DEFAULT_MINUTES
) -> tuple[Experiment, list[str]]:
    """An experiment on your own families (folders or zips of pictures with one folder for each
    class, or folders of features), and a line about each choice. `fixed` are the user's choices of
    `ways`, `shots`, `queries` and `size`; `paced` fits the number of steps to the minutes.
    **Raises** `ValueError` in one line if no tasks can be drawn from the data."""
    fixed = dict(fixed or {})
    vectors = [bool(feature_folders(path)) for path in data]
    if any(vectors) and not all(vectors):
        pictures = data[vectors.index(False)]
        raise ValueError(
            f"expected pictures or features, got both: run `arml features` on {pictures}, or leave "
            "the features out"
        )
    tasks: FoldersOptions | VectorsOptions
    if any(vectors):
        families = [_Family(f.name, f.sizes) for f in load_features(data)[0]]
        made, what = recipe("features/protonet"), "vectors"
        tasks = VectorsOptions(data=tuple(data), **_shape(families, fixed))
        advice: list[str] = []
    else:
        families = [_survey(Path(path).expanduser().absolute()) for path in data]
        made, what = recipe("folders/protonet-turns"), "pictures"
        # As they are, but at least 16 pixels, and at most 32 to be quick.
        sides = median(side for family in families for side in family.sides)
        size = fixed.get("size", max(16, min(_MAX_SIZE, int(sides))))
        tasks = FoldersOptions(data=tuple(data), size=size, **_shape(families, fixed))
        batch = 2 if minutes < SHORT_MINUTES else 4
        network = Conv4Options(normalisation="support")
        made = replace(made, network=network, batch=batch, validate_every=800 // batch)
        advice = [
            f"size {size} px: the pictures have about {sides:.0f}; more pixels take longer",
            "normalisation support: a prediction for a picture of yours will depend on no other "
            "query",
            "photographs of common things need no training: `arml adapt --support FOLDER` learns "
            "them from a few examples of each class, by a network that knows photographs",
            f"average {AVERAGED_SHARE:g}: the mean of the weights over the last part of training",
        ]
        made = replace(made, outer=replace(made.outer, schedule="constant", average=AVERAGED_SHARE))
    tasks.check()
    for family in families:
        tasks.check_family(family.name, family.counts, family.split)
    classes = sum(len(family.counts) for family in families)
    examples = sum(sum(family.counts.values()) for family in families)
    least, poorest, name = _smallest(families)
    others = sum(family.left_out for family in families)
    left = f"; left out: {others} files that are not {what}" if others else ""
    lines = [
        f"data: families {len(families)}, classes {classes:,}, {what} {examples:,}{left}",
        f"ways {tasks.ways}, shots {tasks.shots}, queries {tasks.queries}: the smallest class, "
        f"{poorest}/{name}, has {least} {what}",
        *advice,
    ]
    return replace(made, tasks=tasks, steps=MAX_STEPS), lines


def _survey(path: Path) -> _Family:
    with open_source(path) as source:
        members = source.pictures
        picked = [members[i] for i in np.linspace(0, len(members) - 1, 48).astype(int)]
        sides = [min(size_of(m.read(), where=m.where)) for m in picked]
    return _Family(family_name(path), source.counts, sides, source.split, len(source.left_out))


def _smallest(families: Sequence[_Family]) -> tuple[int, str, str]:
    """The number of examples of the smallest class, its family, and its name."""
    return min((n, f.name, name) for f in families for name, n in f.counts.items())


def _shape(families: Sequence[_Family], fixed: Mapping[str, int]) -> Json:
    """Ways, shots and queries."""
    poorest = min(families, key=lambda family: len(family.counts))
    classes = len(poorest.counts)
    if classes < 6:
        raise ValueError(
            f"{poorest.name}: expected at least 6 classes (two each to train, validate and test "
            f"on), got {classes}: add classes; to predict among two or more classes no training is "
            "needed, see `arml adapt --help`"
        )
    stated = [len(part) for f in families if f.split is not None for part in f.split.values()]
    ways = fixed.get("ways", min(MAX_WAYS, max(2, min([classes // 4, *stated]))))
    least = _smallest(families)[0]
    room = least - fixed["queries"] if "queries" in fixed else max(least // 4, 1)
    shots = fixed.get("shots", max(1, min(MAX_SHOTS, room)))
    queries = fixed.get("queries", max(1, min(_MAX_QUERIES, least - shots)))
    return {"ways": ways, "shots": shots, "queries": queries}


def paced(
    experiment: Experiment,
    minutes: float,
    *,
    since: float | None = None,
    devices: int = 1,
    watch: Callable[[str], None] = lambda text: None,
) -> Experiment:
    """The experiment with as many steps as fit in the minutes since the time `since` of
    `time.monotonic` (now if None), at the pace of a few steps that are timed here: at least one
    interval, and at most its own. `watch` is called with a line about the next stage.
    **Raises** `ValueError` in one line unless the minutes are above 0 and finite."""
    if not 0 < minutes < inf:
        raise ValueError(f"minutes must be above 0 and finite, got {minutes:g}")
    ends = (time.monotonic() if since is None else since) + 60 * minutes
    train = splits_of(experiment.tasks).train
    watch(f"compiling and timing a few steps of {experiment.recipe}")
    options, state = replace(experiment, interval=1), started(experiment, train.problem)
    key, mesh, times = seeded(experiment.seed)[1], mesh_of(devices), list[float]()
    with closing(intervals(options, state, train, None, key=key, mesh=mesh)) as steps:
        for _ in steps:
            times.append(time.monotonic())
            if len(times) > 6 and times[-1] - times[0] >= TRIAL_SECONDS:
                break
    # The median, because the machine may be busy for a moment; without the first, which compiles. A
    # step of a whole training takes a little longer, because checkpoints are written.
    step = 1.05 * float(np.median(np.diff(times))) if len(times) > 1 else 0.0
    # A validation task takes about a third of a training task: it has no gradient.
    validation = step * experiment.validation_tasks / experiment.batch / 3
    step += validation / experiment.validate_every
    left, every = ends - time.monotonic() - END_SECONDS - validation, experiment.interval
    fitting = max(int(left / step) // every, 1) * every
    return replace(experiment, steps=min(fitting, experiment.steps))
