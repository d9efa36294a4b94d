"""MAML: one shared initialisation from which every task descends; and Meta-SGD, which also learns
the step sizes.

[1] Finn, Abbeel and Levine, Model-Agnostic Meta-Learning, ICML 2017; code: cbfinn/maml.
[2] Li, Zhou, Chen and Li, Meta-SGD, 2017 (no official code).

Differences
- Inner rates are for mean losses. The authors' image code divides the loss by the shots and sums
  it, so that their .01 is .05 here (5 ways).
- A task takes 5 steps at test, as in training. On miniImageNet the authors' code takes 10 at test,
  and bounds each element of the outer gradient to 10; here it has no bound.
- On 2-D regression first-order MAML and Meta-SGD bound the norms of their inner gradients (1,000)
  and outer gradients (10), and the outer step on Meta-SGD's rates is a hundredth of the others':
  without these, steep tasks overflow. Meta-SGD takes 5 steps, as the other methods do; its paper
  takes 1.
- Meta-SGD starts all its rates at the common inner rate, as in ARML's comparison, not at random.
  They may become negative, as in the paper.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import equinox as eqx
from jaxtyping import PRNGKeyArray

from arml.algorithms.imaml import ImplicitDescent
from arml.algorithms.maml_plus_plus import MultiStep, StepRates
from arml.algorithms.method import Changes, Method
from arml.core.episodes import Examples, Problem
from arml.core.inner import GradientDescent, InnerOptions, adaptable, usual_rate
from arml.core.learner import Adapted, Loss, MetaLearner, Network
from arml.core.losses import loss_of


class MAML(MetaLearner):
    """theta' = theta - rate * grad L_support(theta), repeated; the outer loss is the query's
    after the last step. ARML paper, Eq. (1). With an array of rates: Meta-SGD.

        isinstance(arml.build("maml", tasks), arml.MAML)
    """

    net: Network
    inner: GradientDescent | ImplicitDescent
    loss: Loss = eqx.field(static=True)

    def adapt(self, support: Examples, *, key: PRNGKeyArray) -> Adapted:
        adapted = self.inner(lambda net: self.loss(net(support.x), support.y), self.net)
        return Adapted(adapted.given(support.x), net=adapted)


@dataclass(frozen=True, kw_only=True)
class MAMLOptions(InnerOptions):
    """MAML, first-order MAML and Meta-SGD; iMAML (`implicit`) and MAML++ (`step_rates` and
    `multi_step`)."""

    LEAST: ClassVar = {"implicit": 0, "multi_step": (0, 10**9)}

    implicit: float = 0.0
    """iMAML: strength lambda of the term that keeps a task near the initialisation. Above 0 the
    outer gradient is implicit: its memory does not grow with the inner steps."""
    step_rates: bool = False
    """MAML++: learn a rate for each array and inner step; each starts at inner_rate."""
    multi_step: int = 0
    """MAML++: outer steps over which the query losses after all inner steps count, less and less;
    0 to count only the last."""

    def check(self) -> None:
        """Raise `ValueError` if an option is invalid."""
        super().check()
        others = ("step_rates", "learn_rates", "first_order", "multi_step")
        for name in (n for n in others if self.implicit and getattr(self, n)):
            raise ValueError(f"implicit takes no {name}: leave one of them out")
        if self.step_rates and self.learn_rates:
            raise ValueError("step_rates and learn_rates exclude each other: give one of them")
        if self.multi_step and not self.inner_steps:
            raise ValueError("multi_step needs inner steps, got inner_steps 0")

    def build(self, net: Network, problem: Problem, *, key: PRNGKeyArray) -> "MAML | MultiStep":
        """The learner; `net` holds its only weights, so the key goes unused."""
        part, loss, rule = adaptable(net), loss_of(problem), None
        if self.step_rates:
            rule = StepRates.initial(part, self.inner_rate, self.inner_steps)
        inner = self.descent(net, rule)
        if self.multi_step:
            return MultiStep(net=net, inner=inner, until=self.multi_step, loss=loss)
        if self.implicit:
            return MAML(net=net, inner=ImplicitDescent(inner, self.implicit), loss=loss)
        return MAML(net=net, inner=inner, loss=loss)


STEEP: dict[str, Changes] = {
    # At Adam's full step the learned inner rates double in one step, and the loss is soon not
    # finite. Even at a hundredth, rare steep tasks overflow unless both gradients are bounded.
    "regression": {
        "algorithm": {"inner_clip": 1_000.0},
        "outer": {"rates_factor": 0.01, "clip": 10.0},
    }
}
"""The settings of methods that learn their inner rates."""
MAML_METHOD = Method(
    name="maml",
    title="MAML",
    options_class=MAMLOptions,
    about="MAML: one shared initialisation, second order.",
    paper="Finn, Abbeel and Levine, ICML 2017",
    preset=lambda problem: MAMLOptions(inner_rate=usual_rate(problem)),
)
METHODS = (
    MAML_METHOD,
    replace(
        MAML_METHOD,
        name="first-order-maml",
        title="First-order MAML",
        about="First-order MAML: without the second derivatives.",
        preset=lambda problem: MAMLOptions(inner_rate=usual_rate(problem), first_order=True),
        # Without a bound its inner steps become unstable: a few ripple tasks had losses of 100,000.
        settings={"regression": {"algorithm": {"inner_clip": 1_000.0}, "outer": {"clip": 10.0}}},
    ),
    replace(
        MAML_METHOD,
        name="meta-sgd",
        title="Meta-SGD",
        about="Meta-SGD: MAML that learns a step size for each parameter.",
        paper="Li, Zhou, Chen and Li, 2017",
        preset=lambda problem: MAMLOptions(inner_rate=usual_rate(problem), learn_rates=True),
        settings=STEEP,
    ),
)
