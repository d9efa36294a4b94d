"""ALFA: MAML whose inner steps get their rates and weight decays from a small network. In each step
it reads the mean of the gradient and the mean of the weights of every array, and returns factors of
a learned rate a and of a learned decay b of each array and step:
theta <- (1 - b) theta - a grad L_support(theta).

[1] Baik, Choi, Choi, Kim and Lee, Meta-Learning with Adaptive Hyperparameters, NeurIPS 2020.
    Equation numbers are this paper's.
[2] The authors' code, baiksung/ALFA (PyTorch), from which this file has the form of the decay and
    its initial value. [1] calls 1 - b beta.

Differences
- Rates are for mean losses.
- The rate of each array and step is learned as a multiple of `inner_rate`. [2] learns the rate
  itself: one step of Adam would double the small rates of regression.
- The network's outputs are factors less one, and its last layer starts near zero. So it is MAML
  with a slight decay at first. In [2] the first factors are random, about zero.
- A task may take more steps than in training. Each further step uses the values of the last.
- On 2-D regression the norms of the inner (1,000) and outer gradients (10) have bounds.
- The outer gradient passes through all inputs of the network; in [2] not through the gradients.
- The authors have 48 filters, and batch normalisation with a learned scale.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from arml.algorithms.maml import MAML
from arml.algorithms.method import Method
from arml.core.episodes import Problem
from arml.core.inner import InnerOptions, Rule, adaptable, usual_rate
from arml.core.learner import Network
from arml.nn.networks import MLP, Linear, mlp

INITIAL_DECAY = 5e-4  # as a share of the inner rate


class Generator(Rule):
    """One inner step with generated rates and decays. Eq. (2) to (4)."""

    net: MLP
    """g: maps the means of gradients and weights to factors of rates and decays, less one."""
    rate: float
    multiples: Float[Array, "steps arrays"]
    """Learned rates, as multiples of `rate`."""
    decays: Float[Array, "steps arrays"]
    """Learned decays."""

    @classmethod
    def drawn(cls, part: PyTree, rate: float, steps: int, *, key: PRNGKeyArray) -> "Generator":
        """A generator for the arrays of `part`. Its hidden layer is as wide as its input."""
        n = len(jax.tree.leaves(part))
        first, last = mlp((2 * n, 2 * n, 2 * n), key=key).layers
        net = MLP((first, Linear(0.01 * last.weight, last.bias)))  # factors start near one
        ones = jnp.ones((max(steps, 1), n), jnp.float32)
        return cls(net, rate, ones, INITIAL_DECAY * rate * ones)

    def __call__(self, part: PyTree, gradient: PyTree, step: int | Array) -> PyTree:
        weights, structure = jax.tree.flatten(part)
        slopes = jax.tree.leaves(gradient)
        state = jnp.stack([jnp.mean(a) for a in (*slopes, *weights)])  # Eq. (3): tau
        of_rates, of_decays = jnp.split(1 + self.net(state), 2)  # Eq. (4)
        now = jnp.minimum(step, len(self.decays) - 1)
        rates = self.rate * self.multiples[now] * of_rates
        keep = 1 - self.decays[now] * of_decays
        moved = [k * w - a * g for k, w, a, g in zip(keep, weights, rates, slopes, strict=True)]
        return jax.tree.unflatten(structure, moved)  # Eq. (2)


@dataclass(frozen=True, kw_only=True)
class ALFAOptions(InnerOptions):
    """ALFA: a network makes the rates and the decays of each inner step. `learn_rates` changes
    nothing: the rates are learned in any case."""

    def build(self, net: Network, problem: Problem, *, key: PRNGKeyArray) -> MAML:
        generator = Generator.drawn(adaptable(net), self.inner_rate, self.inner_steps, key=key)
        return MAML(net=net, inner=self.descent(net, generator), problem=problem)


METHODS = (
    Method(
        name="alfa",
        options_class=ALFAOptions,
        widens=True,
        paper="Baik, Choi, Choi, Kim and Lee, NeurIPS 2020",
        preset=lambda problem: ALFAOptions(inner_rate=usual_rate(problem)),
        settings={"regression": {"algorithm": {"inner_clip": 1_000.0}, "outer": {"clip": 10.0}}},
    ),
)
