"""A learner grows by one stage of a stream: propose a vertex, train it, accept it, prune.

- **Propose** a vertex if the median log loss of fresh tasks, after adaptation, lies above the
  reference band of every known family, or if their support sets are novel.
- **Train** two learners from the same start on the same tasks for a part of the stage's steps: one
  with the candidate vertex, one without. A stated share of the tasks is replayed from known
  families.
- **Accept** the vertex only if it gains on held-out tasks of the new families, paired task by task,
  with an interval that excludes zero. The learner that wins trains on for the rest of the steps.
- **Prune** a vertex whose removal hurts no known family.

A learner without vertices that own a modulation is trained with replay and nothing else. Each
decision is a record with its numbers. Test tasks are never looked at.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from arml.core.checks import at_least
from arml.core.episodes import Task, TaskDistribution
from arml.core.learner import Conditioned, MetaLearner
from arml.grow.judging import (
    band,
    excludes_zero,
    gained,
    log_losses,
    novelty,
    signatures,
    unneeded,
)
from arml.grow.streams import Mixture, Stage, replay, with_replay
from arml.grow.vertices import own_vertices, with_vertex, without_vertex
from arml.results.files import Json
from arml.training.fit import Fitted, fit
from arml.training.step import OuterOptions

Decide = Callable[[Json], None]


@dataclass(frozen=True)
class GrowthOptions:
    """How a learner grows."""

    steps: int = 2_000
    """Outer steps of a stage."""
    trial: float = 0.25
    """Share of the steps that a candidate and its rival each take. The steps of the loser count."""
    replay: float = 0.5
    """Share of the tasks that are of known families which the stage lacks."""
    tasks: int = 200
    """Held-out tasks of a family that a decision looks at."""
    most: int = 16
    """Vertices that a learner may have."""
    prune: bool = True
    """Remove vertices that no family needs."""
    grow: bool = True
    """Propose vertices at all."""
    batch: int = 25
    """Tasks of one outer step."""
    outer: OuterOptions = field(default_factory=OuterOptions)
    """The outer optimiser."""
    seed: int = 0
    """Seeds the training tasks."""
    curve: bool = True
    """Score held-out tasks of the stage ten times."""

    def check(self) -> None:
        """Raise `ValueError` if an option is invalid."""
        at_least(self, ("steps", "tasks", "most", "batch"), 1)
        at_least(self, ("trial", "replay"), 0, most=1)
        self.outer.check()


@dataclass(frozen=True)
class Growth:
    """A learner between two stages."""

    learner: MetaLearner
    known: tuple[str, ...] = ()
    """The families that have come."""
    stages: int = 0
    """Stages that it has been through."""
    names: tuple[str, ...] = ()
    """The vertices. A name is never given twice."""
    made: int = 0
    """Vertices that were ever made."""
    tasks: int = 0
    """Training tasks that it took, with those of rejected candidates."""
    replayed: int = 0
    """Of these, tasks of known families."""
    records: tuple[Json, ...] = ()
    """Its decisions."""


def begun(learner: MetaLearner, known: Sequence[str] = ()) -> Growth:
    """A learner before the first stage that it grows in; `known` are the families that it knows."""
    count = own_vertices(learner) or 0
    return Growth(learner, tuple(known), names=tuple(f"V{i}" for i in range(count)), made=count)


def grown(
    before: Growth,
    train: Mixture,
    held: Mixture,
    stage: Stage,
    options: GrowthOptions,
    *,
    memory: Task | None = None,
) -> Growth:
    """The learner after one stage.

    **Arguments**

    - `train`, `held`: all families, for training and for decisions.
    - `memory`: kept tasks of each family (`streams.kept`), of which those of known families are
      replayed. If None, replayed tasks are drawn anew from `train`.
    """
    options.check()
    records: list[Json] = []

    def note(decision: str, **numbers: Any) -> None:
        records.append({"stage": before.stages, "decision": decision, **numbers})

    share = options.replay if any(name not in stage for name in before.known) else 0.0
    tasks = _training(train, stage, before.known, options.replay, memory)
    fresh = held.of(stage)
    learner, names, made = before.learner, before.names, before.made
    run = _Run(options, seed=options.seed * 1_000 + before.stages, tasks=tasks, fresh=fresh)
    extra = 0
    place = _proposal(before, train, held, stage, options, note)
    if place is None:
        fitted = run.go(learner, options.steps)
    else:
        trial = run.every * max(1, round(options.trial * options.steps / run.every))
        rival = run.go(learner, trial)
        candidate = run.go(with_vertex(cast(Conditioned, learner), *place), trial)
        losses = [
            log_losses(each.learner, fresh, split="validation", n=options.tasks)
            for each in (rival, candidate)
        ]
        gain = gained(*losses)
        accepted = excludes_zero(gain)
        note("accept" if accepted else "reject", vertex=f"V{made}", steps=trial, gain=gain)
        extra = trial * options.batch
        if accepted:
            names, made = (*names, f"V{made}"), made + 1
        fitted = run.go(candidate if accepted else rival, options.steps)
    learner = fitted.learner
    known = tuple(dict.fromkeys((*before.known, *stage)))
    if options.prune:
        learner, names = _pruned(learner, names, held, known, options, note)
    if own_vertices(learner) is not None:
        reads = {
            name: signatures(
                cast(Conditioned, learner), held.only(name), split="validation", n=options.tasks
            )[1].mean(axis=0)
            for name in known
        }
        note("read", vertices=names, families={k: v.round(4).tolist() for k, v in reads.items()})
    took = options.steps * options.batch + extra
    note(
        "trained",
        stage_shares=dict(stage),
        tasks=took,
        replayed=round(share * took),
        losses=[[record["step"], record["loss"]] for record in fitted.history],
        curve=[
            {"tasks": int(r["step"] or 0) * options.batch, "score": r["validation"]}
            for r in fitted.history
            if "validation" in r
        ],
    )
    return Growth(
        learner,
        known,
        before.stages + 1,
        names,
        made,
        before.tasks + took,
        before.replayed + round(share * took),
        (*before.records, *records),
    )


def _training(
    train: Mixture, stage: Stage, known: Sequence[str], share: float, memory: Task | None
) -> TaskDistribution:
    if memory is None:
        return train.of(with_replay(stage, known, share))
    return replay(train.of(stage), memory, known, share)


@dataclass(frozen=True)
class _Run:
    """The trainings of one stage."""

    options: GrowthOptions
    seed: int
    tasks: TaskDistribution
    fresh: Mixture

    @property
    def every(self) -> int:
        """Steps between two validation scores: ten are taken in a stage."""
        return max(1, self.options.steps // 10)

    def go(self, learner: MetaLearner | Fitted, steps: int) -> Fitted:
        """Train until the step `steps` of the stage."""
        return fit(
            learner,
            self.tasks,
            steps=steps,
            seed=self.seed,
            outer=self.options.outer,
            batch=self.options.batch,
            interval=self.every,
            validate_every=self.every,
            validation=self.fresh if self.options.curve else None,
            validation_tasks=self.options.tasks,
            progress=False,
        )


def _proposal(
    before: Growth,
    train: Mixture,
    held: Mixture,
    stage: Stage,
    options: GrowthOptions,
    note: Any,
) -> tuple[np.ndarray, np.ndarray] | None:
    """Where a candidate vertex is to stand and what its tasks read, or None."""
    learner, n = before.learner, options.tasks
    count = own_vertices(learner)
    if count is None or not before.known or not options.grow:
        return None
    graph = cast(Conditioned, learner)
    fresh = train.of(stage)
    losses = band(log_losses(learner, fresh, split="train", n=n))
    bands = {
        name: band(log_losses(learner, held.only(name), split="validation", n=n))
        for name in before.known
    }
    prototypes, readings = signatures(graph, fresh, split="train", n=n)
    known = train.of({name: 1 / len(before.known) for name in before.known})
    new = novelty(graph, known, prototypes, n=n)
    worse = losses.low > max(b.high for b in bands.values())
    room = count < options.most
    proposed = room and (worse or new > 1)
    note(
        "propose" if proposed else "keep",
        fresh=list(losses),
        reference={name: list(b) for name, b in bands.items()},
        novelty=new,
        room=room,
    )
    return (prototypes.mean(axis=0), readings.mean(axis=0)) if proposed else None


def _pruned(
    learner: MetaLearner,
    names: tuple[str, ...],
    held: Mixture,
    known: tuple[str, ...],
    options: GrowthOptions,
    note: Any,
) -> tuple[MetaLearner, tuple[str, ...]]:
    """The learner without the vertices that no family needs; they are removed one at a time."""
    while own_vertices(learner) is not None:
        graph = cast(Conditioned, learner)
        vertex, effects = unneeded(graph, held, known, n=options.tasks)
        if effects:
            lost = {
                name: {family: e["mean"] for family, e in row.items()}
                for name, row in zip(names, effects, strict=True)
            }
            note("test", lost=lost)
        if vertex is None:
            break
        note("prune", vertex=names[vertex])
        learner = without_vertex(graph, vertex)
        names = (*names[:vertex], *names[vertex + 1 :])
    return learner, names


def without_records(growth: Growth) -> Growth:
    """The same without its decisions, which are in a file already."""
    return replace(growth, records=())
