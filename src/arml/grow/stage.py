"""The trainings of one stage, and the decisions between them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from arml.algorithms.arml_extensions import ExtendedARML
from arml.core.episodes import Task, TaskDistribution
from arml.core.learner import MetaLearner
from arml.grow.judging import (
    band,
    excludes_zero,
    gained,
    handicap,
    log_losses,
    novelty,
    safe,
    signatures,
)
from arml.grow.options import Growth, GrowthOptions
from arml.grow.resuming import resumed
from arml.grow.streams import Mixture, Stage, replay, with_replay
from arml.grow.vertices import alone, handicapped, own_vertices, parts, with_owned, with_vertex
from arml.results.intervals import Score
from arml.training.fit import Callback, Fitted, Moment, fit
from arml.training.options import FitOptions

Note = Callable[..., None]
Shown = Callable[[str, Moment], None]
"""Called with the name of a training and with each of its moments."""
History = tuple[dict[str, float | int | None], ...]


class Done(NamedTuple):
    """The learner after the trainings of a stage, and their cost."""

    learner: MetaLearner
    history: History
    tasks: int
    replayed: int
    accepted: bool = False
    """Whether a vertex was added."""


@dataclass(frozen=True)
class Runs:
    """The trainings of one stage."""

    options: GrowthOptions
    seed: int
    train: Mixture
    held: Mixture
    stage: Stage
    memory: Task | None
    old: tuple[str, ...]
    """The known families."""
    folder: Path | None
    """Keeps each training, so that a stage that was stopped goes on."""
    shown: Shown = lambda name, moment: None

    @property
    def every(self) -> int:
        """Steps between two validation scores: ten are taken in a stage."""
        return max(1, self.options.steps // 10)

    @property
    def trial(self) -> int:
        """Steps of a candidate and of its rival."""
        return self.every * max(1, round(self.options.trial * self.options.steps / self.every))

    def share(self, known: Sequence[str]) -> float:
        """The share of the tasks that are replayed, if these families are known."""
        return self.options.replay if any(name not in self.stage for name in known) else 0.0

    def tasks(self, known: Sequence[str]) -> TaskDistribution:
        """The stage's tasks, and replayed ones of known families."""
        if self.memory is None:
            return self.train.of(with_replay(self.stage, known, self.options.replay))
        return replay(self.train.of(self.stage), self.memory, known, self.options.replay)

    def known_tasks(self, family: str) -> TaskDistribution:
        """Training tasks of a known family: kept ones where there is a memory."""
        if self.memory is None:
            return self.train.only(family)
        return replay(self.train.of(self.stage), self.memory, [family], 1.0)

    def go(
        self, name: str, learner: MetaLearner | Fitted, known: Sequence[str], steps: int
    ) -> Fitted:
        """Train until the step `steps` of the stage; each training of a stage has a name."""
        tasks, every = self.tasks(known), self.every
        options = replace(
            FitOptions.usual(self.train.problem, steps),
            outer=self.options.outer,
            batch=self.options.batch,
            interval=every,
            validate_every=every,
            validation_tasks=self.options.tasks,
        )

        def train(start: MetaLearner | Fitted, *callbacks: Callback) -> Fitted:
            return fit(
                start,
                tasks,
                steps=steps,
                seed=self.seed,
                outer=options.outer,
                batch=options.batch,
                interval=every,
                validate_every=every,
                validation=self.held.of(self.stage) if self.options.curve else None,
                validation_tasks=options.validation_tasks,
                callbacks=[*callbacks, lambda moment: self.shown(name, moment)],
                progress=False,
            )

        if self.folder is None:
            return train(learner)
        file = self.folder / f"{name}-{steps}.json"
        return resumed(train, learner, tasks, options, self.seed, file)

    def all(self, learner: MetaLearner, known: Sequence[str]) -> Done:
        """Train all weights, with replay."""
        fitted = self.go("all", learner, known, self.options.steps)
        took = self.options.steps * self.options.batch
        return Done(fitted.learner, fitted.history, took, round(self.share(known) * took))

    def reads(self, family: str, learner: ExtendedARML) -> np.ndarray:
        """How much held-out tasks of a family read each vertex."""
        held, n = self.held.only(family), self.options.tasks
        return signatures(learner, held, split="validation", n=n)[1].mean(axis=0)

    def losses(self, learner: MetaLearner) -> np.ndarray:
        """The log losses on held-out tasks of the stage."""
        held, n = self.held.of(self.stage), self.options.tasks
        return log_losses(learner, held, split="validation", n=n)


def vertex_stage(before: Growth, run: Runs, note: Note) -> Done:
    """Propose, train, accept, guard."""
    learner, fresh = cast(ExtendedARML, before.learner), run.train.of(run.stage)
    pieces = parts(learner)
    prototypes, readings = signatures(learner, fresh, split="train", n=run.options.tasks)
    reads = readings.mean(axis=0)
    own = _most_read(reads, pieces)
    sharing = [name for name in before.known if _most_read(run.reads(name, learner), pieces) == own]
    rival = _Try(run, learner, pieces[own], sharing)
    if not _proposed(before, run, prototypes, note):
        return _guarded(before, run, note, rival.go(run.options.steps), None)
    best = min(range(len(pieces)), key=lambda i: _median(run, alone(learner, pieces[i])))
    blend = np.zeros(len(reads))
    blend[pieces[best]] = reads[pieces[best]] + 1e-6
    more = with_vertex(learner, prototypes.mean(axis=0), blend)
    candidate = _Try(run, more, parts(more)[-1], (), new=True).go(run.trial)
    rival = rival.go(run.trial)
    scores = {name: run.losses(one.whole) for name, one in (("new", candidate), ("old", rival))}
    scores["before"] = run.losses(learner)
    lost = _lost(before, run, rival.whole)
    # A rival that harms known families does not count: the candidate then has to beat the learner
    # before the stage.
    against = "old" if _safe(lost, run) else "before"
    gain = gained(scores[against], scores["new"])
    accepted = excludes_zero(gain)
    note(
        "accept" if accepted else "reject",
        vertex=f"V{before.made}",
        steps=run.trial,
        gain=gain,
        against=against,
        rival_lost=lost,
    )
    winner, loser = (candidate, rival) if accepted else (rival, candidate)
    return _guarded(before, run, note, winner.go(run.options.steps), loser, accepted=accepted)


@dataclass(frozen=True)
class _Try:
    """A part of a learner that is trained alone."""

    run: Runs
    learner: ExtendedARML
    part: slice
    known: Sequence[str]
    """The families that are replayed."""
    new: bool = False
    """Whether it is a new vertex."""
    fitted: Fitted | None = None

    def go(self, steps: int) -> "_Try":
        """Train until the step `steps`."""
        name = "candidate" if self.new else "rival"
        start = alone(self.learner, self.part) if self.fitted is None else self.fitted
        return replace(self, fitted=self.run.go(name, start, self.known, steps))

    @cached_property
    def whole(self) -> ExtendedARML:
        """The whole learner with the trained part."""
        assert self.fitted is not None
        whole = with_owned(self.learner, self.part, self.fitted.learner)
        if not self.new:
            return whole
        tasks = [self.run.train.of(self.run.stage), *map(self.run.known_tasks, self.run.old)]
        return handicapped(whole, handicap(whole, tasks, n=self.run.options.tasks))

    @property
    def tasks(self) -> int:
        return 0 if self.fitted is None else self.fitted.step * self.run.options.batch

    @property
    def replayed(self) -> int:
        return round(self.run.share(self.known) * self.tasks)


def _guarded(
    before: Growth, run: Runs, note: Note, done: _Try, loser: _Try | None, *, accepted: bool = False
) -> Done:
    """The trained learner; the learner before the stage if new families gain nothing, or if a known
    family may lose more than `bound`."""
    assert done.fitted is not None
    gain = gained(run.losses(before.learner), run.losses(done.whole))
    lost = _lost(before, run, done.whole)
    kept = excludes_zero(gain) and _safe(lost, run)
    note("keep stage" if kept else "undo stage", gain=gain, lost=lost)
    return Done(
        done.whole if kept else before.learner,
        done.fitted.history,
        done.tasks + (loser.tasks if loser else 0),
        done.replayed + (loser.replayed if loser else 0),
        accepted and kept,
    )


def _lost(before: Growth, run: Runs, after: MetaLearner) -> dict[str, Score]:
    """The rise of the log loss of each known family outside the stage."""
    found = {}
    for name in before.known:
        if name not in run.stage:
            held, n = run.held.only(name), run.options.tasks
            old, new = (
                log_losses(m, held, split="validation", n=n) for m in (before.learner, after)
            )
            found[name] = gained(new, old)
    return found


def _safe(lost: Mapping[str, Score], run: Runs) -> bool:
    return all(safe(one, run.options.bound) for one in lost.values())


def _median(run: Runs, learner: MetaLearner) -> float:
    return float(np.median(run.losses(learner)))


def _most_read(reads: np.ndarray, pieces: Sequence[slice]) -> int:
    return int(np.argmax([reads[piece].sum() for piece in pieces]))


def _proposed(before: Growth, run: Runs, prototypes: np.ndarray, note: Note) -> bool:
    """Whether a vertex is proposed."""
    learner, options = cast(ExtendedARML, before.learner), run.options
    n, count = options.tasks, own_vertices(learner) or 0
    fresh = band(log_losses(learner, run.train.of(run.stage), split="train", n=n))
    whole = [
        log_losses(learner, run.held.only(name), split="validation", n=n) for name in before.known
    ]
    reference = band(np.concatenate(whole))
    known = run.train.of({name: 1 / len(before.known) for name in before.known})
    new = novelty(learner, known, prototypes, n=n)
    worse = fresh.low > reference.high
    room = count < options.most
    proposed = room and (worse or new > 1)
    note(
        "propose" if proposed else "keep",
        fresh=list(fresh),
        reference=list(reference),
        novelty=new,
        room=room,
    )
    return proposed
