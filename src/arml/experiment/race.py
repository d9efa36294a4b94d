"""A short race between experiments on the same tasks, to see which method suits the data.

Each trains for its share of a time, from the start, and is scored on the same validation tasks.
Beside them stands a floor: logistic regression on the inputs as they are, which learns each task
from its support set alone. A method that is not above it has learned nothing of use.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from arml.core.episodes import Examples, TaskDistribution
from arml.core.learner import Adapted, Loss, MetaLearner
from arml.core.losses import cross_entropy
from arml.experiment.options import Experiment
from arml.experiment.running import fresh
from arml.tasks.options import Progress
from arml.training.evaluate import evaluate
from arml.training.fit import intervals
from arml.training.options import FitOptions
from arml.training.step import TrainState

FLOOR = "logistic regression on the inputs"
TASKS = 60
"""Validation tasks of a score."""
PENALTY, STEPS = 0.01, 300
"""Of logistic regression."""
START = 15.0
"""Seconds that a training takes before its first step, about."""
MOST = 5_000
"""Steps after which short trainings gain little."""


class Place(NamedTuple):
    """How one of the race did."""

    name: str
    score: float
    """Mean accuracy on validation tasks."""
    ci95: float
    steps: int
    seconds: float


class Logistic(MetaLearner):
    """Logistic regression on flattened inputs: the mean loss, and `PENALTY` times half the squared
    weights. Inputs are centred, and divided by their deviation and the root of their number."""

    ways: int = eqx.field(static=True)
    loss: Loss = eqx.field(static=True)

    def adapt(self, support: Examples, *, key: PRNGKeyArray) -> Adapted:
        flat = support.x.reshape(len(support.x), -1)
        middle = jnp.mean(flat, axis=0)
        scale = jnp.std(flat - middle) * flat.shape[1] ** 0.5 + 1e-6

        def prepared(x: Float[Array, "m *features"]) -> Float[Array, "m inputs"]:
            return (x.reshape(len(x), -1) - middle) / scale

        inputs, n = prepared(support.x), len(flat)
        target = jax.nn.one_hot(support.y, self.ways, dtype=flat.dtype)
        # The best weights are X^T A with PENALTY * n * A = Y - P: the search is over A, one row for
        # each example, in a step that the largest possible curvature bounds.
        products = inputs @ inputs.T + 1.0  # the bias is a weight of an input of 1
        rate = 1 / (PENALTY + 0.5 * jnp.max(jnp.sum(jnp.abs(products), axis=1)) / n)

        def step(_: Array, a: Float[Array, "n ways"]) -> Float[Array, "n ways"]:
            wanted = (target - jax.nn.softmax(products @ a)) / n
            return a + rate * (wanted - PENALTY * a)

        a = jax.lax.fori_loop(0, STEPS, step, jnp.zeros_like(target))
        return Adapted(lambda x: (prepared(x) @ inputs.T + 1.0) @ a)


def race(
    entrants: Sequence[Experiment],
    *,
    seconds: float,
    least: int = 20,
    tasks: int = TASKS,
    progress: Progress | None = None,
    said: Callable[[Place], None] = lambda place: None,
) -> list[Place]:
    """Train each of the experiments for about `seconds`, or a tenth of its steps, and score them on
    validation tasks.

    **Arguments**

    - `entrants`: experiments that differ in their method, not in their tasks.
    - `least`: steps that each trains for in any case, as far as it has so many.
    - `said`: called with each as soon as it is known, the floor first.

    **Returns** a place for the floor and for each entrant, in this order; `name` is its recipe.
    """
    with TemporaryDirectory() as folder:
        splits = entrants[0].tasks.build(Path(folder) / "split.json", progress=progress)
    chunk = min(entrants[0].chunk, tasks)
    places: list[Place] = []

    def scored(name: str, learner: MetaLearner, steps: int, took: float) -> None:
        score = evaluate(
            learner, splits, tasks, split="validation", chunk=chunk, progress=False
        ).score
        places.append(Place(name, score["mean"] or 0.0, score["ci95"] or 0.0, steps, took))
        said(places[-1])

    scored(FLOOR, Logistic(ways=splits.validation.problem.outputs, loss=cross_entropy), 0, 0.0)
    for experiment in entrants:
        state, took = trained(experiment, splits.train, seconds=seconds, least=least)
        scored(experiment.recipe, state.learner, int(state.step), took)
    return places


def trained(
    experiment: Experiment, tasks: TaskDistribution, *, seconds: float, least: int
) -> tuple[TrainState, float]:
    """The experiment after about `seconds` of training, and how long that took; what compilation
    takes does not count."""
    # With a constant rate: nobody knows how many steps fit in.
    outer = replace(experiment.outer, schedule="constant", warmup=0)
    state = fresh(replace(experiment, outer=outer), tasks.problem).state
    most = min(experiment.steps, max(least, experiment.steps // 10))
    options = replace(FitOptions.of(experiment), outer=outer, steps=most, interval=1, scan=False)
    begun = now = time.monotonic()
    loop = intervals(options, state, tasks, None, key=jax.random.key(experiment.seed))
    with closing(loop):
        for moment in loop:
            state, now = moment.state, time.monotonic()
            if moment.step == 1:
                begun = now
            if moment.step >= least and now - begun > seconds:
                break
    return state, now - begun


def left(winner: Experiment, place: Place, *, seconds: float) -> int:
    """The steps of the winner that fit in so many seconds at its pace in the race, with what it
    takes to start and to score; at least as many as it had there."""
    step = 1.1 * place.seconds / max(place.steps, 1)
    steps = int((seconds - START) / step) // winner.interval * winner.interval
    return max(min(steps, MOST), place.steps, winner.interval)
