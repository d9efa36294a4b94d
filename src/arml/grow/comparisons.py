"""Other ways to meet a stream of families, in the same harness, with the same steps and tasks.

- `fine-tuning`: the stage's tasks only. `replay`: these and kept tasks of known families.
- `final capacity`: replay with as many vertices from the start as there are families.
- `joint`: from scratch at each stage, on all families so far, with all steps so far: the bound.
- `own`: one model for each family, each from scratch; a task uses the model of its family.
- `ftml` [1]: MAML on all families so far in equal shares, from the learner of the stage before.
- `hsml-dynamic` [2]: HSML on all families so far; a leaf is added when the mean loss of a window is
  1.25 times that of the window before.
- `growing`: vertices that are proposed, accepted and pruned (`grow.growth`).

[1] Finn, Rajeswaran, Kakade and Levine, Online Meta-Learning, ICML 2019.
[2] Yao, Wei, Huang and Li, Hierarchically Structured Meta-learning, ICML 2019, and the authors'
    code, huaxiuyao/HSML_Dynamic.

Differences: [1] gets one task at a time; here a stage is a family with any number of tasks. The
code of [2] compares windows of 1,000 of 70,000 steps and waits 8,000 steps between two leaves; here
a window is a fifth of a stage and the wait a stage, losses are those of held-out tasks of the
families so far, and a leaf is added between two stages.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast

import jax
import numpy as np

from arml.algorithms.arml_extensions import ExtendedARML
from arml.core.episodes import Task
from arml.core.learner import MetaLearner
from arml.grow.growth import GrowthOptions, begun, grown
from arml.grow.keeping import Place, keep, taken_up
from arml.grow.stage import Shown
from arml.grow.streams import Mixture, Stage, uniform
from arml.grow.vertices import with_leaf
from arml.results.files import Json
from arml.training.evaluate import evaluate
from arml.training.fit import Moment

Build = Callable[[int], MetaLearner]
"""A fresh learner with so many vertices (or leaves)."""
Say = Callable[[str], None]
WINDOW, RISE = 2, 1.25
"""Validation scores of a window (ten are taken in a stage), and the rise that adds a leaf."""


@dataclass(frozen=True)
class Way:
    """A way to meet a stream."""

    name: str
    method: str = "arml"
    """The method whose learner meets the stream, by the name of its entry."""
    first: int | None = 1
    """Vertices or leaves at the start; None for as many as there are families."""
    tasks: Literal["stage", "replay", "all"] = "replay"
    """What a stage trains on."""
    start: Literal["before", "fresh"] = "before"
    """The learner that a stage starts from."""
    apart: bool = False
    """Whether each family has a model of its own."""
    grows: Literal["", "vertices", "leaves"] = ""


WAYS = {
    way.name: way
    for way in (
        Way("growing", grows="vertices"),
        Way("fine-tuning", tasks="stage"),
        Way("replay"),
        Way("final capacity", first=None),
        Way("joint", first=None, tasks="all", start="fresh"),
        Way("own", tasks="stage", start="fresh", apart=True),
        Way("ftml", method="maml", tasks="all"),
        # Two leaves at the start, as in the authors' regression.
        Way("hsml-dynamic", method="hsml", first=2, tasks="all", grows="leaves"),
    )
}
"""By name."""


def met(
    way: Way,
    build: Build,
    stages: Sequence[Stage],
    train: Mixture,
    held: Mixture,
    test: Mixture,
    options: GrowthOptions,
    *,
    memory: Task | None = None,
    tested: int = 300,
    folder: Path | None = None,
    after: Callable[[Place], None] = lambda place: None,
    say: Say = lambda line: None,
) -> list[Json]:
    """Meet a stream, and score all families on `tested` test tasks each after every stage.

    **Arguments**

    - `build`: a fresh learner of the way's method.

    - `folder`: keeps where the stream is; the same call goes on there.
    - `after`: called with the place after each stage, and with that at which the stream goes on.
    - `say`: gets a line of progress now and then.

    **Returns** a record for each stage: `scores` by family, `curve` (the stage's validation score
    by training tasks), `vertices`, `tasks`, `replayed`, and for `growing` its `decisions`.
    """
    families = tuple(dict.fromkeys(name for stage in stages for name in stage))
    leaves = len(families) if way.first is None else way.first
    place = Place(begun(build(leaves)), leaves)
    if folder is not None:
        place = taken_up(folder, place, build)
        if place.growth.stages:
            say(f"goes on after {place.growth.stages} of {len(stages)} stages")
            after(place)
    for index, stage in list(enumerate(stages))[place.growth.stages :]:
        where = f"stage {index + 1} of {len(stages)}, {' and '.join(stage)}"
        inside = None if folder is None else folder / f"training-{index}"
        say(where)
        begun_at = time.monotonic()

        def shown(name: str, moment: Moment, where: str = where) -> None:
            loss = moment.record["loss"]
            say(f"{where}, {name}: step {moment.step:,}, loss {loss:.3g}")

        place = _next(way, build, place, stage, train, held, options, memory, inside, shown)
        growth = place.growth
        learners = {name: place.models.get(name, growth.learner) for name in families}
        records = [r for r in growth.records if r["stage"] == growth.stages - 1]
        record = {
            "stage": dict(stage),
            "scores": {
                name: evaluate(learner, test.only(name), tested, progress=False).mean
                for name, learner in learners.items()
            },
            "curve": records[-1]["curve"],
            "vertices": place.leaves if way.grows == "leaves" else len(growth.names),
            "tasks": records[-1]["tasks"],
            "replayed": records[-1]["replayed"],
            **({"decisions": records} if way.grows == "vertices" else {}),
        }
        seconds = place.seconds + time.monotonic() - begun_at
        place = replace(place, found=(*place.found, record), seconds=seconds)
        if folder is not None:
            keep(folder, place)
            for done in folder.glob("training-*"):
                shutil.rmtree(done)
        after(place)
    return list(place.found)


def _next(
    way: Way,
    build: Build,
    place: Place,
    stage: Stage,
    train: Mixture,
    held: Mixture,
    options: GrowthOptions,
    memory: Task | None,
    folder: Path | None,
    shown: Shown,
) -> Place:
    """Where a way is after one stage more."""
    growth, index = place.growth, place.growth.stages
    if way.start == "fresh":
        growth = replace(begun(build(place.leaves)), stages=index, known=growth.known)
    plan = options if way.grows == "vertices" else replace(options, grow=False)
    if way.tasks == "stage":
        plan = replace(plan, replay=0.0)
    if way.tasks == "all":
        # All families so far are the stage, and there is nothing to replay.
        known = tuple(dict.fromkeys((*growth.known, *stage)))
        if way.start == "fresh":
            plan = replace(plan, steps=options.steps * (index + 1))
        growth, stage, memory = replace(growth, known=()), uniform(known), None
    growth = grown(growth, train, held, stage, plan, memory=memory, folder=folder, shown=shown)
    place = replace(place, growth=growth)
    if way.apart:
        new = {name: growth.learner for name in stage if name not in place.models}
        place = replace(place, models={**place.models, **new})
    if way.grows == "leaves":
        latest = [point["score"] for point in growth.records[-1]["curve"]]
        place = replace(place, windows=(*place.windows, *latest))
        if rose(place.windows, len(latest)) and index > place.added + 1:
            key = jax.random.fold_in(jax.random.key(options.seed), index)
            more = with_leaf(cast(ExtendedARML, growth.learner), key=key)
            growth = replace(growth, learner=more)
            place = replace(place, growth=growth, leaves=place.leaves + 1, added=index)
    return place


def rose(scores: Sequence[float], new: int) -> bool:
    """Whether the mean of one of the windows that the last `new` scores fill is above `RISE` times
    that of the window before."""
    whole = len(scores) - len(scores) % WINDOW
    means = np.reshape(scores[:whole], (-1, WINDOW)).mean(axis=1)
    last = means[-(new // WINDOW) - 1 :]
    return bool((last[1:] > RISE * last[:-1]).any())
