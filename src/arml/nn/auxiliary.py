"""Auxiliary classification: a linear head on the shared body's features classifies the images of a
task among all training classes. It trains the body with more classes than a task has, and needs the
numbers of the classes, which only training tasks have.

[1] Oreshkin, Rodriguez and Lacoste, TADAM: Task dependent adaptive metric for improved few-shot
    learning, NeurIPS 2018, section 3.4.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from arml.core.episodes import Task
from arml.core.losses import cross_entropy
from arml.nn.networks import Body, Linear


def auxiliary_loss(body: Body, head: Linear | None, task: Task) -> Float[Array, ""] | float:
    """The mean cross-entropy of the support and query images; 0 without a head or classes."""
    if head is None or task.classes is None:
        return 0.0
    features, embed = body.embedded(task.support.x)
    features = jnp.concatenate([features, embed(task.query.x)])
    classes = task.classes[jnp.concatenate([task.support.y, task.query.y])]
    return cross_entropy(head(features), classes)
