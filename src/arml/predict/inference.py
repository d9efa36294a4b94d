"""Adapt once, compile once, and predict for any number of inputs."""

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from arml.algorithms.arml import SoftClusters, Trace
from arml.algorithms.arml_extensions import VertexTrace
from arml.core.compilation import short
from arml.core.episodes import Examples
from arml.core.learner import MetaLearner
from arml.nn.networks import Body
from arml.predict.errors import NotFinite
from arml.predict.inputs import floats

CHUNK = 64
"""Queries predicted at once; fewer are filled up, so that one compiled program serves all."""
WORSE = 4
"""An adaptation that diverges passes this at once; one that has learned little does not."""


def inductive(learner: MetaLearner, support: int | None = None) -> MetaLearner:
    """The same learner as it is used outside of training: normalisation takes the statistics of the
    support set alone, and nothing grows with more examples than the `support` of training."""

    def change(node: PyTree) -> PyTree:
        if isinstance(node, Body):
            return dataclasses.replace(node, normalisation="support")
        return dataclasses.replace(node, most=support) if isinstance(node, SoftClusters) else node

    return jax.tree.map(change, learner, is_leaf=lambda node: isinstance(node, Body | SoftClusters))


def check_fit(predicted: np.ndarray, y: np.ndarray) -> None:
    """Warn of a regression whose error on its own examples is `WORSE` times that of zero."""
    error, size = float(np.mean(np.square(predicted - y))), float(np.mean(np.square(y)))
    if error > WORSE * size:
        warnings.warn(
            f"the learner does not fit the {len(y)} examples: their mean squared error is "
            f"{error:.3g}, where zero as the answer makes {size:.3g}; do not trust its "
            "predictions. Scale inputs and targets to the range of its training",
            stacklevel=2,
        )


@short
def _closure(learner: MetaLearner, support: Examples, like: jax.ShapeDtypeStruct) -> Any:
    adapted = learner.adapt(support, key=jax.random.key(0))
    return eqx.filter_closure_convert(adapted.predict, like)


def adapted_function(
    learner: MetaLearner, support: Examples, features: tuple[int, ...], n: int = 0
) -> Callable[[Array], Array]:
    """The prediction function: adapted once. It is compiled for `CHUNK` inputs; with `n`, it is for
    `n` inputs and not compiled, so that it can be traced."""
    closure = _closure(learner, support, jax.ShapeDtypeStruct((n or CHUNK, *features), jnp.float32))
    return closure if n else short(closure)


def traced(learner: MetaLearner | None, support: Examples) -> Trace | VertexTrace | None:
    """All steps of the encoding of a support set; None for a learner without a graph."""
    if learner is None or learner.reading() is None:
        return None
    return _trace(learner, support)


@short
def _trace(learner: MetaLearner, support: Examples) -> Trace | VertexTrace:
    read = learner.reading()
    assert read is not None
    return read(support)


def by_chunks(
    function: Callable[[Array], Array], x: np.ndarray, width: int
) -> Float[np.ndarray, "n width"]:
    """`[n, *features] -> [n, width]` by a function of `CHUNK` inputs.

    **Raises** `NotFinite`.
    """
    outputs = [np.zeros((0, width), np.float32)]
    for first in range(0, len(x), CHUNK):
        some = floats(x[first : first + CHUNK])
        filled = np.concatenate([some, np.repeat(some[:1], CHUNK - len(some), axis=0)])
        outputs.append(np.asarray(function(jax.device_put(filled)))[: len(some)])
    predicted = np.concatenate(outputs)
    if not np.all(np.isfinite(predicted)):
        raise NotFinite(
            "expected predictions that are finite, got NaN or infinity: the examples are far "
            "from those that the learner was trained on; scale them to its range"
        )
    return predicted
