"""CAVIA: a task adapts a few context parameters, which are inputs of the network. All tasks share
the weights, which are learned through the adapted context. So a task is a short vector, which
starts at zero.

[1] Zintgraf, Shiarlis, Kurin, Hofmann and Whiteson, Fast Context Adaptation via Meta-Learning,
    ICML 2019.
[2] The authors' code, lmzintgraf/cavia (PyTorch).

Differences
- For vectors the context enters the first block by its own matrix, which is the same as more
  inputs of the network. For pictures a linear layer maps it to a scale and a shift of the third
  block's units (FiLM), as in [2].
- The scale is 1 + W phi, and the shift has no bias. In [2] the linear layer has a bias, which
  starts at random within .1: all scales are small at first, and many negative.
- [2] bounds each element of a task's outer gradient to 10, on pictures that of the mean gradient.
  Here the norm of the outer gradient has that bound on 2-D regression, and none on pictures.
- On pictures [2] has 16 tasks in each step, and a rate that falls by a tenth every 5,000 steps.
- [2] has no classification of vectors. Here it has the rate and the steps of pictures, and the
  context of regression.
"""

from dataclasses import dataclass, replace

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from arml.algorithms.method import Method
from arml.core.checks import Size
from arml.core.episodes import Examples, Problem
from arml.core.inner import GradientDescent, InnerOptions
from arml.core.learner import Adapted, Code, Learner, Network
from arml.nn.modulation import film
from arml.nn.networks import BaseNetwork, Body, filmed, glorot, widths, with_body


class CAVIA(Learner):
    """phi = 0; phi <- phi - rate * grad_phi L_support(f(x, phi; theta)), repeated."""

    net: BaseNetwork
    """theta, with the weights of the context."""
    weight: Float[Array, "context units"]
    """Maps phi to the shifts of a block's units, or to their scales and then their shifts."""
    inner: GradientDescent

    def adapt(self, support: Examples, *, key: PRNGKeyArray) -> Adapted:
        net = self.conditioned(self.context(support))
        return Adapted(net.given(support.x), net=net)

    def context(self, support: Examples) -> Code:
        """phi of ONE task."""
        start = jnp.zeros(len(self.weight), self.weight.dtype)
        return self.inner(lambda phi: self.loss(self.conditioned(phi)(support.x), support.y), start)

    def conditioned(self, phi: Code) -> BaseNetwork:
        """The network with this context."""
        tau, body, at = phi @ self.weight, self.net.body, entry(self.net.body, self.problem)
        if not self.problem.spatial:
            tau = jnp.concatenate([jnp.zeros_like(tau), tau])
        (block,) = filmed(replace(body, blocks=(body.blocks[at],)), (film(tau),)).blocks
        blocks = (*body.blocks[:at], block, *body.blocks[at + 1 :])
        return replace(self.net, body=replace(body, blocks=blocks))


def entry(body: Body, problem: Problem) -> int:
    """The index of the block that the context enters."""
    return min(2, len(body.blocks) - 1) if problem.spatial else 0


@dataclass(frozen=True, kw_only=True)
class CAVIAOptions(InnerOptions):
    """CAVIA: a task adapts a context, not weights."""

    context: Size = 5
    """Context parameters."""

    def build(self, net: Network, problem: Problem, *, key: PRNGKeyArray) -> CAVIA:
        net = with_body(net, "CAVIA")
        sizes = widths(net.body, problem.features)
        if not sizes:
            raise ValueError("CAVIA needs a network with one block or more, got a linear network")
        units = sizes[entry(net.body, problem)] * (2 if problem.spatial else 1)
        return CAVIA(
            net=net,
            weight=glorot(key, (self.context, units), jnp.float32),
            inner=self.descent(jnp.zeros(self.context, jnp.float32)),
            problem=problem,
        )


def cavia(problem: Problem) -> CAVIAOptions:
    return CAVIAOptions(
        inner_rate=1.0,
        inner_steps=1 if problem.kind == "regression" else 2,
        context=100 if problem.spatial else 5,
    )


METHODS = (
    Method(
        name="cavia",
        options_class=CAVIAOptions,
        paper="Zintgraf, Shiarlis, Kurin, Hofmann and Whiteson, ICML 2019",
        preset=cavia,
        settings={"regression": {"outer": {"clip": 10.0}}},
        tune=("inner_rate", "context"),
    ),
)
