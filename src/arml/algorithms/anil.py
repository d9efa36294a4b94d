"""ANIL: a task adapts the linear head alone; the body is shared by all tasks, and meta-learned
through the adapted head. MAML's inner loop mostly reuses its features, and ANIL says so.

[1] Raghu, Raghu, Bengio and Vinyals, Rapid Learning or Feature Reuse?, ICLR 2020 (no official
    code).

Differences
- The inner rate is stated on mean losses.
- Not one of the methods that ARML's paper compares with.
"""

from dataclasses import dataclass

import equinox as eqx
from jaxtyping import PRNGKeyArray

from arml.core.episodes import Examples, Problem
from arml.core.inner import GradientDescent, InnerOptions
from arml.core.learner import Adapted, Loss, MetaLearner, Network
from arml.core.losses import loss_of


class ANIL(MetaLearner):
    """head' = head - rate * grad L_support(head o body), repeated; the features are computed
    once."""

    net: Network
    inner: GradientDescent
    loss: Loss = eqx.field(static=True)

    def adapt(self, support: Examples, *, key: PRNGKeyArray) -> Adapted:
        features = self.net.body(support.x)
        head = self.inner(lambda head: self.loss(head(features), support.y), self.net.head)
        body = self.net.body.given(support.x)
        return Adapted(lambda x: head(body(x)))


@dataclass(frozen=True, kw_only=True)
class ANILOptions(InnerOptions):
    """ANIL, with one rate for the head or one learned for each of its parameters."""

    def check(self) -> None:
        """Refuse options that mean nothing."""
        self.check_inner()

    def build(self, net: Network, problem: Problem, *, key: PRNGKeyArray) -> ANIL:
        """The learner; `net` holds its only weights, so the key goes unused."""
        return ANIL(net=net, inner=self.descent(net.head), loss=loss_of(problem))
