"""A learner grows by one stage of a stream: propose a vertex, train it, accept it, guard, prune.

- **Propose** a vertex if the median log loss of fresh tasks, after adaptation, lies above the
  reference band, the interval of that median over all known families; or if the support sets are
  novel.
- **Train** two learners for a part of the stage's steps. The candidate has a new vertex, which
  starts from the part that fits fresh tasks best and learns from fresh tasks only. In its rival the
  part that fresh tasks read most learns, with a stated share of replayed tasks of the known
  families that read this part. Everything else stays as it is in both.
- **Accept** the vertex only if it gains on held-out tasks of the new families, paired task by task,
  with an interval that excludes zero: against the rival, or against the learner before the stage if
  the rival harms known families. The winner trains on for the other steps.
- **Guard:** the stage is undone if a known family loses more than `bound` on held-out tasks, or if
  the new families gain nothing.
- **Prune** a vertex whose removal hurts no known family.

A learner whose vertices own no modulation trains all weights with replay, and so does any learner
without the option `grow`. Each decision is a record with its numbers. No decision depends on test
tasks. Squared errors have heavy tails, so losses are compared as logarithms, task by task.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from arml.algorithms.arml_extensions import ExtendedARML, without_vertex
from arml.core.checks import at_least
from arml.core.episodes import Task, TaskDistribution
from arml.core.learner import MetaLearner
from arml.core.novelty import Novelty, threshold
from arml.explain.interventions import interventions
from arml.growth.replay import replay, with_replay
from arml.growth.training import trained
from arml.growth.vertices import (
    alone,
    choices,
    handicapped,
    own_vertices,
    owns_weights,
    parts,
    signature,
    with_owned,
    with_vertex,
)
from arml.results.comparisons import LEVEL
from arml.results.files import Json
from arml.results.scores import Score, paired
from arml.tasks.mixture import Mixture, Stage, uniform
from arml.training.evaluate import Look, at_once_by_default, concatenated, looks
from arml.training.fit import FitOptions, Fitted, OuterOptions

Note = Callable[..., None]
"""Keeps the record of a decision: its name, and its numbers."""


@dataclass(frozen=True)
class GrowthOptions:
    """Options of growing."""

    steps: int = 2_000
    """Outer steps of a stage."""
    trial: float = 0.25
    """Share of the steps that a candidate and its rival each take before one is chosen. Both are
    counted."""
    bound: float = 0.1
    """The most by which a stage may raise the log loss of a known family: 0.1 is about 10% of the
    loss. A stage is undone if the whole interval lies above."""
    replay: float = 0.5
    """Share of the training tasks that come from known families outside the stage."""
    tasks: int = 200
    """Held-out tasks of each family for a decision."""
    most: int = 16
    """The most vertices that a learner may have."""
    prune: bool = True
    """Remove vertices that no family needs."""
    grow: bool | None = None
    """Propose vertices; if False, all weights are trained with replay. None grows a learner whose
    vertices own the weights of the network: vertices that own templates add less than replay."""
    batch: int = 25
    """Tasks of one outer step."""
    outer: OuterOptions = field(default_factory=OuterOptions)
    """The outer optimiser."""
    seed: int = 0
    """Seeds the training tasks."""
    curve: bool = True
    """Score held-out tasks ten times in each stage."""

    def check(self) -> None:
        """Raise `ValueError` if an option is invalid."""
        at_least(self, ("steps", "tasks", "most", "batch"), 1)
        at_least(self, ("trial", "replay"), 0, most=1)
        at_least(self, ("bound",), 0)
        self.outer.check()


@dataclass(frozen=True)
class Growth:
    """A learner between two stages. `begun` makes the first one."""

    learner: MetaLearner
    known: tuple[str, ...] = ()
    """The families that have arrived."""
    stages: int = 0
    """Stages so far."""
    names: tuple[str, ...] = ()
    """The names of the vertices. A name is never used again."""
    made: int = 0
    """Vertices made so far, with those that were removed."""
    records: tuple[Json, ...] = ()
    """The record of each decision."""


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
    folder: Path | None = None,
) -> Growth:
    """The learner after one stage.

    **Arguments**

    - `train`, `held`: all families, for training and for decisions.
    - `stage`: the share of each family that arrives.
    - `memory`: kept tasks of each family (`replay.kept`), of which those of known families are
      replayed. If None, replayed tasks are drawn anew from `train`.
    - `folder`: keeps the trainings of this stage; the same call goes on there.

    **Raises** `ValueError` for invalid options, and `RunError` for a damaged file in `folder`.
    """
    options.check()
    records: list[Json] = []

    def note(decision: str, **numbers: Any) -> None:
        records.append({"stage": before.stages, "decision": decision, **numbers})

    seed = options.seed * 1_000 + before.stages
    this = _Stage(options, seed, train, held, stage, memory, before.known, folder)
    grows = owns_weights(before.learner) if options.grow is None else options.grow
    if own_vertices(before.learner) is None or not before.known or not grows:
        fitted = this.fit("all", before.learner, before.known, options.steps)
        done = _Done(fitted.learner, fitted, *this.cost(fitted, before.known))
    else:
        done = _by_vertices(before, this, note)
    learner, names = done.learner, before.names
    if done.added:
        names = (*names, f"V{before.made}")
    known = tuple(dict.fromkeys((*before.known, *stage)))
    if options.prune and grows:
        learner, names = _pruned(learner, names, held, known, options, note)
    if own_vertices(learner) is not None:
        reads = {name: this.reads(name, cast(ExtendedARML, learner)).round(4) for name in known}
        note("read", vertices=names, families={k: v.tolist() for k, v in reads.items()})
    history = done.fitted.history
    note(
        "trained",
        stage_shares=dict(stage),
        tasks=done.tasks,
        replayed=done.replayed,
        losses=[[record["step"], record["loss"]] for record in history],
        curve=[
            {"tasks": int(r["step"] or 0) * options.batch, "score": r["validation"]}
            for r in history
            if "validation" in r
        ],
    )
    made, stages = before.made + done.added, before.stages + 1
    return Growth(learner, known, stages, names, made, (*before.records, *records))


class _Done(NamedTuple):
    """The learner after the trainings of a stage, and what they cost."""

    learner: MetaLearner
    fitted: Fitted
    """The training that was chosen."""
    tasks: int
    """Training tasks, with those of the loser of a trial."""
    replayed: int
    added: bool = False
    """Whether the learner has one vertex more."""


@dataclass(frozen=True)
class _Stage:
    """The data of one stage, and the trainings and measurements that its decisions need."""

    options: GrowthOptions
    seed: int
    train: Mixture
    held: Mixture
    shares: Stage
    memory: Task | None
    known: tuple[str, ...]
    """The families that are known before it."""
    folder: Path | None

    @property
    def every(self) -> int:
        """Steps between two records of a training: ten are taken in a stage."""
        return max(1, self.options.steps // 10)

    @property
    def trial(self) -> int:
        """Steps of a candidate and of its rival before one is chosen."""
        return self.every * max(1, round(self.options.trial * self.options.steps / self.every))

    def tasks(self, known: Sequence[str]) -> TaskDistribution:
        """The stage's tasks, with replayed ones of these known families."""
        if self.memory is None:
            return self.train.of(with_replay(self.shares, known, self.options.replay))
        return replay(self.train.of(self.shares), self.memory, known, self.options.replay)

    def known_tasks(self, family: str) -> TaskDistribution:
        """Training tasks of a known family: kept ones where there is a memory."""
        if self.memory is None:
            return self.train.only(family)
        return replay(self.train.of(self.shares), self.memory, [family], 1.0)

    def fit(
        self, name: str, learner: MetaLearner | Fitted, known: Sequence[str], steps: int
    ) -> Fitted:
        """Train until the step `steps` of the stage; each training of a stage has a name."""
        return trained(
            learner,
            self.tasks(known),
            replace(
                FitOptions.usual(self.train.problem, steps),
                outer=self.options.outer,
                batch=self.options.batch,
                interval=self.every,
                validate_every=self.every,
                validation_tasks=self.options.tasks,
            ),
            seed=self.seed,
            validation=self.held.of(self.shares) if self.options.curve else None,
            file=self.folder and self.folder / f"{name}-{steps}.safetensors",
        )

    def cost(self, fitted: Fitted, known: Sequence[str]) -> tuple[int, int]:
        """The tasks of a training, and how many of them were replayed."""
        tasks = fitted.step * self.options.batch
        replays = any(name not in self.shares for name in known)
        return tasks, round(self.options.replay * tasks) if replays else 0

    def reads(self, family: str, learner: ExtendedARML) -> Float[np.ndarray, " vertices"]:
        """How much held-out tasks of a family read each vertex."""
        held = self.held.only(family)
        return np.mean(signatures(learner, held, "validation", self.options.tasks)[1], axis=0)

    def losses(self, learner: MetaLearner, family: str | None = None) -> Float[np.ndarray, " n"]:
        """The log losses on held-out tasks of the stage, or of one family."""
        held = self.held.of(self.shares) if family is None else self.held.only(family)
        return log_losses(learner, held, "validation", self.options.tasks)

    def lost(self, before: MetaLearner, after: MetaLearner) -> dict[str, Score]:
        """The rise of the log loss of each known family outside the stage."""
        outside = (name for name in self.known if name not in self.shares)
        return {n: gained(self.losses(after, n), self.losses(before, n)) for n in outside}

    def safe(self, lost: Mapping[str, Score]) -> bool:
        """Whether no known family loses more than the bound."""
        return all(within(one, self.options.bound) for one in lost.values())


@dataclass(frozen=True)
class _Trial:
    """A part of a learner that is trained alone."""

    name: str
    """`candidate`, whose part is a new vertex, or `rival`."""
    learner: ExtendedARML
    part: slice
    known: Sequence[str]
    """The families that are replayed."""
    fitted: Fitted | None = None

    def until(self, stage: _Stage, steps: int) -> "_Trial":
        """Trained until the step `steps`."""
        start = alone(self.learner, self.part) if self.fitted is None else self.fitted
        return replace(self, fitted=stage.fit(self.name, start, self.known, steps))

    def whole(self, stage: _Stage) -> ExtendedARML:
        """The whole learner with the trained part."""
        assert self.fitted is not None
        whole = with_owned(self.learner, self.part, self.fitted.learner)
        if self.name == "rival":
            return whole
        tasks = [stage.train.of(stage.shares), *map(stage.known_tasks, stage.known)]
        return handicapped(whole, handicap(whole, tasks, n=stage.options.tasks))


def _by_vertices(before: Growth, stage: _Stage, note: Note) -> _Done:
    """Propose, train, accept, guard."""
    learner, options = cast(ExtendedARML, before.learner), stage.options
    pieces, fresh = parts(learner), stage.train.of(stage.shares)
    prototypes, readings = signatures(learner, fresh, "train", options.tasks)
    reads = readings.mean(axis=0)

    def most_read(reads: np.ndarray) -> int:
        return int(np.argmax([reads[piece].sum() for piece in pieces]))

    own = most_read(reads)
    sharing = [name for name in before.known if most_read(stage.reads(name, learner)) == own]
    winner, loser = _Trial("rival", learner, pieces[own], sharing), None
    if _proposed(before, stage, prototypes, note):
        # The part that fits fresh tasks best, if all of them read it.
        misfits = [float(np.median(stage.losses(alone(learner, piece)))) for piece in pieces]
        best = pieces[int(np.argmin(misfits))]
        blend = np.zeros(len(reads))
        blend[best] = reads[best] + 1e-6
        more = with_vertex(learner, prototypes.mean(axis=0), blend)
        candidate = _Trial("candidate", more, parts(more)[-1], ()).until(stage, stage.trial)
        rival = winner.until(stage, stage.trial)
        # A rival that harms known families does not count: the candidate then has to beat the
        # learner before the stage.
        lost = stage.lost(learner, rival.whole(stage))
        against = "old" if stage.safe(lost) else "before"
        opponent = rival.whole(stage) if against == "old" else learner
        gain = gained(stage.losses(opponent), stage.losses(candidate.whole(stage)))
        accepted = excludes_zero(gain)
        vertex = f"V{before.made}"
        told = {"steps": stage.trial, "gain": gain, "against": against, "rival_lost": lost}
        note("accept" if accepted else "reject", vertex=vertex, **told)
        winner, loser = (candidate, rival) if accepted else (rival, candidate)
    winner = winner.until(stage, options.steps)
    assert winner.fitted is not None
    after = winner.whole(stage)
    gain, lost = gained(stage.losses(learner), stage.losses(after)), stage.lost(learner, after)
    good = excludes_zero(gain) and stage.safe(lost)
    note("keep stage" if good else "undo stage", gain=gain, lost=lost)
    tasks, replayed = stage.cost(winner.fitted, winner.known)
    if loser is not None and loser.fitted is not None:
        more_tasks, more_replayed = stage.cost(loser.fitted, loser.known)
        tasks, replayed = tasks + more_tasks, replayed + more_replayed
    added = good and winner.name == "candidate"
    return _Done(after if good else learner, winner.fitted, tasks, replayed, added)


def _proposed(before: Growth, stage: _Stage, prototypes: np.ndarray, note: Note) -> bool:
    """Whether a vertex is proposed."""
    learner, n = cast(ExtendedARML, before.learner), stage.options.tasks
    fresh = band(log_losses(learner, stage.train.of(stage.shares), "train", n))
    reference = band(np.concatenate([stage.losses(learner, name) for name in before.known]))
    new = novelty(learner, stage.train.of(uniform(before.known)), prototypes, n=n)
    room = (own_vertices(learner) or 0) < stage.options.most
    proposed = room and (fresh[0] > reference[2] or new > 1)
    note("propose" if proposed else "keep", fresh=fresh, reference=reference, novelty=new)
    return proposed


def _pruned(
    learner: MetaLearner,
    names: tuple[str, ...],
    held: Mixture,
    known: tuple[str, ...],
    options: GrowthOptions,
    note: Note,
) -> tuple[MetaLearner, tuple[str, ...]]:
    """The learner without the vertices that no family needs; they are removed one at a time."""
    while own_vertices(learner) is not None:
        graph = cast(ExtendedARML, learner)
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


# The measurements.

LEAST = 1e-8
"""Losses below this bound are raised to it before the logarithm."""
HANDICAPS = np.linspace(0, 3, 13)
"""The handicaps that are tried for a new vertex."""


def _each(look: Look, learner: MetaLearner, tasks: TaskDistribution, split: str, n: int) -> Any:
    """`look` of the first `n` tasks of a split."""
    chunk = min(n, at_once_by_default(tasks.problem))
    return concatenated(looks(look, learner, tasks, split=split, n=n, chunk=chunk))


def band(log_losses: Float[np.ndarray, " n"]) -> tuple[float, float, float]:
    """The median of log losses between the ends of its 95% interval, which have the ranks
    n / 2 -+ 1.96 sqrt(n) / 2 of the sorted values."""
    ordered, n = np.sort(log_losses), len(log_losses)
    reach = 0.98 * math.sqrt(n)
    low, high = math.floor(n / 2 - reach), math.ceil(n / 2 + reach)
    ends = ordered[max(0, low)], ordered[min(n - 1, high)]
    return float(ends[0]), float(np.median(ordered)), float(ends[1])


def _query_loss(learner: MetaLearner, task: Task, key: Array) -> Float[Array, ""]:
    predicted = learner.adapt(task.support, key=key).predict(task.query.x)
    return jnp.log(jnp.maximum(learner.loss(predicted, task.query.y), LEAST))


def log_losses(
    learner: MetaLearner, tasks: TaskDistribution, split: str, n: int
) -> Float[np.ndarray, " n"]:
    """The logarithm of the query loss after adaptation, of the first `n` tasks of a split; a loss
    that is not a number counts as infinite."""
    losses = _each(_query_loss, learner, tasks, split, n).astype(np.float64)
    return np.where(np.isnan(losses), np.inf, losses)


def gained(before: Float[np.ndarray, " n"], after: Float[np.ndarray, " n"]) -> Score:
    """The mean fall of the log loss over the same tasks, with its interval: above zero is better.
    It has no mean where a loss is not finite."""
    return paired(before, after)


def excludes_zero(score: Score) -> bool:
    """Whether the interval lies above zero."""
    mean, half = score["mean"], score["ci95"]
    return mean is not None and half is not None and mean > half


def within(lost: Score, bound: float) -> bool:
    """Whether the interval of a loss reaches down to the bound or below it."""
    mean, half = lost["mean"], lost["ci95"]
    return mean is not None and half is not None and mean - half <= bound


def handicap(learner: ExtendedARML, tasks: Sequence[TaskDistribution], *, n: int) -> float:
    """The handicap of the newest vertex that lowers the product over families of their mean losses
    most, so that each family's relative change counts the same. `tasks` are training tasks of each
    family. The newest vertex of the learner has no handicap yet."""
    totals = np.zeros(len(HANDICAPS))
    for family in tasks:
        misfits, losses = _each(choices, learner, family, "train", n)
        others = misfits[:, :-1].min(axis=1)
        other = losses[np.arange(n), misfits[:, :-1].argmin(axis=1)]
        for i, more in enumerate(HANDICAPS):
            chosen = np.where(misfits[:, -1] + more < others, losses[:, -1], other)
            totals[i] += np.log(max(float(np.mean(chosen, dtype=np.float64)), LEAST))
    return float(HANDICAPS[np.argmin(np.nan_to_num(totals, nan=np.inf))])


def signatures(
    learner: ExtendedARML, tasks: TaskDistribution, split: str, n: int
) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "n vertices"]]:
    """The mean prototype of each task, and how much it reads each vertex."""
    prototypes, readings = _each(signature, learner, tasks, split, n)
    return prototypes.astype(np.float64), readings.astype(np.float64)


def novelty(
    learner: ExtendedARML, known: TaskDistribution, fresh: Float[np.ndarray, "m d"], *, n: int
) -> float:
    """The median distance of fresh tasks to known ones, over the distance that 95% of held-out
    known tasks do not exceed: above 1 the support sets are novel."""
    bank = signatures(learner, known, "train", n)[0]
    seen = Novelty(bank.astype(np.float32), 1.0, None)
    held = signatures(learner, known, "validation", n)[0]
    return float(np.median(seen.distances(fresh)) / threshold(seen.distances(held)))


def unneeded(
    learner: ExtendedARML, tasks: Mixture, known: tuple[str, ...], *, n: int
) -> tuple[int | None, list[Json]]:
    """The vertex whose removal hurts no known family (the least read one if there are several), and
    for each vertex the effect of its removal on each family, as `interventions` returns it.

    A family is hurt if the mean or the median of its tasks' scores is worse, after Holm's
    correction for all vertices and families.
    """
    if (own_vertices(learner) or 0) < 2:
        return None, []
    equal = tasks.of(uniform(known))
    chunk = min(n, at_once_by_default(tasks.problem))
    found = interventions(
        learner, equal, n=n * len(known), chunk=chunk, split="validation", readings=False
    )["vertices"]
    effects = [{name: row[name] for name in known} for row in found]
    free = [v for v, row in enumerate(effects) if not any(map(_hurt, row.values()))]
    if not free:
        return None, effects
    reads = signatures(learner, equal, "validation", n)[1].mean(axis=0)
    return min(free, key=lambda v: float(reads[v])), effects


def _hurt(entry: Json) -> bool:
    by_mean = entry["mean"] is None or (
        entry["mean"] > 0 and entry["adjusted"] is not None and entry["adjusted"] < LEVEL
    )
    by_sign = entry["worse"] is not None and entry["worse"] > 0.5 and entry["adjusted_sign"] < LEVEL
    return bool(by_mean or by_sign)
