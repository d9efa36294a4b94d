"""MUMOMAML: what each modulation does, and both encoders; MAML in `test_limits.py`."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

from arml.algorithms.conditioned import Conditioned
from arml.algorithms.mumomaml import BidirectionalLSTM, MUMOMAMLOptions
from arml.core.episodes import Examples, Problem
from arml.nn.networks import Conv4Options, Linear
from small import KEY, REGRESSION, VECTORS, network, perturbed, task

IMAGES = Problem("classification", (16, 16, 1), 2, 2, 1)


def learner(problem: Problem = REGRESSION, **options: Any) -> Conditioned:
    images = problem is IMAGES
    net = Conv4Options(filters=2).build(problem, key=KEY) if images else network(problem, (5, 4))
    options = {"inner_steps": 1, "inner_rate": 0.05, "width": 4, "filters": 2, **options}
    built: Conditioned = MUMOMAMLOptions(**options).build(net, problem, key=KEY)
    return built


def dense(layer: Linear, x: np.ndarray) -> np.ndarray:
    return x @ np.asarray(layer.weight, np.float64) + np.asarray(layer.bias, np.float64)


@pytest.mark.parametrize("modulation", ["sigmoid", "film"])
def test_the_modulated_network_by_hand(modulation):
    ours = perturbed(learner(modulation=modulation))
    code = np.random.default_rng(2).normal(size=8)
    x = expected = np.asarray(task().query.x)
    for block, layer in zip(ours.net.body.blocks, ours.modulate.layers, strict=True):
        z, tau = dense(block.layer, expected), dense(layer, code)
        if modulation == "sigmoid":
            z = z * expit(tau)
        else:
            z = z * (1 + tau[: len(tau) // 2]) + tau[len(tau) // 2 :]
        expected = np.maximum(z, 0)
    expected = dense(ours.net.head, expected)
    net = ours.modulate(ours.net, jnp.asarray(code, jnp.float32))
    np.testing.assert_allclose(net(jnp.asarray(x)), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("problem", [REGRESSION, IMAGES], ids=["vectors", "images"])
def test_the_modulation_is_held_while_the_weights_adapt(problem):
    ours, support = learner(problem, modulation="film", inner_rate=0.5), task(problem).support

    @eqx.filter_jit
    def both(m: Conditioned) -> Any:
        start = m.modulate(m.net, m.encode(support)[0])
        return start, m.inner(lambda net: m.loss(net(support.x), support.y), start)

    start, after = both(ours)
    assert np.any(start.head.weight != after.head.weight)
    for old, new in zip(start.body.blocks, after.body.blocks, strict=True):
        jax.tree.map(np.testing.assert_array_equal, old.film, new.film)
        moved = jax.tree.map(lambda a, b: bool(np.any(a != b)), old.layer, new.layer)
        assert any(jax.tree.leaves(moved))


def lstm_in_loops(lstm: BidirectionalLSTM, sequence: np.ndarray) -> np.ndarray:
    """PyTorch's equations, one gate and one step at a time, in double precision."""
    for layer in lstm.layers:
        read = []
        for cell, order in zip(layer, (1, -1), strict=True):
            w, b, u = (
                np.asarray(a, np.float64)
                for a in (cell.input_gates.weight, cell.input_gates.bias, cell.state_gates)
            )
            d = len(u)
            h, c, states = np.zeros(d), np.zeros(d), []
            for x in sequence[::order]:
                i, f, g, o = (
                    x @ w[:, k * d : (k + 1) * d]
                    + b[k * d : (k + 1) * d]
                    + h @ u[:, k * d :][:, :d]
                    for k in range(4)
                )
                c = expit(f) * c + expit(i) * np.tanh(g)
                h = expit(o) * np.tanh(c)
                states.append(h)
            read.append(np.array(states)[::order])
        sequence = np.concatenate(read, axis=1)
        last = np.concatenate([read[0][-1], read[1][0]])
    return last


@pytest.mark.parametrize("layers", [1, 2])
def test_the_lstm_in_loops(layers):
    lstm = perturbed(BidirectionalLSTM.drawn(3, 4, layers=layers, key=KEY))
    sequence = np.random.default_rng(4).normal(size=(5, 3))
    code = eqx.filter_jit(lstm)(jnp.asarray(sequence, jnp.float32))
    np.testing.assert_allclose(code, lstm_in_loops(lstm, sequence), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("problem", "same"), [(REGRESSION, False), (VECTORS, False), (IMAGES, True)]
)
def test_order_and_labels_matter_to_the_encoder_of_sequences_alone(problem, same):
    encode, (x, y) = eqx.filter_jit(learner(problem).encode), task(problem).support
    code = encode(Examples(x, y))[0]
    assert np.any(code != 0)
    for other in (Examples(x[::-1], y[::-1]), Examples(x, y[::-1])):
        assert np.allclose(code, encode(other)[0], rtol=1e-4, atol=1e-6) == same
