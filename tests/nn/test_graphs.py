"""GraphSAGE and GAT against NumPy; golden numbers and `test_paper.py` hold the GCN."""

import jax.numpy as jnp
import numpy as np

from arml.nn.graphs import GAT, GraphSAGE
from arml.nn.networks import Linear

N, D = 4, 3
RNG = np.random.default_rng(0)
ADJACENCY = 1 / (1 + np.exp(-RNG.normal(size=(N, N)))) * (1 - np.eye(N))
NODES, WEIGHT, BOTH = (RNG.normal(size=shape) for shape in ((N, D), (D, D), (2 * D, D)))
BIAS, SOURCE, TARGET = RNG.normal(size=(3, D))


def single(*arrays: np.ndarray) -> list:
    return [jnp.asarray(a, jnp.float32) for a in arrays]


def test_sage():
    layer = GraphSAGE(Linear(*single(BOTH, BIAS)))
    mean = ADJACENCY @ NODES / ADJACENCY.sum(axis=1, keepdims=True)
    expected = np.tanh(NODES @ BOTH[:D] + mean @ BOTH[D:] + BIAS)
    np.testing.assert_allclose(layer(*single(ADJACENCY, NODES)), expected, rtol=1e-4, atol=1e-6)
    assert np.all(np.isfinite(layer(jnp.zeros((1, 1)), *single(NODES[:1]))))


def test_gat():
    layer = GAT(Linear(*single(WEIGHT, BIAS)), *single(SOURCE, TARGET))
    values = NODES @ WEIGHT
    scores = (values @ TARGET)[:, None] + values @ SOURCE
    # The edge weights, with self-loops of one, multiply the unnormalised attention.
    attention = np.exp(np.where(scores > 0, scores, 0.2 * scores)) * (ADJACENCY + np.eye(N))
    expected = np.tanh(attention / attention.sum(axis=1, keepdims=True) @ values + BIAS)
    np.testing.assert_allclose(layer(*single(ADJACENCY, NODES)), expected, rtol=1e-4, atol=1e-5)
