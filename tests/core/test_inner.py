"""The inner loop on a quadratic loss, where every step has a closed form."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.core.inner import (
    GradientDescent,
    InnerOptions,
    Shared,
    adaptable,
    steps_of,
    with_steps,
)
from arml.nn.convolution import convolve

CURVATURE = np.diag([3.0, 1.0, 0.5]) + 0.2
RATE, STEPS = 0.1, 3
START = np.array([1.0, -2.0, 0.5])


class Net(eqx.Module):
    """Some arrays that a task adapts, and some that it does not."""

    weight: jax.Array
    shared: Shared
    count: jax.Array
    name: str = eqx.field(static=True, default="net")


def net() -> Net:
    return Net(jnp.asarray(START, jnp.float32), Shared(jnp.ones(2, jnp.float32)), jnp.arange(3))


def loss(net: Net) -> jax.Array:
    curvature = jnp.asarray(CURVATURE, net.weight.dtype)
    quadratic = net.weight @ curvature @ net.weight / 2
    return quadratic + jnp.sum(net.shared.value) * jnp.sum(net.weight)


def contraction(rate: Any = RATE) -> np.ndarray:
    """One step is `w -> (I - rate A) w - rate b`."""
    return np.eye(3) - np.diag(np.broadcast_to(rate, 3)) @ CURVATURE


def closed_form(steps: int, rate: Any = RATE) -> np.ndarray:
    weight = START
    for _ in range(steps):
        weight = contraction(rate) @ weight - rate * 2.0 * np.ones(3)
    return weight


@pytest.mark.parametrize("steps", [0, 1, STEPS])
def test_descends_as_the_closed_form_says(steps):
    adapted = GradientDescent(RATE, steps)(loss, net())
    np.testing.assert_allclose(adapted.weight, closed_form(steps), rtol=1e-6)


def test_the_rest_of_the_network_stays_as_it_was():
    adapted = GradientDescent(RATE, STEPS)(loss, net())
    np.testing.assert_array_equal(adapted.shared.value, net().shared.value)
    np.testing.assert_array_equal(adapted.count, net().count)
    assert adapted.name == "net"
    assert jax.tree.structure(adapted) == jax.tree.structure(net())


@pytest.mark.parametrize(
    "rate",
    [jnp.float32(RATE), np.array([0.1, 0.2, 0.05], np.float32)],
    ids=["scalar array", "one a parameter"],
)
def test_rates_that_are_arrays(rate):
    learned: Any = rate
    if rate.ndim:
        learned = eqx.tree_at(lambda n: n.weight, adaptable(net()), jnp.asarray(rate))
    adapted = GradientDescent(learned, STEPS)(loss, net())
    np.testing.assert_allclose(adapted.weight, closed_form(STEPS, rate), rtol=1e-6)


def test_gradients_through_the_descent():
    """With M = I - rate A: d(v . w_T)/dw_0 is (M^T)^T v at second order, and v at first order."""
    v = jnp.asarray([1.0, 2.0, -1.0], jnp.float32)

    def meta(first_order: bool, remat: bool = False) -> jax.Array:
        inner = GradientDescent(RATE, STEPS, first_order=first_order, remat=remat)

        def outer(weight: jax.Array) -> jax.Array:
            start = eqx.tree_at(lambda n: n.weight, net(), weight)
            return v @ inner(loss, start).weight

        return jax.jit(jax.grad(outer))(net().weight)

    exact = np.linalg.matrix_power(contraction(), STEPS).T @ np.asarray(v)
    np.testing.assert_allclose(meta(False), exact, rtol=1e-5)
    np.testing.assert_allclose(meta(False, remat=True), meta(False), rtol=1e-6)
    np.testing.assert_allclose(meta(True), v, rtol=1e-6)


@pytest.mark.parametrize("bound", [0.5, 1e3])
def test_a_step_is_no_longer_than_the_bounds_allow(bound):
    gradient = CURVATURE @ START + 2.0
    norm = np.linalg.norm(gradient)
    assert 0.5 < np.abs(gradient).max() < norm < 1e3
    for option, step in (
        ("clip", gradient * min(1.0, bound / norm)),
        ("bound", np.clip(gradient, -bound, bound)),
    ):
        adapted = GradientDescent(RATE, 1, **{option: bound})(loss, net())
        np.testing.assert_allclose(adapted.weight, START - RATE * step, rtol=1e-6)


def test_a_learned_rate_gets_the_derivative_of_the_closed_form():
    inner = GradientDescent(jnp.float32(RATE), STEPS)

    def outer(inner: GradientDescent) -> jax.Array:
        return loss(inner(loss, net()))

    def closed(rate: float) -> float:
        weight = closed_form(STEPS, rate)
        return weight @ CURVATURE @ weight / 2 + 2 * weight.sum()

    slope = (closed(RATE + 1e-5) - closed(RATE - 1e-5)) / 2e-5
    np.testing.assert_allclose(jax.grad(outer)(inner).rate, slope, rtol=1e-4)


def test_a_shared_array_is_meta_learned_through_its_effect_on_the_descent():
    def outer(shared: jax.Array) -> jax.Array:
        start = eqx.tree_at(lambda n: n.shared.value, net(), shared)
        return jnp.sum(GradientDescent(RATE, 1)(loss, start).weight)

    # One step moves each of the three weights by -rate for each unit of each shared value.
    np.testing.assert_allclose(jax.grad(outer)(jnp.ones(2)), -3 * RATE, rtol=1e-6)


def test_with_steps_reaches_every_descent_and_nothing_else():
    inner = GradientDescent(RATE, 2, first_order=True, clip=9.0, remat=True)
    tree = {"one": inner, "two": [GradientDescent(0.5, 3)], "net": net()}
    changed = with_steps(tree, 7)
    assert changed["one"] == GradientDescent(RATE, 7, first_order=True, clip=9.0, remat=True)
    assert changed["two"] == [GradientDescent(0.5, 7)]
    assert (steps_of(tree), steps_of(changed), steps_of(net())) == (3, 7, 0)
    assert changed["net"] is not None
    jax.tree.map(np.testing.assert_array_equal, changed["net"], net())
    adapted = changed["two"][0](loss, net())
    np.testing.assert_allclose(adapted.weight, closed_form(7, 0.5), rtol=1e-5)


def test_options():
    names = {"inner_rate": 0.2, "inner_steps": 4, "inner_clip": 3.0, "inner_bound": 2.0}
    descent = InnerOptions(**names, first_order=True, remat=True).descent(net())
    assert descent == GradientDescent(0.2, 4, first_order=True, clip=3.0, bound=2.0, remat=True)
    learned = InnerOptions(inner_rate=0.2, learn_rates=True).descent(net())
    np.testing.assert_allclose(learned.rate.weight, 0.2, rtol=1e-6)
    assert learned.rate.shared is None


def test_convolutions_descend_in_a_loop_as_step_by_step():
    """Networks of convolutions take their steps in a compiled loop; the meta-gradient is equal."""
    x = jax.random.normal(jax.random.key(0), (3, 6, 6, 2))
    kernel = 0.3 * jax.random.normal(jax.random.key(1), (3, 3, 2, 2))

    def curved(kernel: jax.Array) -> jax.Array:
        return jnp.mean(jnp.tanh(convolve(x, kernel)) ** 2)

    def stepped(kernel: jax.Array) -> jax.Array:
        for _ in range(STEPS):
            kernel = kernel - RATE * jax.grad(curved)(kernel)
        return curved(kernel)

    def looped(kernel: jax.Array) -> jax.Array:
        return curved(GradientDescent(RATE, STEPS)(curved, kernel))

    ours, other = (jax.jit(jax.value_and_grad(f))(kernel) for f in (looped, stepped))
    np.testing.assert_allclose(ours[0], other[0], rtol=1e-6)
    np.testing.assert_allclose(ours[1], other[1], rtol=1e-4, atol=1e-7)
