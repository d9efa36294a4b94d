"""Vertices that come and go."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import arml
from arml.algorithms.arml_extensions import Templates, with_layers, without_vertex
from arml.explain.interventions import interventions
from arml.growth.vertices import (
    alone,
    handicapped,
    own_vertices,
    owns_weights,
    signature,
    with_vertex,
)
from arml.nn.modulation import UnitModulation, film
from arml.nn.networks import MLPOptions
from arml.tasks.functions import functions_2d
from arml.tasks.mixture import mixture

TASKS = functions_2d(shots=4, queries=4)
NETWORK = MLPOptions(hidden=(8, 8), init="he")
OPTIONS = replace(with_layers(TASKS.problem), hidden=(8,), width=4, vertices=2, inner_steps=1)


@pytest.fixture(scope="module")
def learner():
    return arml.build(OPTIONS, TASKS, network=NETWORK)


@eqx.filter_jit
def predicted(learner, support, x):
    return learner.adapt(support, key=jax.random.key(0)).predict(x)


def outputs(learner, task):
    return np.asarray(predicted(learner, task.support, task.query.x))


def test_layers_of_one_vertex_are_a_modulation_of_units():
    net = NETWORK.build(TASKS.problem, key=jax.random.key(1))
    code = jnp.linspace(-1, 1, 3)
    units = UnitModulation.drawn(net, 3, film, features=(2,), key=jax.random.key(2))
    layers = eqx.tree_at(
        lambda m: (m.weights, m.biases),
        Templates.drawn(net, 1, (2,), code=3, key=jax.random.key(3)),
        (
            tuple(layer.weight[None] for layer in units.layers),
            tuple(layer.bias[None] for layer in units.layers),
        ),
    )
    x = jax.random.normal(jax.random.key(4), (5, 2))
    given = jnp.concatenate([jnp.ones(1), code])
    np.testing.assert_allclose(layers(net, given)(x), units(net, code)(x), rtol=1e-5)


@pytest.mark.slow
def test_a_vertex_that_owns_the_blend_changes_nothing_where_all_own_the_same(learner):
    same = eqx.tree_at(
        lambda m: m.modulate,
        learner,
        jax.tree.map(lambda rows: jnp.broadcast_to(rows.mean(0), rows.shape), learner.modulate),
    )
    more = with_vertex(same, np.full(4, 0.3), np.array([0.2, 0.8]))
    task = TASKS.sample(jax.random.key(5))
    assert own_vertices(more) == 3
    np.testing.assert_allclose(outputs(more, task), outputs(same, task), rtol=1e-4, atol=1e-5)


def test_what_is_taken_out_is_what_was_put_in(learner):
    back = without_vertex(with_vertex(learner, np.zeros(4), np.array([1.0, 3.0])), 2)
    for a, b in zip(jax.tree.leaves(back), jax.tree.leaves(learner), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_a_new_vertex_owns_the_blend(learner):
    more = with_vertex(learner, np.zeros(4), np.array([0.25, 0.75]))
    first, second = np.asarray(learner.modulate.weights[0], float)
    np.testing.assert_allclose(more.modulate.weights[0][2], 0.25 * first + 0.75 * second, rtol=1e-5)


@pytest.fixture(scope="module")
def three(learner):
    """Two vertices that are read by their places, and two that were grown and differ."""
    more = with_vertex(learner, np.zeros(4), np.array([1.0, 0.0]))
    more = with_vertex(more, np.zeros(4), np.array([0.0, 1.0, 0.0]))
    shift = jnp.array([0.0, 0.0, 1.0, -1.0])[:, None]
    return eqx.tree_at(lambda m: m.modulate.biases[0], more, more.modulate.biases[0] + shift)


@pytest.mark.slow
def test_a_task_reads_what_explains_it_best(three, learner):
    """Another route: each choice as a learner of its own."""
    alones = [learner, alone(three, slice(2, 3)), alone(three, slice(3, 4))]
    seen, read = set(), eqx.filter_jit(signature)
    for i in range(5):
        task = TASKS.sample(jax.random.key(i))
        support = task.support
        misfits = []
        for one in alones:
            errors = []
            for fold in range(4):  # four examples, each left out once
                others = np.delete(np.arange(4), fold)
                given = arml.Examples(support.x[others], support.y[others])
                found = predicted(one, given, support.x[fold][None])
                errors.append(float(np.mean(np.square(found - support.y[fold]))))
            found = predicted(one, support, support.x)
            misfits.append(float(np.mean(np.square(found - support.y))) * np.mean(errors))
        best = int(np.argmin(misfits))
        seen.add(best)
        np.testing.assert_allclose(
            outputs(three, task), outputs(alones[best], task), rtol=1e-4, atol=1e-5
        )
        reading = np.asarray(read(three, task, jax.random.key(0))[1])
        assert reading[2:].tolist() == [best == 1, best == 2]
    assert len(seen) > 1
    # A handicap that is large enough keeps all tasks from the newest vertex.
    barred = handicapped(three, 1e3)
    task = TASKS.sample(jax.random.key(0))
    assert float(read(barred, task, jax.random.key(0))[1][3]) == 0
    # What is shown of a task is what it reads.
    shown = eqx.filter_jit(three.reading())(task.support).reading.links
    np.testing.assert_array_equal(shown, read(three, task, jax.random.key(0))[1][None])


@pytest.mark.slow
def test_an_intervention_takes_a_grown_vertex_out(three):
    """Its entry is the change of the error of the learner without it."""
    found = interventions(three, mixture(TASKS), n=6, chunk=6)["vertices"][3]["all"]
    tasks = mixture(TASKS)
    whole, fewer = (
        arml.evaluate(m, tasks, 6, progress=False).values for m in (three, without_vertex(three, 3))
    )
    assert found["mean"] == pytest.approx(float(np.mean(np.subtract(fewer, whole))), rel=1e-3)


@pytest.mark.slow
def test_a_vertex_may_own_an_offset_of_every_weight(learner):
    made = replace(OPTIONS, gate="weights")
    own = arml.build(made, TASKS, network=NETWORK)
    assert owns_weights(own)
    assert not owns_weights(learner)
    assert arml.build(replace(made, grown=1), TASKS, network=NETWORK).choose.grown == 1
    task = TASKS.sample(jax.random.key(9))
    # The offsets are zero, and everything else is drawn as without.
    np.testing.assert_allclose(outputs(own, task), outputs(learner, task), rtol=1e-5, atol=1e-6)
    reading = np.asarray(signature(own, task, jax.random.key(0))[1])
    shift = jax.tree.map(lambda a: a + 0.1 * jnp.ones_like(a), own.modulate.offsets)
    moved = eqx.tree_at(lambda m: m.modulate.offsets, own, shift)
    other = eqx.tree_at(
        lambda m: m.net,
        own,
        jax.tree.map(lambda a: a + 0.1 * reading.sum() if eqx.is_array(a) else a, own.net),
    )
    np.testing.assert_allclose(outputs(moved, task), outputs(other, task), rtol=1e-4, atol=1e-5)


def test_a_learner_without_such_vertices_has_none():
    plain = arml.build("maml", TASKS, network=NETWORK)
    assert own_vertices(plain) is None
    assert not owns_weights(plain)
