"""LLAMA: MAML as hierarchical Bayes. A task's adapted weights are a mode of its posterior. Around
them Laplace's method approximates the task's marginal likelihood: the query loss, plus half the log
determinant of the posterior's curvature. The curvature is the query set's Fisher information in
Kronecker factors, plus the precision of a Gaussian prior.

[1] Grant, Finn, Levine, Darrell and Griffiths, Recasting Gradient-Based Meta-Learning as
    Hierarchical Bayes, ICLR 2018 (no official code).

Differences
- The query loss is a mean, and `eta` weights the whole log determinant. So `eta` contains the half
  of Laplace's formula, the number of queries and the paper's reduction of the term.
- The curvature is not the Hessian but the Fisher information of the *summed* query loss (for
  regression, of a Gaussian of unit variance), which is never negative. The two are the same for
  linear outputs. The expectation over labels is exact: one backward pass for each class or target.
- The prior's precision is one number for all weights, added to the eigenvalues of a block:
  log det(n A (x) G + precision I) = sum_ij log(n a_i g_j + precision). The factored damping of
  Kronecker-factored optimisers is a bad approximation of this determinant.
- The curvature takes the statistics of the normalisation as constants, so each example has its own
  gradient.
- `remat` also recomputes the curvature in the backward pass.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from arml.algorithms.method import Method
from arml.core.checks import AboveZero, NonNegative
from arml.core.episodes import Examples, Problem, Task
from arml.core.inner import GradientDescent, InnerOptions, adaptable, usual_rate
from arml.core.learner import Adapted, Learner, Network
from arml.nn import curvature
from arml.nn.networks import BaseNetwork, layers, with_body


@dataclass(frozen=True, kw_only=True)
class LLAMAOptions(InnerOptions):
    """LLAMA: MAML whose outer loss includes the curvature at the adapted weights."""

    eta: NonNegative = 1e-6
    """Weight of the log determinant; 0 for MAML."""
    precision: AboveZero = 1.0
    """Precision of the prior on the weights, above 0."""

    def build(self, net: Network, problem: Problem, *, key: PRNGKeyArray) -> "LLAMA":
        body = with_body(net, "LLAMA")
        inside = sum(len(jax.tree.leaves(adaptable(layer))) for layer in layers(body))
        if inside < len(jax.tree.leaves(adaptable(body))):
            raise ValueError(
                "LLAMA needs all adapted weights in layers of arml.nn.linear or arml.nn.conv2d, "
                "because it computes their curvature: build the network from these"
            )
        return LLAMA(net=body, inner=self.descent(net), options=self, problem=problem)


class LLAMA(Learner):
    """MAML's adaptation; the outer loss is the query's plus eta * log det of the curvature."""

    net: BaseNetwork
    inner: GradientDescent
    options: LLAMAOptions = eqx.field(static=True)

    def adapt(self, support: Examples, *, key: PRNGKeyArray) -> Adapted:
        adapted = self.inner(lambda net: self.loss(net(support.x), support.y), self.net)
        return Adapted(adapted.given(support.x), net=adapted)

    def volume(
        self, net: BaseNetwork, support_x: Array, x: Float[Array, "n *features"]
    ) -> Float[Array, ""]:
        """log det of the curvature at the weights of `net`, on the inputs `x`."""
        own = net.body.normalisation == "batch"
        statistics = net.body.run(x if own else support_x)[1]
        root = curvature.ROOTS[self.problem.kind]
        layers = curvature.traced_layers(net, x, statistics, root)
        blocks = [curvature.log_det(layer, self.options.precision) for layer in layers]
        return sum(blocks[1:], blocks[0])

    def meta_loss(self, task: Task, *, key: PRNGKeyArray) -> Float[Array, ""]:
        """The Laplace approximation of the query set's negative log marginal likelihood."""
        adapted = self.adapt(task.support, key=key)
        loss = self.loss(adapted.predict(task.query.x), task.query.y)

        def volume(net: PyTree) -> Array:
            return self.volume(net, task.support.x, task.query.x)

        volume = jax.checkpoint(volume) if self.inner.remat else volume
        return loss + self.options.eta * volume(adapted.net)


METHODS = (
    Method(
        name="llama",
        options_class=LLAMAOptions,
        paper="Grant, Finn, Levine, Darrell and Griffiths, ICLR 2018",
        preset=lambda problem: LLAMAOptions(inner_rate=usual_rate(problem)),
        tune=("inner_rate", "eta"),
    ),
)
