"""ALFA: MAML whose inner steps get their rates and weight decays from a small network. In each step
it reads the mean of the gradient and the mean of the weights of every array, and returns a rate
alpha and a factor beta for each array: theta <- beta theta - alpha grad L_support(theta).

[1] Baik, Choi, Choi, Kim and Lee, Meta-Learning with Adaptive Hyperparameters, NeurIPS 2020.
    Equation numbers are this paper's.
[2] The authors' code, baiksung/ALFA (PyTorch).

Differences
- Rates are for mean losses.
- The generated numbers are factors of learned ones, alpha_0 and beta_0, as in [2]; all steps share
  these, where [2] has its own for each step, so that the number of steps may change.
- The network's last layer starts near zero, and its outputs near one: at first it is MAML.
- There is one rate for each array, as in [2] (a weight and its bias have two).
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from arml.algorithms.maml import MAML, STEEP
from arml.algorithms.method import Method
from arml.core.episodes import Problem
from arml.core.inner import InnerOptions, Rule, adaptable, usual_rate
from arml.core.learner import Network
from arml.core.losses import loss_of
from arml.nn.networks import MLP, Linear, mlp

SMALL = 0.01
"""Factor of the initial weights of the last layer."""


class Generator(Rule):
    """One inner step with generated rates and decays. Eq. (2) to (4)."""

    net: MLP
    """g, from the means of gradients and weights to factors of alpha_0 and beta_0, less one."""
    alpha_0: Float[Array, " arrays"]
    beta_0: Float[Array, " arrays"]

    @classmethod
    def drawn(cls, part: PyTree, rate: float, *, key: PRNGKeyArray) -> "Generator":
        """For the arrays of `part`: one hidden layer, as wide as the input."""
        n = len(jax.tree.leaves(part))
        first, last = mlp((2 * n, 2 * n, 2 * n), key=key).layers
        net = MLP((first, Linear(SMALL * last.weight, last.bias)))
        return cls(net, jnp.full(n, rate, jnp.float32), jnp.ones(n, jnp.float32))

    def __call__(self, part: PyTree, gradient: PyTree) -> PyTree:
        """The adaptable part of the network after one step."""
        weights, structure = jax.tree.flatten(part)
        slopes = jax.tree.leaves(gradient)
        state = jnp.stack([jnp.mean(a) for a in (*slopes, *weights)])  # Eq. (3): tau
        alpha, beta = jnp.split(1 + self.net(state), 2)  # Eq. (4)
        alpha, beta = self.alpha_0 * alpha, self.beta_0 * beta
        moved = [b * w - a * g for a, b, w, g in zip(alpha, beta, weights, slopes, strict=True)]
        return jax.tree.unflatten(structure, moved)  # Eq. (2)


@dataclass(frozen=True, kw_only=True)
class ALFAOptions(InnerOptions):
    """ALFA: a network makes the rates and the decays of each inner step. `learn_rates` changes
    nothing: alpha_0 is learned in any case."""

    def build(self, net: Network, problem: Problem, *, key: PRNGKeyArray) -> MAML:
        """The learner for the base network `net`; the key draws the weights of the generator."""
        generator = Generator.drawn(adaptable(net), self.inner_rate, key=key)
        return MAML(net=net, inner=self.descent(net, generator), loss=loss_of(problem))


METHODS = (
    Method(
        name="alfa",
        title="ALFA",
        options_class=ALFAOptions,
        paper="Baik, Choi, Choi, Kim and Lee, NeurIPS 2020",
        preset=lambda problem: ALFAOptions(inner_rate=usual_rate(problem)),
        settings=STEEP,
    ),
)
