"""Other ways to meet a stream of families, in the same harness, with the same steps and tasks.

- `fine-tuning`: the stage's tasks only. `replay`: and kept tasks of known families.
- `final capacity`: replay with as many vertices from the start as there are families.
- `joint`: from scratch at each stage, on all families so far, with all steps so far: the bound.
- `own`: one model a family, each from scratch; a task is told which model is its own.
- `ftml` [1]: MAML on all families so far in equal shares, from the learner of the stage before.
- `hsml-dynamic` [2]: HSML on all families so far; a leaf is added when the mean loss of a window is
  1.25 times that of the window before.
- `growing`: vertices that are proposed, accepted and pruned (`grow.growth`).

[1] Finn, Rajeswaran, Kakade and Levine, Online Meta-Learning, ICML 2019.
[2] Yao, Wei, Huang and Li, Hierarchically Structured Meta-learning, ICML 2019, and the authors'
    code, huaxiuyao/HSML_Dynamic.

Differences: [1] gets one task at a time; here a stage is a family, whose tasks have no end. The
code of [2] compares windows of 1,000 of 70,000 steps and waits 8,000 steps between two leaves; here
a window is a fifth of a stage and the wait a stage, losses are those of held-out tasks of the
families so far, and a leaf is added between two stages.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import jax
import numpy as np

from arml.core.episodes import Task
from arml.core.learner import Conditioned, MetaLearner
from arml.grow.growth import GrowthOptions, begun, grown
from arml.grow.streams import Mixture, Stage, uniform
from arml.grow.vertices import with_leaf
from arml.training.evaluate import evaluate

Build = Callable[[int], MetaLearner]
"""A fresh learner with so many vertices (or leaves)."""
WINDOW, RISE = 2, 1.25
"""Validation scores of a window (ten are taken in a stage), and the rise that adds a leaf."""


@dataclass(frozen=True)
class Way:
    """A way to meet a stream."""

    name: str
    about: str
    method: Literal["vertices", "maml", "hsml"] = "vertices"
    capacity: Literal["one", "final"] = "one"
    """Vertices at the start: one, or as many as there are families."""
    tasks: Literal["stage", "replay", "all"] = "replay"
    """What a stage trains on."""
    start: Literal["before", "fresh"] = "before"
    """The learner that a stage starts from."""
    apart: bool = False
    """Whether each family has a model of its own."""
    grows: Literal["", "vertices", "leaves"] = ""


WAYS = (
    Way("growing", "vertices are proposed, accepted and pruned", grows="vertices"),
    Way("fine-tuning", "the stage's tasks only", tasks="stage"),
    Way("replay", "kept tasks of known families too"),
    Way("final capacity", "replay, with a vertex a family from the start", capacity="final"),
    Way(
        "joint",
        "from scratch on all so far: the bound",
        capacity="final",
        tasks="all",
        start="fresh",
    ),
    Way("own", "one model a family, told which", tasks="stage", start="fresh", apart=True),
    Way("ftml", "MAML on all so far", method="maml", tasks="all"),
    Way(
        "hsml-dynamic",
        "HSML on all so far, leaves are added",
        method="hsml",
        tasks="all",
        grows="leaves",
    ),
)


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
) -> list[dict[str, Any]]:
    """Meet a stream, and score all families on `tested` test tasks each after every stage.

    **Arguments**

    - `build`: a fresh learner of the way's method.

    **Returns** a record for each stage: `scores` by family, `curve` (the stage's validation score
    by training tasks), `vertices`, `tasks`, `replayed`, and for `growing` its `decisions`.
    """
    families = tuple(dict.fromkeys(name for stage in stages for name in stage))
    count = len(families) if way.capacity == "final" else 1
    leaves = 2 if way.method == "hsml" else count  # as the authors' regression starts
    growth = begun(build(leaves))
    models: dict[str, MetaLearner] = {}
    windows: list[float] = []
    added = -1
    found = []
    for index, stage in enumerate(stages):
        if way.start == "fresh":
            growth = replace(begun(build(leaves)), stages=index, known=growth.known)
        plan = replace(options, grow=way.grows == "vertices", prune=way.grows == "vertices")
        if way.tasks == "stage":
            plan = replace(plan, replay=0.0)
        known = tuple(dict.fromkeys((*growth.known, *stage)))
        if way.tasks == "all":
            # All families so far are the stage, and there is nothing to replay.
            if way.start == "fresh":
                plan = replace(plan, steps=options.steps * (index + 1))
            growth = replace(growth, known=())
            growth = grown(growth, train, held, uniform(known), plan)
        else:
            growth = grown(growth, train, held, stage, plan, memory=memory)
        records = [r for r in growth.records if r["stage"] == index]
        if way.grows == "leaves":
            latest = [c["score"] for c in records[-1]["curve"]]
            windows += latest
            if rose(windows, len(latest)) and index > added + 1:
                key = jax.random.fold_in(jax.random.key(options.seed), index)
                growth = replace(
                    growth, learner=with_leaf(cast(Conditioned, growth.learner), key=key)
                )
                leaves, added = leaves + 1, index
        if way.apart:
            models |= {name: growth.learner for name in stage if name not in models}
        scores = {
            name: evaluate(
                models.get(name, growth.learner) if way.apart else growth.learner,
                test.only(name),
                tested,
                progress=False,
            ).mean
            for name in families
        }
        record = {
            "stage": dict(stage),
            "scores": scores,
            "curve": records[-1]["curve"],
            "vertices": leaves if way.method == "hsml" else len(growth.names),
            "tasks": records[-1]["tasks"],
            "replayed": records[-1]["replayed"],
            **({"decisions": records} if way.grows == "vertices" else {}),
        }
        found.append(record)
    return found


def rose(scores: Sequence[float], new: int) -> bool:
    """Whether the mean of one of the windows that the last `new` scores fill is above `RISE` times
    that of the window before."""
    whole = len(scores) - len(scores) % WINDOW
    means = np.reshape(scores[:whole], (-1, WINDOW)).mean(axis=1)
    last = means[-(new // WINDOW) - 1 :]
    return bool((last[1:] > RISE * last[:-1]).any())
