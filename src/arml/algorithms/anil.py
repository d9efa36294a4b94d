"""ANIL: a task adapts only the linear head. All tasks share the body, which is meta-learned
through the adapted head. The paper finds that MAML's inner loop also hardly changes the features.

[1] Raghu, Raghu, Bengio and Vinyals, Rapid Learning or Feature Reuse?, ICLR 2020 (no official
    code).

Differences
- ARML's paper does not compare with it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
from jaxtyping import Array, PRNGKeyArray

from arml.algorithms.method import Method
from arml.core.episodes import Examples, Problem
from arml.core.inner import GradientDescent, InnerOptions, usual_rate
from arml.core.learner import Adapted, Embedding, Learner, Network
from arml.nn.networks import BaseNetwork, with_body


class ANIL(Learner):
    """head' = head - rate * grad L_support(head o body), repeated, on fixed features."""

    net: BaseNetwork
    inner: GradientDescent

    def adapt(self, support: Examples, *, key: PRNGKeyArray) -> Adapted:
        features = self.net.body(support.x)
        head = self.inner(lambda head: self.loss(head(features), support.y), self.net.head)
        adapted = eqx.tree_at(lambda net: net.head, self.net, head)
        return Adapted(adapted.given(support.x), net=adapted)

    def embedding(self) -> Callable[[Array], Embedding]:
        return self.net.body.given


@dataclass(frozen=True, kw_only=True)
class ANILOptions(InnerOptions):
    """ANIL: a task adapts the head alone, on shared features. It has one rate for the head, or a
    learned rate for each of its parameters."""

    def build(self, net: Network, problem: Problem, *, key: PRNGKeyArray) -> ANIL:
        net = with_body(net, "ANIL")
        return ANIL(net=net, inner=self.descent(net.head), problem=problem)


METHODS = (
    Method(
        name="anil",
        options_class=ANILOptions,
        widens=True,
        paper="Raghu, Raghu, Bengio and Vinyals, ICLR 2020",
        preset=lambda problem: ANILOptions(inner_rate=usual_rate(problem)),
    ),
)
