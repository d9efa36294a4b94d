"""The preset `paper` against the equations of the paper's text, written a second time in NumPy.

Only the weights come from the learner. The equations and the constants are written out here:
reconstructions are weighted by 0.01 over the entries that they sum.
"""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest
from scipy.special import expit, softmax

from arml.algorithms.arml import paper
from arml.algorithms.maml import MAMLOptions
from arml.core.episodes import Examples, Problem
from small import KEY, REGRESSION, close, doubled, meta, network, perturbed, task

VECTORS = Problem("classification", (3,), 3, 2, 4)
pytestmark = pytest.mark.usefixtures("float64")


def dense(layer: Any, x: np.ndarray) -> np.ndarray:
    return x @ layer.weight + layer.bias


def gru(cell: Any, x: np.ndarray, state: np.ndarray) -> np.ndarray:
    """Cho et al., 2014."""
    reset, update = np.split(expit(dense(cell.input_gates, x) + state @ cell.state_gates), 2)
    candidate = np.tanh(dense(cell.input_candidate, x) + (reset * state) @ cell.state_candidate)
    return update * state + (1 - update) * candidate


def autoencoded(ae: Any, sequence: np.ndarray) -> tuple[np.ndarray, float]:
    """The mean of the encoder's states; the squared Frobenius norm of what is not rebuilt."""
    state, states = np.zeros(len(ae.output.weight)), []
    for x in sequence:
        state = gru(ae.encoder, x, state)
        states.append(state)
    output, rebuilt = np.zeros(sequence.shape[1]), []
    for _ in sequence:
        state = gru(ae.decoder, output, state)
        output = dense(ae.output, state)
        rebuilt.append(output)
    return np.mean(states, axis=0), np.sum((sequence - rebuilt[::-1]) ** 2)  # Eq. (8), (9)


def edges(relation: Any, nodes: np.ndarray) -> np.ndarray:
    """Eq. (4), (5), with gamma = 1."""
    n = len(nodes)
    weights = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if i != j:
                weights[i, j] = expit(dense(relation.dense, np.abs(nodes[i] - nodes[j])))[0]
    return weights


def reading(graph: Any, prototypes: np.ndarray, gamma: float) -> np.ndarray:
    """What the prototypes are after a layer of symmetric graph convolution. Eq. (6), (7)."""
    squared = ((prototypes[:, None] - graph.vertices[None]) ** 2).sum(axis=2)
    links = softmax(-squared / (2 * gamma**2), axis=1)
    own, between = edges(graph.relate, prototypes), edges(graph.connect, graph.vertices)
    adjacency = np.vstack([np.hstack([own, links]), np.hstack([links.T, between])])
    adjacency += np.eye(len(adjacency))
    root = np.diag(adjacency.sum(axis=1) ** -0.5)
    nodes = np.vstack([prototypes, graph.vertices])
    layer = graph.propagate[0].dense
    return np.tanh(root @ adjacency @ root @ nodes @ layer.weight + layer.bias)[: len(prototypes)]


def encoded(problem: Problem, encode: Any, support: Examples) -> tuple[np.ndarray, float]:
    """The task's code and the penalty."""
    x, y = map(np.asarray, support)
    if problem is REGRESSION:
        pairs = np.hstack([x, y])
        e, f = (
            np.maximum(dense(part.net.layers[0], pairs), 0)
            for part in (encode.embed, encode.embed_values)
        )
        prototypes = softmax(dense(encode.structure.assign, e), axis=1).T @ f  # Eq. (3)
        gamma, mu = 2**0.5, 0.01 / (2 * 40)
    else:
        e = dense(encode.embed.net.layers[0], x)
        prototypes = np.array([e[y == k].mean(axis=0) for k in range(3)])  # Eq. (2)
        gamma, mu = 8**0.5, 0.01 * 2 / 12 / (3 * 128)
    q, loss_q = autoencoded(encode.summarise, prototypes)
    t, loss_t = autoencoded(encode.summarise_reading, reading(encode.graph, prototypes, gamma))
    return np.concatenate([q, t]), mu * (loss_q + loss_t)


@pytest.mark.parametrize("problem", [REGRESSION, VECTORS], ids=["regression", "vectors"])
def test_the_objective_is_that_of_maml_from_the_tailored_start(problem):
    """Eq. (11) of one task."""
    # The preset shares gates within a unit where vectors are classified; the paper does not.
    options = replace(paper(problem), granularity="parameter")
    learner = options.build(network(problem, (5, 4)), problem, key=KEY)
    learner, on = perturbed(doubled(learner), 0.2), doubled(task(problem))
    written = jax.tree.map(lambda a: np.asarray(a) if eqx.is_array(a) else a, learner)
    code, penalty = encoded(problem, written.encode, on.support)
    close(eqx.filter_jit(learner.encode)(on.support), (code, penalty), rtol=1e-10)
    arrays, structure = jax.tree.flatten(learner.net)
    gates = expit(dense(written.modulate.dense, code))
    gates = np.split(gates, np.cumsum([a.size for a in arrays])[:-1])
    arrays = [g.reshape(a.shape) * a for g, a in zip(gates, arrays, strict=True)]  # Eq. (10)
    rate = 0.001 if problem is REGRESSION else 0.01 * 3
    maml = MAMLOptions(inner_rate=rate, inner_steps=5)
    maml = maml.build(jax.tree.unflatten(structure, arrays), problem, key=KEY)
    np.testing.assert_allclose(meta(learner, on)[0], meta(maml, on)[0] + penalty, rtol=1e-11)
