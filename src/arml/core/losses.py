"""Losses and scores. All are means over examples, so that an inner rate means the same at any
number of shots (a loss's reduction is a step size)."""

import math
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from arml.core.episodes import Problem


def single(x: Float[Array, "*any"]) -> Float[Array, "*any"]:
    """In 32 bits if `x` has fewer: a sum of squares or of exponentials needs them."""
    return x.astype(jnp.float32) if x.dtype.itemsize < 4 else x


def mse(predictions: Float[Array, "n targets"], y: Float[Array, "n targets"]) -> Float[Array, ""]:
    """Mean squared error.

    **Raises** `ValueError` for predictions of another shape than the targets, because JAX would
    broadcast them.
    """
    if predictions.shape != y.shape:
        raise ValueError(
            f"expected predictions of shape {y.shape}, as the targets, got {predictions.shape}: "
            "change the network, or the function that adapt returns"
        )
    return jnp.mean(jnp.square(single(predictions) - single(y)))


def cross_entropy(logits: Float[Array, "n ways"], y: Int[Array, " n"]) -> Float[Array, ""]:
    """Mean cross-entropy of integer classes, in nats."""
    picked = jnp.take_along_axis(jax.nn.log_softmax(single(logits)), y[:, None], axis=-1)
    return -jnp.mean(picked)


def accuracy(logits: Float[Array, "n ways"], y: Int[Array, " n"]) -> Float[Array, ""]:
    """Share of the examples whose largest logit is the right class, in [0, 1]."""
    return jnp.mean((jnp.argmax(logits, axis=-1) == y).astype(logits.dtype))


def loss_of(problem: Problem) -> Callable[[Array, Array], Float[Array, ""]]:
    """The loss of a problem: `mse` for regression, `cross_entropy` for classification. Both map
    outputs `[n, outputs]` and targets to the mean over the examples.

        from arml.core.losses import loss_of

        loss = loss_of(problem)
        loss(jnp.zeros((5, 1)), jnp.ones((5, 1)))
    """
    return {"regression": mse, "classification": cross_entropy}[problem.kind]


def score_of(problem: Problem) -> tuple[str, Callable[[Array, Array], Float[Array, ""]]]:
    """The name and function of the score reported for a problem: mse or accuracy."""
    return {"regression": ("mse", mse), "classification": ("accuracy", accuracy)}[problem.kind]


def log_mean_probability(logits: Float[Array, "members n ways"]) -> Float[Array, "n ways"]:
    """For classification: the logarithm of the members' mean probability of each class."""
    total = jax.nn.logsumexp(jax.nn.log_softmax(logits), axis=0)
    return total - math.log(len(logits))


def combine_of(problem: Problem) -> Callable[[Array], Float[Array, "n outputs"]]:
    """Maps the outputs `[members, n, outputs]` of an ensemble's members to its own: to their mean
    for regression."""
    return partial(jnp.mean, axis=0) if problem.kind == "regression" else log_mean_probability
