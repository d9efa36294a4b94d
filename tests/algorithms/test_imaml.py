"""iMAML: its outer gradient is the closed form of a linear-quadratic task."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from arml.algorithms.imaml import ImplicitDescent
from arml.algorithms.maml import MAMLOptions
from arml.core.inner import GradientDescent, Shared
from arml.nn.convolution import convolve
from small import normal


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


class Filter(eqx.Module):
    """A convolution, in the package's form or XLA's own, which has a forward mode, too."""

    kernel: jax.Array
    own: bool = eqx.field(static=True)

    def __call__(self, x):
        numbers = ("NHWC", "HWIO", "NHWC")
        if self.own:
            return jnp.tanh(convolve(x, self.kernel)).mean((1, 2, 3))
        plain = lax.conv_general_dilated(x, self.kernel, (1, 1), "SAME", dimension_numbers=numbers)
        return jnp.tanh(plain).mean((1, 2, 3))


def test_the_outer_gradient_passes_through_convolutions():
    pictures, kernel, y = normal(0, 2, 3, 5, 5, 2), normal(1, 3, 3, 2, 2), normal(2, 2, 3)

    def outer(net):
        descend = ImplicitDescent(GradientDescent(0.5, 5), 2.0)
        adapted = descend(lambda n: jnp.mean((n(pictures[0]) - y[0]) ** 2), net)
        return jnp.mean((adapted(pictures[1]) - y[1]) ** 2)

    ours, theirs = (jax.jit(jax.grad(outer))(Filter(kernel, own)).kernel for own in (True, False))
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"implicit": 1.0, "learn_rates": True},
        {"step_rates": True, "learn_rates": True},
        {"multi_step": 5, "inner_steps": 0},
    ],
)
def test_options_that_exclude_each_other_are_refused(options):
    with pytest.raises(ValueError, match=r"takes no learn_rates: leave one|needs inner steps"):
        MAMLOptions(**options).check()
