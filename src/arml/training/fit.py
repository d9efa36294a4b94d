"""Meta-training: the outer loop. One compiled step draws a batch of tasks on the device, adapts to
each, and moves the meta-parameters against the mean gradient.

`intervals` is the loop over outer steps. `fit` keeps its results in memory, and `arml.run` writes
them to a run folder. Both give the same learner, bit for bit.

With averaged weights [1] the learner is, in the last part of a training, the mean of the weights
after each step. Gradients are still computed at the newest weights.

[1] Izmailov, Podoprikhin, Garipov, Vetrov and Wilson, Averaging Weights Leads to Wider Optima and
    Better Generalization, UAI 2018.
"""

import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import lru_cache, partial
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray, PyTree

from arml.algorithms.conditioned import Conditioned
from arml.core.checks import (
    AboveZero,
    Fraction,
    NonNegative,
    Options,
    Period,
    Size,
    Steps,
    Whole,
    check_options,
    check_types,
)
from arml.core.compilation import FEW_SECONDS, jit, vmap
from arml.core.episodes import Problem, Task, TaskDistribution
from arml.core.inner import GradientDescent, steps_of
from arml.core.inputs import write_folder
from arml.core.learner import MetaLearner, check_suits
from arml.core.losses import score_of
from arml.core.own_tasks import fault
from arml.core.registry import with_options
from arml.nn.residual import with_drops
from arml.results.files import Json, JsonView, RunError
from arml.results.machine import one_blas_thread
from arml.tasks.splits import TasksLike, splits_of
from arml.training.devices import at_once, everywhere, mesh_of, over_tasks, share
from arml.training.evaluate import at_once_by_default, score_tasks
from arml.training.progress import Update, bar

if TYPE_CHECKING:
    import optax


T = TypeVar("T")


class Averaged(NamedTuple):
    """The state of an optimiser with averaged weights. Gradients are those of the newest ones."""

    newest: PyTree
    inner: "optax.OptState"
    step: Int[Array, ""]


def averaged(
    inner: "optax.GradientTransformation", first: float | Array
) -> "optax.GradientTransformation":
    """The optimiser with weights that are the mean of all weights after the step `first`."""
    import optax

    def init(weights: PyTree) -> Averaged:
        newest = jax.tree.map(jnp.copy, weights)  # the step reuses the memory of both
        return Averaged(newest, inner.init(weights), jnp.zeros((), jnp.int32))

    def update(gradient: PyTree, state: PyTree, weights: PyTree = None) -> tuple[PyTree, Averaged]:
        moves, after = inner.update(gradient, state.inner, state.newest)
        newest = optax.apply_updates(state.newest, moves)
        step = state.step + 1
        share = 1 / jnp.maximum(step - first, 1)
        change = jax.tree.map(lambda new, mean: share * (new - mean), newest, weights)
        return change, Averaged(newest, after, step)

    return optax.GradientTransformation(init, update)


@dataclass(frozen=True)
class Given(Options):
    """An optimiser of Optax, or a function of the number of outer steps that makes one."""

    make: object

    def build(self, steps: int) -> "optax.GradientTransformation":
        """The optimiser for a run of `steps` outer steps."""
        import optax

        made = self.make
        # The first argument of Optax's own functions is the rate, not the number of steps.
        if callable(made) and next(iter(signature(made).parameters), "") != "learning_rate":
            made = made(steps)
        if isinstance(made, optax.MultiSteps):
            raise ValueError(
                "expected outer as an optimiser of Optax, got optax.MultiSteps: give its "
                ".gradient_transformation()"
            )
        if not isinstance(made, optax.GradientTransformation):
            raise ValueError(
                "expected outer as an optimiser of Optax with its rate, as optax.adamw(1e-3), a "
                "function of the number of steps that makes one, or options such as "
                f"arml.OuterOptions(), got {getattr(made, '__name__', type(made).__name__)}"
            )
        return made


OPTIMISERS_WITH = {
    "momentum": ("rmsprop", "sgd"),
    "weight_decay": ("adamw", "lamb", "lion", "nadamw"),
}
"""The optimisers that take an option."""


@dataclass(frozen=True)
class OuterOptions(Options):
    """The outer optimiser.

        arml.OuterOptions(outer_rate=0.003, schedule="cosine", clip=10.0)
        arml.OuterOptions(optimiser="adamw", weight_decay=0.01)

    It minimises the mean of the tasks' outer losses.
    """

    outer_rate: AboveZero = 0.001
    """Its step size."""
    optimiser: Literal[
        "adam", "adamw", "adabelief", "lamb", "lion", "nadam", "nadamw", "radam", "rmsprop", "sgd"
    ] = "adam"
    """A function of Optax, with Optax's defaults for everything that is not an option here."""
    momentum: Fraction | None = None
    """The momentum of sgd and rmsprop."""
    weight_decay: NonNegative | None = None
    """The weight decay of adamw, lamb, lion and nadamw; Optax's default if None."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """The rate stays constant, or falls to zero along a line or half a cosine."""
    warmup: Fraction = 0.0
    """Share of the outer steps, at the start, in which the rate rises from zero."""
    rates_factor: NonNegative = 1.0
    """Factor on the outer steps of learned inner rates: these rates are small compared with Adam's
    steps."""
    encoder_factor: NonNegative = 1.0
    """Factor on the outer steps of task encoders. With 1, an encoder may change too fast for the
    network that it modulates."""
    clip: NonNegative = 0.0
    """Bound on the global norm of the gradient; 0 for no bound."""
    average: Fraction = 0.0
    """Share of the outer steps, at the end, in which the learner is the mean of the weights
    (`arml.training.fit`); 0 for the last weights."""

    def build(self, steps: int | Array) -> "optax.GradientTransformation":
        """The optimiser for a run of `steps` outer steps."""
        import optax  # here, because programs that only predict do not need it

        check_options(self)  # otherwise Optax would report a wrong name
        options = {name: getattr(self, name) for name in OPTIMISERS_WITH}
        own = {name: value for name, value in options.items() if value is not None}
        chain = [
            optax.clip_by_global_norm(self.clip) if self.clip else optax.identity(),
            getattr(optax, self.optimiser)(self.rate(steps), **own),
        ]
        for factor, part in (
            (self.rates_factor, partial(_mask, GradientDescent, lambda rule: rule)),
            (self.encoder_factor, partial(_mask, Conditioned, lambda learner: learner.encode)),
        ):
            if factor != 1:
                chain.append(optax.masked(optax.scale(factor), part))
        whole = optax.chain(*chain)
        # Rounding may put a whole number just below itself.
        first = jnp.floor((1 - self.average) * steps + 1e-3)
        return averaged(whole, first) if self.average else whole

    def rate(self, steps: int | Array) -> Callable[[Array], Array] | float:
        """The step size at each of `steps` outer steps. It rises during the share `warmup` of them,
        and then follows the schedule. `steps` may be a traced array."""
        nothing = isinstance(steps, int) and not steps
        if nothing or (self.schedule == "constant" and not self.warmup):
            return self.outer_rate

        def at(count: ArrayLike) -> Array:
            warmup = jnp.minimum(jnp.round(self.warmup * steps), steps - 1)
            done, total = jnp.clip(count - warmup, 0, steps - warmup), steps - warmup
            factor = {
                "constant": jnp.ones_like(done / total),
                "linear": 1.0 - done / total,
                "cosine": 0.5 * (1.0 + jnp.cos(jnp.pi * done / total)),
            }[self.schedule]
            rise = count / jnp.maximum(warmup, 1)
            return self.outer_rate * jnp.where(count < warmup, rise, factor)

        return at

    def check(self) -> None:
        """Raise `ValueError` if an option is invalid."""
        super().check()
        for name, known in OPTIMISERS_WITH.items():
            if getattr(self, name) is not None and self.optimiser not in known:
                raise ValueError(
                    f"the optimiser {self.optimiser} has no {name}: leave it out, or choose "
                    f"{' or '.join(known)}"
                )


def _mask(kind: type, part: Callable[[PyTree], PyTree], learner: PyTree) -> PyTree:
    """A mask of the learner: True at this part of its nodes of a kind, False elsewhere."""

    def mark(node: PyTree) -> PyTree:
        nowhere = jax.tree.map(lambda _: False, node)
        if not isinstance(node, kind):
            return nowhere
        return eqx.tree_at(part, nowhere, jax.tree.map(lambda _: True, part(node)))

    return jax.tree.map(mark, learner, is_leaf=lambda node: isinstance(node, kind))


class TrainState(eqx.Module):
    """The state of a training between two steps."""

    learner: MetaLearner
    optimiser: "optax.OptState"
    step: Int[Array, ""]


class Record(NamedTuple):
    """The report of one outer step."""

    loss: Float[Array, ""]
    """Mean meta-loss of the batch."""
    bad_family: Int[Array, ""]
    """The family of the first task whose loss is not finite; -1 if all losses are finite."""
    finite: Array
    """Whether loss and gradient are finite."""


Step = Callable[[PyTree, TrainState], tuple[TrainState, Record]]
"""Takes one or more outer steps from a state, on tasks, or on tasks and other values."""


def _copied(tree: T) -> T:
    """A copy, because a compiled step reuses the memory of its input. Its dtypes are explicit: a
    step returns a weakly typed array as a strong one, and would then be compiled again."""
    copied: T = jax.tree.map(lambda a: jnp.array(a, a.dtype) if eqx.is_array(a) else a, tree)
    return copied


def start(learner: MetaLearner, optimiser: "optax.GradientTransformation") -> TrainState:
    """The state before the first step."""
    learner = _copied(learner)
    trained = eqx.filter(learner, eqx.is_inexact_array)
    return TrainState(learner, optimiser.init(trained), jnp.zeros((), jnp.int32))


def task_keys(key: PRNGKeyArray, step: Int[Array, ""], batch: int) -> Array:
    """The keys of the `batch` tasks of an outer step."""
    task_key, _ = jax.random.split(jax.random.fold_in(key, step))
    return jax.random.split(task_key, batch)


Precision = Literal["float32", "bfloat16"]
DROP_STREAM = 0x64726F70
"""Folded into the key of a task: the key for dropping numbers is none of the keys into which
adaptation splits it (`split(key, n)[i]` equals `fold_in(key, i)`)."""


def make_step(
    optimiser: "optax.GradientTransformation",
    *,
    batch: int,
    chunk: int | None = None,
    mesh: Mesh | None = None,
    precision: Precision = "float32",
    key: PRNGKeyArray,
) -> Step:
    """One outer step over `batch` tasks, which the devices of `mesh` share. Each device adapts to
    `chunk` of its tasks at once: a divisor of their number, or None for all. A smaller chunk needs
    less memory. Chunks and devices change only rounding. The step is pure: the tasks of step `s`
    depend only on `key` and `s`. Networks adapt and predict in `precision`. Losses, meta-parameters
    and the gradients of the batch are always in float32."""
    import optax

    own = share(mesh, batch)

    def gradients(
        values: tuple[TaskDistribution, MetaLearner, Array], keys: tuple[Array, Array]
    ) -> tuple[PyTree, PyTree]:
        """The gradient of the batch's mean loss from the tasks of these keys, and the losses and
        families of these tasks. One key draws a task, and one is for its adaptation."""
        tasks, learner, number = values
        drawn = jax.vmap(tasks.sample)(keys[0])
        trained, rest = eqx.partition(learner, eqx.is_inexact_array)

        def objective(trained: MetaLearner, some: Task, keys: Array) -> tuple[Array, Array]:
            learner, some = jax.tree.map(
                lambda a: a.astype(jnp.dtype(precision)) if eqx.is_inexact_array(a) else a,
                (eqx.combine(trained, rest).scheduled(number), some),
            )

            def loss(task: Task, key: Array) -> Array:
                dropping = with_drops(learner, jax.random.fold_in(key, DROP_STREAM))
                found: Array = dropping.meta_loss(task, key=key)
                return found.astype(jnp.float32)

            losses = vmap(loss)(some, keys)
            return jnp.sum(losses) / batch, losses  # Eq. (1), (11)

        def accumulate(total: MetaLearner, some: tuple[Task, Array]) -> tuple[MetaLearner, Array]:
            gradient, losses = jax.grad(objective, has_aux=True)(trained, *some)
            return jax.tree.map(jnp.add, total, gradient), losses

        every = (drawn, keys[1])
        if chunk in (None, own):
            gradient, losses = jax.grad(objective, has_aux=True)(trained, *every)
        else:
            chunks = jax.tree.map(lambda a: a.reshape(-1, chunk, *a.shape[1:]), every)
            zeros = jax.tree.map(jnp.zeros_like, trained)
            gradient, losses = jax.lax.scan(accumulate, zeros, chunks)
            losses = losses.reshape(own)
        return gradient, (losses, drawn.family)

    def step(tasks: TaskDistribution, state: TrainState) -> tuple[TrainState, Record]:
        adapt_key = jax.random.split(jax.random.fold_in(key, state.step))[1]
        keys = (task_keys(key, state.step, batch), jax.random.split(adapt_key, batch))
        newest = state.learner
        if isinstance(state.optimiser, Averaged):
            newest = eqx.combine(state.optimiser.newest, newest)
        values = (tasks, newest, state.step)
        gradient, (losses, families) = over_tasks(mesh, gradients)(values, keys)
        trained, rest = eqx.partition(state.learner, eqx.is_inexact_array)
        loss = jnp.mean(losses)
        # Some transformations of Optax read the loss.
        update = optax.with_extra_args_support(optimiser).update
        updates, optimiser_state = update(gradient, state.optimiser, trained, value=loss)
        learner = eqx.combine(optax.apply_updates(trained, updates), rest)
        bad = ~jnp.isfinite(losses)
        record = Record(
            loss=loss,
            bad_family=jnp.where(jnp.any(bad), families[jnp.argmax(bad)], -1),
            finite=jnp.isfinite(loss) & jnp.isfinite(optax.tree.norm(gradient)),
        )
        return TrainState(learner, optimiser_state, state.step + 1), record

    return step


@lru_cache(maxsize=64)
def compiled(step: Step, steps: int | None = None) -> Step:
    """A compiled step, or `steps` of them compiled as one loop with stacked records. The loop is
    faster for small networks, because it is one dispatch."""
    if steps is None:
        return jit(step, FEW_SECONDS, donate="all-except-first")

    def looped(tasks: PyTree, state: TrainState) -> tuple[TrainState, Record]:
        arrays, static = eqx.partition(state, eqx.is_array)

        def body(arrays: TrainState, _: None) -> tuple[TrainState, Record]:
            state, record = step(tasks, eqx.combine(arrays, static))
            return eqx.filter(state, eqx.is_array), record

        arrays, records = jax.lax.scan(body, arrays, None, length=steps)
        return eqx.combine(arrays, static), records

    return eqx.filter_jit(looped, donate="all-except-first")


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """Options of a training."""

    outer: Options = field(default_factory=OuterOptions)
    steps: Steps = 70_000
    """Outer steps; 0 for a learner without meta-parameters."""
    batch: Size = 25
    """Tasks in one outer step."""
    interval: Period = 100
    """Outer steps between two lines of metrics."""
    validate_every: Period = 1_000
    """Outer steps between two scores on validation tasks, which are at the ends of intervals."""
    validation_tasks: Size = 500
    """Validation tasks for one score."""
    scan: bool = True
    """Compile the steps of an interval as one loop: this is fast for small networks, and slow for
    convolutions on a CPU."""
    chunk: Size = 100
    """About how many tasks are processed at once, in training and in evaluation. In training it is
    the nearest divisor of the batch. Fewer tasks need less memory."""
    precision: Precision = "float32"
    """Precision of activations and inner steps in training. All else is in float32."""
    patience: Whole = 0
    """End after this many validation scores without a better one; with 0, never end early."""
    keep: Literal["last", "best"] = "last"
    """The learner to keep: that of the last step, or that of the best validation score."""

    def check(self) -> None:
        """Raise `ValueError` if an option is invalid."""
        check_types(self)
        check_options(self.outer)

    def chosen(self, records: Sequence[JsonView], step: int, *, falls: bool) -> str:
        """A text on how the learner was chosen in a training that ended at `step`."""
        scores = sum("validation" in record for record in records)
        best, later = best_of(records, falls=falls)
        early = f" of {self.steps:,}" if step < self.steps else ""
        said = f"the last step, {step:,}{early}"
        if self.keep == "best" and best:
            said = f"the best of {scores} validation scores, at step {best:,}"
        if 0 < self.patience <= later:
            said += f"; the training ended after {later} scores without a better one"
        return said


def best_of(records: Sequence[JsonView], *, falls: bool) -> tuple[int, int]:
    """The step of the best validation score of a training (0 if there is none), and the number of
    scores after it. With `falls`, a lower score is better."""
    best, later, top = 0, 0, math.inf
    for record in records:
        if "validation" not in record:
            continue
        score = math.nan if record["validation"] is None else record["validation"]
        score = score if falls else -score
        if score < top:
            best, later, top = record["step"], 0, score
        else:
            later += 1
    return best, later


def seeded(seed: int) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """The keys for the initial weights and for the training tasks."""
    weights, training = jax.random.split(jax.random.key(seed))
    return weights, training


SCORING_STAGE = "scoring validation tasks"


class NotFiniteError(RunError):
    """The loss of a training, or its gradient, is no longer finite."""


class Moment(NamedTuple):
    """The state of a training after an interval: the argument of each callback.

        def is_good(moment):
            return moment.record["loss"] < 0.01

        arml.fit(learner, tasks, steps=400, callbacks=[is_good])

    The training ends early if a callback returns True.
    """

    step: int
    """Outer steps taken so far."""
    steps: int
    """Outer steps of the whole training."""
    record: Mapping[str, float | None]
    """`loss` is the mean meta-loss of the interval. `validation` and `validation_ci95` are the
    score on validation tasks, if they were scored (None if not finite)."""
    state: TrainState
    """The state of the training. The next interval reuses the memory of its arrays."""
    folder: Path | None = None
    """The run folder, if there is one. Its `config.json` has the options."""

    @property
    def learner(self) -> MetaLearner:
        """A copy of the learner, which the next interval does not change."""
        return _copied(self.state.learner)


SLOW_STEP_SECONDS = 0.5
"""Progress is shown after each step if a step takes longer than this."""
Callback = Callable[[Moment], bool | None]
"""Called after each interval. The training ends early if it returns True."""


def checked_callbacks(callbacks: Any) -> list[Callback]:
    """The callbacks. **Raises** `ValueError` unless each can be called with a `Moment`."""
    try:
        for one in (found := [*callbacks]):
            with suppress(ValueError):  # the arguments of some functions of C are not known
                signature(one).bind(None)
    except TypeError as error:
        raise ValueError(
            f"expected callbacks=[FUNCTION, ...], each a function of a Moment, got {callbacks!r}"
        ) from error
    return found


def ends(callbacks: Sequence[Callback], moment: Moment) -> bool:
    """Call all callbacks. **Returns** whether one of them ends the training. **Raises**
    `ValueError` in one line if one returns a value that is not True, False or None."""
    ended = False
    for callback in callbacks:
        answer: object = callback(moment)
        if not (answer is None or isinstance(answer, bool | np.bool_)):
            name = getattr(callback, "__qualname__", type(callback).__qualname__)
            raise ValueError(
                f"expected the callback {name} to return True, which ends the training, or "
                f"nothing, got {answer!r}: change what it returns"
            )
        ended |= bool(answer)
    return ended


@lru_cache(maxsize=64)
def _step(
    outer: Options, own: int | None, batch: int, chunk: int, mesh: Mesh | None, precision: Precision
) -> Step:
    """One outer step, with values for the tasks, the data of the training's key and its number of
    steps. It is one program for all seeds, and for any number of steps if `own` is None."""

    def step(
        values: tuple[TaskDistribution, Array, Array], state: TrainState
    ) -> tuple[TrainState, Record]:
        tasks, data, steps = values
        key, optimiser = jax.random.wrap_key_data(data), outer.build(steps if own is None else own)
        one = make_step(
            optimiser, batch=batch, chunk=chunk, mesh=mesh, precision=precision, key=key
        )
        return one(tasks, state)

    return step


def intervals(
    options: FitOptions,
    state: TrainState,
    train: TaskDistribution,
    validation: TaskDistribution | None,
    *,
    key: PRNGKeyArray,
    mesh: Mesh | None = None,
    each: Callable[[int, float], object] = lambda step, loss: None,
    scoring: Callable[[int, int], None] = lambda done, total: None,
) -> Generator[Moment]:
    """Train from `state` to the step `options.steps`, one interval at a time. After every step that
    takes longer than `SLOW_STEP_SECONDS`, `each` is called with its number and the mean loss of the
    interval so far. If it returns True, the interval ends there. `scoring` is called with the
    number of validation tasks that have been scored and with the total. **Raises** `NotFiniteError`
    if a loss or a gradient is not finite."""
    done, batch = int(state.step), options.batch
    chunk = at_once(options.chunk, share(mesh, batch))
    train, validation, state = everywhere(mesh, (train, validation, state))
    data, steps = everywhere(mesh, (jax.random.key_data(key), jnp.asarray(options.steps)))
    keys = partial(task_keys, key, batch=batch)
    # Other optimisers may compute with the number of steps, so they are compiled for that number.
    own = None if isinstance(options.outer, OuterOptions) else options.steps
    step = _step(options.outer, own, batch, chunk, mesh, options.precision)
    # Several processes must take the same steps, so the clock of one cannot end an interval.
    alone = not options.scan and jax.process_count() == 1
    while done < options.steps:
        begun, losses, stopped = done, list[np.ndarray](), False
        end = min(done - done % options.interval + options.interval, options.steps)
        program = compiled(step, end - done if options.scan else None)
        while done < end and not stopped:
            since = time.monotonic()
            with one_blas_thread():
                state, report = program((train, data, steps), state)
                records = jax.tree.map(np.atleast_1d, report)  # waits for the steps
                _check_finite(records, done, train, keys, options.outer, state.learner)
            done += len(records.loss)
            losses.append(records.loss)
            if alone and time.monotonic() - since > SLOW_STEP_SECONDS:
                stopped = each(done, float(np.mean(np.concatenate(losses)))) is True
        record: dict[str, float | None] = {"loss": float(np.mean(np.concatenate(losses)))}
        every = options.validate_every
        # The interval may be the rest of one that was interrupted.
        whole = done == end and done // every > (begun - begun % options.interval) // every
        due = done == options.steps or whole
        if validation is not None and due:
            scoring(0, options.validation_tasks)
            score = score_tasks(
                state.learner,
                validation,
                options.validation_tasks,
                split="validation",
                chunk=options.chunk,
                mesh=mesh,
                watch=scoring,
            ).score
            record |= {"validation": score["mean"], "validation_ci95": score["ci95"]}
        yield Moment(done, options.steps, record, state)


def _check_finite(
    records: Record,
    done: int,
    tasks: TaskDistribution,
    keys: Callable[..., Array],
    outer: Options,
    learner: MetaLearner,
) -> None:
    if records.finite.all():
        return
    first = int(np.argmin(records.finite))
    family = int(records.bad_family[first])
    on = f"on a task of the family {tasks.families[family]!r}" if family >= 0 else "in the gradient"
    where = f"the loss is not finite at step {done + first + 1}, {on}"
    if wrong := fault(tasks, keys(jnp.asarray(done + first))):
        raise ValueError(f"{where}: {wrong}")
    descends = steps_of(learner) > 0
    advice = "lower inner_rate or outer_rate" if descends else "lower outer_rate"
    if not getattr(outer, "clip", 0):
        advice += ", or set the outer optimiser's clip to 10"
    elif descends:
        advice += ", or set the method's inner_bound to 100"
    raise NotFiniteError(f"{where}: {advice}; start anew")


@dataclass(frozen=True, eq=False, repr=False)
class Fitted:
    """The result of `fit`.

    `arml.fit(fitted, tasks, steps=...)` continues the training.

        fitted.learner, fitted.step, fitted.history[-1]["loss"]
        fitted.save("learner")
    """

    learner: MetaLearner
    history: tuple[dict[str, float | int | None], ...]
    """One record for each interval: `step`, `loss` and, if validation tasks were scored,
    `validation` and `validation_ci95` (None if not finite)."""
    state: TrainState
    """The learner, the state of the outer optimiser, and the step."""
    options: FitOptions
    seed: int
    problem: Problem
    trained_on: TaskDistribution | None = None
    """The tasks of the training."""
    chosen: str = ""
    """A text on how the learner was chosen: the last step, or the best validation score."""

    @property
    def step(self) -> int:
        """Outer steps taken."""
        return int(self.state.step)

    def save(self, folder: Path | str) -> None:
        """Write the learner, without data, as a folder that `arml.load` and `arml adapt` read.
        **Raises** `RunError` if it cannot be written, and `ValueError` for a learner that
        `arml.build` did not make."""
        write_folder(self, folder)

    def __repr__(self) -> str:
        last = self.history[-1] if self.history else {}
        said = ", ".join(f"{k} {last[k]:.4g}" for k in ("loss", "validation") if last.get(k))
        return f"Fitted({self.learner!r}, step {self.step:,}{', ' if said else ''}{said})"


def fit(
    learner: MetaLearner | Fitted,
    tasks: TasksLike,
    *,
    steps: int,
    seed: int | None = None,
    outer: "Options | JsonView | optax.GradientTransformation | Callable[..., Any] | None" = None,
    batch: int | None = None,
    validation: TasksLike | None = None,
    validate_every: int | None = None,
    validation_tasks: int | None = None,
    interval: int | None = None,
    chunk: int | None = None,
    scan: bool | None = None,
    precision: Precision | None = None,
    patience: int | None = None,
    keep: Literal["last", "best"] | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
    devices: int = 1,
) -> Fitted:
    """Meta-train a learner on tasks, in memory.

        fitted = arml.fit(arml.build("maml", tasks), tasks, steps=400)
        fitted = arml.fit(fitted, tasks, steps=800)     # takes 400 more steps

    **Arguments**

    - `learner`: from `arml.build`, or any `MetaLearner`. The result of an earlier `fit` continues
      bit for bit as if it had never stopped, if the outer options do not depend on `steps`.
    - `tasks`: a task distribution (or any object with `problem`, `families` and `sample(key)`),
      `Splits`, or the options of a recipe's tasks.
    - `steps`: the last outer step, counted from the first step of the first `fit`.
    - `seed`: the seed of the training tasks; 0 if None.
    - `outer`: `arml.OuterOptions`, a mapping that changes the usual ones, an optimiser of Optax, as
      `optax.adamw(1e-3)`, or a function that makes one from the number of steps. If None, that of
      the learner's recipe, or Adam with rate 0.001 for a learner that `arml.build` did not make.
    - `validation`: tasks to score every `validate_every` steps and at the end. If None, the
      validation tasks of `tasks`, if these are `Splits` or options; a single distribution has none.
    - `batch`, `chunk`, `scan`, `precision`, `interval`, `validate_every`, `validation_tasks`,
      `patience`, `keep`: as in `Experiment`. If None, those of the learner's recipe, or the usual
      ones for these tasks. A continued training uses its earlier values for options that are None.
      It starts at its last step, also if it kept the best learner.
    - `callbacks`: each is called with a `Moment` after each interval. The training ends early if
      one returns True.
    - `progress`: whether to show a bar. If None, in terminals and notebooks.
    - `devices`: how many devices share the tasks of a step.

    **Raises** `ValueError` in one line for invalid options or tasks, and `NotFiniteError`.
    """
    if not isinstance(learner, MetaLearner | Fitted):
        raise ValueError(
            f"expected a learner or a Fitted, got {type(learner).__name__}: give its .learner"
        )
    callbacks = checked_callbacks(callbacks)
    splits = splits_of(tasks)
    held_out: TaskDistribution | None = splits.validation
    if validation is not None:
        held_out = splits_of(validation).validation
    elif held_out is splits.train:
        held_out = None
    options = _options(
        learner,
        splits.train.problem,
        outer=outer,
        steps=steps,
        batch=batch,
        interval=interval,
        validate_every=validate_every,
        validation_tasks=validation_tasks,
        scan=scan,
        chunk=chunk,
        precision=precision,
        patience=patience,
        keep=keep,
    )
    if not isinstance(learner, Fitted):
        check_suits(learner, splits.train.problem)
        state = start(learner, options.outer.build(steps))
        learner = Fitted(learner, (), state, options, seed or 0, splits.train.problem)
    _check_goes_on(learner, steps, seed, splits.train.problem)
    if held_out is not None:
        check_suits(learner.learner, held_out.problem, learner.problem)
    elif options.patience or options.keep == "best":
        raise ValueError("patience and keep need validation tasks: give validation=TASKS")
    with bar("fit", steps, show=progress) as update:
        loop = intervals(
            options,
            _copied(learner.state),
            splits.train,
            held_out,
            key=seeded(learner.seed)[1],
            mesh=mesh_of(devices),
            each=lambda step, loss: update(step, f"loss {loss:.4g}"),
            scoring=lambda done, total: update(None, f"{SCORING_STAGE} {done:,}/{total:,}"),
        )
        with closing(loop):
            return _collected(loop, learner, options, splits.train, update, callbacks)


def _collected(
    loop: Iterator[Moment],
    begun: Fitted,
    options: FitOptions,
    tasks: TaskDistribution,
    update: Update,
    callbacks: Sequence[Callback],
) -> Fitted:
    """Follow the loop to the last step or an early end. **Returns** the result of `fit`."""
    state, history, best = begun.state, [*begun.history], begun.learner
    falls = score_of(tasks.problem)[0] == "mse"
    # A training that kept its last learner has no other one to return to.
    first = 0 if begun.options.keep == options.keep else len(history)
    for moment in loop:
        state = moment.state
        history.append({"step": moment.step, **moment.record})
        update(moment.step, f"loss {moment.record['loss']:.4g}")
        best_step, later = best_of(history[first:], falls=falls)
        if options.keep == "best" and best_step == moment.step:
            best = moment.learner
        over = "validation" in moment.record and 0 < options.patience <= later
        if ends(callbacks, moment) or over:
            break
    known = best_of(history[first:], falls=falls)[0] > 0
    learner = best if options.keep == "best" and known else state.learner
    rule = options.chosen(history[first:], int(state.step), falls=falls)
    return Fitted(learner, tuple(history), state, options, begun.seed, tasks.problem, tasks, rule)


def _options(learner: MetaLearner | Fitted, problem: Problem, **asked: object) -> FitOptions:
    """The checked options of a training. An option that is None gets its usual value."""
    changes: Json = {name: value for name, value in asked.items() if value is not None}
    options = _usual(learner, problem)
    if isinstance(outer := changes.get("outer", options.outer), Mapping):
        outer = with_options(options.outer, outer, "the optimiser")
    changes["outer"] = outer if is_dataclass(outer) else Given(outer)
    options = replace(options, **changes)
    options.check()
    if not options.steps:
        raise ValueError("steps must be at least 1, got 0")
    return options


def _usual(learner: MetaLearner | Fitted, problem: Problem) -> FitOptions:
    """The default options of a training: those of the continued training, those of the learner's
    recipe, or the usual ones for these tasks."""
    if isinstance(learner, Fitted):
        return learner.options
    if learner.origin:
        made = learner.origin.experiment
        return FitOptions(**{f.name: getattr(made, f.name) for f in fields(FitOptions)})
    if not problem.spatial:
        return FitOptions(validation_tasks=200)
    # On a CPU, convolutions are slow in a scan and when batched over tasks.
    pictures: Json = {"batch": 4, "interval": 20, "validate_every": 200, "scan": False}
    return FitOptions(validation_tasks=200, chunk=at_once_by_default(problem), **pictures)


def _check_goes_on(fitted: Fitted, steps: int, seed: int | None, problem: Problem) -> None:
    """Raise `ValueError` unless the training can continue to `steps` on tasks of this problem."""
    if steps <= fitted.step:
        raise ValueError(
            f"steps must be above the {fitted.step} already taken, got {steps}: it counts from "
            "the first step of the first fit"
        )
    if problem != fitted.problem:
        raise ValueError(
            f"expected tasks of the problem that it was trained on, {fitted.problem}, got "
            f"{problem}: build a learner for these"
        )
    if seed not in (None, fitted.seed):
        raise ValueError(f"expected the seed {fitted.seed} to go on, got {seed}: leave it out")
