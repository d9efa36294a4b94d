"""Meta-training in memory: `fit` trains a learner and returns it with its history.

`intervals` is the loop over outer steps. `fit` collects its moments; `arml.run` writes them to a
run folder. Both give the same learner, bit for bit.
"""

import dataclasses
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from functools import lru_cache, partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, PRNGKeyArray

from arml.core.checks import at_least
from arml.core.episodes import Problem, TaskDistribution, fault
from arml.core.learner import MetaLearner
from arml.results.files import RunError
from arml.results.machine import one_blas_thread
from arml.tasks.options import TasksLike, splits_of
from arml.tasks.stream import prefetched
from arml.training.devices import at_once, everywhere, mesh_of, own_parts, share
from arml.training.evaluate import at_once_by_default, bar, predictions
from arml.training.step import (
    OuterOptions,
    Record,
    Step,
    TrainState,
    make_interval,
    make_step,
    start,
    task_keys,
)


@dataclass(frozen=True)
class FitOptions:
    """How a learner is trained. `Experiment` has the same options."""

    outer: OuterOptions
    steps: int
    batch: int
    interval: int
    validate_every: int
    validation_tasks: int
    scan: bool
    chunk: int

    @classmethod
    def of(cls, experiment: object) -> "FitOptions":
        """The options of an experiment."""
        return cls(**{field.name: getattr(experiment, field.name) for field in fields(cls)})

    @classmethod
    def usual(cls, problem: Problem, steps: int) -> "FitOptions":
        """The options of the recipes for such tasks. On a CPU, convolutions are neither scanned nor
        batched over tasks."""
        images = len(problem.features) == 3
        batch, interval = (4, 20) if images else (25, 100)
        chunk = min(batch, at_once_by_default(problem))
        return cls(OuterOptions(), steps, batch, interval, 10 * interval, 200, not images, chunk)

    def check(self) -> None:
        """Raise `ValueError` if an option is invalid."""
        counts = ("steps", "batch", "interval", "chunk", "validate_every", "validation_tasks")
        at_least(self, counts, 1)
        at_once(self.chunk, self.batch)
        self.outer.check()


def seeded(seed: int) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """The keys of the initial weights and of the training tasks."""
    weights, training = jax.random.split(jax.random.key(seed))
    return weights, training


def training_key(seed: int) -> PRNGKeyArray:
    """The key of the training tasks."""
    return seeded(seed)[1]


class NotFiniteError(RunError):
    """The loss of a training is no longer finite. `where` tells the step and the family."""

    def __init__(self, where: str, more: str) -> None:
        super().__init__(f"{where}; {more}")
        self.where = where


class Moment(NamedTuple):
    """The state of a training after an interval, which each callback gets.

        def is_good(moment):
            return moment.record["loss"] < 0.01

        arml.fit(learner, tasks, steps=400, callbacks=[is_good])

    The training ends early if a callback returns True.
    """

    step: int
    """Outer steps taken so far."""
    steps: int
    """Outer steps in all."""
    record: Mapping[str, float | None]
    """`loss`, the mean meta-loss of the interval; `validation` and `validation_ci95`, the score on
    validation tasks, where they were scored (None if not finite)."""
    state: TrainState
    """The state; the next interval reuses the memory of its arrays."""

    @property
    def learner(self) -> MetaLearner:
        """A copy of the learner, which the next interval leaves alone."""
        return _copied(self.state).learner


Given = tuple[TaskDistribution, Array, Array]
"""The tasks, the data of the training's key, and its number of steps: an interval reads these."""
Callback = Callable[[Moment], object]
"""Called after each interval; a training ends early where one returns True."""


@lru_cache(maxsize=64)
def _step(outer: OuterOptions, batch: int, chunk: int, mesh: Mesh | None) -> Step:
    def step(given: Given, state: TrainState) -> tuple[TrainState, Record]:
        tasks, data, steps = given
        key, optimiser = jax.random.wrap_key_data(data), outer.build(steps)
        one = make_step(optimiser, batch=batch, chunk=chunk, mesh=mesh, key=key)
        return one(tasks, state)

    return step


@lru_cache(maxsize=64)
def _compiled(
    outer: OuterOptions, batch: int, chunk: int, mesh: Mesh | None, size: int, scan: bool
) -> Step:
    """An interval of `size` steps: one program for all seeds and for trainings of any length."""
    return make_interval(_step(outer, batch, chunk, mesh), steps=size, scan=scan)


def intervals(
    options: FitOptions,
    state: TrainState,
    train: TaskDistribution,
    validation: TaskDistribution | None,
    *,
    key: PRNGKeyArray,
    mesh: Mesh | None = None,
) -> Generator[Moment]:
    """Train from `state` to the step `options.steps`, one interval at a time.

    The result of step `s` depends on the state, on `key` and on `s` alone.

    **Raises** `NotFiniteError` if a loss or a gradient is not finite.
    """
    done, batch = int(state.step), options.batch
    chunk = at_once(options.chunk, share(mesh, batch))
    train, validation, state = everywhere(mesh, (train, validation, state))
    data, steps = everywhere(mesh, (jax.random.key_data(key), jnp.asarray(options.steps)))
    keys, parts = partial(task_keys, key, batch=batch), own_parts(mesh, batch)
    with prefetched(train, keys, start=done, stop=options.steps, parts=parts):
        while done < options.steps:
            size = min(options.interval, options.steps - done)
            interval = _compiled(options.outer, batch, chunk, mesh, size, options.scan)
            with one_blas_thread():
                state, records = interval((train, data, steps), state)
                _check_finite(records, done, train, keys, options.outer)  # waits for the interval
            done += size
            record: dict[str, float | None] = {"loss": float(np.mean(records.loss))}
            every = options.validate_every
            due = done == options.steps or done // every > (done - size) // every
            if validation is not None and due:
                score = predictions(
                    state.learner,
                    validation,
                    split="validation",
                    n=options.validation_tasks,
                    chunk=options.chunk,
                    mesh=mesh,
                ).scores.score
                record |= {"validation": score["mean"], "validation_ci95": score["ci95"]}
            yield Moment(done, options.steps, record, state)


def _check_finite(
    records: Record,
    done: int,
    tasks: TaskDistribution,
    keys: Callable[[Array], Array],
    outer: OuterOptions,
) -> None:
    finite = np.asarray(records.finite)
    if finite.all():
        return
    first = int(np.argmin(finite))
    family = int(records.bad_family[first])
    on = f"on a task of the family {tasks.families[family]!r}" if family >= 0 else "in the gradient"
    where = f"the loss is not finite at step {done + first + 1}, {on}"
    if wrong := fault(tasks, keys(jnp.asarray(done + first))):
        raise ValueError(f"{where}: {wrong}")
    bound = "the method's option inner_bound=100.0" if outer.clip else "OuterOptions(clip=10.0)"
    raise NotFiniteError(where, f"lower the inner or the outer rate, or give {bound}")


@dataclass(frozen=True, eq=False, repr=False)
class Fitted:
    """The result of `fit`.

        fitted.learner, fitted.step, fitted.history[-1]["loss"]

    `arml.fit(fitted, tasks, steps=...)` continues from it.
    """

    learner: MetaLearner
    history: tuple[dict[str, float | int | None], ...]
    """One record for each interval: `step`, `loss` and, where validation tasks were scored,
    `validation` and `validation_ci95` (None if not finite)."""
    state: TrainState
    """The learner, the state of the outer optimiser, and the step."""
    options: FitOptions
    seed: int
    problem: Problem
    families: tuple[str, ...]

    @property
    def step(self) -> int:
        """Outer steps taken."""
        return int(self.state.step)

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
    outer: OuterOptions | None = None,
    batch: int | None = None,
    validation: TasksLike | None = None,
    validate_every: int | None = None,
    validation_tasks: int | None = None,
    interval: int | None = None,
    chunk: int | None = None,
    scan: bool | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
    devices: int = 1,
) -> Fitted:
    """Meta-train a learner on tasks, in memory.

        fitted = arml.fit(arml.build("maml", tasks), tasks, steps=400)
        fitted = arml.fit(fitted, tasks, steps=800)     # takes 400 more steps

    **Arguments**

    - `learner`: from `arml.build`, or any `MetaLearner`. With the result of `fit` the training goes
      on as if it had never stopped, bit for bit, if the outer options do not depend on `steps`.
    - `tasks`: a task distribution (or any object with `problem`, `families` and `sample(key)`),
      `Splits`, or the options of a recipe's tasks.
    - `steps`: the outer step at which to end, counted from the first step of the first `fit`.
    - `seed`: seeds the training tasks; 0 if None.
    - `outer`: the outer optimiser; that of the learner's recipe if None, and Adam with rate 0.001
      for a learner that `arml.build` did not make.
    - `batch`: tasks of one step; those of the recipe if None, or 4 of pictures and 25 of vectors.
    - `validation`: tasks to score every `validate_every` steps and at the end. If None, the
      validation tasks of `tasks`, if these are `Splits` or options; a single distribution has none.
    - `interval`: steps between two records of the history.
    - `chunk`, `scan`: as in `Experiment`; those of the recipe, or chosen by the kind of tasks, if
      None.
    - `callbacks`: each is called with a `Moment` after each interval; the training ends early if
      one returns True.
    - `progress`: whether to show a bar; in terminals and notebooks if None.
    - `devices`: how many devices share the tasks of a step.

    When a training goes on, options that are None keep their values.

    **Raises** `ValueError` in one line for invalid options or tasks, and `NotFiniteError`.
    """
    splits = splits_of(tasks)
    train = splits.train
    if validation is not None:
        validation = splits_of(validation).validation
    elif splits.validation is not splits.train:
        validation = splits.validation
    given: dict[str, Any] = {
        "outer": outer,
        "batch": batch,
        "interval": interval,
        "validate_every": validate_every,
        "validation_tasks": validation_tasks,
        "chunk": chunk,
        "scan": scan,
    }
    changed = {name: value for name, value in given.items() if value is not None}
    if isinstance(learner, Fitted):
        options = dataclasses.replace(learner.options, steps=steps, **changed)
        if steps <= learner.step:
            raise ValueError(
                f"steps must be above the {learner.step} already taken, got {steps}: it counts "
                "from the first step of the first fit"
            )
        if train.problem != learner.problem:
            raise ValueError(
                f"expected tasks of the problem that it was trained on, {learner.problem}, got "
                f"{train.problem}: build a learner for these"
            )
        if seed is not None and seed != learner.seed:
            raise ValueError(f"expected the seed {learner.seed} to go on, got {seed}: leave it out")
        state, seed = _copied(learner.state), learner.seed
    else:
        usual = learner.training or FitOptions.usual(train.problem, steps)
        options, seed = dataclasses.replace(usual, steps=steps, **changed), seed or 0
        state = start(learner, options.outer.build(steps))
    history = [*learner.history] if isinstance(learner, Fitted) else []
    options.check()
    mesh = mesh_of(devices)
    loop = intervals(options, state, train, validation, key=training_key(seed), mesh=mesh)
    with closing(loop), bar("fit", steps, show=progress) as update:
        for now in loop:
            state = now.state
            history.append({"step": now.step, **now.record})
            update(now.step, f"loss {now.record['loss']:.4g}")
            if True in [callback(now) for callback in callbacks]:
                break
    return Fitted(
        state.learner, tuple(history), state, options, seed, train.problem, train.families
    )


def _copied(state: TrainState) -> TrainState:
    """A copy of the state, because an interval reuses the memory of the state that it gets."""
    copied: TrainState = jax.tree.map(lambda a: jnp.copy(a) if eqx.is_array(a) else a, state)
    return copied
