"""`arml train --data FOLDER...` without a recipe: an experiment that suits the data, and why.

One line explains each choice, and an option of the user replaces it. A short race between the
entrants shows which method suits the data.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil, inf
from pathlib import Path
from statistics import median
from typing import Literal, NamedTuple

import numpy as np

from arml.datasets.archive import open_source
from arml.datasets.decode import shortest_side
from arml.datasets.folders import family_name
from arml.datasets.vectors import feature_folders, load_features
from arml.experiment.options import Experiment
from arml.experiment.recipes import RECIPES
from arml.nn.networks import Conv4Options
from arml.tasks.options import FoldersOptions
from arml.tasks.vectors import VectorsOptions

WAYS, SHOTS, QUERIES, SIZE = 5, 5, 15, 32
SHORT = 5.0
"""A training of fewer minutes has twice as many steps of half as many tasks, and no race, which
would take about a third of it."""
AVERAGE = 0.5
"""The learner is the mean of the weights over this last part of the training."""
LEAST = 240
"""Tasks below which no method learns much."""
SAMPLED = 48
"""How many pictures of a family have their sizes read."""
MINUTES, STREAM_MINUTES = 10.0, 60.0
"""About how long a training takes if nothing is asked for. Learners of pictures were nearly as good
after three minutes as after ten (`benchmarks/results/time_to_accuracy.json`); a stream has several
families to learn."""
CHOSEN = ("ways", "shots", "queries", "size", "steps")


class Family(NamedTuple):
    """The facts about a family that a choice depends on."""

    name: str
    counts: dict[str, int]
    """Pictures of each class."""
    sides: list[int]
    """The shorter sides of some of its pictures in pixels; empty for vectors."""


class Choice(NamedTuple):
    """An experiment, and a line about each choice."""

    experiment: Experiment
    """The first of the entrants."""
    why: list[str]
    entrants: tuple[Experiment, ...]
    """Experiments that differ only in their method."""
    pace: str = ""
    """A line about their estimated number of steps; a race measures it."""
    minutes: float = inf
    """About how long a training takes on one CPU core."""

    @property
    def short(self) -> bool:
        """Whether there is no time for a race."""
        return self.minutes < SHORT


def choose(
    data: Sequence[str],
    *,
    fixed: Mapping[str, int] | None = None,
    minutes: float = MINUTES,
    purpose: Literal["race", "stream"] = "race",
) -> Choice:
    """Experiments on one's own families, the most promising first.

    **Arguments**

    - `data`: folders or zips of pictures with one folder for each class, or folders of features.
    - `fixed`: the user's own choices of `ways`, `shots`, `queries`, `size`, `steps`.
    - `minutes`: about how long the training may take on one CPU core.
    - `purpose`: what the experiments are for: a race, or a stream of families.

    **Raises** `ValueError` in one line if no tasks can be drawn from the data, or the minutes are
    too few.
    """
    if not 0 < minutes < inf:
        raise ValueError(
            f"minutes must be above 0 and finite, got {minutes:g}: give another number"
        )
    given = dict(fixed or {})
    if given.get("steps", 1) < 1:
        raise ValueError(f"steps must be at least 1, got {given['steps']}: raise it")
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
        # The nearest mean has nothing to train.
        entrants = tuple(
            replace(one, tasks=tasks, steps=given.get("steps", one.steps) if one.steps else 0)
            for one in entering("features", purpose)
        )
        return Choice(entrants[0], [_about(families, "vectors"), *why], entrants)
    size, reason = _size(families, given)
    classes = FoldersOptions(data=tuple(data), ways=ways, shots=shots, queries=queries, size=size)
    _check(classes, families)
    batch = 2 if minutes < SHORT else 4
    steps, pace, took = _steps(ways * (shots + queries), size, batch, minutes, given)
    network = Conv4Options(normalisation="support", edges=purpose == "race")
    entrants = tuple(
        replace(
            one,
            tasks=classes,
            network=network,
            batch=batch,
            steps=steps,
            validate_every=800 // batch,
        )
        for one in entering("folders", purpose)
    )
    statistics = (
        "normalisation support: a prediction for a picture of yours will depend on no other query"
    )
    lines = [_about(families, "pictures"), *why, reason, statistics]
    if purpose == "race":
        entrants = tuple(
            replace(one, outer=replace(one.outer, schedule="constant", average=AVERAGE))
            for one in entrants
        )
        lines.append(f"average {AVERAGE:g}: the weights' mean over that last part of the training")
    return Choice(entrants[0], lines, entrants, pace, took if "steps" in given else minutes)


def entering(setting: str, purpose: Literal["race", "stream"]) -> list[Experiment]:
    """The recipes that race on such data, or that learn streams of it. Those that need no training
    come first, then the newest methods."""
    mark = "stream" if purpose == "stream" else f"race-{setting}"
    found = [
        (known.method.year, known.make())
        for known in RECIPES.values()
        if known.setting.shared.recipe == setting and mark in known.compared
    ]
    return [one for _, one in sorted(found, key=lambda pair: (pair[1].steps > 0, -pair[0]))]


def without_race(entrants: Sequence[Experiment]) -> Experiment:
    """The entrant that a training of less than `SHORT` takes: the oldest method, which is the
    simplest (`benchmarks/results/time_to_accuracy.json`)."""
    return entrants[-1]


def _survey(path: str) -> Family:
    place = Path(path).expanduser().absolute()
    with open_source(place) as source:
        members = [m for images in source.classes.values() for m in images.values()]
        picked = [members[i] for i in np.linspace(0, len(members) - 1, SAMPLED).astype(int)]
        picked = list(dict.fromkeys(picked))
        sides = [shortest_side(source.read(m), where=source.where(m)) for m in picked]
        counts = {name: len(images) for name, images in source.classes.items()}
    return Family(family_name(place), counts, sides)


def _of_features(data: Sequence[str]) -> list[Family]:
    return [
        Family(f.name, dict(zip(f.classes, map(int, f.counts), strict=True)), [])
        for f in load_features(data)[0]
    ]


def _check(tasks: FoldersOptions | VectorsOptions, families: Sequence[Family]) -> None:
    """Raise `ValueError` if no tasks can be drawn so."""
    tasks.check()
    for family in families:
        tasks.check_classes(family.name, len(family.counts))


def _about(families: Sequence[Family], what: str) -> str:
    totals = (sum(len(f.counts) for f in families), sum(sum(f.counts.values()) for f in families))
    one = "; ARML may help more with several families" if len(families) == 1 else ""
    plural = "family" if len(families) == 1 else "families"
    return f"data: {len(families)} {plural}, {totals[0]:,} classes, {totals[1]:,} {what}{one}"


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
    ways = given.get("ways", min(WAYS, max(2, classes // 4)))
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


def _steps(
    pictures: int, size: int, batch: int, minutes: float, given: Mapping[str, int]
) -> tuple[int, str, float]:
    """The number of outer steps that take about these minutes, a line about it, and its estimate
    in minutes.

    On one core, ProtoNet learns from a task in about 0.00125 s for each of its pictures at 28 px.
    On two cores a step of four 1-shot tasks, of 80 pictures each, takes 0.16 s
    (`benchmarks/results/methods.json`).
    """
    seconds, least = (size / 28) ** 2 * 0.00125 * pictures * batch, LEAST // batch
    wanted = minutes * 60 / seconds
    if wanted < least and "steps" not in given:
        needed = ceil(least * seconds / 6) / 10
        raise ValueError(
            f"minutes must be at least {needed:g} for {least} steps on these "
            f"pictures, got {minutes:g}: raise it, or give --steps"
        )
    steps = given.get("steps", int(min(5_000, round(wanted, -1))))
    took = steps * seconds / 60
    asked = "" if "steps" in given else "; --minutes and --steps change it"
    return steps, f"steps {steps:,}: about {took:.0f} min on one CPU core{asked}", took
