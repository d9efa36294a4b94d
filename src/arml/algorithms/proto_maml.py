"""Proto-MAML: MAML whose head starts from the prototypes of each task. Before the first inner step
it is ProtoNet; then body and head descend together. The outer loop differentiates through the
prototypes, so the body learns to start well and to descend well.

[1] Triantafillou et al., Meta-Dataset: A Dataset of Datasets for Learning to Learn from Few
    Examples, ICLR 2020, section 3.
[2] The authors' code, google-research/meta-dataset (TensorFlow 1).

Differences
- The distances have a scale s, so that w_k = 2 s c_k and b_k = -s |c_k|^2. It is learned and starts
  at .05; the paper has 1.
- The outer gradient has second derivatives, as in MAML here; the paper drops them.
- The paper searches for the inner rate and the steps.
"""

from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from arml.algorithms.method import Method
from arml.core.checks import AboveZero, classes_only
from arml.core.episodes import Examples, Problem
from arml.core.inner import GradientDescent, InnerOptions, usual_rate
from arml.core.learner import Adapted, Learner, Network
from arml.nn.heads import PrototypeHead, headless
from arml.nn.networks import BaseNetwork, with_body


class ProtoMAML(Learner):
    """theta' = theta - rate * grad L_support(theta), repeated, from a head made of prototypes."""

    net: BaseNetwork
    """The body; a task makes the head."""
    head: PrototypeHead
    inner: GradientDescent

    def adapt(self, support: Examples, *, key: PRNGKeyArray) -> Adapted:
        start = self.head(self.net, support)
        adapted = self.inner(lambda net: self.loss(net(support.x), support.y), start)
        return Adapted(adapted.given(support.x), net=adapted)


@dataclass(frozen=True, kw_only=True)
class ProtoMAMLOptions(InnerOptions):
    """Proto-MAML: MAML whose head starts from the task's prototypes."""

    scale: AboveZero = 0.05
    """Initial scale of the squared distances, which is learned."""

    def build(self, net: Network, problem: Problem, *, key: PRNGKeyArray) -> ProtoMAML:
        classes_only("Proto-MAML", problem)
        return ProtoMAML(
            net=headless(with_body(net, "Proto-MAML")),
            head=PrototypeHead(jnp.float32(self.scale), problem.outputs),
            inner=self.descent(net),
            problem=problem,
        )


METHODS = (
    Method(
        name="proto-maml",
        options_class=ProtoMAMLOptions,
        paper="Triantafillou et al., ICLR 2020",
        preset=lambda problem: ProtoMAMLOptions(inner_rate=usual_rate(problem)),
        kinds=("classification",),
        exceptions={
            "test_adaptation_lowers_the_support_loss": (
                "with one shot the prototypes are the examples, and the support loss starts at "
                "rounding"
            )
        },
    ),
)
