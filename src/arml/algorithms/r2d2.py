"""R2-D2: a task's head is the solution of ridge regression on the features of its support set. The
solution is a closed form that the outer gradient passes through, so the body learns features on
which a linear head generalises. The strength of the ridge is also learned.

[1] Bertinetto, Henriques, Torr and Vedaldi, Meta-learning with Differentiable Closed-form Solvers,
    ICLR 2019. Equation numbers are this paper's.
[2] The authors' code, bertinetto/r2d2 (PyTorch).

Differences
- The ridge does not depend on the number n of support examples, as in [1]. [2] divides X and Y by
  the root of n: its ridge is n lambda. With as many examples as in training the two differ only in
  the initial value. With more examples, the head here is shrunk less, as the posterior mean of a
  Bayesian head is, and that of [2] as much as before.
- lambda is learned and starts at 1; in [2] it stays at 50. alpha starts at 10; in [2] at 1e-4 for
  miniImageNet, 10 for CIFAR. Both stay positive here, because their logarithms are learned.
- The logits of [1] are alpha X W + beta. A softmax cancels beta, so there is none. In regression
  the predictions are X W.
- The head has a bias, which the ridge shrinks as it does the weights, as in [2].
- The embedding is the base network without its head. In [1] it has 96 to 512 filters, dropout and
  leaky ReLU, and joins the outputs of its last two blocks.
- [2] trains on 16 to 60 ways, with 1 to 9 shots on pictures.
"""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from arml.algorithms.method import Method
from arml.core.checks import AboveZero, Options
from arml.core.episodes import Examples, Problem
from arml.core.learner import Adapted, Network
from arml.nn.heads import Embedded, mask_absent, ridge
from arml.nn.networks import Body, with_body


class R2D2(Embedded):
    """W = X^T (X X^T + lambda I)^-1 Y, with X the features of the support set; logits are
    alpha f(x) W for one-hot Y, predictions are f(x) W for numbers."""

    body: Body
    log_ridge: Float[Array, ""]
    """log lambda."""
    log_scale: Float[Array, ""] | None
    """log alpha; None for regression."""

    def adapt(self, support: Examples, *, key: PRNGKeyArray) -> Adapted:
        features, embed = self.body.embedded(support.x)
        strength = jnp.exp(self.log_ridge)
        if self.log_scale is None:
            head = ridge(features, support.y, strength)  # Eq. (4), (5)
            return Adapted(lambda x: head(embed(x)))
        scale, kind = jnp.exp(self.log_scale), features.dtype
        member = jax.nn.one_hot(support.y, self.problem.outputs, dtype=kind)
        head = ridge(features, member, strength)  # Eq. (4), (5)
        present = jnp.any(member > 0, axis=0)
        return Adapted(lambda x: mask_absent(present, scale * head(embed(x))))  # Eq. (6)


@dataclass(frozen=True, kw_only=True)
class R2D2Options(Options):
    """R2-D2: the head of a task is the solution of ridge regression."""

    ridge: AboveZero = 1.0
    """Initial strength of the ridge, which is learned."""
    scale: AboveZero = 10.0
    """Initial scale of the logits, which is learned; not used in regression."""

    def build(self, net: Network, problem: Problem, *, key: PRNGKeyArray) -> R2D2:
        classes = problem.kind == "classification"
        return R2D2(
            body=with_body(net, "R2-D2").body,
            log_ridge=jnp.float32(math.log(self.ridge)),
            log_scale=jnp.float32(math.log(self.scale)) if classes else None,
            problem=problem,
        )


METHODS = (
    Method(
        name="r2d2",
        options_class=R2D2Options,
        paper="Bertinetto, Henriques, Torr and Vedaldi, ICLR 2019",
        tune=("ridge", "scale"),
        descends=False,
    ),
)
