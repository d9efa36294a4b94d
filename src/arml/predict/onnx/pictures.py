"""Pictures of any size as the learner's own, inside an ONNX graph. As in `datasets.decode.resize`,
areas are averaged or pixels interpolated, and the result is rounded to bytes.

Resizing is a product with a matrix on each side. The matrices are computed from the picture's size
when the file runs: an output pixel of an area average weighs each input pixel by their overlap; one
of a bilinear interpolation weighs its two neighbours by their distance.
"""

import numpy as np

from arml.predict.onnx.graph import Graph


def resized(graph: Graph, pictures: str, size: int) -> str:
    """Bytes `[n, h, w, 3]` to whole numbers from 0 to 255, as floats `[n, size, size, 3]`."""
    x = graph.cast(pictures, np.float32)
    lengths = [graph.node("Shape", pictures, start=axis, end=axis + 1) for axis in (1, 2)]
    wanted = graph.integers(size)
    shrunk = [graph.node("Min", length, wanted) for length in lengths]
    for matrix, sources, targets in (
        (_areas, lengths, shrunk),
        (_neighbours, shrunk, [wanted, wanted]),
    ):
        for axis, (source, target) in enumerate(zip(sources, targets, strict=True)):
            x = _along(graph, x, matrix(graph, source, target), axis)
        x = graph.node("Round", x)  # half to even, as OpenCV
    return graph.reshape(x, (-1, size, size, 3))


def _along(graph: Graph, x: str, matrix: str, axis: int) -> str:
    """`matrix @ x` along the rows (0) or the columns (1) of `[n, h, w, 3]`."""
    order = [0, 1, 2, 3] if axis == 0 else [0, 2, 1, 3]
    x = graph.node("Transpose", x, perm=order)
    shape = graph.node("Shape", x)
    flat = graph.node("Reshape", x, graph.integers(0, 0, -1))
    product = graph.node("MatMul", matrix, flat)
    length = graph.node("Shape", matrix, start=0, end=1)
    parts = [graph.node("Slice", shape, graph.integers(i), graph.integers(i + 1)) for i in (0, 2)]
    whole = graph.node(
        "Reshape",
        product,
        graph.node("Concat", parts[0], length, parts[1], graph.integers(3), axis=0),
    )
    return graph.node("Transpose", whole, perm=order)


def _positions(graph: Graph, length: str, shape: tuple[int, int]) -> str:
    """0, 1, 2, ... as a column or a row, in double precision."""
    scalar = graph.node("Squeeze", length)
    zero, one = graph.constant(np.int64(0)), graph.constant(np.int64(1))
    counted = graph.cast(graph.node("Range", zero, scalar, one), np.float64)
    return graph.node("Reshape", counted, graph.integers(*shape))


def _areas(graph: Graph, source: str, target: str) -> str:
    """The share of each input pixel in each output pixel `[target, source]`."""
    i, j = _positions(graph, target, (-1, 1)), _positions(graph, source, (1, -1))
    one, zero = graph.constant(np.float64(1)), graph.constant(np.float64(0))
    scale = _ratio(graph, source, target)
    low, high = graph.node("Mul", i, scale), graph.node("Mul", graph.node("Add", i, one), scale)
    start, end = graph.node("Max", low, j), graph.node("Min", high, graph.node("Add", j, one))
    overlap = graph.node("Max", graph.node("Sub", end, start), zero)
    return graph.cast(graph.node("Div", overlap, scale), np.float32)


def _neighbours(graph: Graph, source: str, target: str) -> str:
    """The weight of each input pixel in each interpolated one `[target, source]`."""
    i, j = _positions(graph, target, (-1, 1)), _positions(graph, source, (1, -1))
    half, one, zero = (graph.constant(np.float64(value)) for value in (0.5, 1, 0))
    centre = graph.node("Mul", graph.node("Add", i, half), _ratio(graph, source, target))
    last = graph.node("Sub", graph.cast(source, np.float64), one)
    place = graph.node("Max", graph.node("Sub", centre, half), zero)
    away = graph.node("Abs", graph.node("Sub", graph.node("Min", place, last), j))
    return graph.cast(graph.node("Max", graph.node("Sub", one, away), zero), np.float32)


def _ratio(graph: Graph, source: str, target: str) -> str:
    """How many input pixels an output pixel has."""
    return graph.node("Div", graph.cast(source, np.float64), graph.cast(target, np.float64))
