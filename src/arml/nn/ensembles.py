"""Several predictions of the same examples, combined to one."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from arml.core.episodes import Problem

Combine = Callable[[Float[Array, "members n outputs"]], Float[Array, "n outputs"]]
"""Maps the members' outputs to those of the ensemble."""


def mean_prediction(predictions: Float[Array, "members n targets"]) -> Float[Array, "n targets"]:
    """For regression: the mean."""
    return jnp.mean(predictions, axis=0)


def log_mean_probability(logits: Float[Array, "members n ways"]) -> Float[Array, "n ways"]:
    """For classification: the logarithm of the members' mean probability of each class."""
    total = jax.nn.logsumexp(jax.nn.log_softmax(logits), axis=0)
    return total - math.log(len(logits))


def combine_of(problem: Problem) -> Combine:
    """How an ensemble predicts for a problem."""
    return mean_prediction if problem.kind == "regression" else log_mean_probability
