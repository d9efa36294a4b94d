"""iMAML: MAML whose outer gradient is implicit. A proximal term keeps the adapted weights phi near
the initialisation theta. At the minimum of both, the implicit function theorem gives d phi/d theta
from phi alone: more inner steps need no more memory. The option `implicit` of `maml` is lambda.

    phi = argmin L_support(phi) + lambda / 2 ||phi - theta||^2                         Eq. (3)
    d phi / d theta = (I + H / lambda)^-1, H the Hessian of L_support at phi           Eq. (6)

[1] Rajeswaran, Finn, Kakade and Levine, Meta-Learning with Implicit Gradients, NeurIPS 2019.
    Equation numbers are this paper's.
[2] The authors' code, aravindr93/imaml_dev (PyTorch).

Differences
- Each inner step descends on the loss and the proximal term. In [2] the steps descend on the loss,
  and one further step on the proximal term.
- Conjugate gradients take 5 steps, as in [2], but without its damping: it solves with
  2 I + H / (lambda + 10). If H has eigenvalues below -lambda, the solution has no meaning.
- Normalisation offsets, which tasks share, also have an implicit gradient.
"""

from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from arml.core.inner import GradientDescent, adaptable, join, split

N = TypeVar("N")


class ImplicitDescent(eqx.Module):
    """Gradient descent to the minimum of the loss and the proximal term, whose derivative is that
    of the minimum."""

    inner: GradientDescent
    strength: float
    """lambda."""

    def __call__(self, loss: Callable[[N], Float[Array, ""]], start: N) -> N:
        """Descend on `loss(net)` from the network `start`; returns the adapted network."""
        theta, rest = split(start)
        fixed_theta, fixed_rest = jax.lax.stop_gradient((theta, rest))

        def objective(net: N) -> Float[Array, ""]:
            away = jax.tree.map(lambda p, t: jnp.sum((p - t) ** 2), adaptable(net), fixed_theta)
            return loss(net) + self.strength / 2 * sum(jax.tree.leaves(away))  # Eq. (3)

        phi = adaptable(jax.lax.stop_gradient(self.inner(objective, join(fixed_theta, fixed_rest))))

        def slope(p: N, theta: N, rest: N) -> N:
            """The gradient of the objective, which is zero at its minimum."""
            gradient = jax.grad(lambda p: loss(join(p, rest)))(p)
            both: N = jax.tree.map(lambda g, p, t: g + self.strength * (p - t), gradient, p, theta)
            return both

        # In reverse mode, as convolutions have no other; H is symmetric. It gives (H + lambda I) v.
        back = jax.vjp(lambda p: slope(p, fixed_theta, fixed_rest), phi)[1]

        push = slope(phi, theta, rest)
        push = jax.tree.map(lambda a: a - jax.lax.stop_gradient(a), push)  # only its derivative
        gap = jax.scipy.sparse.linalg.cg(lambda v: back(v)[0], push, maxiter=5)[0]  # Eq. (6)
        adapted: N = jax.tree.map(jnp.subtract, phi, gap)
        return join(adapted, rest)
