"""The autoencoders against loops in NumPy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.nn.autoencoders import GRUAutoencoder, GRUCell, MLPAutoencoder

FEATURES, CODE, N = 3, 4, 5
SEQUENCE = np.random.default_rng(0).normal(size=(N, FEATURES)).astype(np.float32)


def perturbed(tree: object) -> object:
    """No array is left constant, so that a misplaced bias shows."""
    arrays, rest = eqx.partition(tree, eqx.is_array)
    leaves, structure = jax.tree.flatten(arrays)
    rng = np.random.default_rng(1)
    leaves = [leaf + jnp.asarray(0.3 * rng.normal(size=leaf.shape), leaf.dtype) for leaf in leaves]
    return eqx.combine(jax.tree.unflatten(structure, leaves), rest)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def tensorflow_cell(cell: GRUCell, x: np.ndarray, h: np.ndarray) -> np.ndarray:
    """TensorFlow's GRUCell: one kernel over [input, state], reset then update."""
    gates = np.concatenate([cell.input_gates.weight, cell.state_gates])
    candidate = np.concatenate([cell.input_candidate.weight, cell.state_candidate])
    both = sigmoid(np.concatenate([x, h]) @ gates + np.asarray(cell.input_gates.bias))
    r, u = both[: len(h)], both[len(h) :]
    c = np.tanh(np.concatenate([x, r * h]) @ candidate + np.asarray(cell.input_candidate.bias))
    return u * h + (1 - u) * c


def test_cell_is_tensorflows():
    cell = perturbed(GRUCell.drawn(FEATURES, CODE, key=jax.random.key(0)))
    x, h = SEQUENCE[0], np.linspace(-1, 1, CODE, dtype=np.float32)
    ours = cell(cell.project(jnp.asarray(x)), jnp.asarray(h))
    np.testing.assert_allclose(ours, tensorflow_cell(cell, x, h), rtol=1e-5, atol=1e-6)


def test_initial_cell_leans_towards_its_state():
    cell = GRUCell.drawn(FEATURES, CODE, key=jax.random.key(0))
    np.testing.assert_array_equal(cell.input_gates.bias, 1)
    np.testing.assert_array_equal(cell.input_candidate.bias, 0)


@pytest.mark.parametrize("total", [jnp.mean, jnp.sum])
def test_autoencoder_reads_forwards_and_rebuilds_backwards(total):
    summary = GRUAutoencoder.drawn(FEATURES, CODE, total=total, key=jax.random.key(2))
    auto: GRUAutoencoder = perturbed(summary)
    state, states = np.zeros(CODE, np.float32), []
    for x in SEQUENCE:
        state = tensorflow_cell(auto.encoder, x, state)
        states.append(state)
    output, outputs = np.zeros(FEATURES, np.float32), []
    for _ in range(N):
        state = tensorflow_cell(auto.decoder, output, state)
        output = state @ np.asarray(auto.output.weight) + np.asarray(auto.output.bias)
        outputs.append(output)
    squares = (SEQUENCE - np.array(outputs[::-1])) ** 2
    code, loss = eqx.filter_jit(auto)(jnp.asarray(SEQUENCE))
    np.testing.assert_allclose(code, np.mean(states, axis=0), rtol=1e-4, atol=1e-6)
    expected = squares.mean() if total is jnp.mean else squares.sum()
    np.testing.assert_allclose(loss, expected, rtol=1e-4)


def test_order_matters_to_the_recurrent_summary_and_not_to_the_other():
    backwards = jnp.asarray(SEQUENCE[::-1].copy())
    key = jax.random.key(3)
    for build, same in ((GRUAutoencoder.drawn, False), (MLPAutoencoder.drawn, True)):
        summary = eqx.filter_jit(build(FEATURES, CODE, key=key))
        (code, loss), (other, other_loss) = summary(jnp.asarray(SEQUENCE)), summary(backwards)
        assert np.allclose(code, other, rtol=1e-5, atol=1e-6) == same
        assert np.allclose(loss, other_loss, rtol=1e-5) == same


def test_mlp_summary_is_the_mean_of_single_codes():
    summary = MLPAutoencoder.drawn(FEATURES, CODE, key=jax.random.key(4))
    singles = [summary(jnp.asarray(x[None])) for x in SEQUENCE]
    code, loss = summary(jnp.asarray(SEQUENCE))
    np.testing.assert_allclose(code, np.mean([s[0] for s in singles], axis=0), rtol=1e-5)
    np.testing.assert_allclose(loss, np.mean([s[1] for s in singles]), rtol=1e-5)
