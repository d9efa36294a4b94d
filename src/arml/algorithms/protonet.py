"""ProtoNet: the prototype of a class is the mean of its embedded support examples, and a query
belongs to the class of the nearest prototype. Only the embedding is learned; a task takes no
gradient steps. This is the Bayes rule for Gaussian classes that share one round covariance, and so
linear in the embedding.

[1] Snell, Swersky and Zemel, Prototypical Networks for Few-shot Learning, NeurIPS 2017. Equation
    numbers are this paper's.
[2] The authors' code, jakesnell/prototypical-networks.

Differences
- The embedding is the base network without its head, so Conv-4 has as many filters as elsewhere.
- The paper trains on more classes than it tests on (20 or 30 for miniImageNet). Here this is an
  option of the tasks; the softmax leaves out classes that a task does not have.
- The outer rate is that of the other methods, constant or falling as a cosine; the authors halve
  theirs every 2,000 episodes.
- Normalisation is that of the base network; the authors' code keeps running averages.
- The distances may have a scale, constant or learned, as in TADAM. Without one the softmax of wide
  features is nearly certain at first, and its gradient small.
- The distances may be those of Simple CNAPS, which take the spread of each class into account
  (`arml.nn.covariance`).
- TADAM's auxiliary classification may also train the body.
"""

from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from arml.algorithms.method import Cost, Method, Variant
from arml.core.checks import Options, at_least, classes_only
from arml.core.episodes import Examples, Problem, Task
from arml.core.learner import Adapted, Loss, Network
from arml.core.losses import loss_of
from arml.nn.auxiliary import auxiliary_loss
from arml.nn.heads import quadratic
from arml.nn.networks import Body, Linear, linear
from arml.nn.parts import with_body
from arml.nn.prototypes import Embedded, among, class_means, squared_distances, units

Metric = Literal["squared", "mahalanobis"]


class ProtoNet(Embedded):
    """logits_k = -s ||f(x) - c_k||^2, with f the body and c_k the mean of f over class k; or with
    the Mahalanobis distance instead of the squared one."""

    body: Body
    scale: float | Float[Array, ""]
    """s."""
    auxiliary_head: Linear | None
    auxiliary: float
    metric: Metric = eqx.field(static=True)
    ways: int = eqx.field(static=True)
    loss: Loss = eqx.field(static=True)

    def adapt(self, support: Examples, *, key: PRNGKeyArray) -> Adapted:
        embed = self.body.given(support.x)
        features = embed(support.x)
        if self.metric == "mahalanobis":
            head = quadratic(self.scale, features, support.y, self.ways)
            return Adapted(lambda x: head(embed(x)))
        means, present = class_means(features, support.y, self.ways)  # Eq. (1)
        return Adapted(
            lambda x: among(present, -self.scale * squared_distances(embed(x), means))  # Eq. (2)
        )

    def meta_loss(self, task: Task, *, key: PRNGKeyArray) -> Float[Array, ""]:
        """The query loss, plus the auxiliary one where the training classes are known."""
        loss = super().meta_loss(task, key=key)
        return loss + self.auxiliary * auxiliary_loss(self.body, self.auxiliary_head, task)


@dataclass(frozen=True, kw_only=True)
class ProtoNetOptions(Options):
    """ProtoNet: the nearest class mean in a learned embedding."""

    scale: float = 1.0
    """Scale of the squared distances; the paper has none."""
    learn_scale: bool = False
    """Learn the scale, which starts at `scale`."""
    metric: Metric = "squared"
    """The squared distance, or the regularised Mahalanobis distance, for two shots or more."""
    auxiliary: float = 0.0
    """Weight of classifying the images among all training classes, as TADAM does; 0 for none."""

    def check(self) -> None:
        """Raise `ValueError` if an option is out of range."""
        at_least(self, ("scale",), 0, strict=True)
        at_least(self, ("auxiliary",), 0)

    def build(self, net: Network, problem: Problem, *, key: PRNGKeyArray) -> ProtoNet:
        """The learner with the body of `net`, and a fresh auxiliary head if it has one."""
        classes_only("ProtoNet", problem)
        body, head = with_body(net, "ProtoNet").body, None
        if self.auxiliary and problem.classes:
            head = linear(units(body, problem.features), problem.classes, key=key)
        return ProtoNet(
            body=body,
            scale=jnp.asarray(self.scale, jnp.float32) if self.learn_scale else self.scale,
            auxiliary_head=head,
            auxiliary=self.auxiliary,
            metric=self.metric,
            ways=problem.outputs,
            loss=loss_of(problem),
        )


METHODS = (
    Method(
        name="protonet",
        compared="starter benchmarks repeated normalisation race-features",
        title="ProtoNet",
        options_class=ProtoNetOptions,
        paper="Snell, Swersky and Zemel, NeurIPS 2017",
        kinds=("classification",),
        variants={
            "frozen-protonet": Variant(
                "features",
                "The nearest class mean; nothing is trained.",
                {
                    "experiment": {"steps": 0},
                    "network": {"hidden": (), "init": "authors"},
                    "outer": {"schedule": "constant", "clip": 0.0},
                },
                compared="race-features",
            ),
            "protonet-scaled": Variant(
                "folders",
                "ProtoNet that learns the scale of its distances.",
                {"algorithm": {"scale": 0.05, "learn_scale": True}},
                compared="race-folders",
            ),
            "protonet-20way": Variant(
                "folders",
                "ProtoNet trained on more ways than it is tested on.",
                {"tasks": {"train_ways": 20}},
            ),
        },
        cost=lambda options: Cost(images=0.5),
        descends=False,
    ),
)
