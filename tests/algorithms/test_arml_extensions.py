"""Vertices that own modulations: blended as they are read, parted along what tells tasks apart, and
read by Bayes' rule. With empty templates it is ProtoNet (`test_limits.py`)."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import multivariate_normal

from arml.algorithms.arml import MetaKnowledgeGraph, unlinked
from arml.algorithms.arml_extensions import (
    ExtendedARMLOptions,
    Spread,
    Templates,
    surprise,
    without_vertex,
)
from arml.core.episodes import Examples, Problem
from arml.experiment.contract import Blobs
from arml.explain.explaining import graph as explained
from arml.explain.interventions import interventions
from arml.nn.heads import NOISE_SHARE, RidgeHead
from small import KEY, REGRESSION, VECTORS, network, perturbed, task

EVIDENCE = ExtendedARMLOptions(
    head="ridge",
    inner_steps=0,
    gate="weights",
    read_by="evidence",
    vertices=3,
    width=4,
    hidden=(5,),
)


@pytest.fixture(scope="module")
def learner() -> Any:
    """With vertices that own something."""
    made = EVIDENCE.build(network(hidden=(8, 7)), REGRESSION, key=KEY)
    return eqx.tree_at(lambda m: m.modulate, made, perturbed(made.modulate))


@pytest.mark.parametrize(("code", "offsets"), [(0, False), (3, True)])
def test_a_task_blends_what_the_vertices_own_as_it_reads_them(code, offsets):
    """Against the formulas of two layers in NumPy."""
    net, x = network(hidden=(6, 5)), task().query.x
    drawn = Templates.drawn(net, 2, (2,), code=code, offsets=offsets, key=KEY)
    np.testing.assert_array_equal(drawn(net, jnp.array([0.3, 0.7, *[0.0] * code]))(x), net(x))
    templates = perturbed(drawn)
    reading, own = np.array([0.3, 0.7], np.float32), np.array([0.5, -1.0, 2.0], np.float32)[:code]
    moved = net
    if offsets:
        moved = jax.tree.map(lambda a, d: a + 0.3 * d[0] + 0.7 * d[1], net, templates.offsets)
    h = x
    for i, block in enumerate(moved.body.blocks):
        tau = np.asarray(templates.biases[i])
        if code:
            tau = tau + np.stack([own @ each for each in np.asarray(templates.weights[i])])
        gamma, beta = np.split(reading @ tau, 2)
        h = jax.nn.relu(block.layer(h) * (1 + gamma) + beta)
    ours = templates(net, jnp.concatenate([reading, own]))(x)
    np.testing.assert_allclose(ours, moved.head(h), rtol=1e-4, atol=1e-5)


def graph(vertices: jax.Array, gamma: float) -> MetaKnowledgeGraph:
    return MetaKnowledgeGraph(vertices, unlinked, unlinked, (), gamma)


@pytest.mark.parametrize(("gamma", "part"), [(1.3, False), (0.7, True)])
def test_vertices_that_start_together_part_where_the_spread_exceeds_gamma(gamma, part):
    """Deterministic annealing (Rose, Gurewitz and Fox, 1990): centres that stand together split
    along the first principal axis when its variance exceeds gamma^2, and not before."""
    x = np.random.default_rng(0).normal(size=(400, 2))
    x = (x - x.mean(axis=0)) @ np.linalg.inv(np.linalg.cholesky(np.cov(x.T, bias=True))).T
    prototypes = jnp.asarray(x * [1.0, 0.2], jnp.float32)  # variances 1 and .04

    @jax.jit
    def step(_: int, v: jax.Array) -> jax.Array:
        return v - 0.2 * gamma**2 * jax.grad(lambda v: surprise(graph(v, gamma), prototypes))(v)

    settled = jax.lax.fori_loop(0, 2_000, step, 0.01 * jax.random.normal(KEY, (2, 2)))
    apart = np.abs(settled[0] - settled[1])
    assert (apart[0] > 0.3) == part
    assert apart[1] < 0.1


def test_the_surprise_is_the_likelihood_of_a_mixture():
    vertices, prototypes = jax.random.normal(KEY, (2, 3, 4))
    densities = [
        np.mean([np.exp(-np.sum((c - v) ** 2) / (2 * 0.8**2)) for v in np.asarray(vertices)])
        for c in np.asarray(prototypes)
    ]
    ours = surprise(graph(vertices, 0.8), prototypes)
    np.testing.assert_allclose(ours, -np.mean(np.log(densities)), rtol=1e-4)


def test_spread_is_the_share_of_the_variance_between_classes():
    """The law of total variance; features of classes alone have share one, of noise little."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(5), 40)
    noise = rng.normal(size=(200, 1))
    e = np.concatenate([y[:, None] - 2.0, noise, y[:, None] - 2 + noise, 0 * noise], axis=1)
    ours = np.asarray(Spread(5)(jnp.asarray(e, jnp.float32), jnp.asarray(e), jnp.asarray(y)))[0]
    between = [np.var([column[y == k].mean() for k in range(5)]) for column in e.T]
    least = 0.01 * e.var(axis=0).mean()
    np.testing.assert_allclose(ours, between / (e.var(axis=0) + least), rtol=1e-3, atol=1e-5)
    assert ours[0] > 0.98
    assert ours[1] < 0.1
    assert ours[3] == 0


def system(head: RidgeHead, net: Any, x: jax.Array) -> tuple[np.ndarray, np.ndarray]:
    """F, and F V F^T + r I, in float64."""
    f = np.asarray(net.body(x), np.float64)
    f = np.concatenate([f, np.ones((len(f), 1))], axis=1)
    kernel = (f * np.exp(np.asarray(head.log_variances, np.float64))) @ f.T
    return f, kernel + (1 + NOISE_SHARE * np.trace(kernel)) * np.eye(len(f))


@pytest.mark.parametrize("size", [1.0, 30.0, 1e3, 1e6])
def test_the_head_is_ridge_regression(size):
    """Also of large features, by the noise that they need."""
    net, (x, y) = network(hidden=(7,)), task().support
    variances = jnp.linspace(-2, 1, 8, dtype=jnp.float32)
    head = eqx.tree_at(lambda h: h.log_variances, RidgeHead.of(net, 0.5), variances)
    far = Examples(size * x, y)
    ours = head(net, far)(far.x)
    assert np.isfinite(ours).all()
    if size < 1e6:
        f, noisy = system(head, net, far.x)
        missed = np.asarray(y, np.float64) - np.asarray(net(far.x), np.float64)
        change = (f * np.exp(np.asarray(variances))) @ f.T @ np.linalg.solve(noisy, missed)
        expected = np.asarray(y) - missed + change
        np.testing.assert_allclose(ours, expected, rtol=0.02, atol=0.02 if size > 1 else 1e-3)


def test_a_head_of_ones_own_is_refused():
    with pytest.raises(ValueError, match="needs a network whose head is an"):
        RidgeHead.of(replace(network(), head=lambda features: features), 0.5)


def test_the_evidence_is_the_density_of_the_targets():
    """A sum over outputs."""
    problem = replace(REGRESSION, outputs=2)
    net, (x, y), noise = network(problem), task(problem).support, 0.3
    head = RidgeHead.of(net, 0.2)
    missed, covariance = np.asarray(y - net(x)).T, noise * system(head, net, x)[1]
    densities = multivariate_normal(np.zeros(6), covariance).logpdf(missed)
    expected = np.sum(densities + 3 * np.log(2 * np.pi))
    ours = head.log_evidence(net, Examples(x, y), jnp.log(noise))
    np.testing.assert_allclose(ours, expected, rtol=1e-3)


def test_a_task_reads_the_vertices_by_bayes_rule(learner):
    """Against the densities under the networks of the vertices, which `modulate` makes one by one
    from codes that read one vertex alone."""
    support = task().support
    placed, own = learner.modulate.parts(learner.encode(support)[0])
    logs = []
    for one in jnp.eye(3):
        net = learner.modulate(learner.net, jnp.concatenate([one, own]))
        missed = np.asarray(support.y - net(support.x))[:, 0]
        covariance = system(learner.head, net, support.x)[1]
        logs.append(multivariate_normal(np.zeros(6), covariance).logpdf(missed))
    expected = softmax(np.log(np.asarray(placed)) + np.exp(-1.0) * np.array(logs))
    ours = learner.coded(support)[0]
    np.testing.assert_allclose(ours[:3], expected, rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(ours[3:], own)
    # What is shown of a task is what it reads.
    np.testing.assert_allclose(learner.reading()(support).reading.links, ours[None, :3], rtol=1e-5)
    left = ours[jnp.array([0, 2])]
    fewer = without_vertex(learner, 1).coded(support)[0][:2]
    np.testing.assert_allclose(fewer, left / jnp.sum(left), rtol=1e-3, atol=1e-6)


def test_a_vertex_that_none_reads_can_be_taken_out():
    problem = Problem("classification", (4,), 3, 2, 3)
    options = ExtendedARMLOptions(head="prototypes", vertices=3, inner_steps=0, gamma_s=0.5)
    made = options.build(network(problem), problem, key=KEY)
    made = eqx.tree_at(lambda m: m.modulate, made, perturbed(made.modulate))
    far = made.encode.graph.vertices.at[2].set(100.0)
    made = eqx.tree_at(lambda m: m.encode.graph.vertices, made, far)
    lost = interventions(made, Blobs(problem), n=4, chunk=4)
    assert lost["vertices"][2]["all"]["mean"] == 0
    assert "links" not in lost  # its vertices have none
    found = explained(made, Blobs(problem), n=4, chunk=4)
    assert found["prototype_names"] == ["spread"]
    np.testing.assert_allclose(np.sum(found["average"]["blobs"]["mean"]), 1, rtol=1e-4)


@pytest.mark.parametrize(
    ("change", "problem", "words"),
    [
        (
            {"gate": "templates"},
            REGRESSION,
            "a gate of layers or weights.* got templates and ridge",
        ),
        ({"head": "learned"}, REGRESSION, "the head ridge, got weights and learned"),
        ({}, VECTORS, "the head ridge with .* needs regression tasks"),
        ({"head": "prototypes", "read_by": "place"}, REGRESSION, "needs classification"),
        (
            {"head": "learned", "read_by": "place", "gate": "templates"},
            VECTORS,
            "needs inner steps, because the classes of a task have a random order",
        ),
        ({"learn_rates": True}, REGRESSION, "learn_rates needs inner steps, got inner_steps 0"),
    ],
)
def test_options_that_do_not_suit_the_problem_are_refused(change, problem, words):
    def check() -> None:
        options = replace(EVIDENCE, **change)
        options.check()
        options.build(network(problem), problem, key=KEY)

    with pytest.raises(ValueError, match=words):
        check()
