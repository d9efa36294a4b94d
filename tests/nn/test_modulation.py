"""Gates and FiLM: cut in the right order, and broadcast over the right axes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.core.episodes import Problem
from arml.core.inner import adaptable
from arml.nn.modulation import (
    UNITS,
    FiLM,
    Gate,
    UnitModulation,
    each_filter,
    each_parameter,
    stacked,
)
from arml.nn.networks import Conv4Options
from small import KEY, close, network, perturbed

CODE = jnp.linspace(-1, 1, 5)
IMAGES = Problem("classification", (16, 16, 1), 3, 1, 1, inputs="pictures")
NETS = {"mlp": network(), "conv4": Conv4Options(filters=2).build(IMAGES, key=KEY)}


@pytest.mark.parametrize("granularity", [each_parameter, each_filter])
@pytest.mark.parametrize("kind", NETS)
def test_one_stacked_layer_is_one_dense_layer_for_each_array(kind, granularity):
    """And neither gates nor FiLM touch what all tasks share."""
    net = perturbed(NETS[kind])
    dense, other = (
        perturbed(stacked(net, 5, granularity=granularity, key=k)) for k in jax.random.split(KEY)
    )
    gate, shift = (np.asarray(layer(CODE)) for layer in (dense, other))
    gated = Gate(dense, jax.nn.sigmoid, granularity)(net, CODE)
    filmed = FiLM(dense, other, granularity)(net, CODE)
    at = 0
    trees = (jax.tree.leaves(adaptable(tree)) for tree in (net, gated, filmed))
    for old, new, moved in zip(*trees, strict=True):
        shape = old.shape if granularity is each_parameter else old.shape[-1:]
        part = slice(at, at + int(np.prod(shape)))
        own, shifts = gate[part].reshape(shape), shift[part].reshape(shape)
        np.testing.assert_allclose(new, old / (1 + np.exp(-own)), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(moved, old * (1 + own) + shifts, rtol=1e-4, atol=1e-5)
        at = part.stop
    assert at == len(gate)
    if kind == "conv4":
        for tailored in (gated, filmed):
            close([b.offset for b in tailored.body.blocks], [b.offset for b in net.body.blocks])


def test_each_array_starts_with_its_own_fan():
    dense = stacked(NETS["mlp"], 5, key=KEY)
    assert not np.any(dense.bias)
    sizes = [leaf.size for leaf in jax.tree.leaves(adaptable(NETS["mlp"]))]
    pieces = np.split(np.asarray(dense.weight), np.cumsum(sizes)[:-1], axis=1)
    for size, piece in zip(sizes, pieces, strict=True):
        assert np.abs(piece).max() <= np.sqrt(6 / (5 + size))


@pytest.mark.parametrize(
    ("name", "scale"),
    [
        ("film", lambda tau: 1 + tau[:4]),
        ("sigmoid", lambda tau: 1 / (1 + np.exp(-tau))),
        ("tanh", np.tanh),
    ],
)
def test_units_are_modulated_by_the_scaled_code(name, scale):
    made = UnitModulation.drawn(NETS["mlp"], 5, UNITS[name], features=(2,), scale=0.5, key=KEY)
    tailored = made(NETS["mlp"], CODE)
    found = tailored.body.blocks[0].film
    tau = np.asarray(made.layers[0](CODE / 2))
    np.testing.assert_allclose(found.scale.value, scale(tau), rtol=1e-5)
    expected = tau[4:] if name == "film" else np.zeros(4)
    np.testing.assert_allclose(found.shift.value, expected, rtol=1e-5)
    close(adaptable(tailored), adaptable(NETS["mlp"]))  # tasks adapt weights as they were
