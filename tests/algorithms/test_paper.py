"""The preset `paper` against the equations of the paper's text, written a second time in NumPy.

Only the weights come from the learner. The equations and the constants are written out here, in
float64: reconstructions are weighted by 0.01 over the entries that they sum.
"""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.algorithms.arml import paper
from arml.core.compilation import ONCE, jit
from arml.core.episodes import Examples, Problem, Task
from arml.nn.networks import MLPOptions

REGRESSION = Problem("regression", (2,), 1, 10, 6)
VECTORS = Problem("classification", (3,), 3, 2, 4)
KEY = jax.random.key(0)
HIDDEN = (5, 4)
BOTH = pytest.mark.parametrize("problem", [REGRESSION, VECTORS], ids=["regression", "vectors"])


pytestmark = pytest.mark.usefixtures("float64")


def perturbed(learner: Any) -> Any:
    """In float64, and without constant arrays, so that no weight hides."""
    arrays, rest = eqx.partition(learner, eqx.is_inexact_array)
    leaves, structure = jax.tree.flatten(arrays)
    rng = np.random.default_rng(1)
    leaves = [
        jnp.asarray(np.float64(leaf) + 0.2 * rng.normal(size=leaf.shape), jnp.float64)
        for leaf in leaves
    ]
    return eqx.combine(jax.tree.unflatten(structure, leaves), rest)


def built(problem: Problem) -> Any:
    net = MLPOptions(HIDDEN, init="he").build(problem, key=jax.random.key(1))
    # The preset shares gates within a unit where vectors are classified; the paper does not.
    options = replace(paper(problem), granularity="parameter")
    return perturbed(options.build(net, problem, key=KEY))


def task(problem: Problem) -> Task:
    rng = np.random.default_rng(0)

    def examples(n: int) -> Examples:
        x = jnp.asarray(rng.normal(size=(n, *problem.features)))
        if problem.kind == "regression":
            return Examples(x, jnp.asarray(rng.normal(size=(n, 1))))
        return Examples(x, jnp.asarray(rng.permutation(np.arange(n) % problem.outputs)))

    return Task(examples(problem.support), examples(problem.query), jnp.zeros((), jnp.int32))


def dense(layer: Any, x: np.ndarray) -> np.ndarray:
    return x @ layer.weight + layer.bias


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def gru(cell: Any, x: np.ndarray, state: np.ndarray) -> np.ndarray:
    """Cho et al., 2014."""
    reset, update = np.split(sigmoid(dense(cell.input_gates, x) + state @ cell.state_gates), 2)
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
                weights[i, j] = sigmoid(dense(relation.dense, np.abs(nodes[i] - nodes[j])))[0]
    return weights


def reading(graph: Any, prototypes: np.ndarray, gamma: float) -> np.ndarray:
    """What the prototypes are after a layer of symmetric graph convolution. Eq. (6), (7)."""
    squared = ((prototypes[:, None] - graph.vertices[None]) ** 2).sum(axis=2)
    links = softmax(-squared / (2 * gamma**2))
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
        prototypes = softmax(dense(encode.structure.assign, e)).T @ f  # Eq. (3)
        gamma, mu = 2**0.5, 0.01 / (2 * 40)
    else:
        e = dense(encode.embed.net.layers[0], x)
        prototypes = np.array([e[y == k].mean(axis=0) for k in range(3)])  # Eq. (2)
        gamma, mu = 8**0.5, 0.01 * 2 / 12 / (3 * 128)
    q, loss_q = autoencoded(encode.summarise, prototypes)
    t, loss_t = autoencoded(encode.summarise_reading, reading(encode.graph, prototypes, gamma))
    return np.concatenate([q, t]), mu * (loss_q + loss_t)


def loss_and_gradient(
    problem: Problem, arrays: list[np.ndarray], data: Examples
) -> tuple[float, list[np.ndarray]]:
    """Of a ReLU network on the mean squared error, or on the mean cross-entropy."""
    x, y = map(np.asarray, data)
    inputs = [x]
    for w, b in zip(arrays[:-2:2], arrays[1:-2:2], strict=True):
        inputs.append(np.maximum(inputs[-1] @ w + b, 0))
    out, n = inputs[-1] @ arrays[-2] + arrays[-1], len(x)
    if problem is REGRESSION:
        loss, delta = np.mean((out - y) ** 2), 2 * (out - y) / n
    else:
        p, onehot = softmax(out), np.eye(3)[y]
        loss, delta = -np.mean(np.log(p[np.arange(n), y])), (p - onehot) / n
    gradient: list[np.ndarray] = []
    for w, read in zip(arrays[-2::-2], inputs[::-1], strict=True):
        gradient = [read.T @ delta, delta.sum(axis=0), *gradient]
        delta = (delta @ w.T) * (read > 0)
    return loss, gradient


def objective(problem: Problem, learner: Any, task: Task) -> float:
    """Eq. (11) of one task."""
    code, penalty = encoded(problem, learner.encode, task.support)
    layers = [*(block.layer for block in learner.net.body.blocks), learner.net.head]
    arrays = [array for layer in layers for array in (layer.weight, layer.bias)]
    gates = np.split(
        sigmoid(dense(learner.modulate.dense, code)), np.cumsum([a.size for a in arrays])[:-1]
    )
    arrays = [g.reshape(a.shape) * a for g, a in zip(gates, arrays, strict=True)]  # Eq. (10)
    rate = 0.001 if problem is REGRESSION else 0.01 * 3
    for _ in range(5):
        _, gradient = loss_and_gradient(problem, arrays, task.support)
        arrays = [a - rate * g for a, g in zip(arrays, gradient, strict=True)]
    return loss_and_gradient(problem, arrays, task.query)[0] + penalty


def in_numpy(tree: Any) -> Any:
    return jax.tree.map(lambda a: np.asarray(a) if eqx.is_array(a) else a, tree)


@pytest.mark.parametrize(
    "problem",
    [
        pytest.param(REGRESSION, id="regression", marks=pytest.mark.slow),
        pytest.param(VECTORS, id="vectors"),
    ],
)
def test_the_objective_and_its_gradient(problem):
    """The gradient along a random direction, against a central difference of the NumPy route."""
    learner, on = built(problem), task(problem)
    trained, rest = eqx.partition(learner, eqx.is_inexact_array)

    def loss(trained: Any) -> jax.Array:
        return eqx.combine(trained, rest).meta_loss(on, key=KEY)

    value, gradient = jit(jax.value_and_grad(loss), ONCE)(trained)
    np.testing.assert_allclose(value, objective(problem, in_numpy(learner), on), rtol=1e-11)
    rng = np.random.default_rng(2)
    direction = jax.tree.map(lambda a: rng.normal(size=a.shape), trained)
    step = 1e-6

    def moved(sign: int) -> float:
        there = jax.tree.map(lambda a, d: a + sign * step * d, trained, direction)
        return objective(problem, in_numpy(eqx.combine(there, rest)), on)

    slope = (moved(1) - moved(-1)) / (2 * step)
    products = jax.tree.map(lambda g, d: np.sum(g * d), gradient, direction)
    along = sum(jax.tree.leaves(products))
    np.testing.assert_allclose(along, slope, rtol=1e-5)


@BOTH
def test_the_code_and_the_penalty(problem):
    """The penalty alone, which is a small part of the objective."""
    learner, on = built(problem), task(problem)
    code, penalty = jit(lambda support: learner.encode(support), ONCE)(on.support)
    expected_code, expected = encoded(problem, in_numpy(learner.encode), on.support)
    np.testing.assert_allclose(code, expected_code, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(penalty, expected, rtol=1e-10)
