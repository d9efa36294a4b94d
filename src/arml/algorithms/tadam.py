"""TADAM: ProtoNet whose embedding depends on the task, and whose metric has a scale. A first pass
embeds the support set with the shared body. The mean of its prototypes represents the task, and
sets a scale and a shift for every unit of every block. With these, support and query are embedded
again. In addition, the shared body learns to classify the same images among all training classes.

[1] Oreshkin, Rodriguez and Lacoste, TADAM: Task dependent adaptive metric for improved few-shot
    learning, NeurIPS 2018.
[2] The authors' code, ElementAI/TADAM (TensorFlow 1).

Differences
- The auxiliary task: at step t of T the authors first take, with probability
  0.9^(floor(20 t / T) + 1), an auxiliary step on a batch of 64 images from all training classes.
  Here the auxiliary loss on the episode's own images is added to the loss of every episode, with
  the weight .395, the mean of that probability over the run. In expectation its gradient has the
  same weight, and there is no random draw, schedule or second optimiser.
- If tasks come from several data sets, the auxiliary head spans the classes of all of them.
- The layers of scales and shifts have swish, as in [2]; the blocks keep the base network's ReLU.
- The metric's scale alpha is 7.5 as in the code; the paper tunes it, and `learn_scale` learns it.
- The distance is not squared, as in the code; `metric="squared"` is that of ProtoNet.
- The embedding is the base network without its head, not a ResNet-12. Its blocks pool before they
  are scaled and shifted, and apply ReLU last.
- In ARML's paper TADAM has the embedding E of ARML: two convolutions and two dense layers. Here
  TADAM has ProtoNet's body, so the two methods differ only in TADAM's own parts, and its scores
  and the paper's are of different networks.
- The authors have SGD with momentum and a rate that falls in steps from .1, 2 tasks, 32 queries of
  any class, a decay of 5e-4 and gradients of norm 1 at most.
"""

from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from arml.algorithms.method import Method
from arml.algorithms.protonet import DistanceOptions
from arml.core.checks import AboveZero, NonNegative, classes_only
from arml.core.episodes import Examples, Problem, Task
from arml.core.inner import Shared
from arml.core.learner import Adapted, Network
from arml.core.losses import cross_entropy
from arml.nn.heads import Embedded, class_means, mask_absent, squared_distances, units
from arml.nn.networks import Body, Film, Linear, filmed, linear, widths, with_body


class TaskEmbedding(eqx.Module):
    """Three dense layers as wide as the block that they modulate; the second and the third have
    skip connections."""

    layers: tuple[Linear, ...]

    @classmethod
    def drawn(cls, code: int, units: int, *, key: PRNGKeyArray) -> "TaskEmbedding":
        """Layers that map a code of `code` numbers to one number for each of `units` units."""
        pairs = zip((code, units, units), jax.random.split(key, 3), strict=True)
        return cls(tuple(linear(inputs, units, key=k) for inputs, k in pairs))

    def __call__(self, code: Float[Array, " code"]) -> Float[Array, " units"]:
        first, second, third = self.layers
        h = jax.nn.swish(first(code))
        h = h + jax.nn.swish(second(h))
        return h + third(h)


@dataclass(frozen=True, kw_only=True)
class TADAMOptions(DistanceOptions):
    """TADAM: ProtoNet with an embedding that depends on the task, and a scaled metric."""

    scale: AboveZero = 7.5
    """Scale alpha of the distances."""
    metric: Literal["euclidean", "squared"] = "euclidean"
    """Distance to the prototypes."""
    film_decay: NonNegative = 0.01
    """Weight of half the squares of the factors gamma_0 and beta_0, which start at zero."""
    auxiliary: NonNegative = 0.395
    """Weight of the auxiliary classification among all training classes; 0 for none."""

    def build(self, net: Network, problem: Problem, *, key: PRNGKeyArray) -> "TADAM":
        """The learner with the body of `net`; it starts as a ProtoNet, because gamma_0 and beta_0
        are zero."""
        classes_only("TADAM", problem)
        body = with_body(net, "TADAM").body
        code = units(body, problem.features)
        head_key, *keys = jax.random.split(key, 1 + len(body.blocks))
        ten = []
        for width, block_key in zip(widths(body, problem.features), keys, strict=True):
            scale_key, shift_key = jax.random.split(block_key)
            scale = TaskEmbedding.drawn(code, width, key=scale_key)
            ten.append((scale, TaskEmbedding.drawn(code, width, key=shift_key)))
        has_auxiliary = problem.classes > 0 and self.auxiliary > 0
        return TADAM(
            body=body,
            ten=tuple(ten),
            gamma_0=jnp.zeros(len(ten), jnp.float32),
            beta_0=jnp.zeros(len(ten), jnp.float32),
            alpha=self.first_scale,
            auxiliary_head=linear(code, problem.classes, key=head_key) if has_auxiliary else None,
            options=self,
            problem=problem,
        )


class TADAM(Embedded):
    """logits_k = -alpha ||f(x) - c_k||, with f the body under the task's scales and shifts, and c_k
    the mean of f over class k."""

    body: Body
    ten: tuple[tuple[TaskEmbedding, TaskEmbedding], ...]
    """The task embedding network: for each block, one part makes the scales and one the shifts."""
    gamma_0: Float[Array, " blocks"]
    beta_0: Float[Array, " blocks"]
    alpha: float | Float[Array, ""]
    auxiliary_head: Linear | None
    options: TADAMOptions = eqx.field(static=True)

    def adapt(self, support: Examples, *, key: PRNGKeyArray) -> Adapted:
        generic, present = class_means(
            self.body.embedded(support.x)[0], support.y, self.problem.outputs
        )
        # The means of absent classes are zero.
        code = jnp.sum(generic, axis=0) / jnp.sum(present, dtype=generic.dtype)
        features, embed = self.conditioned(code).embedded(support.x)
        means, _ = class_means(features, support.y, self.problem.outputs)

        def predict(x: Float[Array, "m *features"]) -> Float[Array, "m ways"]:
            squared = squared_distances(embed(x), means)
            distances = squared if self.options.metric == "squared" else root(squared)
            return mask_absent(present, -self.alpha * distances)

        squares = jnp.sum(jnp.square(self.gamma_0)) + jnp.sum(jnp.square(self.beta_0))
        return Adapted(predict, 0.5 * self.options.film_decay * squares)

    def conditioned(self, code: Float[Array, " code"]) -> Body:
        """The body under the scales 1 + gamma_0 h(code) and the shifts beta_0 g(code)."""
        films = (
            Film(Shared(1 + gamma_0 * h(code)), Shared(beta_0 * g(code)))
            for (h, g), gamma_0, beta_0 in zip(self.ten, self.gamma_0, self.beta_0, strict=True)
        )
        return filmed(self.body, films)

    def meta_loss(self, task: Task, *, key: PRNGKeyArray) -> Float[Array, ""]:
        loss = super().meta_loss(task, key=key)
        if self.auxiliary_head is None or task.classes is None:
            return loss
        features, embed = self.body.embedded(task.support.x)
        features = jnp.concatenate([features, embed(task.query.x)])
        classes = task.classes[jnp.concatenate([task.support.y, task.query.y])]
        other = cross_entropy(self.auxiliary_head(features), classes)
        return loss + self.options.auxiliary * other


def root(squared: Float[Array, "n ways"]) -> Float[Array, "n ways"]:
    """The square root, with the gradient zero at zero: a lone support example is its class mean."""
    positive = squared > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, squared, 1.0)), 0.0)


METHODS = (
    Method(
        name="tadam",
        options_class=TADAMOptions,
        paper="Oreshkin, Rodriguez and Lacoste, NeurIPS 2018",
        kinds=("classification",),
        tune=("scale", "auxiliary"),
        descends=False,
        # gamma_0 and beta_0 multiply its output and start at zero: no gradient reaches it at the
        # first step.
        dead=(".ten",),
    ),
)
