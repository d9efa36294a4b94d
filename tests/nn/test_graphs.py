"""Relations and message passing against dense NumPy."""

import jax.numpy as jnp
import numpy as np
import pytest

from arml.algorithms.arml import MetaKnowledgeGraph, Relations, unlinked
from arml.nn.graphs import GAT, GCN, GraphSAGE, by_row, symmetric
from arml.nn.networks import Linear

N, D = 4, 3


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


ADJACENCY = 1 / (1 + np.exp(-numbers(0, N, N)))
ADJACENCY = ((ADJACENCY + ADJACENCY.T) / 2 * (1 - np.eye(N))).astype(np.float32)
NODES, WEIGHT, BIAS = numbers(1, N, D), numbers(2, D, D), numbers(3, D)
DENSE = Linear(jnp.asarray(WEIGHT), jnp.asarray(BIAS))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def test_relations():
    weight, bias = numbers(4, D, 1), numbers(5, 1)
    relations = Relations(Linear(jnp.asarray(weight), jnp.asarray(bias)))
    ours = np.asarray(relations(jnp.asarray(NODES)))
    for i in range(N):
        for j in range(N):
            distance = np.abs(NODES[i] - NODES[j])
            expected = 0.0 if i == j else sigmoid(distance @ weight[:, 0] + bias[0])
            np.testing.assert_allclose(ours[i, j], expected, rtol=1e-5)
    np.testing.assert_allclose(ours, ours.T, rtol=1e-6)
    assert not np.any(unlinked(jnp.asarray(NODES)))


def test_gcn_by_row():
    loops = ADJACENCY + np.eye(N)
    loops = loops / loops.sum(axis=1, keepdims=True)
    ours = GCN(DENSE, by_row)(jnp.asarray(ADJACENCY), jnp.asarray(NODES))
    np.testing.assert_allclose(ours, np.tanh(loops @ NODES @ WEIGHT + BIAS), rtol=1e-4, atol=1e-6)


def test_gcn_symmetric():
    loops = ADJACENCY + np.eye(N)
    degree = np.diag(loops.sum(axis=1) ** -0.5)
    expected = np.tanh(degree @ loops @ degree @ NODES @ WEIGHT + BIAS)
    ours = GCN(DENSE, symmetric)(jnp.asarray(ADJACENCY), jnp.asarray(NODES))
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-6)


def test_sage():
    weight = numbers(6, 2 * D, D)
    layer = GraphSAGE(Linear(jnp.asarray(weight), jnp.asarray(BIAS)))
    ours = layer(jnp.asarray(ADJACENCY), jnp.asarray(NODES))
    for i in range(N):
        mean = sum(ADJACENCY[i, j] * NODES[j] for j in range(N)) / ADJACENCY[i].sum()
        expected = np.tanh(NODES[i] @ weight[:D] + mean @ weight[D:] + BIAS)
        np.testing.assert_allclose(ours[i], expected, rtol=1e-4, atol=1e-6)


def test_sage_of_a_lonely_vertex_is_finite():
    layer = GraphSAGE(Linear(jnp.asarray(numbers(6, 2 * D, D)), jnp.asarray(BIAS)))
    assert np.all(np.isfinite(layer(jnp.zeros((1, 1)), jnp.asarray(NODES[:1]))))


def test_gat():
    source, target = numbers(7, D), numbers(8, D)
    ours = GAT(DENSE, jnp.asarray(source), jnp.asarray(target))(
        jnp.asarray(ADJACENCY), jnp.asarray(NODES)
    )
    values = NODES @ WEIGHT
    for i in range(N):
        scores = np.array([values[i] @ target + values[j] @ source for j in range(N)])
        scores = np.where(scores > 0, scores, 0.2 * scores)
        # The edge weights, with self-loops of one, multiply the unnormalised attention.
        attention = np.exp(scores) * (ADJACENCY[i] + np.eye(N)[i])
        expected = np.tanh(attention / attention.sum() @ values + BIAS)
        np.testing.assert_allclose(ours[i], expected, rtol=1e-4, atol=1e-5)


@pytest.fixture
def graph() -> MetaKnowledgeGraph:
    relations = Relations(Linear(jnp.asarray(numbers(4, D, 1)), jnp.zeros(1)))
    return MetaKnowledgeGraph(
        jnp.asarray(numbers(9, 5, D)), relations, relations, (GCN(DENSE), GCN(DENSE)), 2**0.5
    )


def test_links_are_a_softmax_of_scaled_distances_and_sum_to_one(graph):
    links = np.asarray(graph.links(jnp.asarray(NODES)))
    np.testing.assert_allclose(links.sum(axis=1), 1, rtol=1e-6)
    squared = np.sum((NODES[:, None] - np.asarray(graph.vertices)[None]) ** 2, axis=-1)
    expected = np.exp(-squared / (2 * 2.0))
    np.testing.assert_allclose(links, expected / expected.sum(axis=1, keepdims=True), rtol=1e-4)


def test_a_super_graph_has_the_tasks_edges_the_links_and_the_graphs_edges(graph):
    prototypes = jnp.asarray(NODES)
    reading = graph(prototypes)
    adjacency = np.asarray(reading.adjacency)
    np.testing.assert_array_equal(adjacency[:N, :N], graph.relate(prototypes))
    np.testing.assert_array_equal(adjacency[:N, N:], reading.links)
    np.testing.assert_array_equal(adjacency[N:, :N], reading.links.T)
    np.testing.assert_array_equal(adjacency[N:, N:], graph.connect(graph.vertices))
    nodes = jnp.concatenate([prototypes, graph.vertices])
    for layer in graph.propagate:
        nodes = layer(reading.adjacency, nodes)
    np.testing.assert_allclose(reading.prototypes, nodes[:N], rtol=1e-6)


def test_the_order_of_the_prototypes_is_only_an_order(graph):
    order = np.array([2, 0, 3, 1])
    ours, permuted = graph(jnp.asarray(NODES)), graph(jnp.asarray(NODES[order]))
    np.testing.assert_allclose(permuted.prototypes, ours.prototypes[order], rtol=1e-5, atol=1e-6)
