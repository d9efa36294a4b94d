"""A learner grows by one stage of a stream: propose a vertex, train it, accept it, guard.

- **Propose** a vertex if the median log loss of fresh tasks, after adaptation, lies above the
  reference band, the interval of that median over all known families.
- **Train** two learners for a part of the stage's steps. The candidate has a new vertex, which
  starts from the part that fits fresh tasks best and learns from fresh tasks only. In its rival the
  part that fresh tasks read most learns, with a stated share of replayed tasks of the known
  families that read this part. Everything else stays as it is in both.
- **Accept** the vertex only if it gains on held-out tasks of the new families, paired task by task,
  with an interval that excludes zero: against the rival, or against the learner before the stage if
  the rival harms known families. The winner trains on for the other steps.
- **Guard:** the stage is undone if a known family loses more than `BOUND` on held-out tasks, or if
  the new families gain nothing.

A learner whose vertices own no modulation trains all weights with replay, and so does any learner
without the option `grow`. Each decision is a record with its numbers. No decision depends on test
tasks. Squared errors have heavy tails, so losses are compared as logarithms, task by task.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from arml.algorithms.arml_extensions import ExtendedARML
from arml.core.checks import at_least
from arml.core.episodes import Task, TaskDistribution
from arml.core.learner import MetaLearner
from arml.experiment.options import Experiment
from arml.growth.replay import replay
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
from arml.results.files import Json
from arml.results.scores import Score, paired
from arml.tasks.mixture import Mixture, Stage
from arml.training.evaluate import Look, at_once_by_default, concatenated, looks
from arml.training.fit import Fitted, fit

TRIAL = 0.25
"""Share of the steps that a candidate and its rival each take before one is chosen. Both are
counted."""
BOUND = 0.1
"""The most by which a stage may raise the log loss of a known family: 0.1 is about 10% of the loss.
A stage is undone if the whole interval lies above."""
MOST = 16
"""The most vertices that a learner may have."""


@dataclass(frozen=True)
class StreamOptions:
    """Which families arrive when, and how known ones are kept."""

    order: tuple[str, ...] = ()
    """The families in the order in which they arrive; one may come back. All of them if empty."""
    replay: float = 0.5
    """Share of the training tasks that are of known families."""
    keep: int = 100
    """Tasks of each family that are kept for replay."""
    held: int = 200
    """Held-out tasks of each family for a decision, and test tasks for a score."""
    grow: bool | None = None
    """Propose vertices, or train all weights with replay. By default a learner grows if its
    vertices own the weights of the network (`--gate weights`): vertices that own templates add less
    than replay."""

    def check(self) -> None:
        """Raise `ValueError` if an option is invalid."""
        at_least(self, ("keep",), 1)
        at_least(self, ("replay",), 0, most=1)
        at_least(self, ("held",), 2)

    def stages(self, families: Sequence[str]) -> tuple[str, ...]:
        """The family of each stage.

        **Raises** `ValueError` for a family that is not there.
        """
        order = self.order or tuple(families)
        odd = next((name for name in order if name not in families), None)
        if odd is not None:
            raise ValueError(
                f"unknown family {odd!r} in the order of the stream: expected some of "
                f"{', '.join(families)}"
            )
        return order


@dataclass(frozen=True)
class Growth:
    """A learner between two stages."""

    learner: MetaLearner
    known: tuple[str, ...] = ()
    """The families that have arrived."""
    stages: int = 0
    """Stages so far."""
    records: tuple[Json, ...] = ()
    """The record of each decision."""


def grown(
    before: Growth,
    train: Mixture,
    held: Mixture,
    stage: Stage,
    options: StreamOptions,
    experiment: Experiment,
    *,
    memory: Task,
) -> Growth:
    """The learner after one stage.

    **Arguments**

    - `train`, `held`: all families, for training and for decisions.
    - `stage`: the share of each family that arrives.
    - `experiment`: how the stage is trained: its steps, batch, optimiser and seed.
    - `memory`: kept tasks of each family (`replay.kept`), of which those of known families are
      replayed.

    **Raises** `ValueError` for invalid options.
    """
    options.check()
    work = _Work(options, experiment, before.stages, train, held, stage, memory, before.known)
    grows = owns_weights(before.learner) if options.grow is None else options.grow
    if grows and before.known and own_vertices(before.learner) is not None:
        result = _by_vertices(cast(ExtendedARML, before.learner), work)
    else:
        fitted = work.fit(before.learner, before.known, experiment.steps)
        result = _Result(fitted.learner, fitted, *work.cost(fitted, before.known))
    losses = [[record["step"], record["loss"]] for record in result.fitted.history]
    work.note("trained", tasks=result.tasks, replayed=result.replayed, losses=losses)
    known = tuple(dict.fromkeys((*before.known, *stage)))
    return Growth(result.learner, known, before.stages + 1, (*before.records, *work.records))


class _Result(NamedTuple):
    """The learner after the trainings of a stage, and what they cost."""

    learner: MetaLearner
    fitted: Fitted
    """The training that was chosen."""
    tasks: int
    """Training tasks, with those of the loser of a trial."""
    replayed: int


@dataclass(frozen=True)
class _Work:
    """The data of one stage, the trainings and measurements that its decisions need, and the
    records of these decisions."""

    options: StreamOptions
    experiment: Experiment
    index: int
    """The number of the stage."""
    train: Mixture
    held: Mixture
    stage: Stage
    memory: Task
    known: tuple[str, ...]
    """The families that are known before it."""
    records: list[Json] = field(default_factory=list)

    def note(self, decision: str, **numbers: Any) -> None:
        """Keep the record of a decision."""
        self.records.append({"stage": self.index, "decision": decision, **numbers})

    @property
    def every(self) -> int:
        """Steps between two records of a training: ten are taken in a stage."""
        return max(1, self.experiment.steps // 10)

    @property
    def fresh(self) -> Mixture:
        """Training tasks of the stage."""
        return self.train.of(self.stage)

    @property
    def outside(self) -> tuple[str, ...]:
        """The known families that are not of the stage."""
        return tuple(name for name in self.known if name not in self.stage)

    def tasks(self, known: Sequence[str]) -> TaskDistribution:
        """The stage's tasks, with replayed ones of these known families."""
        return replay(self.fresh, self.memory, known, self.options.replay)

    def known_tasks(self, family: str) -> TaskDistribution:
        """Kept tasks of a known family."""
        return replay(self.fresh, self.memory, [family], 1.0)

    def fit(self, learner: MetaLearner | Fitted, known: Sequence[str], steps: int) -> Fitted:
        """Train until the step `steps` of the stage."""
        if isinstance(learner, Fitted) and learner.step >= steps:
            return learner
        return fit(
            learner,
            self.tasks(known),
            steps=steps,
            seed=self.experiment.seed * 1_000 + self.index,
            outer=self.experiment.outer,
            batch=self.experiment.batch,
            interval=self.every,
        )

    def cost(self, fitted: Fitted, known: Sequence[str]) -> tuple[int, int]:
        """The tasks of a training, and how many of them were replayed."""
        tasks = fitted.step * self.experiment.batch
        replays = any(name not in self.stage for name in known)
        return tasks, round(self.options.replay * tasks) if replays else 0

    def losses(self, learner: MetaLearner, family: str | None = None) -> Float[np.ndarray, " n"]:
        """The log losses on held-out tasks of the stage, or of one family."""
        held = self.held.of(self.stage) if family is None else self.held.only(family)
        return log_losses(learner, held, "validation", self.options.held)

    def lost(self, before: MetaLearner, after: MetaLearner) -> dict[str, Score]:
        """The rise of the log loss of each known family outside the stage."""
        return {n: paired(self.losses(after, n), self.losses(before, n)) for n in self.outside}

    def safe(self, lost: Mapping[str, Score]) -> bool:
        """Whether no known family loses more than the bound."""
        return all(within(one, BOUND) for one in lost.values())


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

    def until(self, work: _Work, steps: int) -> "_Trial":
        """Trained until the step `steps`."""
        start = alone(self.learner, self.part) if self.fitted is None else self.fitted
        return replace(self, fitted=work.fit(start, self.known, steps))

    def whole(self, work: _Work) -> ExtendedARML:
        """The whole learner with the trained part."""
        assert self.fitted is not None
        whole = with_owned(self.learner, self.part, self.fitted.learner)
        if self.name == "rival":
            return whole
        tasks = [work.fresh, *map(work.known_tasks, work.known)]
        return handicapped(whole, handicap(whole, tasks, n=work.options.held))

    def cost(self, work: _Work) -> tuple[int, int]:
        """Its training tasks, and how many of them were replayed."""
        assert self.fitted is not None
        return work.cost(self.fitted, self.known)


def _by_vertices(learner: ExtendedARML, work: _Work) -> _Result:
    """Propose, train, accept, guard."""
    held, steps, pieces = work.options.held, work.experiment.steps, parts(learner)
    prototypes, reads = signatures(learner, work.fresh, "train", held)

    def most_read(reads: np.ndarray) -> int:
        return int(np.argmax([reads[piece].sum() for piece in pieces]))

    def read_by(family: str) -> int:
        tasks = work.held.only(family)
        return most_read(signatures(learner, tasks, "validation", held)[1])

    own = most_read(reads)
    sharing = [name for name in work.known if read_by(name) == own]
    winner = _Trial("rival", learner, pieces[own], sharing)
    cost = np.zeros(2, int)
    if _proposed(learner, work):
        trial = work.every * max(1, round(TRIAL * steps / work.every))
        # The part that fits fresh tasks best, if all of them read it.
        misfits = [float(np.median(work.losses(alone(learner, piece)))) for piece in pieces]
        best = pieces[int(np.argmin(misfits))]
        blend = np.zeros(len(reads))
        blend[best] = reads[best] + 1e-6
        more = with_vertex(learner, prototypes, blend)
        candidate = _Trial("candidate", more, parts(more)[-1], ()).until(work, trial)
        rival = winner.until(work, trial)
        # A rival that harms known families does not count: the candidate then has to beat the
        # learner before the stage.
        lost = work.lost(learner, rival.whole(work))
        against = "old" if work.safe(lost) else "before"
        opponent = rival.whole(work) if against == "old" else learner
        gain = paired(work.losses(opponent), work.losses(candidate.whole(work)))
        accepted = excludes_zero(gain)
        decision = "accept" if accepted else "reject"
        work.note(decision, steps=trial, gain=gain, against=against, rival_lost=lost)
        winner, loser = (candidate, rival) if accepted else (rival, candidate)
        cost += loser.cost(work)
    winner = winner.until(work, steps)
    assert winner.fitted is not None
    after = winner.whole(work)
    gain, lost = paired(work.losses(learner), work.losses(after)), work.lost(learner, after)
    good = excludes_zero(gain) and work.safe(lost)
    work.note("keep stage" if good else "undo stage", gain=gain, lost=lost)
    tasks, replayed = (cost + winner.cost(work)).tolist()
    return _Result(after if good else learner, winner.fitted, tasks, replayed)


def _proposed(learner: ExtendedARML, work: _Work) -> bool:
    """Whether a vertex is proposed."""
    fresh = band(log_losses(learner, work.fresh, "train", work.options.held))
    reference = band(np.concatenate([work.losses(learner, name) for name in work.known]))
    room = (own_vertices(learner) or 0) < MOST
    proposed = room and fresh[0] > reference[2]
    work.note("propose" if proposed else "keep", fresh=fresh, reference=reference)
    return proposed


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
) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " vertices"]]:
    """The mean prototype of tasks, and how much they read each vertex, on average."""
    prototypes, readings = _each(signature, learner, tasks, split, n)
    return prototypes.mean(axis=0, dtype=np.float64), readings.mean(axis=0, dtype=np.float64)
