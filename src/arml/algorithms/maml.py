"""MAML: one shared initialisation from which every task descends. Meta-SGD also learns the step
sizes.

[1] Finn, Abbeel and Levine, Model-Agnostic Meta-Learning, ICML 2017; code: cbfinn/maml.
[2] Li, Zhou, Chen and Li, Meta-SGD, 2017 (no official code).

Differences
- The authors' image code divides the loss by the shots and sums it: their .01 is .05 here (5 ways).
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

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from arml.algorithms.imaml import ImplicitDescent
from arml.algorithms.maml_plus_plus import StepRates, importance
from arml.algorithms.method import Changes, Method
from arml.core.checks import NonNegative, Steps
from arml.core.episodes import Examples, Problem, Task
from arml.core.inner import GradientDescent, InnerOptions, adaptable, steps_of, usual_rate
from arml.core.learner import Adapted, Learner, Network


class MAML(Learner):
    """theta' = theta - rate * grad L_support(theta), repeated; the outer loss is the query's
    after the last step. ARML paper, Eq. (1). With an array of rates: Meta-SGD.

        isinstance(arml.build("maml", tasks), arml.MAML)
    """

    net: Network
    inner: GradientDescent | ImplicitDescent
    until: int = eqx.field(static=True, default=0)
    """MAML++: the outer step from which on only the last inner step counts."""
    weights: Float[Array, " steps"] | None = None
    """MAML++, in training: how much the query loss after each inner step counts."""

    def adapt(self, support: Examples, *, key: PRNGKeyArray) -> Adapted:
        adapted = self.inner(lambda net: self.loss(net(support.x), support.y), self.net)
        return Adapted(adapted.given(support.x), net=adapted)

    def scheduled(self, step: Int[Array, ""]) -> "MAML":
        if not self.until:
            return self
        return replace(self, weights=importance(step, self.until, steps_of(self)))

    def meta_loss(self, task: Task, *, key: PRNGKeyArray) -> Float[Array, ""]:
        """The query loss after the last step, or the weighted ones after each."""
        if self.weights is None:
            return super().meta_loss(task, key=key)
        assert isinstance(self.inner, GradientDescent)
        (x, y), query = task.support, task.query
        nets = self.inner.path(lambda net: self.loss(net(x), y), self.net)
        return jnp.stack([self.loss(n.given(x)(query.x), query.y) for n in nets]) @ self.weights


@dataclass(frozen=True, kw_only=True)
class MAMLOptions(InnerOptions):
    """MAML, first-order MAML and Meta-SGD; iMAML (`implicit`) and MAML++ (`step_rates` and
    `multi_step`)."""

    implicit: NonNegative = 0.0
    """iMAML: strength lambda of the term that keeps a task near the initialisation. Above 0 the
    outer gradient is implicit: its memory does not grow with the inner steps."""
    step_rates: bool = False
    """MAML++: learn a rate for each array and inner step; each starts at inner_rate."""
    multi_step: Steps = 0
    """MAML++: outer steps during which the query loss after each inner step counts, with a weight
    that falls; 0 to count only the last. It does not follow the length of a training."""

    def check(self) -> None:
        super().check()
        for one, others in (
            ("implicit", ("step_rates", "learn_rates", "first_order", "multi_step")),
            ("step_rates", ("learn_rates",)),
        ):
            for other in others:
                if getattr(self, one) and getattr(self, other):
                    raise ValueError(f"{one} takes no {other}: leave one of them out")
        if self.multi_step and not self.inner_steps:
            raise ValueError("multi_step needs inner steps, got inner_steps 0")

    def build(self, net: Network, problem: Problem, *, key: PRNGKeyArray) -> MAML:
        steps = (adaptable(net), self.inner_rate, self.inner_steps)
        inner = self.descent(net, StepRates.initial(*steps) if self.step_rates else None)
        how = ImplicitDescent(inner, self.implicit) if self.implicit else inner
        return MAML(net=net, inner=how, problem=problem, until=self.multi_step)


_BOUNDED_GRADIENTS: dict[str, Changes] = {
    "regression": {
        "algorithm": {"inner_clip": 1_000.0},
        "outer": {"rates_factor": 0.01, "clip": 10.0},
    }
}
MAML_METHOD = Method(
    name="maml",
    options_class=MAMLOptions,
    about="MAML: one shared initialisation, second order.",
    paper="Finn, Abbeel and Levine, ICML 2017",
    preset=lambda problem: MAMLOptions(inner_rate=usual_rate(problem)),
    widens=True,
)
METHODS = (
    MAML_METHOD,
    replace(
        MAML_METHOD,
        name="first-order-maml",
        title="First-order MAML",
        about="First-order MAML: without the second derivatives.",
        preset=lambda problem: MAMLOptions(inner_rate=usual_rate(problem), first_order=True),
        settings={"regression": {"algorithm": {"inner_clip": 1_000.0}, "outer": {"clip": 10.0}}},
    ),
    replace(
        MAML_METHOD,
        name="meta-sgd",
        title="Meta-SGD",
        about="Meta-SGD: MAML that learns a step size for each parameter.",
        paper="Li, Zhou, Chen and Li, 2017",
        preset=lambda problem: MAMLOptions(inner_rate=usual_rate(problem), learn_rates=True),
        settings=_BOUNDED_GRADIENTS,
    ),
    replace(
        MAML_METHOD,
        name="imaml",
        title="iMAML",
        about="iMAML: MAML with an implicit outer gradient.",
        paper="Rajeswaran, Finn, Kakade and Levine, NeurIPS 2019",
        # The authors' lambda for Omniglot.
        preset=lambda problem: MAMLOptions(inner_rate=usual_rate(problem), implicit=2.0),
    ),
    replace(
        MAML_METHOD,
        name="maml++",
        title="MAML++",
        about="MAML++: MAML with a learned rate for each array and step, and early losses.",
        paper="Antoniou, Edwards and Storkey, ICLR 2019",
        # The authors' 15 of 100 epochs of 500 steps.
        preset=lambda problem: MAMLOptions(
            inner_rate=usual_rate(problem), step_rates=True, multi_step=7_500
        ),
        settings=_BOUNDED_GRADIENTS
        | {
            trait: {"algorithm": {"multi_step": 750}} for trait in ("small images", "vectors")
        },  # of 5,000 steps
    ),
)
