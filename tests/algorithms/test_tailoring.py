"""ARML with a head of prototypes and templates: the contract, and what it comes down to."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.algorithms.arml_extensions import ExtendedARMLOptions
from arml.algorithms.conditioned import Conditioned
from arml.algorithms.protonet import ProtoNetOptions
from arml.core.episodes import Problem
from arml.core.inner import with_steps
from arml.experiment.contract import Blobs, Case
from arml.explain.explaining import graph
from arml.explain.interventions import interventions
from arml.nn.networks import MLPOptions
from contract_suite import *  # noqa: F403

KEY = jax.random.key(0)
PROBLEM = Problem("classification", (4,), 3, 2, 3)
TASKS = Blobs(PROBLEM)
NET = MLPOptions(hidden=(8,), init="he").build(PROBLEM, key=KEY)
OPTIONS = ExtendedARMLOptions(
    head="prototypes", vertices=3, inner_rate=0.05, inner_steps=0, gamma_s=0.5
)


def built(options: Any, key: jax.Array = KEY) -> Conditioned:
    learner: Conditioned = options.build(NET, PROBLEM, key=key)
    return learner


@pytest.fixture(scope="module")
def case() -> Case:
    # The network is part of what the seed decides.
    def build(key: jax.Array) -> Any:
        net_key, key = jax.random.split(key)
        net = MLPOptions(hidden=(8,), init="he").build(PROBLEM, key=net_key)
        return with_steps(OPTIONS.build(net, PROBLEM, key=key), 2)

    return Case(build, TASKS)


@eqx.filter_jit
def probabilities(learner, task):
    return jax.nn.softmax(learner.adapt(task.support, key=KEY).predict(task.query.x))


def test_without_steps_and_with_empty_templates_it_is_the_scaled_protonet():
    task = TASKS.sample(jax.random.key(1))
    protonet = ProtoNetOptions(scale=0.05).build(NET, PROBLEM, key=KEY)
    ours = probabilities(built(OPTIONS), task)
    np.testing.assert_allclose(ours, probabilities(protonet, task), rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_rates_are_learned_from_a_head_of_prototypes():
    """The loss is near chance otherwise: here it is below, before any step, and falls in one."""
    learner = built(replace(OPTIONS, learn_rates=True))
    task = TASKS.sample(jax.random.key(1))

    @eqx.filter_jit
    def loss(learner):
        return learner.loss(
            learner.adapt(task.support, key=KEY).predict(task.support.x), task.support.y
        )

    before, after = loss(with_steps(learner, 0)), loss(with_steps(learner, 1))
    assert after < before < jnp.log(3)


def filled(learner: Conditioned) -> Conditioned:
    """With templates that differ."""
    keys = iter(jax.random.split(jax.random.key(2), 10))
    templates = jax.tree.map(lambda a: jax.random.normal(next(keys), a.shape), learner.modulate)
    return eqx.tree_at(lambda m: m.modulate, learner, templates)


def test_the_reading_decides_the_network():
    """A task's code is its reading, a distribution over vertices; it blends the templates."""
    learner = filled(built(OPTIONS))
    task = TASKS.sample(jax.random.key(1))
    reading, _ = learner.encode(learner.look(task.support))
    np.testing.assert_allclose(jnp.sum(reading), 1, rtol=1e-5)
    films = learner.modulate(learner.net, reading).body.blocks[0].film
    expected = 1 + np.asarray(reading, np.float64) @ np.asarray(learner.modulate.biases[0])[:, :8]
    np.testing.assert_allclose(films.scale.value, expected, rtol=1e-4)


@pytest.mark.slow
def test_it_is_explained():
    """Links by family, and what is lost without a vertex and its template."""
    learner = filled(built(OPTIONS))
    found = graph(learner, TASKS, n=4, chunk=4)
    assert found["prototype_names"] == ["spread"]
    assert found["vertex_links_reach_tasks"] is False
    np.testing.assert_allclose(np.sum(found["average"]["blobs"]["mean"]), 1, rtol=1e-4)
    lost = interventions(learner, TASKS, n=4, chunk=4)
    assert len(lost["vertices"]) == 3
    assert lost["links"]["all"]["mean"] == 0


def test_a_vertex_that_none_reads_can_be_taken_out():
    learner = filled(built(OPTIONS))
    far = learner.encode.graph.vertices.at[2].set(100.0)
    learner = eqx.tree_at(lambda m: m.encode.graph.vertices, learner, far)
    lost = interventions(learner, TASKS, n=4, chunk=4)["vertices"]
    assert lost[2]["all"]["mean"] == 0


def test_options_that_do_not_suit_the_problem_are_refused():
    regression = Problem("regression", (4,), 1, 5, 5)
    with pytest.raises(ValueError, match="needs classification"):
        OPTIONS.build(NET, regression, key=KEY)
    for change, words in (
        ({"head": "ridge"}, "the head ridge"),
        ({"gate": "layers"}, "the gate l"),
    ):
        with pytest.raises(ValueError, match=f"{words}.* needs regression"):
            replace(OPTIONS, **change).build(NET, PROBLEM, key=KEY)


def test_templates_need_vertices():
    with pytest.raises(ValueError, match="vertices must be at least 1"):
        ExtendedARMLOptions(vertices=0).check()
