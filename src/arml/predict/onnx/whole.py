"""A metric learner as a whole as one ONNX file, so that learning itself runs without JAX.

The file reads `support`, `labels` (numbers from 0) and `query`, pictures as bytes of any size, and
gives the `probabilities` of the queries' classes. A learner that adapts by gradients cannot be
written in this way; its adapted predictors can.
"""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from arml.core.episodes import Examples
from arml.core.inner import steps_of
from arml.experiment.loaded import Portable
from arml.predict.classes import for_classes
from arml.predict.onnx.convert import convert
from arml.predict.onnx.graph import PRIMES, Graph
from arml.predict.onnx.values import given
from arml.predict.onnx.write import read_inputs

QUERIES, SUPPORT = PRIMES


def write_learner_file(portable: Portable, path: Path, ways: int) -> None:
    """Write the learner for up to `ways` classes; a class without examples has probability 0.

    **Raises** `ValueError` for a learner that is no metric learner, and as `write_predictor`.
    """
    problem = portable.problem
    learner = for_classes(portable, ways)
    if problem.kind != "classification" or learner is None or steps_of(learner):
        raise ValueError(
            f"expected a metric learner (ProtoNet, TADAM, VERSA), got {portable.experiment.recipe}"
            ": export a predictor that has adapted, as `arml adapt --save` keeps it"
        )
    graph, features = Graph(), problem.features
    support = read_inputs(graph, "support", features, SUPPORT, "examples")
    labels = graph.add_input("labels", np.int64, ["examples"])
    y = given(graph.cast(labels, np.int32), (SUPPORT,), np.int32)
    query = read_inputs(graph, "query", features, QUERIES, "n")

    def chances(x: Array, y: Array, query: Array) -> Array:
        adapted = learner.adapt(Examples(x, y), key=jax.random.key(0))
        return jax.nn.softmax(adapted.predict(query) / jnp.float32(portable.temperature))

    answer = convert(graph, chances, support, y, query)
    graph.add_output(answer.name, "probabilities", np.float32, ["n", max(ways, problem.outputs)])
    graph.metadata = {"features": json.dumps(features)}
    graph.save(path)
