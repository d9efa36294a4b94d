"""MUMOMAML's encoders; its modulation in `test_modulation.py`, MAML in `test_limits.py`."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

from arml.algorithms.conditioned import Conditioned
from arml.algorithms.mumomaml import BidirectionalLSTM, MUMOMAMLOptions
from arml.core.episodes import Examples, Problem
from arml.nn.networks import Conv4Options
from small import KEY, REGRESSION, VECTORS, network, perturbed, task

IMAGES = Problem("classification", (16, 16, 1), 2, 2, 1, inputs="pictures")


def learner(problem: Problem = REGRESSION, **options: Any) -> Conditioned:
    images = problem is IMAGES
    net = Conv4Options(filters=2).build(problem, key=KEY) if images else network(problem, (5, 4))
    options = {"inner_steps": 1, "inner_rate": 0.05, "width": 4, "filters": 2, **options}
    built: Conditioned = MUMOMAMLOptions(**options).build(net, problem, key=KEY)
    return built


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
