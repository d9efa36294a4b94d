"""iMAML: its outer gradient is the closed form of a linear-quadratic task."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.algorithms.imaml import ImplicitDescent
from arml.algorithms.maml import MAMLOptions
from arml.core.inner import GradientDescent, Shared, steps_of, with_steps
from arml.nn.networks import MLPOptions
from arml.tasks.functions import functions_2d

KEY = jax.random.key(0)
TASKS = functions_2d(shots=6, queries=5)
NET = MLPOptions(hidden=(5,), init="he").build(TASKS.problem, key=KEY)


class Line(eqx.Module):
    """x w + b, where all tasks share b."""

    w: jax.Array
    b: Shared

    def __call__(self, x):
        return x @ self.w + self.b.value


@pytest.mark.parametrize("strength", [0.5, 4.0])
def test_the_outer_gradient_is_that_of_the_minimum(strength):
    """phi = (H + lambda)^-1 (X^T (y - b) / n + lambda theta), in float64: its derivatives with
    respect to theta and b, times the gradient of the query loss."""
    rng = np.random.default_rng(0)
    (x, queries), (y, wanted) = rng.normal(size=(2, 6, 4)), rng.normal(size=(2, 6))
    theta, b = rng.normal(size=4), 0.3

    def loss(net, x, y):
        return jnp.mean((net(x) - y) ** 2) / 2

    def outer(net):
        descend = ImplicitDescent(GradientDescent(0.2, 300), strength)
        return loss(descend(lambda n: loss(n, x, y), net), queries, wanted)

    start = Line(jnp.asarray(theta, jnp.float32), Shared(jnp.float32(b)))
    ours = jax.jit(jax.grad(outer))(start)
    system = x.T @ x / 6 + strength * np.eye(4)
    phi = np.linalg.solve(system, x.T @ (y - b) / 6 + strength * theta)
    missed = queries @ phi + b - wanted
    along = np.linalg.solve(system, queries.T @ missed / 6)
    np.testing.assert_allclose(ours.w, strength * along, rtol=2e-3, atol=1e-4)
    by_b = missed.mean() - along @ x.mean(axis=0)
    np.testing.assert_allclose(ours.b.value, by_b, rtol=2e-3, atol=1e-4)


def test_with_a_strong_term_the_initialisation_moves_as_without_adaptation():
    task = TASKS.sample(KEY)
    of = {"inner_rate": 1e-6, "inner_steps": 3}
    gradients = [
        eqx.filter_jit(eqx.filter_grad(lambda m: m.meta_loss(task, key=KEY)))(
            MAMLOptions(**of, implicit=implicit).build(NET, TASKS.problem, key=KEY)
        )
        for implicit in (1e5, 0.0)
    ]
    for a, b in zip(*(jax.tree.leaves(g.net) for g in gradients), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-2, atol=1e-3)


def test_its_inner_steps_can_be_changed():
    learner = MAMLOptions(implicit=2.0).build(NET, TASKS.problem, key=KEY)
    assert steps_of(with_steps(learner, 40)) == 40


def test_options_that_exclude_each_other_are_refused():
    with pytest.raises(ValueError, match="implicit takes no learn_rates: leave one of them out"):
        MAMLOptions(implicit=1.0, learn_rates=True).check()
