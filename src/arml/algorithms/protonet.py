"""ProtoNet: the prototype of a class is the mean of its embedded support examples, and a query
belongs to the class of the nearest prototype. Only the embedding is learned; a task takes no
gradient steps. This is the Bayes rule for Gaussian classes that share one round covariance, and so
linear in the embedding.

[1] Snell, Swersky and Zemel, Prototypical Networks for Few-shot Learning, NeurIPS 2017. Equation
    numbers are this paper's.
[2] The authors' code, jakesnell/prototypical-networks.

Differences
- The embedding is the base network without its head.
- The paper trains on more classes than it tests on (20 or 30 for miniImageNet). Here this is an
  option of the tasks. The softmax leaves out classes that a task does not have.
- The authors halve the outer rate every 2,000 episodes, and normalise by running averages.
- The authors' batch normalisation has a learned scale, so training can shrink all distances. Conv-4
  has none here, as in the code of MAML and of ARML: then the softmax of wide features is nearly
  certain at first, and its gradient is small. The distances may have a scale, as in TADAM.
- The distances may be those of linear discriminant analysis, with one spread for all classes, or
  of Simple CNAPS, with one for each (`arml.nn.heads`).
- With `rotate` each part of a training task is the support set once, and all other examples are the
  queries. All of these divisions use one embedding of the task, which reduces the variance of the
  gradient.
"""

from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from arml.algorithms.method import Method
from arml.core.checks import AboveZero, Options, classes_only
from arml.core.episodes import Examples, Problem, Task
from arml.core.learner import Adapted, Network
from arml.nn.heads import CLASSIFIERS, Classifier, Embedded, Labels, Metric, Samples
from arml.nn.networks import Body, with_body


@dataclass(frozen=True, kw_only=True)
class DistanceOptions(Options):
    """The options of methods that compare distances to classes."""

    scale: AboveZero = 1.0
    """Scale of the distances."""
    learn_scale: bool = False
    """Learn the scale, which starts at `scale`."""

    @property
    def first_scale(self) -> float | Float[Array, ""]:
        """The scale of a new learner: a float is a constant, an array is learned."""
        return jnp.asarray(self.scale, jnp.float32) if self.learn_scale else self.scale


@dataclass(frozen=True, kw_only=True)
class ProtoNetOptions(DistanceOptions):
    """ProtoNet: the nearest class mean in a learned embedding. The paper has no scale."""

    metric: Metric = "squared"
    """The squared distance; or for two shots or more a regularised Mahalanobis distance, with one
    covariance for all classes (`pooled`), or with one for each."""
    rotate: bool = False
    """In training, each part of a task is the support set once, and all others are the queries."""

    def build(self, net: Network, problem: Problem, *, key: PRNGKeyArray) -> "ProtoNet":
        classes_only("ProtoNet", problem)
        return ProtoNet(
            body=with_body(net, "ProtoNet").body,
            scale=self.first_scale,
            options=self,
            problem=problem,
        )


class ProtoNet(Embedded):
    """logits_k = -s ||f(x) - c_k||^2, with f the body and c_k the mean of f over class k; or with
    another distance than the squared one.

        pictures = arml.Problem("classification", (16, 16, 1), 5, 1, 5, inputs="pictures")
        isinstance(arml.build("protonet", pictures), arml.ProtoNet)
    """

    body: Body
    scale: float | Float[Array, ""]
    """s."""
    options: ProtoNetOptions = eqx.field(static=True)

    def adapt(self, support: Examples, *, key: PRNGKeyArray) -> Adapted:
        features, embed = self.body.embedded(support.x)
        head = self.head(features, support.y)
        return Adapted(lambda x: head(embed(x)))

    def head(self, features: Samples, y: Labels) -> Classifier:
        """The classifier of features that a support set gives. Eq. (1), (2)"""
        return CLASSIFIERS[self.options.metric](self.scale, features, y, self.problem.outputs)

    def meta_loss(self, task: Task, *, key: PRNGKeyArray) -> Float[Array, ""]:
        """The query loss; with `rotate` its mean over as many divisions of the task as it has
        disjoint support sets. The examples are then normalised together."""
        if not self.options.rotate:
            return super().meta_loss(task, key=key)
        y = jnp.concatenate([task.support.y, task.query.y])
        features = self.body(jnp.concatenate([task.support.x, task.query.x]))
        member = jax.nn.one_hot(y, self.problem.outputs, dtype=jnp.int32)
        earlier = jnp.sum((jnp.cumsum(member, axis=0) - 1) * member, axis=1)
        order = jnp.argsort(earlier, stable=True)  # the first of each class, the second of each...
        features, y, size = features[order], y[order], len(task.support.y)

        def one(first: int) -> Float[Array, ""]:
            part = slice(first, first + size)
            others = [jnp.concatenate([a[:first], a[first + size :]]) for a in (features, y)]
            return self.loss(self.head(features[part], y[part])(others[0]), others[1])

        losses = [one(first) for first in range(0, len(y) - size + 1, size)]
        return jnp.mean(jnp.stack(losses))


def usual(problem: Problem) -> ProtoNetOptions:
    """ProtoNet as published. On pictures the scale is learned, which is better there for each
    budget and number of shots (study/real.md)."""
    pictures = problem.form.like == "pictures"
    return ProtoNetOptions(scale=0.05, learn_scale=True) if pictures else ProtoNetOptions()


PROTONET_METHOD = Method(
    name="protonet",
    options_class=ProtoNetOptions,
    paper="Snell, Swersky and Zemel, NeurIPS 2017",
    kinds=("classification",),
    preset=usual,
    descends=False,
)
METHODS = (
    PROTONET_METHOD,
    replace(
        PROTONET_METHOD,
        name="protonet-published",
        title="ProtoNet, as published",
        about="ProtoNet, as published: its distances have no scale.",
        preset=lambda problem: ProtoNetOptions(),
    ),
    replace(
        PROTONET_METHOD,
        name="frozen-protonet",
        title="Frozen features",
        about="The nearest class mean in features of another model; nothing is trained.",
        places=("features",),
        settings={
            "any": {
                "experiment": {"steps": 0},
                "network": {"hidden": (), "init": "authors"},
                "outer": {"schedule": "constant", "clip": 0.0},
            }
        },
    ),
    replace(
        PROTONET_METHOD,
        name="protonet-turns",
        title="ProtoNet, rotating support",
        about="ProtoNet, pooled covariance; each part of a training task serves once as support.",
        preset=lambda problem: ProtoNetOptions(
            scale=0.05, learn_scale=True, metric="pooled", rotate=True
        ),
        places=("folders",),
        settings={"any": {"outer": {"schedule": "constant", "average": 0.5}}},
    ),
)
