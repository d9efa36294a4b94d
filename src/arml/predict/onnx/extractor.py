"""The frozen model of a learner on features, inside the predictor's own ONNX graph.

The model's nodes and weights are copied, and the steps of `datasets.extractor` before and after
them become nodes: normalisation, the mean over places, and the length of the vectors.
"""

from typing import Any

import numpy as np

from arml.datasets.extractor import Extractor
from arml.predict.onnx.graph import OPSET, Graph

PREFIX = "extractor_"
"""The beginning of the names of the model's own values."""


def extracted(graph: Graph, pixels: str, extractor: Extractor) -> str:
    """The vectors `[n, d]` of `pixels` `[n, size, size, 3]`, floats from 0 to 255.

    **Raises** `ValueError` for a model that cannot be copied: one of a fixed number of pictures, or
    of operators that cannot be brought to ours.
    """
    model = _copied(graph.onnx, extractor)
    mean, std, kind = extractor.normalisation
    if mean is not None:
        share = graph.node("Div", pixels, graph.constant(np.float32(255)))
        centred = graph.node("Sub", share, graph.constant(np.asarray(mean, np.float32)))
        pixels = graph.node("Div", centred, graph.constant(np.asarray(std, np.float32)))
    x = graph.cast(pixels, kind)
    if extractor.input.channels_first:
        x = graph.node("Transpose", x, perm=[0, 3, 1, 2])
    y = graph.cast(graph.inline(model, x, PREFIX + extractor.about["output"]), np.float32)
    if extractor.rank == 4:
        axes = graph.integers(*((2, 3) if extractor.input.channels_first else (1, 2)))
        y = graph.node("ReduceMean", y, axes, keepdims=0)
    if extractor.about["unit"]:
        length = graph.node("ReduceL2", y, graph.integers(1), keepdims=1)
        root = graph.constant(np.float32(extractor.dimension**0.5))
        least = graph.constant(np.float32(1e-12))
        y = graph.node("Div", y, graph.node("Max", graph.node("Div", length, root), least))
    return y


def _copied(onnx: Any, extractor: Extractor) -> Any:
    """The model with names of its own and our version of the operators."""
    if extractor.input.batch is not None:
        raise ValueError(
            f"expected a model for any number of pictures, got {extractor.about['model']} for "
            f"{extractor.input.batch}: export it with a free batch dimension (dynamic_axes), or "
            "run it before a learner that reads vectors"
        )
    model = onnx.load(str(extractor.path))
    versions = {one.domain: one.version for one in model.opset_import}
    if versions.get("", OPSET) != OPSET:
        try:
            model = onnx.version_converter.convert_version(model, OPSET)
        except Exception as error:  # the converter raises RuntimeError and others
            raise ValueError(
                f"expected a model of ONNX operators of version {OPSET}, got version "
                f"{versions['']} of {extractor.about['model']}, which could not be converted "
                f"({' '.join(str(error).split())[:100]}): export it with opset_version={OPSET}"
            ) from error
    return onnx.compose.add_prefix(model, PREFIX)
