"""Reading by evidence: Bayes' rule over the vertices, and the vertex that made a task is found."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import multivariate_normal

from arml.algorithms.arml_extensions import ExtendedARMLOptions, with_own_layers, without_vertex
from arml.core.episodes import Examples, Problem
from arml.experiment.contract import Case
from arml.experiment.recipes import recipe
from arml.nn.heads import ROUNDING, RidgeHead
from arml.nn.networks import Linear, MLPOptions
from arml.tasks.functions import functions_2d
from contract_suite import *  # noqa: F403

KEY = jax.random.key(0)
TASKS = functions_2d(shots=6, queries=5)
NETWORK = MLPOptions(hidden=(8, 7), init="he")
OPTIONS = ExtendedARMLOptions(
    head="ridge",
    inner_steps=0,
    gate="weights",
    read_by="evidence",
    vertices=3,
    width=4,
    hidden=(5,),
)


def built(key=KEY, options=OPTIONS):
    net_key, key = jax.random.split(key)
    return options.build(NETWORK.build(TASKS.problem, key=net_key), TASKS.problem, key=key)


@pytest.fixture(scope="module")
def case():
    return Case(built, TASKS, descends=False)


@pytest.fixture(scope="module")
def learner():
    """With vertices that own something."""
    made = built()
    leaves, structure = jax.tree.flatten(made.modulate)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    drawn = [0.3 * jax.random.normal(k, a.shape) for k, a in zip(keys, leaves, strict=True)]
    return eqx.tree_at(lambda m: m.modulate, made, jax.tree.unflatten(structure, drawn))


def covariance(head, net, x):
    """F V F^T + I in float64."""
    f = np.asarray(net.body(x), np.float64)
    f = np.concatenate([f, np.ones((len(f), 1))], axis=1)
    return (f * np.exp(np.asarray(head.log_variances, np.float64))) @ f.T + np.eye(len(f))


def test_the_head_is_ridge_regression():
    """Against the normal equations of the primal problem, in float64."""
    net = NETWORK.build(TASKS.problem, key=KEY)
    head = RidgeHead.of(net, 0.5)
    head = eqx.tree_at(lambda h: h.log_variances, head, jnp.linspace(-2, 1, 8))
    support = TASKS.sample(KEY).support
    f = np.asarray(net.body(support.x), np.float64)
    f = np.concatenate([f, np.ones((6, 1))], axis=1)
    prior = np.concatenate([np.asarray(net.head.weight), np.asarray(net.head.bias)[None]])
    precision = np.diag(np.exp(-np.linspace(-2, 1, 8)))
    missed = np.asarray(support.y, np.float64) - f @ prior
    expected = prior + np.linalg.solve(f.T @ f + precision, f.T @ missed)
    ours = head(net, support).head
    np.testing.assert_allclose(ours.weight, expected[:-1], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(ours.bias, expected[-1], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("size", [30.0, 1e3])
def test_the_head_solves_the_system_as_it_is_written(size):
    """In float64, with the noise that large features need."""
    net = NETWORK.build(TASKS.problem, key=KEY)
    head, support = RidgeHead.of(net, 0.5), TASKS.sample(KEY).support
    far = Examples(size * support.x, support.y)
    f = np.asarray(net.body(far.x), np.float64)
    f = np.concatenate([f, np.ones((6, 1))], axis=1)
    kernel = 0.5 * f @ f.T
    r = 1 + ROUNDING * np.trace(kernel)
    missed = np.asarray(far.y, np.float64) - np.asarray(net.head(net.body(far.x)), np.float64)
    change = 0.5 * f.T @ np.linalg.solve(kernel + r * np.eye(6), missed)
    expected = np.asarray(far.y) - missed + f @ change
    np.testing.assert_allclose(head(net, far)(far.x), expected, rtol=0.02, atol=0.02)


def test_the_evidence_of_several_outputs_is_a_sum():
    problem = Problem("regression", (2,), 2, 6, 5)
    net = NETWORK.build(problem, key=KEY)
    head, x = RidgeHead.of(net, 0.2), TASKS.sample(KEY).support.x
    both = jax.random.normal(KEY, (6, 2))
    whole = head.log_evidence(net, Examples(x, both), jnp.zeros(()))
    parts = []
    for i in range(2):
        shared = Linear(net.head.weight[:, i : i + 1], net.head.bias[i : i + 1])
        one = Examples(x, both[:, i : i + 1])
        parts.append(head.log_evidence(replace(net, head=shared), one, jnp.zeros(())))
    np.testing.assert_allclose(whole, sum(parts), rtol=1e-4)


def test_a_head_of_ones_own_is_refused():
    net = NETWORK.build(TASKS.problem, key=KEY)
    with pytest.raises(ValueError, match="needs a network whose head is an"):
        RidgeHead.of(replace(net, head=lambda features: features), 0.5)


def test_huge_features_leave_the_head_finite():
    net = NETWORK.build(TASKS.problem, key=KEY)
    support = TASKS.sample(KEY).support
    far = Examples(1e6 * support.x, support.y)
    assert np.isfinite(RidgeHead.of(net, 0.5)(net, far)(far.x)).all()


def test_the_evidence_is_the_density_of_the_targets():
    net = NETWORK.build(TASKS.problem, key=KEY)
    head, support, noise = RidgeHead.of(net, 0.2), TASKS.sample(KEY).support, 0.3
    mean = np.asarray(net(support.x))[:, 0]
    density = multivariate_normal(mean, noise * covariance(head, net, support.x))
    expected = density.logpdf(np.asarray(support.y)[:, 0]) + 3 * np.log(2 * np.pi)
    ours = head.log_evidence(net, support, jnp.log(noise))
    np.testing.assert_allclose(ours, expected, rtol=1e-3)


def test_a_task_reads_the_vertices_by_bayes_rule(learner):
    """Against the densities under the networks of the vertices, which `modulate` makes one by one
    from codes that read one vertex alone."""
    support = TASKS.sample(jax.random.key(2)).support
    placed, own = learner.modulate.parts(learner.encode(support)[0])
    logs = []
    for one in jnp.eye(3):
        net = learner.modulate(learner.net, jnp.concatenate([one, own]))
        normal = multivariate_normal(
            np.asarray(net(support.x))[:, 0], covariance(learner.head, net, support.x)
        )
        logs.append(normal.logpdf(np.asarray(support.y)[:, 0]))
    expected = softmax(np.log(np.asarray(placed)) + np.exp(-1.0) * np.array(logs))
    ours = learner.coded(support)[0]
    np.testing.assert_allclose(ours[:3], expected, rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(ours[3:], own)
    # What is shown of a task is what it reads.
    np.testing.assert_allclose(learner.reading()(support).reading.links, ours[None, :3], rtol=1e-5)


def test_the_vertex_that_made_a_task_is_read(learner):
    """Targets are drawn from the prior of one vertex's network."""
    x, code = TASKS.sample(jax.random.key(3)).support.x, jnp.zeros(4)
    x = jnp.tile(x, (4, 1)) + 0.3 * jax.random.normal(KEY, (24, 2))
    sharp = eqx.tree_at(
        lambda m: (m.choose.log_power, m.modulate.weights, m.encode.graph.vertices),
        learner,
        (
            jnp.zeros(()),
            tuple(0 * w for w in learner.modulate.weights),  # the own code makes no difference
            0 * learner.encode.graph.vertices,
        ),
    )
    read = jax.jit(jax.vmap(lambda y: sharp.coded(Examples(x, y))[0][:3]))
    rng = np.random.default_rng(0)
    for vertex in range(3):
        one = jnp.concatenate([jnp.eye(3)[vertex], code])
        net = sharp.modulate(sharp.net, one)
        mean, spread = np.asarray(net(x))[:, 0], covariance(sharp.head, net, x)
        targets = rng.multivariate_normal(mean, spread, size=20)
        found = jnp.argmax(read(jnp.asarray(targets[..., None], jnp.float32)), axis=1)
        assert jnp.sum(found == vertex) >= 16


@pytest.mark.slow
def test_without_a_vertex_the_others_are_read(learner):
    support = TASKS.sample(jax.random.key(2)).support
    whole = learner.coded(support)[0][:3]
    fewer = without_vertex(learner, 1).coded(support)[0][:2]
    left = whole[jnp.array([0, 2])]
    np.testing.assert_allclose(fewer, left / jnp.sum(left), rtol=1e-3, atol=1e-6)


@pytest.mark.slow
def test_one_vertex_is_read_whole():
    made = built(options=replace(OPTIONS, vertices=1))
    assert made.coded(TASKS.sample(KEY).support)[0][0] == 1


def test_where_there_is_no_evidence_it_is_refused():
    for change, wanted in (
        ({"gate": "templates"}, "needs a gate of layers or weights.* got templates and ridge"),
        ({"head": "learned"}, "the head ridge, got weights and learned"),
    ):
        with pytest.raises(ValueError, match=wanted):
            replace(OPTIONS, **change).check()


def test_a_ridge_head_is_refused_for_classes():
    problem = Problem("classification", (4,), 3, 2, 3)
    net = NETWORK.build(problem, key=KEY)
    with pytest.raises(ValueError, match=r"the head ridge with .* needs regression tasks"):
        OPTIONS.build(net, problem, key=KEY)


def test_the_recipe_differs_from_own_layers_where_it_says():
    made = recipe("regression2d/arml").algorithm
    usual = with_own_layers(functions_2d().problem)
    changed = {name for name, value in vars(made).items() if value != vars(usual)[name]}
    assert changed == {"head", "inner_steps", "gate", "read_by", "vertices", "gamma_s"}
