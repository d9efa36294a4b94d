"""Adapt once, compile once, and predict for any number of inputs."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from arml.core.compilation import short
from arml.core.episodes import Examples
from arml.core.learner import MetaLearner
from arml.nn.networks import Body

CHUNK = 64
"""Queries predicted at once; fewer are filled up, so that one compiled program serves all."""


def inductive(learner: MetaLearner) -> MetaLearner:
    """The same learner with normalisation by the support set's statistics alone."""

    def change(node: Any) -> Any:
        return dataclasses.replace(node, normalisation="support") if _is_body(node) else node

    changed: MetaLearner = jax.tree.map(change, learner, is_leaf=_is_body)
    return changed


def _is_body(node: Any) -> bool:
    return isinstance(node, Body)


@short
def _closure(learner: MetaLearner, support: Examples, like: Array) -> Any:
    adapted = learner.adapt(support, key=jax.random.key(0))
    return eqx.filter_closure_convert(adapted.predict, like)


def adapted_function(
    learner: MetaLearner, support: Examples, features: tuple[int, ...]
) -> Callable[[Array], Array]:
    """The prediction function for `CHUNK` inputs: adapted once, compiled once."""
    like = jnp.zeros((CHUNK, *features), jnp.float32)
    function: Callable[[Array], Array] = short(_closure(learner, support, like))
    return function


def by_chunks(
    function: Callable[[Array], Array], x: np.ndarray, width: int
) -> Float[np.ndarray, "n width"]:
    """`[n, *features] -> [n, width]` by a function of `CHUNK` inputs."""
    outputs = [np.zeros((0, width), np.float32)]
    for first in range(0, len(x), CHUNK):
        some = floats(x[first : first + CHUNK])
        filled = np.concatenate([some, np.repeat(some[:1], CHUNK - len(some), axis=0)])
        outputs.append(np.asarray(function(jnp.asarray(filled)))[: len(some)])
    return np.concatenate(outputs)


def floats(x: np.ndarray) -> np.ndarray:
    """Pixels of bytes as floats in [0, 1]."""
    return (x / np.float32(255)).astype(np.float32) if x.dtype == np.uint8 else x
