"""The ONNX operators of JAX's primitives.

Those of `ELEMENTWISE` broadcast their inputs; those of `WHOLE` read arrays of their full shape, and
get the primitive's parameters, its inputs as values, and the shape and type of its output.
"""

from collections.abc import Callable

import numpy as np

from arml.predict.onnx.graph import Graph, prime_of
from arml.predict.onnx.values import Params, Typed, Value


def _operator(name: str) -> Callable[..., str]:
    return lambda graph, names, params: graph.node(name, *names)


def _not_equal(graph: Graph, names: list[str], params: Params) -> str:
    return graph.node("Not", graph.node("Equal", *names))


def _power(graph: Graph, names: list[str], params: Params) -> str:
    return graph.node("Pow", names[0], graph.constant(np.float32(params["y"])))


def _finite(graph: Graph, names: list[str], params: Params) -> str:
    odd = graph.node("Or", graph.node("IsInf", names[0]), graph.node("IsNaN", names[0]))
    return graph.node("Not", odd)


def _one(graph: Graph) -> str:
    return graph.constant(np.float32(1))


ELEMENTWISE: dict[str, Callable[[Graph, list[str], Params], str]] = {
    **{
        primitive: _operator(operator)
        for primitive, operator in {
            "add": "Add",
            "add_any": "Add",
            "sub": "Sub",
            "mul": "Mul",
            "div": "Div",
            "max": "Max",
            "min": "Min",
            "pow": "Pow",
            "neg": "Neg",
            "exp": "Exp",
            "log": "Log",
            "tanh": "Tanh",
            "logistic": "Sigmoid",
            "sqrt": "Sqrt",
            "abs": "Abs",
            "sign": "Sign",
            "floor": "Floor",
            "erf": "Erf",
            "sin": "Sin",
            "cos": "Cos",
            "atan": "Atan",
            "eq": "Equal",
            "lt": "Less",
            "le": "LessOrEqual",
            "gt": "Greater",
            "ge": "GreaterOrEqual",
            "and": "And",
            "or": "Or",
            "not": "Not",
        }.items()
    },
    "ne": _not_equal,
    "is_finite": _finite,
    "square": lambda graph, names, params: graph.node("Mul", names[0], names[0]),
    "integer_pow": _power,
    "rsqrt": lambda graph, names, params: graph.node("Reciprocal", graph.node("Sqrt", names[0])),
    "expm1": lambda graph, names, params: graph.node(
        "Sub", graph.node("Exp", names[0]), _one(graph)
    ),
    "log1p": lambda graph, names, params: graph.node(
        "Log", graph.node("Add", names[0], _one(graph))
    ),
    "select_n": lambda graph, names, params: graph.node("Where", names[0], names[2], names[1]),
    "convert_element_type": lambda graph, names, params: graph.cast(names[0], params["new_dtype"]),
}


def _reshape(
    graph: Graph, names: list[str], params: Params, values: list[Value], out: Typed
) -> str:
    return graph.reshape(names[0], out.shape)


def _reduction(operator: str) -> Callable[..., str]:
    def reduce(
        graph: Graph, names: list[str], params: Params, values: list[Value], out: Typed
    ) -> str:
        axes = graph.integers(*params["axes"])
        if out.dtype != np.bool_:
            return graph.node(operator, names[0], axes, keepdims=0)
        return graph.cast(
            graph.node(operator, graph.cast(names[0], np.int32), axes, keepdims=0), np.bool_
        )

    return reduce


def _place(operator: str) -> Callable[..., str]:
    def place(
        graph: Graph, names: list[str], params: Params, values: list[Value], out: Typed
    ) -> str:
        (axis,) = params["axes"]
        return graph.cast(graph.node(operator, names[0], axis=axis, keepdims=0), out.dtype)

    return place


def _slice(graph: Graph, names: list[str], params: Params, values: list[Value], out: Typed) -> str:
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


def _reverse(
    graph: Graph, names: list[str], params: Params, values: list[Value], out: Typed
) -> str:
    axes = params["dimensions"]
    vectors = [[-1] * len(axes), [np.iinfo(np.int64).min] * len(axes), axes, [-1] * len(axes)]
    return graph.node("Slice", names[0], *(graph.integers(*vector) for vector in vectors))


def _pad(graph: Graph, names: list[str], params: Params, values: list[Value], out: Typed) -> str:
    low, high, between = zip(*params["padding_config"], strict=True)
    if not any((*low, *high, *between)):
        return names[0]
    if min((*low, *high)) < 0 or any(between):
        raise ValueError("expected padding around an array, got padding within it")
    return graph.node("Pad", names[0], graph.integers(*low, *high), names[1])


def _product(
    graph: Graph, names: list[str], params: Params, values: list[Value], out: Typed
) -> str:
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


def _convolution(
    graph: Graph, names: list[str], params: Params, values: list[Value], out: Typed
) -> str:
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


WHOLE: dict[str, Callable[[Graph, list[str], Params, list[Value], Typed], str]] = {
    "reshape": _reshape,
    "squeeze": _reshape,
    "expand_dims": _reshape,
    "transpose": lambda graph, names, params, values, out: graph.node(
        "Transpose", names[0], perm=list(params["permutation"])
    ),
    "concatenate": lambda graph, names, params, values, out: graph.node(
        "Concat", *names, axis=params["dimension"]
    ),
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
