"""`arml train --data FOLDER...` without a recipe: an experiment that suits the data, and why; and
how many steps fit in the minutes that a training may take.

ProtoNet learns pictures and vectors of one's own: no other method was better there by more than
chance (`benchmarks/results/time_to_accuracy.json`), and it is the simplest.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from math import inf
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from arml.datasets.decode import shortest_side
from arml.datasets.folders import Parts, Progress, family_name, open_source
from arml.datasets.vectors import feature_folders, load_features
from arml.experiment.building import started
from arml.experiment.options import Experiment
from arml.experiment.recipes import recipe
from arml.nn.networks import Conv4Options
from arml.tasks.options import FoldersOptions, Splits, VectorsOptions, splits_of
from arml.training.devices import mesh_of
from arml.training.fit import FitOptions, intervals, training_key

WAYS, SHOTS, QUERIES, SIZE = 5, 5, 15, 32
SHORT = 5.0
"""A training of fewer minutes takes twice as many steps of half as many tasks."""
AVERAGE = 0.5
"""The learner is the mean of the weights over this last part of the training."""
SAMPLED = 48
"""How many pictures of a family have their sizes read."""
MINUTES, STREAM_MINUTES = 10.0, 60.0
"""How long a training takes if nothing is asked for. Learners of pictures were nearly as good after
three minutes as after ten (`benchmarks/results/time_to_accuracy.json`); a stream has several
families to learn."""
TRIAL = 2.0
"""Seconds of training that are enough to measure the seconds of a step."""
AFTER = 8.0
"""About how many seconds a training takes after its last step, besides the validation."""
LONGER = 1.05
"""How much longer than one of the first a step of a whole training takes: checkpoints are written,
and the machine is not always free."""
LEAST, MOST = 240, 5_000
"""Tasks below which no method learns much, and steps after which a training on one's own pictures
gains little."""


class Family(NamedTuple):
    """The facts about a family that a choice depends on."""

    name: str
    counts: dict[str, int]
    """Pictures of each class."""
    sides: list[int]
    """The shorter sides of some of its pictures in pixels; empty for vectors."""
    split: Parts | None = None
    """The split that its folders state."""
    left_out: int = 0
    """Its files that are no pictures."""


def choose(
    data: Sequence[str],
    *,
    fixed: Mapping[str, int] | None = None,
    minutes: float = MINUTES,
    method: str = "",
) -> tuple[Experiment, list[str]]:
    """An experiment on one's own families, and a line about each choice. `paced` fits its number
    of steps to the minutes.

    **Arguments**

    - `data`: folders or zips of pictures with one folder for each class, or folders of features.
    - `fixed`: the user's own choices of `ways`, `shots`, `queries` and `size`.
    - `minutes`: about how long the training may take.
    - `method`: a method in place of ProtoNet.

    **Raises** `ValueError` in one line if no tasks can be drawn from the data.
    """
    given = dict(fixed or {})
    vectors = [bool(feature_folders([path])) for path in data]
    if any(vectors) and not all(vectors):
        pictures = data[vectors.index(False)]
        raise ValueError(
            f"expected pictures or features, got both: run `arml features` on {pictures}, or leave "
            "the features out"
        )
    families = _of_features(data) if any(vectors) else [_survey(path) for path in data]
    ways, shots, queries, why = _tasks(families, given)
    if any(vectors):
        tasks = VectorsOptions(data=tuple(data), ways=ways, shots=shots, queries=queries)
        _check(tasks, families)
        made = recipe(f"features/{method or 'protonet'}")
        return replace(made, tasks=tasks, steps=MOST), [_about(families, "vectors"), *why]
    size, reason = _size(families, given)
    classes = FoldersOptions(data=tuple(data), ways=ways, shots=shots, queries=queries, size=size)
    _check(classes, families)
    batch = 2 if minutes < SHORT else 4
    made = replace(
        recipe(f"folders/{method or 'protonet-turns'}"),
        tasks=classes,
        network=Conv4Options(normalisation="support", edges=not method),
        steps=MOST,
        batch=batch,
        validate_every=800 // batch,
    )
    statistics = (
        "normalisation support: a prediction for a picture of yours will depend on no other query"
    )
    without = (
        "photographs of common things need no training: `arml adapt --support FOLDER` learns them "
        "from a few examples of each class, by a network that knows photographs"
    )
    lines = [_about(families, "pictures"), *why, reason, statistics, without]
    if not method:
        made = replace(made, outer=replace(made.outer, schedule="constant", average=AVERAGE))
        lines.append(f"average {AVERAGE:g}: the weights' mean over that last part of the training")
    return made, lines


def paced(
    experiment: Experiment,
    minutes: float,
    *,
    since: float | None = None,
    devices: int = 1,
    progress: Progress | None = None,
    watch: Callable[[str], None] = lambda text: None,
) -> Experiment:
    """The experiment with as many steps as fit in the minutes, and at most its own, at the pace of
    a few steps that are timed here.

    **Arguments**

    - `since`: when the minutes began, by `time.monotonic`; now if None.
    - `devices`: how many devices share the tasks of a step.
    - `watch`: called with a line about what is done next.

    **Raises** `ValueError` in one line if the minutes are too few for `LEAST` tasks.
    """
    if not 0 < minutes < inf:
        raise ValueError(
            f"minutes must be above 0 and finite, got {minutes:g}: give another number"
        )
    ends = (time.monotonic() if since is None else since) + 60 * minutes
    with TemporaryDirectory() as folder:
        splits = splits_of(experiment.tasks.build(Path(folder) / "split.json", progress=progress))
    watch(f"compiling and timing a few steps of {experiment.recipe}")
    step = LONGER * _seconds(experiment, splits, devices)
    # A validation task takes about a third of a training task: it has no gradient.
    validation = step * experiment.validation_tasks / experiment.batch / 3
    step += validation / experiment.validate_every
    left, every = ends - time.monotonic() - AFTER - validation, experiment.interval
    least = -(-LEAST // experiment.batch // every) * every
    steps = int(left / step) // every * every
    if steps < least:
        needed = minutes + (least * step - left) / 60
        raise ValueError(
            f"minutes must be at least {needed:.1f} for {least} steps of this training, got "
            f"{minutes:g}: raise it, or give --steps"
        )
    return replace(experiment, steps=min(steps, experiment.steps))


def _seconds(experiment: Experiment, splits: Splits, devices: int) -> float:
    """The seconds of a step: the median over some, without the first, which is compiled. A moment
    in which the machine is busy does not count."""
    trial = replace(experiment, interval=1)
    loop = intervals(
        FitOptions.of(trial),
        started(trial, splits.train.problem),
        splits.train,
        None,
        key=training_key(trial.seed),
        mesh=mesh_of(devices),
    )
    times = []
    with closing(loop):
        for _ in loop:
            times.append(time.monotonic())
            if len(times) > 6 and times[-1] - times[0] >= TRIAL:
                break
    return float(np.median(np.diff(times))) if len(times) > 1 else 0.0


def _survey(path: str) -> Family:
    place = Path(path).expanduser().absolute()
    with open_source(place) as source:
        members = source.pictures
        picked = [members[i] for i in np.linspace(0, len(members) - 1, SAMPLED).astype(int)]
        sides = [shortest_side(m.read(), where=m.where) for m in picked]
        counts = {name: len(images) for name, images in source.classes.items()}
    return Family(family_name(place), counts, sides, source.split, len(source.left_out))


def _of_features(data: Sequence[str]) -> list[Family]:
    return [
        Family(f.name, dict(zip(f.classes, map(int, f.counts), strict=True)), [])
        for f in load_features(data)[0]
    ]


def _check(tasks: FoldersOptions | VectorsOptions, families: Sequence[Family]) -> None:
    """Raise `ValueError` if no tasks can be drawn so."""
    tasks.check()
    for family in families:
        tasks.check_classes(family.name, len(family.counts), family.split)


def _about(families: Sequence[Family], what: str) -> str:
    totals = (sum(len(f.counts) for f in families), sum(sum(f.counts.values()) for f in families))
    one = "; ARML may help more with several families" if len(families) == 1 else ""
    plural = "family" if len(families) == 1 else "families"
    others = sum(family.left_out for family in families)
    left = f"; left out: {others} files that are no {what}" if others else ""
    return f"data: {len(families)} {plural}, {totals[0]:,} classes, {totals[1]:,} {what}{left}{one}"


def _tasks(families: Sequence[Family], given: Mapping[str, int]) -> tuple[int, int, int, list[str]]:
    """Ways, shots and queries, and why."""
    poorest = min(families, key=lambda family: len(family.counts))
    classes = len(poorest.counts)
    if classes < 6:
        raise ValueError(
            f"{poorest.name}: expected at least 6 classes (two each to train, validate and test "
            f"on), got {classes}: add classes; to predict among two or more classes no training is "
            "needed, see `arml adapt --help`"
        )
    stated = [len(part) for f in families if f.split is not None for part in f.split.values()]
    ways = given.get("ways", min(WAYS, max(2, min([classes // 4, *stated]))))
    folder, name, least = min(
        ((f.name, name, n) for f in families for name, n in f.counts.items()), key=lambda x: x[2]
    )
    if least < 2:
        raise ValueError(
            f"{folder}: expected at least 2 pictures of each class (one to learn from, one to be "
            f"judged on), got {least} in {name!r}: add pictures, or remove the class"
        )
    room = least - given["queries"] if "queries" in given else max(least // 4, 1)
    shots = given.get("shots", max(1, min(SHOTS, room)))
    queries = given.get("queries", max(1, min(QUERIES, least - shots)))
    if shots + queries > least:
        raise ValueError(
            f"{folder}: expected at least {shots + queries} pictures of each class (shots and "
            f"queries), got {least} in {name!r}; lower the shots or queries, or add pictures"
        )
    smallest = f"the smallest class, {folder}/{name}, has {least}"
    largest = max(max(f.counts.values()) for f in families)
    uneven = (
        " (removing it would leave more room)" if largest >= 4 * least and shots < SHOTS else ""
    )
    why = {
        "ways": f"ways {ways}: {poorest.name} has {classes} classes, for three splits",
        "shots": f"shots {shots}: {smallest}{uneven}",
        "queries": f"queries {queries}: {smallest}",
    }
    return ways, shots, queries, [line for option, line in why.items() if option not in given]


def _size(families: Sequence[Family], given: Mapping[str, int]) -> tuple[int, str]:
    """Pixels a side: those of the pictures, but at least 16, and at most 32 to be quick."""
    if "size" in given:
        return given["size"], f"size {given['size']}: as you say"
    middle = int(median(side for family in families for side in family.sides))
    size = max(16, min(SIZE, middle))
    reason = (
        "which is tiny: they are enlarged" if middle < 16 else
        "as they are" if size == middle else
        f"which --size {min(middle, 84)} would show better, at {(min(middle, 84) / size) ** 2:.0f} "
        "times the cost"
    )  # fmt: skip
    return size, f"size {size} px: pictures have about {middle} px, {reason}"
