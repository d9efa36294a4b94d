"""MT-Net: where it equals MAML, what its masks draw, and its inner steps by hand."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.algorithms.maml import MAMLOptions
from arml.algorithms.mt_net import MTNet, MTNetOptions, draw_mask, layers_of, warped
from arml.core.episodes import Examples, Problem, Task
from arml.core.inner import Shared, with_steps
from arml.nn.networks import BaseNetwork, Body, Conv4Options, MLPOptions, linear

PROBLEM = Problem("regression", (3,), 2, 6, 5)
RATE, STEPS = 0.05, 2
KEY = jax.random.key(6)


pytestmark = pytest.mark.usefixtures("float64")


def double(tree: Any) -> Any:
    return jax.tree.map(lambda a: a.astype(jnp.float64) if eqx.is_inexact_array(a) else a, tree)


def base() -> Any:
    return double(MLPOptions(hidden=(4,), init="he").build(PROBLEM, key=jax.random.key(1)))


def learner(**options: Any) -> MTNet:
    options = {"inner_rate": RATE, "inner_steps": STEPS} | options
    return MTNetOptions(**options).build(base(), PROBLEM, key=KEY)


def with_logits(mt_net: MTNet, value: float) -> MTNet:
    logits = jax.tree.map(lambda z: jnp.full_like(z, value), mt_net.logits)
    return eqx.tree_at(lambda m: m.logits, mt_net, logits)


def with_random_warps(mt_net: MTNet) -> MTNet:
    rng = np.random.default_rng(2)

    def move(node: Any) -> Any:
        if not isinstance(node, Shared):
            return node
        return Shared(node.value + jnp.asarray(0.5 * rng.normal(size=node.value.shape)))

    net = jax.tree.map(move, mt_net.net, is_leaf=lambda node: isinstance(node, Shared))
    return eqx.tree_at(lambda m: m.net, mt_net, net)


def task() -> Task:
    rng = np.random.default_rng(0)
    support, query = (
        Examples(jnp.asarray(rng.normal(size=(n, 3))), jnp.asarray(rng.normal(size=(n, 2))))
        for n in (6, 5)
    )
    return Task(support, query, jnp.zeros((), jnp.int32))


@eqx.filter_jit
@eqx.filter_value_and_grad
def meta(learner: Any, task: Task) -> jax.Array:
    return learner.meta_loss(task, key=KEY)


def masks_of(mt_net: MTNet) -> list[np.ndarray]:
    """The masks of the task with the key `KEY`, read off the rates of the biases."""
    return [np.asarray(layer.layer.bias) / RATE for layer in layers_of(mt_net.rates(KEY))]


Weights = list[tuple[np.ndarray, np.ndarray]]


def by_hand(mt_net: MTNet, masks: list[np.ndarray]) -> tuple[Weights, float]:
    """The adapted weights and the query loss: two layers and their gradients in NumPy."""
    (support, query), layers = task()[:2], layers_of(mt_net.net)
    t1, t2 = (np.asarray(layer.warp.value) for layer in layers)
    w1, b1, w2, b2 = (
        np.asarray(a) for layer in layers for a in (layer.layer.weight, layer.layer.bias)
    )
    x, y = map(np.asarray, support)
    for _ in range(STEPS):
        a = (x @ w1 + b1) @ t1
        h = np.maximum(a, 0)
        error = (h @ w2 + b2) @ t2 - y
        d2 = 2 * error / error.size @ t2.T
        d1 = ((d2 @ w2.T) * (a > 0)) @ t1.T
        w1, b1 = w1 - RATE * masks[0] * (x.T @ d1), b1 - RATE * masks[0] * d1.sum(0)
        w2, b2 = w2 - RATE * masks[1] * (h.T @ d2), b2 - RATE * masks[1] * d2.sum(0)
    x, y = map(np.asarray, query)
    error = (np.maximum((x @ w1 + b1) @ t1, 0) @ w2 + b2) @ t2 - y
    return [(w1, b1), (w2, b2)], float(np.mean(error**2))


def adapted(mt_net: MTNet) -> Any:
    support, inner = task().support, replace(mt_net.inner, rate=mt_net.rates(KEY))
    return inner(lambda net: mt_net.loss(net(support.x), support.y), mt_net.net)


def test_with_identities_and_every_unit_drawn_it_is_maml():
    mt_net = with_logits(learner(), 100.0)
    maml = MAMLOptions(inner_rate=RATE, inner_steps=STEPS).build(base(), PROBLEM, key=KEY)
    (ours, gradient), (theirs, expected) = meta(mt_net, task()), meta(maml, task())
    np.testing.assert_allclose(ours, theirs, rtol=1e-13)
    for a, b in zip(layers_of(gradient.net), layers_of(expected.net), strict=True):
        jax.tree.map(lambda p, q: np.testing.assert_allclose(p, q, rtol=1e-10), a.layer, b)


def test_with_no_unit_drawn_nothing_is_adapted():
    mt_net = with_logits(with_random_warps(learner()), -100.0)
    x = task().query.x
    predictions = mt_net.adapt(task().support, key=KEY).predict(x)
    np.testing.assert_array_equal(predictions, mt_net.net(x))


def test_the_inner_steps_by_hand():
    """One mask for all steps, shared by a unit's weights and bias; T warps the inner gradient."""
    mt_net = with_random_warps(learner())
    masks = masks_of(mt_net)
    assert {0.0, 1.0} == set(np.concatenate(masks))
    weights, loss = by_hand(mt_net, masks)
    after = adapted(mt_net)
    for layer, (weight, bias) in zip(layers_of(after), weights, strict=True):
        np.testing.assert_allclose(layer.layer.weight, weight, rtol=1e-10)
        np.testing.assert_allclose(layer.layer.bias, bias, rtol=1e-10)
    np.testing.assert_allclose(mt_net.meta_loss(task(), key=KEY), loss, rtol=1e-10)


def test_warps_are_learned_and_not_adapted():
    mt_net = with_random_warps(learner())
    gradient = meta(mt_net, task())[1]
    triples = zip(*map(layers_of, (mt_net.net, adapted(mt_net), gradient.net)), strict=True)
    for before, after, slope in triples:
        np.testing.assert_array_equal(before.warp.value, after.warp.value)
        assert np.all(slope.warp.value != 0)
    np.testing.assert_array_equal(learner().net.head.warp.value, np.eye(2))


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

    def drawn(logit: float) -> bool:
        return bool(draw_mask(jnp.asarray([logit]), key=KEY)[0])

    low, high = -30.0, 30.0
    for _ in range(45):
        middle = (low + high) / 2
        low, high = (low, middle) if drawn(middle) else (middle, high)
    for logit in (low - 1.5, low + 0.5):
        slope = jax.grad(lambda z: draw_mask(z, key=KEY)[0])(jnp.asarray([logit]))[0]
        soft = 1 / (1 + np.exp(low - logit))
        np.testing.assert_allclose(slope, soft * (1 - soft), rtol=1e-9)


def test_the_logits_learn_through_the_inner_steps_alone():
    """dL/dlogit = dL/dmask * dmask/dlogit, dL/dmask by finite differences of the steps by hand."""
    mt_net = with_random_warps(learner())
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
        return sum(
            jnp.sum(layer.layer.bias / RATE * slope)
            for layer, slope in zip(layers_of(rates), slopes, strict=True)
        )

    gradient = meta(mt_net, task())[1].logits
    for ours, expected in zip(gradient, jax.grad(weighted)(mt_net.logits), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-10)
        assert np.all(expected != 0)
    for unmoved in meta(with_steps(mt_net, 0), task())[1].logits:
        np.testing.assert_array_equal(unmoved, 0)


def test_masks_multiply_learned_rates_too():
    plain, learned = with_random_warps(learner()), with_random_warps(learner(learn_rates=True))
    (ours, gradient), (theirs, _) = meta(learned, task()), meta(plain, task())
    np.testing.assert_allclose(ours, theirs, rtol=1e-13)
    for layer, mask in zip(layers_of(gradient.inner.rate), masks_of(plain), strict=True):
        np.testing.assert_array_equal(layer.layer.bias != 0, mask == 1)


@pytest.mark.slow
def test_on_images_a_warp_is_a_1x1_convolution_and_a_mask_spares_whole_filters():
    problem = Problem("classification", (16, 16, 1), 2, 2, 1)
    first = Conv4Options(filters=4).build(problem, key=KEY).body.blocks[:1]
    net = double(BaseNetwork(Body(first, "batch"), linear(8 * 8 * 4, 2, key=KEY)))
    mt_net = MTNetOptions(inner_rate=1.0, inner_steps=1).build(net, problem, key=KEY)
    mt_net = with_random_warps(mt_net)
    x, y = jax.random.normal(KEY, (4, 16, 16, 1), jnp.float64), jnp.asarray([0, 1, 0, 1])
    layer = mt_net.net.body.blocks[0].layer
    expected = jax.lax.conv_general_dilated(
        layer.layer(x),
        layer.warp.value[None, None],
        (1, 1),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    np.testing.assert_allclose(layer(x), expected, rtol=1e-10)
    rates = mt_net.rates(KEY)
    inner = replace(mt_net.inner, rate=rates)
    after = jax.jit(lambda net: inner(lambda n: mt_net.loss(n(x), y), net))(mt_net.net)
    for old, new, mask in zip(*map(layers_of, (mt_net.net, after, rates)), strict=True):
        old, new = (
            getattr(w.layer, "kernel", getattr(w.layer, "weight", None)) for w in (old, new)
        )
        moved = np.any(old != new, axis=tuple(range(old.ndim - 1)))
        np.testing.assert_array_equal(moved, mask.layer.bias == 1)


def test_only_layers_are_warped():
    net = warped(base())
    assert [type(layer.layer).__name__ for layer in layers_of(net)] == ["Linear", "Linear"]
    np.testing.assert_array_equal(net(task().query.x), base()(task().query.x))
