"""MUMOMAML: where it equals MAML, what each modulation does, and both encoders."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.algorithms.conditioned import Conditioned
from arml.algorithms.maml import MAMLOptions
from arml.algorithms.mumomaml import (
    BidirectionalLSTM,
    ImageEncoder,
    MUMOMAMLOptions,
)
from arml.core.episodes import Examples, Problem
from arml.core.inner import adaptable
from arml.nn.networks import Conv4Options, Linear, MLPOptions
from small import KEY, REGRESSION, VECTORS, meta, predictions, task

IMAGES = Problem("classification", (16, 16, 1), 2, 2, 1)
TINY = {"width": 4, "filters": 2}
SMALL: dict[str, Any] = {"inner_steps": 1, "inner_rate": 0.05, **TINY}
KINDS = ("sigmoid", "film")


def learner(problem: Problem = REGRESSION, **options: Any) -> Conditioned:
    network = Conv4Options(filters=2) if problem is IMAGES else MLPOptions((5, 4), init="he")
    net = network.build(problem, key=jax.random.key(1))
    built: Conditioned = MUMOMAMLOptions(**(SMALL | options)).build(net, problem, key=KEY)
    return built


@eqx.filter_jit
def code_of(learner: Conditioned, support: Examples) -> jax.Array:
    return learner.encode(support)[0]


def zeroed(learner: Conditioned) -> Conditioned:
    """The modulation sees nothing of the code."""
    return eqx.tree_at(
        lambda m: m.modulate.layers, learner, jax.tree.map(jnp.zeros_like, learner.modulate.layers)
    )


def perturbed(tree: Any) -> Any:
    """No array is left constant, so that a misplaced bias shows."""
    arrays, rest = eqx.partition(tree, eqx.is_inexact_array)
    leaves, structure = jax.tree.flatten(arrays)
    rng = np.random.default_rng(1)
    leaves = [leaf + jnp.asarray(0.3 * rng.normal(size=leaf.shape), leaf.dtype) for leaf in leaves]
    return eqx.combine(jax.tree.unflatten(structure, leaves), rest)


def test_with_film_of_zero_it_is_maml():
    ours = zeroed(learner(modulation="film"))
    maml = MAMLOptions(inner_steps=1, inner_rate=0.05).build(ours.net, REGRESSION, key=KEY)
    np.testing.assert_allclose(predictions(ours, task()), predictions(maml, task()), rtol=1e-5)
    (loss, gradient), (theirs, expected) = meta(ours, task()), meta(maml, task())
    np.testing.assert_allclose(loss, theirs, rtol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6),
        gradient.net,
        expected.net,
    )


def test_a_sigmoid_of_zero_halves_the_pre_activations():
    """So that two hidden layers, whose biases start at zero, leave a quarter."""
    ours, x = zeroed(learner()), task().query.x
    net = ours.modulate(ours.net, jnp.ones(8))
    first = net.body.blocks[0]
    expected = jax.nn.relu(first.layer(x) / 2)
    np.testing.assert_allclose(first(x)[0], expected, rtol=1e-6)
    np.testing.assert_allclose(net.body(x), ours.net.body(x) / 4, rtol=1e-5)


def dense(layer: Linear, x: np.ndarray) -> np.ndarray:
    return x @ np.asarray(layer.weight, np.float64) + np.asarray(layer.bias, np.float64)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("modulation", KINDS)
def test_the_modulated_network_by_hand(modulation):
    ours = perturbed(learner(modulation=modulation))
    code = np.random.default_rng(2).normal(size=8)
    x = expected = np.asarray(task().query.x)
    for block, layer in zip(ours.net.body.blocks, ours.modulate.layers, strict=True):
        z, tau = dense(block.layer, expected), dense(layer, code)
        if modulation == "sigmoid":
            z = z * sigmoid(tau)
        elif modulation == "film":
            z = z * (1 + tau[: len(tau) // 2]) + tau[len(tau) // 2 :]
        else:
            z = z * np.exp(tau) / np.mean(np.exp(tau))
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


def test_equal_learned_rates_are_one_rate():
    plain, learned = (learner(modulation="film", learn_rates=learn) for learn in (False, True))
    np.testing.assert_allclose(predictions(plain, task()), predictions(learned, task()), rtol=1e-5)
    rates = jax.tree.structure(learned.inner.rate)
    start = learned.modulate(learned.net, jnp.zeros(8))
    assert rates == jax.tree.structure(adaptable(start))


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
                c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
                h = sigmoid(o) * np.tanh(c)
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


def image_code(encode: ImageEncoder, pictures: np.ndarray) -> np.ndarray:
    """The image encoder in double precision: in each block a 3x3 window at every pixel,
    normalisation by the set's own statistics, the largest of each 2x2 square, and ReLU."""
    x = np.float64(pictures)
    for block in encode.blocks:
        kernel = np.float64(block.layer.kernel)
        padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
        z = np.einsum("nhwcij,ijco->nhwo", windows, kernel) + np.float64(block.layer.bias)
        z = (z - z.mean(axis=(0, 1, 2))) / np.sqrt(z.var(axis=(0, 1, 2)) + 1e-3)
        n, h, w, o = z.shape
        z = z.reshape(n, h // 2, 2, w // 2, 2, o).max(axis=(2, 4))
        x = np.maximum(z + np.float64(block.offset.value), 0)
    units = dense(encode.dense, x.mean(axis=(1, 2)))
    assert np.any(units < 0)  # where the ReLU shows
    return np.maximum(units, 0).mean(axis=0)


def test_the_image_encoder_by_hand():
    encode, support = perturbed(learner(IMAGES).encode), task(IMAGES).support
    code = eqx.filter_jit(encode)(support)[0]
    np.testing.assert_allclose(code, image_code(encode, support.x), rtol=1e-3, atol=1e-5)


def test_the_lstm_starts_as_pytorchs():
    for ahead, back in BidirectionalLSTM.drawn(3, 16, layers=2, key=KEY).layers:
        for cell in (ahead, back):
            for weight in (cell.input_gates.weight, cell.state_gates):
                assert 0.23 < np.abs(weight).max() <= 0.25
            np.testing.assert_array_equal(cell.input_gates.bias, 0)
        assert np.any(ahead.state_gates != back.state_gates)


@pytest.mark.slow
def test_order_matters_to_the_encoder_of_sequences_and_not_to_that_of_images():
    for problem, same in ((REGRESSION, False), (VECTORS, False), (IMAGES, True)):
        ours, (x, y) = learner(problem), task(problem).support
        shuffled = np.roll(np.arange(len(y)), 1)
        code, other = (
            code_of(ours, Examples(x, y)),
            code_of(ours, Examples(x[shuffled], y[shuffled])),
        )
        assert np.any(code != 0)
        assert np.allclose(code, other, rtol=1e-4, atol=1e-6) == same


def test_labels_matter_to_the_encoder_of_sequences_and_not_to_that_of_images():
    for problem, same in ((REGRESSION, False), (VECTORS, False), (IMAGES, True)):
        ours, (x, y) = learner(problem), task(problem).support
        code, other = code_of(ours, Examples(x, y)), code_of(ours, Examples(x, y[::-1]))
        assert np.array_equal(code, other) == same
