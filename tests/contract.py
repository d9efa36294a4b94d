"""What every algorithm promises, as checks on a `Case`. No check knows an algorithm's name."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PRNGKeyArray

from arml.core.episodes import Examples, Problem, Task, TaskDistribution
from arml.core.inner import with_steps
from arml.core.learner import MetaLearner
from arml.training import checkpoint
from arml.training.step import Record, TrainState, make_step, start

KEY = jax.random.key(0)
BATCH = 2


class Blobs(TaskDistribution):
    """Classification for the tests: a task's classes are Gaussian blobs around random centres."""

    problem: Problem = eqx.field(static=True)
    families: tuple[str, ...] = eqx.field(static=True, default=("blobs",))
    noise: float = eqx.field(static=True, default=0.3)

    def sample(self, key: PRNGKeyArray) -> Task:
        key, centre_key = jax.random.split(key)
        ways, features = self.problem.outputs, self.problem.features
        centres = jax.random.normal(centre_key, (ways, *features))

        def examples(key: PRNGKeyArray, each: int) -> Examples:
            label_key, noise_key = jax.random.split(key)
            y = jax.random.permutation(label_key, jnp.tile(jnp.arange(ways), each))
            x = centres[y] + self.noise * jax.random.normal(noise_key, (ways * each, *features))
            return Examples(x, y)

        support, query = jax.random.split(key)
        return Task(
            examples(support, self.problem.shots),
            examples(query, self.problem.queries),
            jnp.zeros((), jnp.int32),
        )


class Outcome(NamedTuple):
    """What one task made of a learner."""

    predictions: Array
    backwards: Array
    """The same queries, asked in the opposite order."""
    apart: Array
    """The first query, asked by itself."""
    before: Array
    """Support loss without inner steps."""
    after: Array


def outcome(learner: MetaLearner, task: Task, key: PRNGKeyArray) -> Outcome:
    (x, y), queries = task.support, task.query.x
    predict = learner.adapt(task.support, key=key).predict
    unadapted = with_steps(learner, 0).adapt(task.support, key=key).predict
    return Outcome(
        predict(queries),
        predict(queries[::-1])[::-1],
        predict(queries[:1]),
        learner.loss(unadapted(x), y),
        learner.loss(predict(x), y),
    )


@eqx.filter_jit
def many(learner: MetaLearner, tasks: Task, keys: Array) -> Outcome:
    return jax.vmap(lambda task, key: outcome(learner, task, key))(tasks, keys)


@eqx.filter_jit
def single(learner: MetaLearner, task: Task, key: PRNGKeyArray) -> tuple[Array, Array]:
    predict = learner.adapt(task.support, key=key).predict
    return predict(task.query.x), learner.meta_loss(task, key=key)


def recorder() -> optax.GradientTransformation:
    """Small steps against the gradient's signs, whose state is the gradient that it was given."""
    return optax.GradientTransformation(
        lambda parameters: jax.tree.map(jnp.zeros_like, parameters),
        lambda gradient, state, parameters=None: (
            jax.tree.map(lambda g: -1e-5 * jnp.sign(g), gradient),
            gradient,
        ),
    )


class Trained(NamedTuple):
    """Two outer steps, and the first one again."""

    begun: TrainState
    first: tuple[TrainState, Record]
    second: tuple[TrainState, Record]
    again: tuple[TrainState, Record]
    traces: int


@dataclass
class Case:
    """An algorithm on a kind of problem. `dead` are parts of the paths of meta-parameters that no
    gradient reaches; `cancelled` those that only rounding reaches; `descends` is whether it adapts
    by gradient steps; `exceptions` are tests that do not hold, with the reasons."""

    build: Callable[[PRNGKeyArray], MetaLearner]
    tasks: TaskDistribution
    dead: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()
    descends: bool = True
    exceptions: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def learner(self) -> MetaLearner:
        return self.build(KEY)

    @cached_property
    def drawn(self) -> tuple[Task, Array]:
        keys = jax.random.split(KEY, (2, BATCH))
        return jax.jit(jax.vmap(self.tasks.sample))(keys[0]), keys[1]

    @cached_property
    def lowered(self) -> Any:
        """The program of `many`, before it is compiled."""
        return many.lower(self.learner, *self.drawn)

    @cached_property
    def compiled(self) -> Any:
        return self.lowered.compile()

    @cached_property
    def outcomes(self) -> Outcome:
        return self.compiled(self.learner, *self.drawn)

    @cached_property
    def trained(self) -> Trained:
        traces = 0
        step = make_step(recorder(), batch=BATCH, key=KEY)

        @eqx.filter_jit
        def counted(tasks: TaskDistribution, state: TrainState) -> tuple[TrainState, Record]:
            nonlocal traces
            traces += 1
            return step(tasks, state)

        begun = start(self.learner, recorder())
        first = counted(self.tasks, begun)
        second = counted(self.tasks, first[0])
        return Trained(begun, first, second, counted(self.tasks, begun), traces)


def named(tree: object) -> dict[str, Array]:
    """Every array by its path."""
    leaves = jax.tree_util.tree_flatten_with_path(eqx.filter(tree, eqx.is_array))[0]
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def same(a: object, b: object) -> None:
    a, b = named(a), named(b)
    assert a.keys() == b.keys(), f"arrays differ: {sorted(a.keys() ^ b.keys())}"
    for name, leaf in a.items():
        np.testing.assert_array_equal(leaf, b[name], err_msg=name)
        assert leaf.dtype == b[name].dtype, name


def check_a_gradient_reaches_every_meta_parameter(case: Case) -> None:
    gradient = named(case.trained.first[0].optimiser)
    assert gradient.keys() == named(eqx.filter(case.learner, eqx.is_inexact_array)).keys()
    for name, leaf in gradient.items():
        assert np.all(np.isfinite(leaf)), f"the gradient of {name} is not finite"
        if not any(part in name for part in case.cancelled):
            dead = any(name.startswith(part) for part in case.dead)
            alive = f"a gradient reaches {name}, but the entry names it in `dead`"
            lost = f"no gradient reaches {name}: leave it out, or name it in the entry's `dead`"
            assert np.any(leaf) != dead, alive if dead else lost
    for part in case.dead:
        assert any(name.startswith(part) for name in gradient), f"{part} is declared, not there"


def check_a_task_is_learned_whatever_stands_beside_it(case: Case) -> None:
    tasks, keys = case.drawn
    alike = case.compiled(
        case.learner, *jax.tree.map(lambda leaf: leaf[jnp.zeros(BATCH, int)], (tasks, keys))
    )
    for mine, ours in zip(
        alike.predictions, case.outcomes.predictions[:1].repeat(BATCH, 0), strict=True
    ):
        np.testing.assert_allclose(mine, ours, rtol=1e-3, atol=1e-4)


def check_lapack_gets_one_matrix_at_a_time(case: Case) -> None:
    """Batches can wait for each other for ever: see `arml.core.compilation.unbatched`."""
    text = case.lowered.as_text()
    batched = [
        line for line in text.splitlines() if re.search(r"@(lapack|blas)_.*<(\d+x){3}", line)
    ]
    assert not batched, f"expected LAPACK on single matrices, got {batched[0].strip()}"


def check_the_order_of_the_queries_is_irrelevant(case: Case) -> None:
    ours = case.outcomes
    np.testing.assert_allclose(ours.predictions, ours.backwards, rtol=1e-3, atol=1e-4)


def check_one_query_by_itself_equals_one_among_all(case: Case) -> None:
    ours = case.outcomes
    np.testing.assert_allclose(ours.predictions[:, :1], ours.apart, rtol=1e-3, atol=1e-4)


def check_adaptation_lowers_the_support_loss(case: Case) -> None:
    ours = case.outcomes
    before, after = float(np.mean(ours.before)), float(np.mean(ours.after))
    if case.descends:
        said = f"support loss {before:g} before inner steps, {after:g} after them"
        assert after < before, f"{said}; a method without inner steps has descends=False"
    else:
        said = "inner steps change the support loss, but the entry says descends=False"
        np.testing.assert_array_equal(ours.after, ours.before, err_msg=said)


def check_a_step_traces_once(case: Case) -> None:
    assert case.trained.traces == 1, f"a step was compiled {case.trained.traces} times"


def check_the_same_step_gives_the_same_result(case: Case) -> None:
    same(case.trained.first, case.trained.again)
    first, second = case.trained.first[1].loss, case.trained.second[1].loss
    assert not np.array_equal(first, second), f"two steps have the same loss {first}"


def check_float32_stays_float32(case: Case) -> None:
    state, record = case.trained.second
    for name, leaf in named((state.learner, record.loss, case.outcomes)).items():
        if jnp.issubdtype(leaf.dtype, jnp.inexact):
            assert leaf.dtype == jnp.float32, f"{name} is {leaf.dtype}"
    assert record.finite, f"loss {record.loss} or its gradient is not finite"


def check_saved_and_restored_is_identical(case: Case, folder: Path) -> None:
    state = case.trained.second[0]
    checkpoint.save(folder, 2, state)
    other = start(case.build(jax.random.key(1)), recorder())
    same(state, checkpoint.restore(folder, 2, other))


def check_the_seed_decides_the_weights(case: Case) -> None:
    same(case.learner, case.build(KEY))
    ours, other = named(case.learner), named(case.build(jax.random.key(1)))
    alike = all(np.array_equal(leaf, other[name]) for name, leaf in ours.items())
    assert not alike, "two keys give the same weights"


def check_runs(case: Case) -> None:
    """On one task, once: for ways and shots that no other check has."""
    task, key = jax.tree.map(lambda leaf: leaf[0], case.drawn)
    predictions, loss = single(case.learner, task, key)
    assert predictions.shape == (case.tasks.problem.query, case.tasks.problem.outputs)
    assert np.all(np.isfinite(predictions))
    assert np.isfinite(loss)
