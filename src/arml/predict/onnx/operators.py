"""The ONNX operators of JAX's primitives.

Those of `ELEMENTWISE` broadcast their inputs; those of `WHOLE` read arrays of their full shape.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from arml.predict.onnx.graph import Graph, prime_of
from arml.predict.onnx.values import Params, Typed, Value


class Call(NamedTuple):
    """One operation of the traced function."""

    graph: Graph
    names: list[str]
    """Its inputs in the graph."""
    params: Params
    """The primitive's parameters."""
    values: list[Value]
    """Its inputs as values."""
    out: Typed
    """The shape and the type of its output."""

    def node(self, operator: str, **attributes: Any) -> str:
        """The operator of the inputs."""
        return self.graph.node(operator, *self.names, **attributes)

    def with_one(self, operator: str, name: str) -> str:
        """The operator of a number and 1."""
        return self.graph.node(operator, name, self.graph.constant(np.float32(1)))


def _operator(name: str) -> Callable[[Call], str]:
    return lambda call: call.node(name)


def _finite(call: Call) -> str:
    odd = call.graph.node("Or", call.node("IsInf"), call.node("IsNaN"))
    return call.graph.node("Not", odd)


NAMESAKES = (
    *("add", "sub", "mul", "div", "max", "min", "pow", "neg", "exp", "log", "tanh", "sqrt"),
    *("abs", "sign", "floor", "erf", "sin", "cos", "atan", "and", "or", "not"),
)
"""Primitives whose operators have the same names."""
OTHERS = {
    "add_any": "Add",
    "logistic": "Sigmoid",
    "eq": "Equal",
    "lt": "Less",
    "le": "LessOrEqual",
    "gt": "Greater",
    "ge": "GreaterOrEqual",
}
ELEMENTWISE: dict[str, Callable[[Call], str]] = {
    **{name: _operator(name.capitalize()) for name in NAMESAKES},
    **{name: _operator(operator) for name, operator in OTHERS.items()},
    "ne": lambda call: call.graph.node("Not", call.node("Equal")),
    "is_finite": _finite,
    "square": lambda call: call.graph.node("Mul", call.names[0], call.names[0]),
    "integer_pow": lambda call: call.graph.node(
        "Pow", call.names[0], call.graph.constant(np.float32(call.params["y"]))
    ),
    "rsqrt": lambda call: call.graph.node("Reciprocal", call.node("Sqrt")),
    "expm1": lambda call: call.with_one("Sub", call.node("Exp")),
    "log1p": lambda call: call.graph.node("Log", call.with_one("Add", call.names[0])),
    "select_n": lambda call: call.graph.node("Where", *(call.names[i] for i in (0, 2, 1))),
    "convert_element_type": lambda call: call.graph.cast(call.names[0], call.params["new_dtype"]),
}


def _reshape(call: Call) -> str:
    return call.graph.reshape(call.names[0], call.out.shape)


def _reduction(operator: str) -> Callable[[Call], str]:
    def reduce(call: Call) -> str:
        graph, (name,) = call.graph, call.names
        axes, logical = graph.integers(*call.params["axes"]), call.out.dtype == np.bool_
        name = graph.cast(name, np.int32) if logical else name
        reduced = graph.node(operator, name, axes, keepdims=0)
        return graph.cast(reduced, np.bool_) if logical else reduced

    return reduce


def _place(operator: str) -> Callable[[Call], str]:
    def place(call: Call) -> str:
        (axis,) = call.params["axes"]
        return call.graph.cast(call.node(operator, axis=axis, keepdims=0), call.out.dtype)

    return place


def _slice(call: Call) -> str:
    graph, names, params, values, _ = call
    starts, ends, strides = params["start_indices"], params["limit_indices"], params["strides"]
    axes = [
        i
        for i, size in enumerate(values[0].shape)
        if (starts[i], ends[i]) != (0, size) or (strides and strides[i] != 1)
    ]
    if any(prime_of(values[0].shape[i]) for i in axes):
        raise ValueError("expected a learner that reads all examples, got one that takes a part")
    steps = [strides[i] if strides else 1 for i in axes]
    vectors = [[starts[i] for i in axes], [ends[i] for i in axes], axes, steps]
    return graph.node("Slice", names[0], *(graph.integers(*vector) for vector in vectors))


def _reverse(call: Call) -> str:
    graph, names, params, *_ = call
    axes = params["dimensions"]
    vectors = [[-1] * len(axes), [np.iinfo(np.int64).min] * len(axes), axes, [-1] * len(axes)]
    return graph.node("Slice", names[0], *(graph.integers(*vector) for vector in vectors))


def _pad(call: Call) -> str:
    graph, names, params, *_ = call
    low, high, between = zip(*params["padding_config"], strict=True)
    if not any((*low, *high, *between)):
        return names[0]
    if min((*low, *high)) < 0 or any(between):
        raise ValueError("expected padding around an array, got padding within it")
    return graph.node("Pad", names[0], graph.integers(*low, *high), names[1])


def _product(call: Call) -> str:
    graph, names, params, values, _ = call
    (left, right), (left_batch, right_batch) = params["dimension_numbers"]
    ranks = [len(value.shape) for value in values]
    if ranks == [2, 2] and (tuple(left), tuple(right)) == ((1,), (0,)) and not left_batch:
        return graph.node("MatMul", *names)
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    first = [next(letters) for _ in range(ranks[0])]
    second = [next(letters) for _ in range(ranks[1])]
    for i, j in zip((*left, *left_batch), (*right, *right_batch), strict=True):
        second[j] = first[i]
    result = [first[i] for i in left_batch]
    result += [a for i, a in enumerate(first) if i not in {*left, *left_batch}]
    result += [b for j, b in enumerate(second) if j not in {*right, *right_batch}]
    equation = f"{''.join(first)},{''.join(second)}->{''.join(result)}"
    return graph.node("Einsum", *names, equation=equation)


def _convolution(call: Call) -> str:
    graph, names, params, *_ = call
    numbers = params["dimension_numbers"]
    if {*params["lhs_dilation"]} != {1} or params["batch_group_count"] != 1:
        raise ValueError("expected a plain convolution, got one with a dilated input")
    x = graph.node("Transpose", names[0], perm=list(numbers.lhs_spec))
    kernel = graph.node("Transpose", names[1], perm=list(numbers.rhs_spec))
    low, high = zip(*params["padding"], strict=True)
    convolved = graph.node(
        "Conv",
        x,
        kernel,
        strides=list(params["window_strides"]),
        pads=[*low, *high],
        dilations=list(params["rhs_dilation"]),
        group=params["feature_group_count"],
    )
    back = [int(i) for i in np.argsort(numbers.out_spec)]
    return graph.node("Transpose", convolved, perm=back)


WHOLE: dict[str, Callable[[Call], str]] = {
    "reshape": _reshape,
    "squeeze": _reshape,
    "expand_dims": _reshape,
    "transpose": lambda call: call.node("Transpose", perm=list(call.params["permutation"])),
    "concatenate": lambda call: call.node("Concat", axis=call.params["dimension"]),
    "reduce_sum": _reduction("ReduceSum"),
    "reduce_max": _reduction("ReduceMax"),
    "reduce_min": _reduction("ReduceMin"),
    "reduce_or": _reduction("ReduceMax"),
    "reduce_and": _reduction("ReduceMin"),
    "argmax": _place("ArgMax"),
    "argmin": _place("ArgMin"),
    "slice": _slice,
    "rev": _reverse,
    "pad": _pad,
    "dot_general": _product,
    "conv_general_dilated": _convolution,
}
