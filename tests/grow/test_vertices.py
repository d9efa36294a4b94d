"""Vertices that come and go."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import arml
from arml.algorithms.arml_presets import with_templates
from arml.grow.vertices import own_vertices, signature, with_leaf, with_vertex, without_vertex
from arml.nn.modulation import film, unit_modulation
from arml.nn.networks import MLPOptions
from arml.nn.templates import own_layers
from arml.tasks.functions import functions_2d

TASKS = functions_2d(shots=4, queries=4)
NETWORK = MLPOptions(hidden=(8, 8), init="he")
OPTIONS = replace(with_templates(TASKS.problem), hidden=(8,), width=4, vertices=2, inner_steps=1)


@pytest.fixture(scope="module")
def learner():
    return arml.build(OPTIONS, TASKS, network=NETWORK)


def outputs(learner, task):
    return np.asarray(learner.adapt(task.support, key=jax.random.key(0)).predict(task.query.x))


def test_layers_of_one_vertex_are_a_modulation_of_units():
    net = NETWORK.build(TASKS.problem, key=jax.random.key(1))
    code = jnp.linspace(-1, 1, 3)
    units = unit_modulation(net, 3, film, features=(2,), key=jax.random.key(2))
    layers = eqx.tree_at(
        lambda m: (m.weights, m.biases),
        own_layers(net, 1, 3, features=(2,), key=jax.random.key(3)),
        (
            tuple(layer.weight[None] for layer in units.layers),
            tuple(layer.bias[None] for layer in units.layers),
        ),
    )
    x = jax.random.normal(jax.random.key(4), (5, 2))
    given = jnp.concatenate([jnp.ones(1), code])
    np.testing.assert_allclose(layers(net, given)(x), units(net, code)(x), rtol=1e-5)


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


def test_a_new_vertex_owns_the_blend_and_is_read_where_it_stands(learner):
    task = TASKS.sample(jax.random.key(6))
    prototype, reading = signature(learner, task, jax.random.key(0))
    assert float(reading.sum()) == pytest.approx(1, abs=1e-5)
    more = with_vertex(learner, np.asarray(prototype), np.array([0.25, 0.75]))
    first, second = np.asarray(learner.modulate.weights[0], float)
    np.testing.assert_allclose(more.modulate.weights[0][2], 0.25 * first + 0.75 * second, rtol=1e-5)
    again, read = signature(more, task, jax.random.key(0))
    np.testing.assert_allclose(again, prototype, rtol=1e-5)
    assert int(np.argmax(read)) == 2  # no other vertex is nearer than its own place


def test_a_learner_without_such_vertices_has_none():
    assert own_vertices(arml.build("maml", TASKS, network=NETWORK)) is None


def test_a_leaf_is_added_to_hsml():
    hsml = arml.build("hsml", TASKS, network=NETWORK)
    more = with_leaf(hsml, key=jax.random.key(7))
    old, new = (m.encode.tree.levels[0] for m in (hsml, more))
    assert len(new.assign.centres) == len(old.assign.centres) + 1
    np.testing.assert_array_equal(new.weight[:-1], old.weight)
    task = TASKS.sample(jax.random.key(8))
    climb = more.encode.trace(task.support).climb
    assert climb.assignments[0].shape == (1, 5)
    assert float(climb.assignments[0].sum()) == pytest.approx(1, abs=1e-5)
    assert np.isfinite(np.asarray(climb.nodes[-1])).all()
