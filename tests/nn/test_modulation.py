"""Gates and FiLM: cut in the right order, broadcast over the right axes, and neutral when asked."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.core.episodes import Problem
from arml.core.inner import adaptable
from arml.nn.modulation import (
    FiLM,
    Gate,
    UnitModulation,
    each_filter,
    each_parameter,
    film,
    sigmoid_gate,
    stacked,
    tanh_gate,
)
from arml.nn.networks import Conv4Options, Linear, MLPOptions

CODE = np.linspace(-1, 1, 5, dtype=np.float32)
NETS = {
    "mlp": MLPOptions(hidden=(4,), init="he").build(
        Problem("regression", (2,), 1, 5, 5), key=jax.random.key(0)
    ),
    "conv4": Conv4Options(filters=2).build(
        Problem("classification", (16, 16, 1), 3, 1, 1), key=jax.random.key(0)
    ),
}


@pytest.fixture(params=list(NETS))
def net(request) -> Any:
    return NETS[request.param]


@pytest.mark.parametrize("granularity", [each_parameter, each_filter])
def test_one_stacked_layer_is_one_dense_layer_for_each_array(net, granularity):
    dense = stacked(net, 5, granularity=granularity, key=jax.random.key(1))
    bias = jnp.asarray(np.random.default_rng(0).normal(size=dense.bias.shape), jnp.float32)
    dense = Linear(dense.weight, bias)
    gated = Gate(dense, jax.nn.sigmoid, granularity)(net, jnp.asarray(CODE))
    at = 0
    pairs = zip(*(jax.tree.leaves(adaptable(tree)) for tree in (net, gated)), strict=True)
    for old, new in pairs:
        shape = old.shape if granularity is each_parameter else old.shape[-1:]
        end = at + int(np.prod(shape))
        values = CODE @ np.asarray(dense.weight)[:, at:end] + np.asarray(bias)[at:end]
        gate = 1 / (1 + np.exp(-values)).reshape(shape)
        np.testing.assert_allclose(new, np.asarray(old) * gate, rtol=1e-4, atol=1e-6)
        at = end
    assert at == len(bias)


def zero(dense: Linear, bias: float = 0.0) -> Linear:
    return Linear(jnp.zeros_like(dense.weight), jnp.full_like(dense.bias, bias))


def test_neutral_modulations_leave_the_network_as_it_is(net):
    dense = stacked(net, 5, key=jax.random.key(1))
    code = jnp.asarray(CODE)
    for modulate in (Gate(zero(dense, 100.0)), FiLM(zero(dense), zero(dense))):
        jax.tree.map(np.testing.assert_array_equal, modulate(net, code), net)


def test_film_scales_and_shifts(net):
    dense = stacked(net, 5, key=jax.random.key(1))
    ours = FiLM(zero(dense, 0.5), zero(dense, 2.0))(net, jnp.asarray(CODE))
    jax.tree.map(
        lambda new, old: np.testing.assert_allclose(new, 1.5 * old + 2, rtol=1e-6),
        adaptable(ours),
        adaptable(net),
    )


def test_what_is_shared_by_all_tasks_is_not_gated():
    net = eqx.tree_at(lambda n: n.body.blocks[0].offset.value, NETS["conv4"], jnp.ones(2))
    gated = Gate(zero(stacked(net, 5, key=jax.random.key(1))))(net, jnp.asarray(CODE))
    np.testing.assert_array_equal(gated.body.blocks[0].offset.value, 1)
    np.testing.assert_allclose(gated.head.weight, 0.5 * net.head.weight, rtol=1e-6)


def test_each_array_starts_with_its_own_fan():
    net = NETS["mlp"]
    dense = stacked(net, 5, key=jax.random.key(1))
    assert not np.any(dense.bias)
    sizes = [leaf.size for leaf in jax.tree.leaves(adaptable(net))]
    for size, piece in zip(
        sizes, np.split(np.asarray(dense.weight), np.cumsum(sizes)[:-1], axis=1), strict=True
    ):
        assert np.abs(piece).max() <= np.sqrt(6 / (5 + size))


@pytest.mark.parametrize("modulation", [film, sigmoid_gate, tanh_gate])
def test_units_are_modulated_by_the_scaled_code(net, modulation):
    key = jax.random.key(1)
    features = (2,) if len(net.body.blocks) == 1 else (16, 16, 1)
    made = partial(UnitModulation.drawn, net, 5, modulation, features=features, key=key)
    small = made(scale=0.5)(net, jnp.asarray(CODE))
    whole = made()(net, jnp.asarray(CODE) / 2)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), small, whole)
    assert all(block.film is not None for block in small.body.blocks)
    # It is the units that are modulated: the weights, which a task adapts, are as they were.
    jax.tree.map(np.testing.assert_array_equal, adaptable(small).head, adaptable(net).head)
