"""MAML on linear regression, where the adapted weights and the meta-gradient have closed forms."""

from dataclasses import replace
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.algorithms.maml import MAML, MAMLOptions
from arml.core.episodes import Examples, Problem, Task
from arml.core.inner import Shared
from arml.nn.networks import Conv4Options, MLPOptions, perceptron

PROBLEM = Problem("regression", (3,), 1, 6, 5)
RATE, STEPS = 0.05, 3
KEY = jax.random.key(0)


pytestmark = pytest.mark.usefixtures("float64")


class Numbers(NamedTuple):
    """A linear task in NumPy; a last column of ones makes the bias a weight."""

    support: np.ndarray
    query: np.ndarray
    support_y: np.ndarray
    query_y: np.ndarray
    weight: np.ndarray


def numbers() -> Numbers:
    rng = np.random.default_rng(0)
    support, query = (
        np.concatenate([rng.normal(size=(n, 3)), np.ones((n, 1))], axis=1) for n in (6, 5)
    )
    return Numbers(support, query, rng.normal(size=6), rng.normal(size=5), rng.normal(size=4))


def task(n: Numbers) -> Task:
    support, query = (
        Examples(jnp.asarray(x[:, :3]), jnp.asarray(y[:, None]))
        for x, y in ((n.support, n.support_y), (n.query, n.query_y))
    )
    return Task(support, query, jnp.zeros((), jnp.int32))


def learner(n: Numbers, **options: object) -> MAML:
    net = perceptron((3, 1), key=KEY)
    net = eqx.tree_at(
        lambda m: (m.head.weight, m.head.bias),
        net,
        (jnp.asarray(n.weight[:3, None]), jnp.asarray(n.weight[3:])),
    )
    inner = MAMLOptions(inner_rate=RATE, inner_steps=STEPS, **options)
    return inner.build(net, PROBLEM, key=KEY)


def flat(net: object) -> np.ndarray:
    layer = net.head
    return np.concatenate([layer.weight[:, 0], layer.bias])


def adapted(n: Numbers) -> np.ndarray:
    weight = n.weight
    for _ in range(STEPS):
        weight = weight - RATE * 2 * n.support.T @ (n.support @ weight - n.support_y) / 6
    return weight


def meta_gradient(learner: MAML, task: Task) -> MAML:
    trained, rest = eqx.partition(learner, eqx.is_inexact_array)
    return jax.jit(jax.grad(lambda t: eqx.combine(t, rest).meta_loss(task, key=KEY)))(trained)


def test_predictions_and_meta_loss_in_closed_form():
    n = numbers()
    expected = n.query @ adapted(n)
    result = learner(n).adapt(task(n).support, key=KEY)
    np.testing.assert_allclose(result.predict(task(n).query.x)[:, 0], expected, rtol=1e-10)
    loss = learner(n).meta_loss(task(n), key=KEY)
    np.testing.assert_allclose(loss, np.mean((expected - n.query_y) ** 2), rtol=1e-10)


def test_meta_gradient_in_closed_form():
    """dL/d theta = (I - rate H)^steps g, with H the support loss's Hessian and g the query loss's
    gradient at the adapted weights. First order: g alone."""
    n = numbers()
    g = 2 * n.query.T @ (n.query @ adapted(n) - n.query_y) / 5
    hessian = 2 * n.support.T @ n.support / 6
    exact = np.linalg.matrix_power(np.eye(4) - RATE * hessian, STEPS) @ g
    second = flat(meta_gradient(learner(n), task(n)).net)
    first = flat(meta_gradient(learner(n, first_order=True), task(n)).net)
    np.testing.assert_allclose(second, exact, rtol=1e-9)
    np.testing.assert_allclose(first, g, rtol=1e-9)
    assert np.max(np.abs(first - second)) > 0.01 * np.max(np.abs(second))


def nonlinear(**options: object) -> MAML:
    problem = replace(PROBLEM, outputs=1)
    net = MLPOptions(hidden=(4,), init="he").build(problem, key=jax.random.key(1))
    net = jax.tree.map(lambda a: a.astype(jnp.float64), net)
    inner = MAMLOptions(inner_rate=RATE, inner_steps=STEPS, **options)
    return inner.build(net, problem, key=KEY)


def test_first_order_is_the_query_gradient_at_the_adapted_weights():
    maml, on = nonlinear(first_order=True), task(numbers())
    net = maml.inner(lambda m: maml.loss(m(on.support.x), on.support.y), maml.net)
    stopped = jax.grad(lambda m: maml.loss(m(on.query.x), on.query.y))(net)
    ours = meta_gradient(maml, on).net
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9), ours, stopped)


def test_second_order_agrees_with_finite_differences():
    maml, on = nonlinear(), task(numbers())
    gradient = meta_gradient(maml, on)
    direction = jax.tree.map(
        lambda a: jnp.cos(jnp.arange(a.size, dtype=a.dtype)).reshape(a.shape), gradient
    )

    def loss(step: float) -> float:
        moved = jax.tree.map(
            lambda a, d: a + step * d,
            *(eqx.filter(t, eqx.is_inexact_array) for t in (maml, direction)),
        )
        return float(eqx.combine(moved, maml).meta_loss(on, key=KEY))

    slope = (loss(1e-5) - loss(-1e-5)) / 2e-5
    ours = sum(
        jnp.sum(g * d) for g, d in zip(*map(jax.tree.leaves, (gradient, direction)), strict=True)
    )
    np.testing.assert_allclose(ours, slope, rtol=1e-6)


def test_meta_sgd_with_equal_rates_is_maml():
    on = task(numbers())
    maml, meta_sgd = nonlinear(), nonlinear(learn_rates=True)
    np.testing.assert_allclose(
        maml.meta_loss(on, key=KEY), meta_sgd.meta_loss(on, key=KEY), rtol=1e-12
    )
    plain, learned = meta_gradient(maml, on), meta_gradient(meta_sgd, on)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10), plain.net, learned.net)
    assert plain.inner.rate is None or not eqx.is_array(plain.inner.rate)
    assert all(np.any(rate != 0) for rate in jax.tree.leaves(learned.inner.rate))


def test_remat_changes_no_number():
    on = task(numbers())
    plain, again = (meta_gradient(nonlinear(remat=remat), on) for remat in (False, True))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), plain.net, again.net)


def test_no_steps_is_no_adaptation():
    on = task(numbers())
    maml = replace_steps(nonlinear(), 0)
    np.testing.assert_array_equal(
        maml.adapt(on.support, key=KEY).predict(on.query.x), maml.net(on.query.x)
    )


def replace_steps(maml: MAML, steps: int) -> MAML:
    return eqx.tree_at(lambda m: m.inner, maml, replace(maml.inner, steps=steps))


def test_offsets_of_the_normalisation_are_shared_by_all_tasks():
    problem = Problem("classification", (16, 16, 1), 2, 1, 1)
    net = Conv4Options(filters=2).build(problem, key=KEY)
    maml = MAMLOptions(inner_rate=1.0, inner_steps=1).build(net, problem, key=KEY)
    x = jax.random.normal(KEY, (2, 16, 16, 1), jnp.float32)
    y = jnp.arange(2)
    after = jax.jit(lambda net: maml.inner(lambda m: maml.loss(m(x), y), net))(net)
    for old, new in zip(net.body.blocks, after.body.blocks, strict=True):
        assert isinstance(new.offset, Shared)
        np.testing.assert_array_equal(old.offset.value, new.offset.value)
        assert np.any(old.layer.kernel != new.layer.kernel)
