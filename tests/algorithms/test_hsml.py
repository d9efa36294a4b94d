"""HSML: the tree against loops in NumPy, where it is a chain, and where HSML equals MAML."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.algorithms.conditioned import Conditioned
from arml.algorithms.hsml import Affinity, ClusterTree, Distances, HSMLOptions
from arml.algorithms.maml import MAMLOptions
from arml.core.episodes import Examples, Problem
from arml.nn.modulation import Gate
from arml.nn.networks import Linear, MLPOptions
from small import KEY, REGRESSION, VECTORS, meta, predictions, task

SMALL: dict[str, Any] = {"width": 5, "embedding": 4, "inner_steps": 1, "inner_rate": 0.05}
TREES = [(3,), (4, 2), (3, 1), (4, 3, 2)]


def learner(problem: Problem = REGRESSION, **options: Any) -> Conditioned:
    net = MLPOptions(hidden=(4,), init="he").build(problem, key=jax.random.key(1))
    built: Conditioned = HSMLOptions(**(SMALL | options)).build(net, problem, key=KEY)
    return built


@eqx.filter_jit
def encode(learner: Conditioned, support: Examples) -> Any:
    return learner.encode(support)


def tree_of(clusters: tuple[int, ...], width: int = 5) -> ClusterTree:
    return ClusterTree.drawn(width, clusters, spread=0.7, key=KEY)


def code_of(width: int = 5) -> np.ndarray:
    return np.random.default_rng(3).normal(size=width)


def softmax(scores: list[float]) -> list[float]:
    powers = [np.exp(score) for score in scores]
    return [power / sum(powers) for power in powers]


def in_loops(tree: ClusterTree, code: np.ndarray) -> tuple[list[Any], list[Any]]:
    """Every assignment and every node, one by one, in double precision."""
    lower, assignments, nodes = [code], [], []
    for level in tree.levels:
        weight, bias = np.asarray(level.weight, np.float64), np.asarray(level.bias, np.float64)
        shares = []
        for h in lower:
            if isinstance(level.assign, Distances):
                centres = np.asarray(level.assign.centres, np.float64)
                far = [sum((h[i] - c[i]) ** 2 for i in range(len(h))) for c in centres]
                shares.append(softmax([-square / (2 * 0.7) for square in far]))
            elif isinstance(level.assign, Affinity):
                w = np.asarray(level.assign.dense.weight, np.float64)
                b = np.asarray(level.assign.dense.bias, np.float64)
                shares.append(softmax([h @ w[:, k] + b[k] for k in range(len(b))]))
            else:
                shares.append([1.0])
        upper = []
        for k in range(len(weight)):
            total = np.zeros(weight.shape[2])
            for h, share in zip(lower, shares, strict=True):
                total += share[k] * np.tanh(h @ weight[k] + bias[k])
            upper.append(total)
        assignments.append(shares)
        nodes.append(upper)
        lower = upper
    return assignments, nodes


@pytest.mark.parametrize("clusters", TREES, ids=str)
def test_the_tree_in_loops(clusters):
    tree, code = tree_of(clusters), code_of()
    assignments, nodes = in_loops(tree, code)
    reached, sizes = jnp.asarray(code, jnp.float32)[None], (1, *clusters, 1)
    for i, level in enumerate(tree.levels):
        shares, reached = eqx.filter_jit(lambda k, x: (k.assign(x), k(x)))(level, reached)
        assert shares.shape == sizes[i : i + 2]
        np.testing.assert_allclose(shares, assignments[i], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(np.sum(shares, axis=1), 1, rtol=1e-6)
        np.testing.assert_allclose(reached, nodes[i], rtol=1e-4, atol=1e-6)
    root = eqx.filter_jit(tree)(jnp.asarray(code, jnp.float32))
    np.testing.assert_allclose(root, reached[0], rtol=1e-6)


def test_with_one_cluster_a_level_the_tree_is_a_chain():
    tree, h = tree_of((1, 1, 1)), code_of()
    root = eqx.filter_jit(tree)(jnp.asarray(h, jnp.float32))
    assert len(tree.levels) == 4
    for level in tree.levels:
        h = np.tanh(h @ np.asarray(level.weight[0]) + np.asarray(level.bias[0]))
    np.testing.assert_allclose(root, h, rtol=1e-4, atol=1e-6)


def test_a_code_at_a_centre_far_from_the_others_is_its_clusters_own():
    tree = tree_of((3, 2))
    centres = 20 * jnp.eye(3, 5, dtype=jnp.float32)
    tree = eqx.tree_at(lambda t: t.levels[0].assign.centres, tree, centres)
    leaf = tree.levels[0]
    for k in range(3):
        np.testing.assert_allclose(leaf.assign(centres[k][None])[0], np.eye(3)[k], atol=1e-6)
        own = np.tanh(np.asarray(centres[k] @ leaf.weight[k] + leaf.bias[k]))
        np.testing.assert_allclose(leaf(centres[k][None])[k], own, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("clusters", TREES, ids=str)
def test_a_gradient_reaches_every_centre_and_every_node(clusters):
    tree, code = tree_of(clusters), jnp.asarray(code_of(), jnp.float32)
    gradient = eqx.filter_jit(eqx.filter_grad(lambda t: jnp.sum(jnp.sin(t(code)))))(tree)
    levels = gradient.levels
    assert np.all(np.any(levels[0].assign.centres != 0, axis=1))
    for level in levels:
        assert np.all(np.any(level.weight != 0, axis=(1, 2)))
        assert np.all(np.any(level.bias != 0, axis=1))
        if isinstance(level.assign, Affinity) and len(level.weight) > 1:
            assert np.all(np.any(level.assign.dense.weight != 0, axis=0))
            assert np.all(level.assign.dense.bias != 0)


@pytest.mark.slow
@pytest.mark.parametrize("clusters", [(3,), (3, 2, 2)], ids=str)
def test_a_tree_of_any_height_learns(clusters):
    loss, gradient = meta(learner(clusters=clusters), task())
    assert np.isfinite(loss)
    levels = gradient.encode.tree.levels
    assert len(levels) == len(clusters) + 1
    for leaf in jax.tree.leaves(levels):
        assert np.all(np.isfinite(leaf))
        assert np.any(leaf != 0)


def test_with_an_open_gate_it_is_maml():
    ours = learner()
    dense = ours.modulate.dense
    open_gate = Gate(Linear(jnp.zeros_like(dense.weight), jnp.full_like(dense.bias, 100.0)))
    ours = eqx.tree_at(lambda m: m.modulate, ours, open_gate)
    maml = MAMLOptions(inner_steps=1, inner_rate=0.05).build(ours.net, REGRESSION, key=KEY)
    np.testing.assert_allclose(predictions(ours, task()), predictions(maml, task()), rtol=1e-5)
    penalty = encode(ours, task().support)[1]
    (loss, gradient), (theirs, expected) = meta(ours, task()), meta(maml, task())
    np.testing.assert_allclose(loss, theirs + penalty, rtol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6),
        gradient.net,
        expected.net,
    )


def test_code_and_root_set_the_gate_and_the_reconstruction_is_weighted():
    ours, support = learner(mu=0.3), task().support
    code, penalty = encode(ours, support)
    summary, error = ours.encode.summarise(ours.encode.embed(support))
    np.testing.assert_allclose(code[:5], summary, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(code[5:], ours.encode.tree(summary), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(penalty, 0.3 * error, rtol=1e-5)
    assert encode(learner(mu=0.0), support)[1] == 0


def test_labels_are_read():
    """In regression beside x, in classification as one-hot vectors beside the embedding."""
    for problem, features in ((REGRESSION, 4), (VECTORS, 4 + 2)):
        ours, (x, y) = learner(problem), task(problem).support
        assert ours.encode.summarise.output.weight.shape == (5, features)
        code, other = encode(ours, Examples(x, y))[0], encode(ours, Examples(x, y[::-1]))[0]
        assert np.max(np.abs(code - other)) > 1e-3
