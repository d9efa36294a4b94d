"""MT-Net: what its masks draw, and its inner steps by hand; MAML in `test_limits.py`."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import small
from arml.algorithms.mt_net import MTNet, MTNetOptions, draw_mask, is_warped
from arml.core.episodes import Problem
from arml.core.inner import with_steps
from arml.nn.networks import BaseNetwork, Body, Conv4Options, layers, linear
from small import KEY, doubled, meta, network, perturbed, predictions

PROBLEM = Problem("regression", (3,), 2, 6, 5)
RATE, STEPS = 0.05, 2
pytestmark = pytest.mark.usefixtures("float64")


def learner() -> MTNet:
    """With random warps, and units of which some are drawn."""
    options = MTNetOptions(inner_rate=RATE, inner_steps=STEPS)
    made = doubled(options.build(network(PROBLEM), PROBLEM, key=KEY))
    return eqx.tree_at(lambda m: m.net, made, perturbed(made.net, 0.5))


def masks_of(mt_net: MTNet) -> list[np.ndarray]:
    """The masks of the task with the key `KEY`, read off the rates of the biases."""
    return [np.asarray(layer.layer.bias) / RATE for layer in layers(mt_net.rates(KEY), is_warped)]


ON = small.task(PROBLEM)


def by_hand(mt_net: MTNet, masks: list[np.ndarray]) -> tuple[np.ndarray, float]:
    """Predictions and the query loss after the inner steps of two layers, in NumPy."""
    (support, query), both = ON[:2], layers(mt_net.net, is_warped)
    t1, t2 = (np.asarray(layer.warp.value) for layer in both)
    w1, b1, w2, b2 = (
        np.asarray(a) for layer in both for a in (layer.layer.weight, layer.layer.bias)
    )
    x, y = (np.asarray(a, np.float64) for a in support)
    for _ in range(STEPS):
        a = (x @ w1 + b1) @ t1
        h = np.maximum(a, 0)
        error = (h @ w2 + b2) @ t2 - y
        d2 = 2 * error / error.size @ t2.T
        d1 = ((d2 @ w2.T) * (a > 0)) @ t1.T
        w1, b1 = w1 - RATE * masks[0] * (x.T @ d1), b1 - RATE * masks[0] * d1.sum(0)
        w2, b2 = w2 - RATE * masks[1] * (h.T @ d2), b2 - RATE * masks[1] * d2.sum(0)
    x, y = (np.asarray(a, np.float64) for a in query)
    predicted = (np.maximum((x @ w1 + b1) @ t1, 0) @ w2 + b2) @ t2
    return predicted, float(np.mean((predicted - y) ** 2))


def test_the_inner_steps_by_hand():
    """One mask for all steps, shared by a unit's weights and bias; T warps the inner gradient, and
    is learned, not adapted."""
    mt_net, on = learner(), doubled(ON)
    masks = masks_of(mt_net)
    assert {0.0, 1.0} == set(np.concatenate(masks))
    predicted, loss = by_hand(mt_net, masks)
    np.testing.assert_allclose(predictions(mt_net, on), predicted, rtol=1e-9)
    ours, gradient = meta(mt_net, on)
    np.testing.assert_allclose(ours, loss, rtol=1e-9)
    assert all(np.all(layer.warp.value != 0) for layer in layers(gradient.net, is_warped))


def test_a_unit_is_drawn_with_the_probability_of_its_logit():
    logits, n = jnp.asarray([-3.0, -1.0, 0.0, 2.0]), 4000
    drawn = jax.vmap(lambda key: draw_mask(logits, key=key))(jax.random.split(KEY, n))
    assert {0.0, 1.0} == set(np.unique(drawn))
    p = 1 / (1 + np.exp(-np.asarray(logits)))
    z = (np.mean(drawn, axis=0) - p) / np.sqrt(p * (1 - p) / n)
    assert np.all(np.abs(z) < 4)


def test_the_mask_has_the_gradient_of_the_soft_one():
    """A unit is drawn when its logit exceeds some threshold of the key's; the soft mask is the
    sigmoid of how far it does."""
    low, high = -30.0, 30.0
    for _ in range(45):
        middle = (low + high) / 2
        drawn = draw_mask(jnp.asarray([middle]), key=KEY)[0]
        low, high = (low, middle) if drawn else (middle, high)
    for logit in (low - 1.5, low + 0.5):
        slope = jax.grad(lambda z: draw_mask(z, key=KEY)[0])(jnp.asarray([logit]))[0]
        soft = 1 / (1 + np.exp(low - logit))
        np.testing.assert_allclose(slope, soft * (1 - soft), rtol=1e-9)


def test_the_logits_learn_through_the_inner_steps_alone():
    """dL/dlogit = dL/dmask * dmask/dlogit, dL/dmask by finite differences of the steps by hand."""
    mt_net, on = learner(), doubled(ON)
    masks = masks_of(mt_net)

    def loss(layer: int, unit: int, step: float) -> float:
        moved = [mask.copy() for mask in masks]
        moved[layer][unit] += step
        return by_hand(mt_net, moved)[1]

    slopes = [
        np.array([(loss(i, u, 1e-5) - loss(i, u, -1e-5)) / 2e-5 for u in range(len(mask))])
        for i, mask in enumerate(masks)
    ]

    def weighted(logits: Any) -> jax.Array:
        rates = eqx.tree_at(lambda m: m.logits, mt_net, logits).rates(KEY)
        pairs = zip(layers(rates, is_warped), slopes, strict=True)
        return sum(jnp.sum(layer.layer.bias / RATE * slope) for layer, slope in pairs)

    gradient = meta(mt_net, on)[1].logits
    for ours, expected in zip(gradient, jax.grad(weighted)(mt_net.logits), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-10)
        assert np.all(expected != 0)
    for unmoved in meta(with_steps(mt_net, 0), on)[1].logits:
        np.testing.assert_array_equal(unmoved, 0)


@pytest.mark.slow
def test_on_images_a_warp_is_a_1x1_convolution_and_a_mask_spares_whole_filters():
    problem = Problem("classification", (16, 16, 1), 2, 2, 1, inputs="pictures")
    first = Conv4Options(filters=4).build(problem, key=KEY).body.blocks[:1]
    net = BaseNetwork(Body(first, "batch"), linear(8 * 8 * 4, 2, key=KEY))
    mt_net = MTNetOptions(inner_rate=1.0, inner_steps=1).build(net, problem, key=KEY)
    mt_net = doubled(eqx.tree_at(lambda m: m.net, mt_net, perturbed(mt_net.net, 0.5)))
    on = doubled(small.task(problem))
    layer = mt_net.net.body.blocks[0].layer
    expected = jnp.einsum("nhwc,cd->nhwd", layer.layer(on.support.x), layer.warp.value)
    np.testing.assert_allclose(layer(on.support.x), expected, rtol=1e-9, atol=1e-12)
    after = eqx.filter_jit(lambda m, s: m.adapt(s, key=KEY).net)(mt_net, on.support)
    after, mask = (layers(n, is_warped)[0].layer for n in (after, mt_net.rates(KEY)))
    moved = np.any(layer.layer.kernel != after.kernel, axis=(0, 1, 2))
    np.testing.assert_array_equal(moved, mask.bias == 1)
