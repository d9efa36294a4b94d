"""The outer loop: what a step is, that it depends on its number alone, and what it reports."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import arml
from arml.algorithms.maml import MAMLOptions
from arml.algorithms.mumomaml import MUMOMAMLOptions
from arml.core.episodes import Problem
from arml.experiment.contract import Blobs
from arml.nn.networks import MLPOptions
from arml.tasks.functions import functions_2d
from arml.training.fit import NotFiniteError, OuterOptions, TrainState, compiled, make_step, start
from small import close

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


@pytest.fixture(scope="module")
def optimiser():
    return OuterOptions(outer_rate=0.01).build(100)


def test_a_step_descends_on_the_mean_of_the_tasks_losses():
    rate = 0.1
    step = make_step(optax.sgd(rate), batch=BATCH, key=KEY)
    before = start(learner(), optax.sgd(rate))
    after, record = eqx.filter_jit(step)(TASKS, before)
    task_key, adapt_key = jax.random.split(jax.random.fold_in(KEY, 0))
    pairs = zip(*(jax.random.split(key, BATCH) for key in (task_key, adapt_key)), strict=True)

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def one(learner, task_key, adapt_key):
        return learner.meta_loss(TASKS.sample(task_key), key=adapt_key)

    losses, gradients = zip(*(one(learner(), *keys) for keys in pairs), strict=True)
    np.testing.assert_allclose(record.loss, np.mean(losses), rtol=1e-5)
    assert record.finite
    assert record.bad_family == -1
    mean = jax.tree.map(lambda *leaves: sum(leaves) / BATCH, *gradients)
    descended = jax.tree.map(lambda old, g: old - rate * g, before.learner.net, mean.net)
    close(after.learner.net, descended, rtol=1e-4, atol=1e-5)
    assert after.step == 1


def test_one_compiled_loop_equals_one_dispatch_a_step(optimiser):
    step = make_step(optimiser, batch=BATCH, key=KEY)
    whole, records = compiled(step, 3)(TASKS, start(learner(), optimiser))
    state, losses = start(learner(), optimiser), []
    for _ in range(3):
        state, record = compiled(step)(TASKS, state)
        losses.append(record.loss)
    np.testing.assert_allclose(records.loss, losses, rtol=1e-5)
    close(arrays(whole), arrays(state), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("steps", [4, 5])
def test_averaged_weights_are_the_mean_of_the_last_half(steps):
    """The gradients are those without averaging, whose weights are averaged by hand. Of five steps
    the last three count."""
    usual, whole = OuterOptions(outer_rate=0.01), OuterOptions(outer_rate=0.01, average=0.5)
    learners, states = [], []
    for outer in (usual, whole):
        optimiser = outer.build(steps)
        step = eqx.filter_jit(make_step(optimiser, batch=BATCH, key=KEY))
        state = start(learner(), optimiser)
        for _ in range(steps):
            state, _ = step(TASKS, state)
            learners.append(eqx.filter(state.learner, eqx.is_inexact_array))
        states.append(state)
    first, last = learners[:steps], learners[steps:]
    mean = jax.tree.map(lambda *some: sum(some) / len(some), *first[2:])
    ours = last[1], last[-1], states[1].optimiser.newest
    close(ours, (first[1], mean, first[-1]), rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="average must be"):
        replace(usual, average=1.5).check()


def test_a_method_without_inner_steps_is_not_told_to_change_them():
    tasks = Blobs(Problem("classification", (2,), 2, 1, 1), noise=1e30)
    protonet = arml.build("protonet", tasks.problem, seed=0)
    advice = r"lower outer_rate, or set the outer optimiser's clip to 10; start anew"
    with pytest.raises(NotFiniteError, match=advice) as told:
        arml.fit(protonet, tasks, steps=1, batch=1, outer=OuterOptions())
    assert "inner" not in str(told.value)


def test_a_start_can_be_made_twice_from_one_learner(optimiser):
    """An interval may reuse the memory of the state that it is given."""
    maml = learner()
    interval = compiled(make_step(optimiser, batch=BATCH, key=KEY))
    interval(TASKS, start(maml, optimiser))
    interval(TASKS, start(maml, optimiser))


def test_start_drops_weak_types(optimiser):
    weak = eqx.tree_at(lambda m: m.net.body.blocks[0].layer.bias, learner(), jnp.full(4, 0.5) * 1.0)
    weak = eqx.tree_at(lambda m: m.inner.rate, weak, jnp.asarray(0.1))
    assert weak.inner.rate.weak_type
    state = start(weak, optimiser)
    assert not any(leaf.weak_type for leaf in arrays(state.learner))


@pytest.mark.parametrize("warmup", [0, 7])
@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_schedules_against_optax(schedule, warmup):
    ours, rest = OuterOptions(outer_rate=0.003, schedule=schedule, warmup=warmup / 50), 50 - warmup
    theirs = {
        "constant": optax.constant_schedule(0.003),
        "linear": optax.linear_schedule(0.003, 0.0, rest),
        "cosine": optax.cosine_decay_schedule(0.003, rest),
    }[schedule]
    if warmup:
        theirs = optax.join_schedules([optax.linear_schedule(0.0, 0.003, 7), theirs], [7])
    counts = jnp.arange(55)

    def rates(steps):
        rate = ours.rate(steps)
        return jax.vmap(rate if callable(rate) else lambda count: rate)(counts)

    # The length may be data of the program.
    np.testing.assert_allclose(jax.jit(rates)(50), jax.vmap(theirs)(counts), rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "place"), [("rates_factor", ".inner"), ("encoder_factor", ".encode")]
)
def test_inner_rates_and_task_encoders_may_have_an_outer_step_of_their_own(name, place):
    net = MLPOptions(hidden=(4,)).build(TASKS.problem, key=KEY)
    conditioned = MUMOMAMLOptions(width=2).build(net, TASKS.problem, key=KEY)
    slow = []
    for maml in (learner(learn_rates=True), conditioned):
        trained = eqx.filter(maml, eqx.is_inexact_array)
        optimiser = OuterOptions(outer_rate=0.1, **{name: 0.25}).build(10)
        ones = jax.tree.map(jnp.ones_like, trained)
        updates, _ = optimiser.update(ones, optimiser.init(trained), trained)
        for path, leaf in jax.tree_util.tree_leaves_with_path(updates):
            slow.append(place in jax.tree_util.keystr(path))
            np.testing.assert_allclose(leaf, -0.1 * (0.25 if slow[-1] else 1.0), rtol=1e-3)
    assert {*slow} == {True, False}


def test_clipping_bounds_what_adam_sees():
    parameters = {"a": jnp.zeros(2)}
    gradient = {"a": jnp.asarray([30.0, 40.0])}
    clipped = OuterOptions(clip=5.0).build(10)
    _, state = clipped.update(gradient, clipped.init(parameters), parameters)
    moments = [leaf for leaf in jax.tree.leaves(state) if leaf.shape == (2,)]
    np.testing.assert_allclose(moments[0], 0.1 * np.array([3.0, 4.0]), rtol=1e-4)


def test_chunks_of_tasks_give_the_same_step(optimiser):
    steps = (make_step(optimiser, batch=BATCH, chunk=n, key=KEY) for n in (BATCH, 1))
    ours, parts = (eqx.filter_jit(step)(TASKS, start(learner(), optimiser)) for step in steps)
    np.testing.assert_allclose(ours[1].loss, parts[1].loss, rtol=1e-5)
    close(arrays(ours[0]), arrays(parts[0]), rtol=1e-4, atol=1e-5)
