"""HSML: the tree against loops in NumPy, and the code that it makes of a support set."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax

from arml.algorithms.hsml import Affinity, ClusterTree, Distances, HSMLOptions
from arml.core.episodes import Examples
from small import KEY, REGRESSION, VECTORS, close, doubled, network, task

pytestmark = pytest.mark.usefixtures("float64")


@pytest.mark.parametrize("clusters", [(3,), (4, 2), (3, 1), (4, 3, 2)], ids=str)
def test_the_tree_in_loops(clusters):
    """Every assignment and every node, one by one."""
    tree = doubled(ClusterTree.drawn(5, clusters, spread=0.7, key=KEY))
    code = np.random.default_rng(3).normal(size=5)
    lower = [code]
    for level in tree.levels:
        shares = []
        for h in lower:
            if isinstance(level.assign, Distances):
                far = [np.sum((h - c) ** 2) for c in np.asarray(level.assign.centres)]
                shares.append(softmax(-np.array(far) / (2 * 0.7)))
            elif isinstance(level.assign, Affinity):
                shares.append(softmax(h @ level.assign.dense.weight + level.assign.dense.bias))
            else:
                shares.append([1.0])
        pairs = list(zip(lower, shares, strict=True))
        lower = [
            sum(share[k] * np.tanh(h @ level.weight[k] + level.bias[k]) for h, share in pairs)
            for k in range(len(level.weight))
        ]
    assert [len(level.weight) for level in tree.levels] == [*clusters, 1]
    np.testing.assert_allclose(eqx.filter_jit(tree)(jnp.asarray(code)), lower[0], rtol=1e-9)


@pytest.mark.parametrize("problem", [REGRESSION, VECTORS], ids=["regression", "vectors"])
def test_code_and_root_set_the_gate_and_the_reconstruction_is_weighted(problem):
    """Labels are read: beside x in regression, beside the embedding in classification."""
    options = HSMLOptions(width=5, embedding=4, mu=0.3)
    encode = doubled(options.build(network(problem), problem, key=KEY).encode)
    (x, y) = doubled(task(problem).support)
    encoded = eqx.filter_jit(encode)
    code, penalty = encoded(Examples(x, y))
    samples = encode.embed(Examples(x, y))
    if problem is VECTORS:
        samples = jnp.concatenate([samples, jnp.eye(2)[y]], axis=1)
    summary, error = encode.summarise(samples)
    close(code, jnp.concatenate([summary, encode.tree(summary)]))
    close(penalty, 0.3 * error)
    assert np.max(np.abs(code - encoded(Examples(x, y[::-1]))[0])) > 1e-4
