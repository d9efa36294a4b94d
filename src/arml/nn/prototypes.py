"""Classifiers by prototypes: class means, where a task may lack some of the classes, and logits
from distances."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from arml.core.episodes import Task
from arml.core.learner import Embedding, MetaLearner
from arml.core.losses import cross_entropy
from arml.nn.networks import Body, Linear

ABSENT = -1e9
"""The logit of a class without support examples: it is finite, so that gradients are finite, too. A
learner that was built for 20 classes may get a task with 5."""

Samples = Float[Array, "n d"]
"""Embeddings of samples."""
Labels = Shaped[Array, "n *targets"]
"""Classes or targets."""


class Embedded(MetaLearner):
    """A learner that compares embeddings by a body, which no task adapts."""

    body: eqx.AbstractVar[Body]

    def embedding(self) -> Callable[[Array], Embedding]:
        """The body before a task conditions it."""
        return self.body.given


def class_means(
    e: Samples, y: Int[Array, " n"], ways: int
) -> tuple[Float[Array, "ways d"], Bool[Array, " ways"]]:
    """The mean of each class, in class order, and which classes have examples; the mean of a class
    without examples is zero."""
    member = jax.nn.one_hot(y, ways, axis=0, dtype=e.dtype)
    count = jnp.sum(member, axis=1)
    return member @ e / jnp.maximum(count, 1)[:, None], count > 0


def among(
    present: Bool[Array, " ways"], logits: Float[Array, "*n ways"]
) -> Float[Array, "*n ways"]:
    """The logits, with `ABSENT` for the classes that are not `present`."""
    return jnp.where(present, logits, ABSENT)


def squared_distances(x: Samples, centres: Float[Array, "ways d"]) -> Float[Array, "n ways"]:
    """||x - c||^2, computed from the differences: |x|^2 - 2 x.c + |c|^2 loses precision in float32
    when the two are close."""
    return jnp.sum(jnp.square(x[:, None] - centres), axis=-1)


def units(body: Body, features: tuple[int, ...]) -> int:
    """The number of features that `body` makes from one input of shape `features`."""
    one = jax.ShapeDtypeStruct((1, *features), jnp.float32)
    count: int = jax.eval_shape(lambda x: body(x), one).shape[-1]
    return count


def auxiliary_loss(body: Body, head: Linear | None, task: Task) -> Float[Array, ""] | float:
    """TADAM's auxiliary classification [1]: a linear head on the shared body's features classifies
    the images of a task among all training classes, whose numbers only training tasks have.

    It is the mean cross-entropy of the support and query images; 0 without a head or classes.

    [1] Oreshkin, Rodriguez and Lacoste, TADAM: Task dependent adaptive metric for improved few-shot
        learning, NeurIPS 2018, section 3.4.
    """
    if head is None or task.classes is None:
        return 0.0
    features, embed = body.embedded(task.support.x)
    features = jnp.concatenate([features, embed(task.query.x)])
    classes = task.classes[jnp.concatenate([task.support.y, task.query.y])]
    return cross_entropy(head(features), classes)
