"""Templates: blended as they are read, and vertices that part along what tells tasks apart."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.algorithms.arml import MetaKnowledgeGraph, unlinked
from arml.algorithms.arml_extensions import Spread, Templates, surprise
from arml.core.episodes import Problem
from arml.nn.networks import Conv4Options, MLPOptions

KEY = jax.random.key(0)
SHAPES = {"conv4": (16, 16, 1), "mlp": (4,)}


def network(kind: str):
    if kind == "conv4":
        problem = Problem("classification", (16, 16, 1), 3, 2, 2)
        return Conv4Options(filters=4).build(problem, key=KEY)
    return MLPOptions((6, 5), init="he").build(Problem("classification", (4,), 3, 2, 2), key=KEY)


def filled(empty, key=KEY):
    leaves, structure = jax.tree.flatten(empty)
    keys = jax.random.split(key, len(leaves))
    drawn = [0.3 * jax.random.normal(k, a.shape) for k, a in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(structure, drawn)


@pytest.mark.parametrize("kind", [pytest.param("conv4", marks=pytest.mark.slow), "mlp"])
def test_at_first_the_network_is_as_it_is(kind):
    net = network(kind)
    x = jax.random.normal(KEY, (3, *SHAPES[kind]))
    tailored = Templates.drawn(net, 3, SHAPES[kind], key=KEY)(net, jnp.array([0.2, 0.5, 0.3]))
    np.testing.assert_allclose(tailored(x), net(x), rtol=1e-6)


def test_a_reading_of_one_vertex_is_its_own_film():
    """Against the formula of two layers in float64."""
    net = network("mlp")
    all_templates = filled(Templates.drawn(net, 2, (4,), key=KEY))
    tailored = all_templates(net, jnp.array([0.0, 1.0]))
    x = jax.random.normal(KEY, (3, 4))
    h = np.asarray(x, np.float64)
    for i, block in enumerate(net.body.blocks):
        z = h @ np.asarray(block.layer.weight, np.float64) + np.asarray(block.layer.bias)
        gamma, beta = np.split(np.asarray(all_templates.biases[i])[1], 2)
        h = np.maximum(z * (1 + gamma) + beta, 0)
    expected = h @ np.asarray(net.head.weight, np.float64) + np.asarray(net.head.bias)
    np.testing.assert_allclose(tailored(x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [pytest.param("conv4", marks=pytest.mark.slow), "mlp"])
def test_equal_templates_make_the_reading_irrelevant(kind):
    net = network(kind)
    one = filled(Templates.drawn(net, 1, SHAPES[kind], key=KEY))
    both = jax.tree.map(lambda a: jnp.concatenate([a, a]), one)
    x = jax.random.normal(KEY, (3, *SHAPES[kind]))
    outputs = eqx.filter_jit(lambda made, reading: made(net, reading)(x))
    for reading in ([0.0, 1.0], [0.7, 0.3]):
        ours = outputs(both, jnp.array(reading))
        np.testing.assert_allclose(ours, outputs(one, jnp.ones(1)), rtol=1e-4, atol=1e-5)


def graph(vertices: jax.Array, gamma: float) -> MetaKnowledgeGraph:
    return MetaKnowledgeGraph(vertices, unlinked, unlinked, (), gamma)


def settled(vertices: jax.Array, prototypes: jax.Array, gamma: float) -> np.ndarray:
    """The vertices after descent on the prototypes' surprise."""

    @jax.jit
    def step(_, v):
        return v - 0.2 * gamma**2 * jax.grad(lambda v: surprise(graph(v, gamma), prototypes))(v)

    return np.asarray(jax.lax.fori_loop(0, 2_000, step, vertices))


def test_one_vertex_settles_at_the_mean():
    prototypes = jax.random.normal(KEY, (20, 3))
    ours = settled(jnp.ones((1, 3)), prototypes, 1.0)
    np.testing.assert_allclose(ours[0], jnp.mean(prototypes, axis=0), atol=1e-3)


@pytest.mark.parametrize(("gamma", "part"), [(1.3, False), (0.7, True)])
def test_vertices_that_start_together_part_where_the_spread_exceeds_gamma(gamma, part):
    """Deterministic annealing (Rose, Gurewitz and Fox, 1990): centres that stand together split
    along the first principal axis when its variance exceeds gamma^2, and not before."""
    x = np.random.default_rng(0).normal(size=(400, 2))
    x = (x - x.mean(axis=0)) @ np.linalg.inv(np.linalg.cholesky(np.cov(x.T, bias=True))).T
    prototypes = jnp.asarray(x * [1.0, 0.2], jnp.float32)  # variances 1 and .04
    start = 0.01 * jax.random.normal(KEY, (2, 2))
    ours = settled(start, prototypes, gamma)
    apart = np.abs(ours[0] - ours[1])
    assert (apart[0] > 0.3) == part
    assert apart[1] < 0.1


def test_the_surprise_is_the_likelihood_of_a_mixture():
    vertices, prototypes = jax.random.normal(KEY, (2, 3, 4))
    gamma = 0.8
    densities = [
        np.mean([np.exp(-np.sum((c - v) ** 2) / (2 * gamma**2)) for v in np.asarray(vertices)])
        for c in np.asarray(prototypes, np.float64)
    ]
    ours = surprise(graph(vertices, gamma), prototypes)
    np.testing.assert_allclose(ours, -np.mean(np.log(densities)), rtol=1e-4)


def test_spread_is_the_share_of_the_variance_between_classes():
    """The law of total variance; features of classes alone have share one, of noise little."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(5), 40)
    noise = rng.normal(size=(200, 1))
    e = np.concatenate([y[:, None] - 2.0, noise, y[:, None] - 2 + noise, 0 * noise], axis=1)
    ours = np.asarray(Spread(5)(jnp.asarray(e, jnp.float32), jnp.asarray(e), jnp.asarray(y)))[0]
    assert ours.shape == (4,)
    between = [np.var([column[y == k].mean() for k in range(5)]) for column in e.T]
    least = 0.01 * e.var(axis=0).mean()
    np.testing.assert_allclose(ours, between / (e.var(axis=0) + least), rtol=1e-3, atol=1e-5)
    assert ours[0] > 0.98
    assert ours[1] < 0.1
    assert ours[3] == 0


def test_spread_does_not_depend_on_the_order_of_classes_or_examples():
    e = jax.random.normal(KEY, (12, 3))
    y = jnp.repeat(jnp.arange(3), 4)
    order = jax.random.permutation(KEY, 12)
    spread = eqx.filter_jit(Spread(3))
    one, other = spread(e, e, y), spread(e[order], e[order], (2 - y)[order])
    np.testing.assert_allclose(one, other, rtol=1e-4)
