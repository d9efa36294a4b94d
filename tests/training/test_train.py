"""The outer loop: what a step is, that it depends on its number alone, and what it reports."""

import functools
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from arml.algorithms.maml import MAMLOptions
from arml.algorithms.mumomaml import MUMOMAMLOptions
from arml.core.episodes import Problem, TaskDistribution
from arml.nn.networks import MLPOptions
from arml.tasks.functions import functions_2d
from arml.training.fit import OuterOptions, TrainState, make_interval, make_step, start

TASKS = functions_2d(shots=4, queries=3)
KEY = jax.random.key(0)
BATCH = 4


pytestmark = pytest.mark.usefixtures("optax_promotes")


def learner(**options):
    net = MLPOptions(hidden=(4,), init="he").build(TASKS.problem, key=KEY)
    options = {"inner_steps": 1, "inner_rate": 0.01} | options
    return MAMLOptions(**options).build(net, TASKS.problem, key=KEY)


def arrays(state: TrainState) -> list:
    return jax.tree.leaves(eqx.filter(state, eqx.is_array))


def same(a: TrainState, b: TrainState) -> None:
    for x, y in zip(arrays(a), arrays(b), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.fixture(scope="module")
def optimiser():
    return OuterOptions(outer_rate=0.01).build(100)


@pytest.fixture(scope="module")
def step(optimiser):
    return eqx.filter_jit(make_step(optimiser, batch=BATCH, key=KEY))


def test_a_step_descends_on_the_mean_of_the_tasks_losses():
    rate = 0.1
    step = make_step(optax.sgd(rate), batch=BATCH, key=KEY)
    before = start(learner(), optax.sgd(rate))
    after, record = eqx.filter_jit(step)(TASKS, before)
    task_key, adapt_key = jax.random.split(jax.random.fold_in(KEY, 0))
    pairs = list(
        zip(jax.random.split(task_key, BATCH), jax.random.split(adapt_key, BATCH), strict=True)
    )

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def one(learner, task_key, adapt_key):
        return learner.meta_loss(TASKS.sample(task_key), key=adapt_key)

    losses, gradients = zip(*(one(learner(), *keys) for keys in pairs), strict=True)
    np.testing.assert_allclose(record.loss, np.mean(losses), rtol=1e-5)
    assert record.finite
    assert record.bad_family == -1
    mean = jax.tree.map(lambda *leaves: sum(leaves) / BATCH, *gradients)
    jax.tree.map(
        lambda new, old, g: np.testing.assert_allclose(new, old - rate * g, rtol=1e-4, atol=1e-5),
        after.learner.net,
        before.learner.net,
        mean.net,
    )
    assert after.step == 1


def test_a_step_depends_on_the_state_alone(step, optimiser):
    first, _ = step(TASKS, start(learner(), optimiser))
    second, record = step(TASKS, first)
    again, same_record = step(TASKS, first)
    same(second, again)
    assert record.loss == same_record.loss
    later, other = step(TASKS, eqx.tree_at(lambda s: s.step, first, jnp.asarray(7, jnp.int32)))
    assert other.loss != record.loss
    assert later.step == 8


def test_training_lowers_the_loss(step, optimiser):
    state, losses = start(learner(), optimiser), []
    for _ in range(100):
        state, record = step(TASKS, state)
        losses.append(float(record.loss))
    assert np.mean(losses[-20:]) < 0.9 * np.mean(losses[:20])


def test_one_compiled_loop_equals_one_dispatch_a_step(optimiser):
    step = make_step(optimiser, batch=BATCH, key=KEY)
    ends = []
    for scan in (True, False):
        state, records = make_interval(step, steps=3, scan=scan)(TASKS, start(learner(), optimiser))
        assert records.loss.shape == (3,)
        assert state.step == 3
        ends.append((state, records))
    for a, b in zip(*(jax.tree.leaves(eqx.filter(end, eqx.is_array)) for end in ends), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_averaged_weights_are_the_mean_of_the_last_half():
    """The gradients are those without averaging, whose weights are averaged by hand."""
    usual, whole = OuterOptions(outer_rate=0.01), OuterOptions(outer_rate=0.01, average=0.5)
    steps, learners, states = 4, [], []
    for outer in (usual, whole):
        optimiser = outer.build(steps)
        step = eqx.filter_jit(make_step(optimiser, batch=BATCH, key=KEY))
        state = start(learner(), optimiser)
        for _ in range(steps):
            state, _ = step(TASKS, state)
            learners.append(eqx.filter(state.learner, eqx.is_inexact_array))
        states.append(state)
    first, last = learners[:steps], learners[steps:]
    close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6)
    jax.tree.map(close, last[1], first[1])
    jax.tree.map(close, last[3], jax.tree.map(lambda a, b: (a + b) / 2, first[2], first[3]))
    jax.tree.map(close, states[1].optimiser.newest, first[3])
    with pytest.raises(ValueError, match="average must be"):
        replace(usual, average=1.5).check()


def test_a_start_can_be_made_twice_from_one_learner(optimiser):
    """An interval may reuse the memory of the state that it is given."""
    maml = learner()
    interval = make_interval(make_step(optimiser, batch=BATCH, key=KEY), steps=1, scan=False)
    interval(TASKS, start(maml, optimiser))
    interval(TASKS, start(maml, optimiser))


class Odd(TaskDistribution):
    """Every task of the second family has a target that is not a number."""

    families: tuple[str, ...] = eqx.field(static=True, default=("good", "bad"))
    problem: Problem = eqx.field(static=True, default=TASKS.problem)

    def sample(self, key):
        task = TASKS.sample(key)
        family = task.family % 2
        y = jnp.where(family == 1, jnp.nan, task.query.y)
        return task._replace(query=task.query._replace(y=y), family=family)


def test_a_loss_that_is_not_finite_is_reported_with_its_family(step, optimiser):
    _, record = step(Odd(), start(learner(), optimiser))
    assert not record.finite
    assert record.bad_family == 1


def test_start_drops_weak_types(optimiser):
    weak = eqx.tree_at(lambda m: m.net.body.blocks[0].layer.bias, learner(), jnp.full(4, 0.5) * 1.0)
    weak = eqx.tree_at(lambda m: m.inner.rate, weak, jnp.asarray(0.1))
    assert weak.inner.rate.weak_type
    state = start(weak, optimiser)
    assert not any(leaf.weak_type for leaf in arrays(state.learner))


def test_schedules():
    constant = OuterOptions(outer_rate=0.5)
    assert constant.rate(100) == 0.5
    cosine = OuterOptions(outer_rate=0.5, schedule="cosine").rate(100)
    np.testing.assert_allclose([cosine(0), cosine(50), cosine(100)], [0.5, 0.25, 0.0], atol=1e-6)
    warm = OuterOptions(outer_rate=0.5, schedule="cosine", warmup=1 / 11).rate(110)
    np.testing.assert_allclose(
        [warm(0), warm(5), warm(10), warm(60), warm(110)], [0, 0.25, 0.5, 0.25, 0], atol=1e-6
    )
    # It is a share of the training: a short one leaves it, too.
    short = OuterOptions(outer_rate=0.5, warmup=0.1).rate(20)
    np.testing.assert_allclose([short(1), short(2), short(19)], [0.25, 0.5, 0.5], atol=1e-6)
    level = OuterOptions(outer_rate=0.5, warmup=0.1).rate(100)
    np.testing.assert_allclose([level(5), level(10), level(99)], [0.25, 0.5, 0.5], atol=1e-6)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_schedules_against_optax(schedule):
    ours = OuterOptions(outer_rate=0.003, schedule=schedule, warmup=0.14)
    falls = {
        "linear": optax.linear_schedule(0.003, 0.0, 43),
        "cosine": optax.cosine_decay_schedule(0.003, 43),
    }
    theirs = optax.join_schedules([optax.linear_schedule(0.0, 0.003, 7), falls[schedule]], [7])
    counts = jnp.arange(55)
    # The length may be data of the program.
    rates = jax.jit(lambda steps: jax.vmap(ours.rate(steps))(counts))(50)
    np.testing.assert_allclose(rates, jax.vmap(theirs)(counts), rtol=1e-5, atol=1e-9)


def test_learned_inner_rates_may_have_an_outer_step_of_their_own():
    maml = learner(learn_rates=True)
    trained = eqx.filter(maml, eqx.is_inexact_array)
    ones = jax.tree.map(jnp.ones_like, trained)
    optimiser = OuterOptions(outer_rate=0.1, rates_factor=0.25).build(10)
    updates, _ = optimiser.update(ones, optimiser.init(trained), trained)
    for leaf in jax.tree.leaves(updates.net):
        np.testing.assert_allclose(leaf, -0.1, rtol=1e-3)
    for leaf in jax.tree.leaves(updates.inner):
        np.testing.assert_allclose(leaf, -0.025, rtol=1e-3)


def test_task_encoders_may_have_an_outer_step_of_their_own():
    net = MLPOptions(hidden=(4,)).build(TASKS.problem, key=KEY)
    conditioned = MUMOMAMLOptions(width=2).build(net, TASKS.problem, key=KEY)
    for outer, slow in (
        (OuterOptions(encoder_factor=0.5), conditioned),
        (OuterOptions(), learner()),
    ):
        trained = eqx.filter(slow, eqx.is_inexact_array)
        ones = jax.tree.map(jnp.ones_like, trained)
        optimiser = outer.build(10)
        updates, _ = optimiser.update(ones, optimiser.init(trained), trained)
        for path, leaf in jax.tree_util.tree_leaves_with_path(updates):
            factor = 0.5 if ".encode" in jax.tree_util.keystr(path) else 1.0
            np.testing.assert_allclose(leaf, -0.001 * factor, rtol=1e-3)


def test_clipping_bounds_what_adam_sees():
    parameters = {"a": jnp.zeros(2)}
    gradient = {"a": jnp.asarray([30.0, 40.0])}
    clipped = OuterOptions(clip=5.0).build(10)
    _, state = clipped.update(gradient, clipped.init(parameters), parameters)
    moments = [leaf for leaf in jax.tree.leaves(state) if leaf.shape == (2,)]
    np.testing.assert_allclose(moments[0], 0.1 * np.array([3.0, 4.0]), rtol=1e-4)


def test_bad_options():
    for options, message in (
        ({"outer_rate": 0.0}, r"outer_rate must be above 0, got 0\.0"),
        ({"clip": -1.0}, r"clip must be 0 or more, got -1\.0"),
        ({"warmup": -0.1}, "warmup must be 0 or more, got -0.1"),
        ({"warmup": 10.0}, "warmup must be at most 1, got 10"),
    ):
        with pytest.raises(ValueError, match=message):
            OuterOptions(**options).check()


def test_chunks_of_tasks_give_the_same_step(optimiser, step):
    whole, record = step(TASKS, start(learner(), optimiser))
    chunked = eqx.filter_jit(make_step(optimiser, batch=BATCH, chunk=1, key=KEY))
    parts, record_of_parts = chunked(TASKS, start(learner(), optimiser))
    np.testing.assert_allclose(record.loss, record_of_parts.loss, rtol=1e-5)
    for x, y in zip(arrays(whole), arrays(parts), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)
