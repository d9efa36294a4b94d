"""Growing by vertices: a vertex of ARML's graph is added where a family is new, and trained alone.

A learner meets a stream of families, in three ways at equal steps and tasks:

- `growing`: see below.
- `fine-tuning`: the stage's tasks only.
- `replay`: these and kept tasks of known families.

A stage of growing has four decisions:

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

No decision depends on test tasks. Squared errors have heavy tails, so losses are compared as
logarithms, task by task. The parts of a learner, which learn alone, are: all vertices that it was
built with, as one part, because a task reads them by their places; and each vertex that was added.

    python -m study.growing --table               # the measures of results/growing.json
    python -m study.growing --pictures --seeds 0 1 2   # a finished row is not run again

The files also have rows of ways that left this script: training from scratch on all families so far
(`joint`), one model for each family (`own`), replay with all vertices from the start (`final
capacity`), MAML on all families so far (`ftml`), and HSML that adds leaves (`hsml-dynamic`). In
`growing`, vertices that no family needed were then removed, too: 1 in 63 stages of functions, 16 in
54 of pictures.

[1] Jerfel, Grant, Griffiths and Heller, Reconciling Meta-learning and Continual Learning with
    Online Mixtures of Tasks, NeurIPS 2019.
"""

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

import arml
from arml.algorithms.arml_extensions import Evidence, ExtendedARML, Templates
from arml.core.episodes import Examples, Task, TaskDistribution
from arml.core.learner import Adapted, Code, Loss, MetaLearner
from arml.experiment.options import Experiment
from arml.report.tables import METRIC_NAMES, Cell, Line, Table, markdown
from arml.results.files import Json, JsonView, read_json, write_json
from arml.results.scores import Score, paired
from arml.tasks.functions import FAMILY_NAMES
from arml.tasks.mixture import Mixture, Stage, mixture
from arml.tasks.options import FunctionsOptions, StarterOptions
from arml.tasks.splits import splits_of
from arml.training.evaluate import Look, at_once_by_default, concatenated, looks
from arml.training.fit import Fitted
from study.replay import kept, measures, replay

RESULTS = Path(__file__).parent / "results"

TRIAL = 0.25
"""Share of the steps that a candidate and its rival each take before one is chosen. Both are
counted."""
BOUND = 0.1
"""The most by which a stage may raise the log loss of a known family: 0.1 is about 10% of the loss.
A stage is undone if the whole interval lies above."""
MOST = 16
"""The most vertices that a learner may have."""


@dataclass(frozen=True)
class Options:
    """How one way meets a stream."""

    replay: float = 0.5
    """Share of the training tasks that are of known families."""
    held: int = 200
    """Held-out tasks of each family for a decision."""
    grow: bool = True
    """Propose vertices, or train all weights with replay."""


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
    options: Options,
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
    """
    work = _Work(options, experiment, before.stages, train, held, stage, memory, before.known)
    if options.grow and before.known and own_vertices(before.learner) is not None:
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

    options: Options
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
        return arml.fit(
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


# Vertices.


class BestFit(eqx.Module):
    """A task reads ONE of the grown vertices, or all others by their places. It takes the choice
    whose adapted network explains its support set best, as in a mixture of initialisations [1]. The
    grown vertices are the last ones.

    The place of a vertex tells families apart only if their prototypes differ. How well its network
    fits the support set tells more, and costs some adaptations for each vertex. In regression the
    misfit is the product of two errors: of all examples after adaptation to all, and of the
    examples of each fold after adaptation to the others, because a flexible network fits any
    examples that it adapts to. `handicaps` are added to the logarithms of the grown vertices'
    misfits.
    """

    handicaps: Float[Array, " grown"]

    @property
    def grown(self) -> int:
        """How many vertices were grown."""
        return len(self.handicaps)

    def readings(self, placed: Float[Array, " vertices"]) -> Float[Array, "choices vertices"]:
        """Candidate weights of the vertices."""
        count = len(placed)
        old = count - self.grown
        ones = jnp.eye(count, dtype=placed.dtype)[old:]
        if not old:
            return ones
        by_place = jnp.where(jnp.arange(count) < old, placed, 0)
        return jnp.concatenate([(by_place / (jnp.sum(by_place) + 1e-30))[None], ones])

    def misfits(
        self, learner: ExtendedARML, support: Examples, code: Code
    ) -> tuple[Float[Array, "choices vertices"], Float[Array, " choices"]]:
        """Candidate weights, and the logarithm of how badly each explains the support set."""
        still: ExtendedARML = jax.tree.map(
            lambda a: jax.lax.stop_gradient(a) if eqx.is_inexact_array(a) else a, learner
        )
        count = len(jax.tree.leaves(learner.modulate)[0])
        readings = self.readings(jax.lax.stop_gradient(code[:count]))
        n = len(support.x)
        parts = next((k for k in (5, 4, 3, 2) if n % k == 0), 1)
        folds = jnp.arange(n).reshape(-1, parts).T

        def error(reading: Array, given: Examples, query: Examples) -> Float[Array, ""]:
            own = still.encode(still.look(given))[0][count:]
            adapted = still.adapt_from(jnp.concatenate([reading, own]), 0.0, given)
            return jnp.maximum(learner.loss(adapted.predict(query.x), query.y), 1e-12)

        def misfit(reading: Float[Array, " vertices"]) -> Float[Array, ""]:
            whole = jnp.log(error(reading, support, support))
            if jnp.issubdtype(support.y.dtype, jnp.integer) or parts == 1:
                return whole

            def left_out(i: Array) -> Float[Array, ""]:
                others = jnp.delete(folds, i, axis=0, assume_unique_indices=True).reshape(-1)
                given, query = (Examples(support.x[r], support.y[r]) for r in (others, folds[i]))
                return error(reading, given, query)

            return whole + jnp.log(jnp.mean(jax.vmap(left_out)(jnp.arange(parts))))

        misfits = jax.vmap(misfit)(readings)
        return readings, misfits.at[-self.grown :].add(self.handicaps)

    def __call__(self, learner: ExtendedARML, support: Examples, code: Code) -> Code:
        readings, misfits = self.misfits(learner, support, code)
        return jnp.concatenate([readings[jnp.argmin(misfits)], code[readings.shape[1] :]])


def own_vertices(learner: MetaLearner) -> int | None:
    """How many vertices own a modulation; None for a learner without such vertices, and for one
    that reads by evidence: such a learner does not grow."""
    if not isinstance(learner, ExtendedARML) or isinstance(learner.choose, Evidence):
        return None
    owned = isinstance(learner.modulate, Templates)
    return len(_graph(learner).vertices) if owned else None


def parts(learner: ExtendedARML) -> list[slice]:
    """The vertices of each part."""
    count, grown = len(_graph(learner).vertices), grown_vertices(learner)
    old = [slice(0, count - grown)] if count > grown else []
    return old + [slice(v, v + 1) for v in range(count - grown, count)]


def grown_vertices(learner: ExtendedARML) -> int:
    """How many of its vertices were grown."""
    return learner.choose.grown if isinstance(learner.choose, BestFit) else 0


def _graph(learner: Any) -> Any:
    return learner.encode.graph


def signature(
    learner: ExtendedARML, task: Task, key: PRNGKeyArray
) -> tuple[Float[Array, " d"], Float[Array, " vertices"]]:
    """The mean prototype of ONE task, and how much it reads each vertex."""
    trace = learner.reading()(task.support)
    return jnp.mean(trace.prototypes, axis=0), trace.weights


def with_vertex(
    learner: ExtendedARML, place: Float[np.ndarray, " d"], reading: Float[np.ndarray, " vertices"]
) -> ExtendedARML:
    """The learner with one vertex more, at `place`, which owns the blend by `reading`."""
    weights = jnp.asarray(reading / reading.sum(), jnp.float32)
    vertex = jnp.asarray(place, jnp.float32)[None]

    def grown(rows: Array) -> Array:
        return jnp.concatenate([rows, jnp.tensordot(weights, rows, 1)[None]])

    more = eqx.tree_at(
        lambda m: (_graph(m).vertices, m.modulate),
        learner,
        (
            jnp.concatenate([_graph(learner).vertices, vertex]),
            jax.tree.map(grown, learner.modulate),
        ),
    )
    before = learner.choose.handicaps if isinstance(learner.choose, BestFit) else jnp.zeros(0)
    return replace(more, choose=BestFit(jnp.append(before, 0.0)))


def handicapped(learner: ExtendedARML, handicap: float) -> ExtendedARML:
    """The learner with this handicap for its newest vertex."""
    assert isinstance(learner.choose, BestFit)
    handicaps = learner.choose.handicaps.at[-1].set(handicap)
    return replace(learner, choose=BestFit(handicaps))


def choices(
    learner: ExtendedARML, task: Task, key: PRNGKeyArray
) -> tuple[Float[Array, " choices"], Float[Array, " choices"]]:
    """The misfit of each choice of ONE task, and the query loss after it."""
    assert isinstance(learner.choose, BestFit)
    support = task.support
    code = learner.encode(learner.look(support))[0]
    readings, misfits = learner.choose.misfits(learner, support, code)
    own = code[readings.shape[1] :]

    def loss(reading: Float[Array, " vertices"]) -> Float[Array, ""]:
        adapted = learner.adapt_from(jnp.concatenate([reading, own]), 0.0, support)
        return learner.loss(adapted.predict(task.query.x), task.query.y)

    return misfits, jax.vmap(loss)(readings)


class Alone(MetaLearner):
    """One part of a learner. Only the modulation that its vertices own is trained."""

    learner: ExtendedARML
    loss: Loss = eqx.field(static=True)

    def adapt(self, support: Examples, *, key: PRNGKeyArray) -> Adapted:
        still: ExtendedARML = jax.tree.map(
            lambda a: jax.lax.stop_gradient(a) if eqx.is_inexact_array(a) else a, self.learner
        )
        return replace(still, modulate=self.learner.modulate).adapt(support, key=key)


def alone(learner: ExtendedARML, part: slice) -> Alone:
    """The learner with the vertices of one part only."""
    rows = (_graph(learner).vertices, learner.modulate)
    cut: ExtendedARML = eqx.tree_at(
        lambda m: (_graph(m).vertices, m.modulate),
        replace(learner, choose=None),
        jax.tree.map(lambda a: a[part], rows),
    )
    return Alone(learner=cut, loss=learner.loss)


def with_owned(learner: ExtendedARML, part: slice, trained: MetaLearner) -> ExtendedARML:
    """The learner with the modulation that the vertices of a part have in `trained`."""
    assert isinstance(trained, Alone)
    owned = jax.tree.map(
        lambda rows, own: rows.at[part].set(own), learner.modulate, trained.learner.modulate
    )
    return replace(learner, modulate=owned)


# Streams, and the table of the ways.

WAYS = ("growing", "replay", "fine-tuning")
ART = tuple(
    f"{name}{end}" for end in ("", "-blur", "-pencil") for name in ("glyphs", "icons", "textures")
)


@dataclass(frozen=True)
class Setting:
    """Tasks, and the streams of their families."""

    recipe: str
    tasks: Any
    orders: dict[str, tuple[str, ...]]
    metric: str
    file: Path
    keep: int
    """Tasks of each family in the memory."""

    def experiment(self) -> Experiment:
        """The experiment with one vertex."""
        made = arml.recipe(self.recipe)
        algorithm = replace(made.algorithm, vertices=1)
        if self.metric == "mse":
            algorithm = replace(algorithm, gate="weights")
            outer = arml.OuterOptions(clip=10.0, rates_factor=0.1)
            made = replace(made, outer=outer)
        return replace(made, algorithm=algorithm, tasks=self.tasks)


SETTINGS = {
    "functions": Setting(
        "regression2d/arml-layers",
        FunctionsOptions(),
        {
            "as listed": FAMILY_NAMES,
            "reversed": FAMILY_NAMES[::-1],
            "mixed": ("quadratic", "ripple", "line", "quadratic surface", "sinusoid", "cubic"),
            "A-B-A": ("line", "sinusoid", "line"),
        },
        "mse",
        RESULTS / "growing.json",
        200,
    ),
    "pictures": Setting(
        "starter-art/arml",
        # A task reads vertices by how its classes spread, which takes more than one shot.
        StarterOptions(art=True, shots=5, queries=10),
        {"as listed": ART, "reversed": ART[::-1], "A-B-A": (ART[0], ART[2], ART[0])},
        "accuracy",
        RESULTS / "growing-pictures.json",
        30,
    ),
}


def measured(
    made: Experiment, keep: int, way: str, order: tuple[str, ...], seed: int, given: Any
) -> list[Any]:
    """The record of each stage of one way on one stream."""
    train, held, test = (mixture(part) for part in splits_of(made.tasks)[:3])
    growth = Growth(arml.build(made.algorithm, train, seed=seed, network=made.network))
    options = Options(
        replay=0.0 if way == "fine-tuning" else given.replay,
        held=given.held,
        grow=way == "growing",
    )
    staged = replace(made, steps=given.steps, seed=seed)
    memory = kept(train, keep, key=jax.random.key(1_000 + seed))
    records = []
    for family in order:
        growth = grown(growth, train, held, {family: 1.0}, options, staged, memory=memory)
        scores = {
            name: arml.evaluate(growth.learner, test.only(name), given.tested, progress=False).mean
            for name in dict.fromkeys(order)
        }
        cost = {name: growth.records[-1][name] for name in ("tasks", "replayed")}
        vertices = own_vertices(growth.learner) or 0
        records.append({"family": family, "scores": scores, "vertices": vertices, **cost})
    return records


def growing_table(study: JsonView) -> Table:
    """A row for each way through each order, over its seeds."""
    metric = study["metric"]
    groups: dict[tuple[str, str], list[JsonView]] = {}
    for row in study["rows"].values():
        groups.setdefault((row["order"], row["way"]), []).append(row)
    sign, lines = 1 if metric == "mse" else -1, []
    for order in dict.fromkeys(order for order, _ in groups):
        rows = []
        for way in (way for name, way in groups if name == order):
            own = groups[order, way]
            streams = [measures(row["stages"], metric) for row in own]
            vertices = [row["stages"][-1]["vertices"] for row in own]
            means = [stream["final_mean"] for stream in streams]
            cells = (
                ", ".join(str(row["seed"]) for row in sorted(own, key=lambda row: row["seed"])),
                _spread(means, metric),
                _share([stream["forgetting"] for stream in streams]),
                " / ".join(map(str, vertices)),
                f"{fmean([stream['tasks'] for stream in streams]):,.0f}",
                f"{fmean([stream['replayed'] for stream in streams]):,.0f}",
            )
            rows.append((sign * fmean(means), Line(f"{order}: {way}", tuple(map(Cell, cells)))))
        lines += [line for _, line in sorted(rows, key=lambda row: row[0])]
    headings = ("order: way", "seeds", f"final {METRIC_NAMES[metric]}", "forgetting")
    columns = (*headings, "vertices", "training tasks", "replayed")
    return Table("Ways to meet a stream", tuple(columns), tuple(lines))


def _spread(values: list[float], metric: str) -> str:
    scale, digits = (100, 1) if metric == "accuracy" else (1, 3)
    spread = f" (SD {scale * stdev(values):.{digits}f})" if len(values) > 1 else ""
    return f"{scale * fmean(values):.{digits}f}{'%' if metric == 'accuracy' else ''}{spread}"


def _share(values: list[float]) -> str:
    """The mean of shares, with their range where there are several."""
    if not np.isfinite(values).all():
        return "-"
    several = f" ({min(values):+.0%} to {max(values):+.0%})" if len(values) > 1 else ""
    return f"{fmean(values):+.0%}{several}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", action="store_true", help="the starter pictures")
    parser.add_argument("--orders", nargs="+", help="all of them if not given")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--steps", type=int, default=1_000, help="outer steps of a stage")
    parser.add_argument("--replay", type=float, default=0.5, help="share of replayed tasks")
    parser.add_argument("--held", type=int, default=200, help="held-out tasks of a decision")
    parser.add_argument("--tested", type=int, default=400, help="test tasks of a family")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", action="store_true", help="print the measures and end")
    given = parser.parse_args()
    setting = SETTINGS["pictures" if given.pictures else "functions"]
    out = given.out or setting.file
    known = read_json(out) if out.exists() else {}
    rows: dict[str, Any] = known.get("rows", {})
    if given.table:
        print(markdown(growing_table(known)))
        return
    names = ("steps", "replay", "held", "tested")
    protocol = {**{name: getattr(given, name) for name in names}, "kept": setting.keep}
    if known and known["protocol"] != protocol:
        raise SystemExit(f"{out} has other options: {known['protocol']}; name another --out")
    for seed in given.seeds:
        for order in given.orders or setting.orders:
            for way in given.ways:
                key = f"{order}/{seed}/{way}"
                if key not in rows:
                    made, families = setting.experiment(), setting.orders[order]
                    stages = measured(made, setting.keep, way, families, seed, given)
                    rows[key] = {"order": order, "seed": seed, "way": way, "stages": stages}
                    value = {"protocol": protocol, "metric": setting.metric}
                    write_json(out, {**value, "rows": rows})
                    print(key, stages[-1]["scores"], flush=True)


if __name__ == "__main__":
    main()
