"""An adapted predictor as one ONNX file.

The file of a predictor of pictures reads bytes `pictures [n, h, w, 3]` of any size and gives
`probabilities [n, classes]`, columns in the order of the metadata's `classes`, and `novelty [n]`
where it was measured. Tables are read as floats `inputs [n, columns]`; regression gives
`predictions [n, targets]`. Weights, the statistics of the support set, the resizing and the
temperature are inside; a learner on the features of a frozen model has that model inside, too.
"""

import json
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from arml.core.episodes import Examples
from arml.core.novelty import NEAREST, Novelty
from arml.datasets.extractor import Extractor
from arml.experiment.loaded import Portable
from arml.predict.novelty import bounds
from arml.predict.onnx.convert import convert
from arml.predict.onnx.extractor import extracted
from arml.predict.onnx.graph import PRIMES, Graph
from arml.predict.onnx.pictures import resized
from arml.predict.onnx.values import Value, given

QUERIES = PRIMES[0]


def write_predictor(
    path: Path,
    function: Callable[[Array], Array],
    portable: Portable,
    support: Examples,
    classes: np.ndarray | None,
    outputs: int,
    extractor: Extractor | None = None,
) -> None:
    """Write the predictions of an adapted `function`.

    **Arguments**

    - `function`: from inputs `[QUERIES, *features]` to logits or targets `[QUERIES, outputs]`.
    - `support`: the examples that it adapted to.
    - `extractor`: the frozen model that makes the inputs of pictures.

    **Raises** `ValueError` for an operation that ONNX does not have here, or without the package
    `onnx`; `RunError` if the file cannot be written.
    """
    graph, features = Graph(), portable.problem.features
    name = "pictures" if extractor is not None or len(features) == 3 else "inputs"
    x = read_inputs(graph, name, features, QUERIES, "n", extractor)
    graph.metadata = {"features": json.dumps(features)}
    if classes is None:
        answer = convert(graph, function, x)
        graph.add_output(answer.name, "predictions", np.float32, ["n", outputs])
        graph.save(path)
        return
    n = len(classes)

    def chances(x: Array) -> Array:
        return jax.nn.softmax(function(x)[:, :n] / jnp.float32(portable.temperature))

    answer = convert(graph, chances, x)
    graph.add_output(answer.name, "probabilities", np.float32, ["n", n])
    graph.metadata["classes"] = json.dumps(classes.tolist())
    embedding, known = portable.learner.embedding(), portable.novelty
    at = None if known is None else bounds(portable, support)[1]
    if embedding is not None and known is not None and at is not None:
        distance = _novelty(graph, convert(graph, embedding(support.x), x).name, known, at)
        graph.add_output(distance, "novelty", np.float32, ["n"])
    graph.save(path)


def read_inputs(
    graph: Graph,
    name: str,
    features: tuple[int, ...],
    prime: int,
    count: str,
    extractor: Extractor | None = None,
) -> Value:
    """An input of the file, as the learner's floats."""
    if extractor is None and len(features) < 3:
        value = graph.add_input(name, np.float32, [count, *features])
        graph.set_length(prime, value)
        return given(value, (prime, *features), np.float32)
    value = graph.add_input(name, np.uint8, [count, f"{name}_height", f"{name}_width", 3])
    graph.set_length(prime, value)
    if extractor is not None:
        value = extracted(graph, resized(graph, value, extractor.size), extractor)
    else:
        pixels = resized(graph, value, features[0])
        value = graph.node("Div", pixels, graph.constant(np.float32(255)))
    return given(value, (prime, *features), np.float32)


def _novelty(graph: Graph, vectors: str, known: Novelty, bound: float) -> str:
    """`Novelty.distances` over the bound of queries, in double precision."""
    scale = known.scale()
    bank = known.bank.astype(np.float64) / scale
    x = graph.node("Div", graph.cast(vectors, np.float64), graph.constant(scale))
    # The bank is kept as it is: it is most of the file.
    kept = graph.cast(graph.constant(known.bank.T), np.float64)
    scaled = graph.node("Div", kept, graph.constant(scale[:, None]))
    product = graph.node("MatMul", x, scaled)
    twice = graph.node("Mul", product, graph.constant(np.float64(2)))
    own = graph.node("ReduceSum", graph.node("Mul", x, x), graph.integers(1), keepdims=1)
    squares = graph.node("Sub", own, twice)
    squares = graph.node("Add", squares, graph.constant(np.sum(bank**2, axis=1)))
    squares = graph.node("Max", squares, graph.constant(np.float64(0)))
    roots = graph.node("Sqrt", squares)
    count = graph.integers(min(NEAREST, len(bank)))
    nearest = graph.node("TopK", roots, count, axis=1, largest=0, outputs=2)
    mean = graph.node("ReduceMean", nearest, graph.integers(1), keepdims=0)
    return graph.cast(graph.node("Div", mean, graph.constant(np.float64(bound))), np.float32)
