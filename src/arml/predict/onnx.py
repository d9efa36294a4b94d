"""Predictors and metric learners as ONNX files, which run without JAX: on a phone, in a browser.

The file of a predictor of pictures reads bytes `pictures [n, h, w, 3]` of any size and gives
`probabilities [n, classes]`, columns in the order of the metadata's `classes`. Tables are read as
floats `inputs [n, columns]`; regression gives `predictions [n, targets]`. Weights, the statistics
of the support set, the resizing and the temperature are inside; a learner on the features of a
frozen model has that model inside, too.

The file of a whole metric learner reads `support`, `labels` (numbers from 0) and `query`, and gives
the `probabilities` of the queries' classes. A learner that adapts by gradients cannot be written in
this way; its adapted predictors can.

A traced JAX function becomes ONNX operators one primitive at a time. It is traced for a prime
number of examples, and a dimension that is a multiple of the prime becomes one that is known only
when the file runs. An array that was broadcast keeps its small shape as long as only operators read
it that broadcast on their own.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, SupportsIndex, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun
from jaxtyping import Array, DTypeLike, PyTree
from numpy.typing import ArrayLike

from arml.core.episodes import Examples, Problem
from arml.core.learner import MetaLearner
from arml.datasets.features import Extractor
from arml.nn.heads import shrunk_by_products
from arml.results.files import JsonView, extra, write_bytes

Shape = tuple[int, ...]
Params = JsonView
"""Parameters of a primitive of JAX, each of its own type."""


@runtime_checkable
class Typed(Protocol):
    """A shape and a type: an array, or a description of one."""

    @property
    def shape(self) -> Shape: ...

    @property
    def dtype(self) -> np.dtype: ...


@dataclass(frozen=True, eq=False)
class Value:
    """A variable of the traced function: a constant, or the output of a node."""

    shape: Shape
    dtype: Any  # NumPy's, or JAX's own for a random key
    own: Shape
    """The shape of the stored array; its dimensions of 1 are still to be broadcast to `shape`."""
    array: PyTree = None
    name: str = ""


def constant(array: PyTree) -> Value:
    """A value that is known now."""
    shape = tuple(np.shape(array))
    return Value(shape, array.dtype, shape, array=array)


def given(name: str, shape: Shape, dtype: DTypeLike) -> Value:
    """A value that is known when the file runs."""
    return Value(shape, np.dtype(dtype), shape, name=name)


OPSET = 18
"""Version of the operators."""
IR = 9
"""Version of the file format."""
PRIMES = (1009, 1013)
"""Numbers of queries, and of support examples, that functions are traced for."""
EXACT = 2**24
"""Whole numbers up to here are exact in single precision."""


class Graph:
    """Nodes in the order in which they run, and the constants that they read."""

    def __init__(self) -> None:
        self.onnx = extra("onnx", "onnx", "ONNX files")
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.metadata: dict[str, str] = {}
        self._constants: dict[tuple[bytes, str, tuple[int, ...]], tuple[str, Any]] = {}
        self._lengths: dict[int, str] = {}
        self._copied: list[Any] = []

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add an operator; returns the name of its output, or of its first one."""
        outputs = attributes.pop("outputs", 1)
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(self.onnx.helper.make_node(operator, list(inputs), names, **attributes))
        return names[0]

    def constant(self, array: ArrayLike) -> str:
        """The name of a constant; equal ones are kept once."""
        array = np.asarray(array, order="C")
        key = (array.tobytes(), array.dtype.str, array.shape)
        if key not in self._constants:
            name = f"c{len(self._constants)}"
            self._constants[key] = name, self.onnx.numpy_helper.from_array(array, name)
        return self._constants[key][0]

    def integers(self, *values: SupportsIndex) -> str:
        """A constant vector of integers."""
        return self.constant(np.asarray(values, np.int64))

    def add_input(self, name: str, dtype: DTypeLike, shape: Sequence[int | str]) -> str:
        """An input of the file; a dimension that is a name may have any length."""
        kind = self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self.inputs.append(self.onnx.helper.make_tensor_value_info(name, kind, list(shape)))
        return name

    def add_output(
        self, value: str, name: str, dtype: DTypeLike, shape: Sequence[int | str]
    ) -> None:
        """Give a value a name as an output of the file."""
        self.nodes.append(self.onnx.helper.make_node("Identity", [value], [name]))
        kind = self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self.outputs.append(self.onnx.helper.make_tensor_value_info(name, kind, list(shape)))

    def inline(self, model: Any, given: str, output: str) -> str:
        """Copy the nodes and weights of a model with one input; returns its output's name. No name
        of the model may be one of this graph."""
        weights = {tensor.name for tensor in model.graph.initializer}
        (own,) = (value.name for value in model.graph.input if value.name not in weights)
        self.nodes.append(self.onnx.helper.make_node("Identity", [given], [own]))
        self.nodes += model.graph.node
        self._copied.append(model)
        return output

    def set_length(self, prime: int, value: str) -> None:
        """The dimension that `prime` stands for is the length of `value`."""
        self._lengths[prime] = self.node("Shape", value, start=0, end=1)

    def shape(self, sizes: Sequence[int]) -> str:
        """A shape as a vector: multiples of a prime are known when the file runs."""
        if not any(map(prime_of, sizes)):
            return self.integers(*sizes)
        parts = []
        for size in sizes:
            prime = prime_of(size)
            if not prime:
                parts.append(self.integers(size))
                continue
            times = self.integers(size // prime)
            length = self._lengths[prime]
            parts.append(length if size == prime else self.node("Mul", length, times))
        return self.node("Concat", *parts, axis=0) if len(parts) > 1 else parts[0]

    def number(self, value: np.ndarray) -> str | None:
        """The name of a scalar that counts examples, such as the divisor of a mean; None for any
        other number.

        **Raises** `ValueError` for a number so large that single precision rounds it.
        """
        if value.dtype.kind != "f" or not np.isfinite(value):
            return None
        if EXACT < value < EXACT**2:
            raise ValueError("expected pictures of at most 128 pixels a side, got larger ones")
        prime = prime_of(int(value)) if value == int(value) and value > 0 else 0
        if not prime:
            return None
        times = self.node("Mul", self._lengths[prime], self.integers(int(value) // prime))
        return self.cast(self.node("Squeeze", times), value.dtype)

    def reshape(self, value: str, sizes: Sequence[int]) -> str:
        """`value` in another shape."""
        if sum(bool(prime_of(size)) for size in sizes) == 1 and 0 not in sizes:
            shape = self.integers(*(-1 if prime_of(size) else size for size in sizes))
        else:
            shape = self.shape(sizes)
        return self.node("Reshape", value, shape)

    def cast(self, value: str, dtype: DTypeLike) -> str:
        """`value` with another type of numbers."""
        to = self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self.node("Cast", value, to=to)

    def save(self, path: Path) -> None:
        """Check the graph and write it.

        **Raises** `RunError` if the file cannot be written.
        """
        helper = self.onnx.helper
        graph = helper.make_graph(
            self.nodes,
            "arml",
            self.inputs,
            self.outputs,
            initializer=[
                *(tensor for _, tensor in self._constants.values()),
                *(tensor for model in self._copied for tensor in model.graph.initializer),
            ],
        )
        more = {(one.domain, one.version) for model in self._copied for one in model.opset_import}
        more -= {("", OPSET)}
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid(*one) for one in (("", OPSET), *sorted(more))],
            functions=[function for model in self._copied for function in model.functions],
            ir_version=IR,
            producer_name="arml",
        )
        helper.set_model_props(model, self.metadata)
        self.onnx.checker.check_model(model, full_check=True)
        write_bytes(path, model.SerializeToString())


def prime_of(size: int) -> int:
    """The prime that `size` is a multiple of; 0 for a size that is known."""
    return next((prime for prime in PRIMES if size and size % prime == 0), 0)


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


def convert(graph: Graph, function: Callable[..., Array], *inputs: Value) -> Value:
    """Add the operations of `function` on the inputs to the graph; returns its one result, whole.

    **Raises** `ValueError` if it uses a primitive that has no operator here.
    """
    like = [jax.ShapeDtypeStruct(value.shape, value.dtype) for value in inputs]
    traced = jax.make_jaxpr(function)(*like)
    (result,) = _run(graph, traced.jaxpr, [constant(c) for c in traced.consts], inputs)
    return replace(result, name=_whole(graph, result), own=result.shape, array=None)


def _run(
    graph: Graph, jaxpr: Jaxpr, consts: Sequence[Value], inputs: Sequence[Value]
) -> list[Value]:
    known: dict[Var, Value] = {}
    known.update(zip(jaxpr.constvars, consts, strict=True))
    known.update(zip(jaxpr.invars, inputs, strict=True))

    def read(atom: Var | Literal) -> Value:
        if isinstance(atom, Literal):
            literal = np.asarray(atom.val, _typed(atom).dtype)
            count = graph.number(literal) if literal.ndim == 0 else None
            return constant(literal) if count is None else given(count, (), literal.dtype)
        return known[atom]

    for equation in jaxpr.eqns:
        values = [read(atom) for atom in equation.invars]
        known.update(zip(equation.outvars, _equation(graph, equation, values), strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _equation(graph: Graph, equation: JaxprEqn, values: list[Value]) -> list[Value]:
    name, params = equation.primitive.name, equation.params
    inner = next((params[key] for key in ("jaxpr", "call_jaxpr", "call") if key in params), None)
    known = all(value.array is not None and value.own == value.shape for value in values)
    sizes = [size for out in equation.outvars for size in _typed(out).shape]
    if name == "jit" and known and not any(map(prime_of, sizes)):
        # Random numbers are drawn here: ONNX has no such bits.
        return [constant(each) for each in jaxpr_as_fun(inner)(*(v.array for v in values))]
    if params.get("name") in INSTEAD:
        inner = jax.make_jaxpr(INSTEAD[params["name"]])(*(v.aval for v in equation.invars))
    if inner is not None and name not in LOOPS:
        return _run(graph, inner.jaxpr, [constant(c) for c in inner.consts], values)
    out = _typed(equation.outvars[0])
    if name in SAME:
        return [values[0]]
    if name in BROADCASTS:
        return [BROADCASTS[name](graph, values, params, out)]
    if known and any(value.dtype != np.float32 for value in values):
        return _now(equation, values)
    if name in ELEMENTWISE:
        own = np.broadcast_shapes(*(value.own for value in values))
        names = [_small(graph, value) for value in values]
        result = ELEMENTWISE[name](Call(graph, names, params, values, out))
        return [Value(out.shape, out.dtype, own, name=result)]
    if name in WHOLE:
        names = [_whole(graph, value) for value in values]
        result = WHOLE[name](Call(graph, names, params, values, out))
        return [Value(out.shape, out.dtype, out.shape, name=result)]
    if known:
        return _now(equation, values)
    raise ValueError(
        f"expected a learner whose operations ONNX has, got one that uses {name}: export another "
        "method, or a predictor that has adapted"
    )


def _typed(variable: Var | Literal) -> Typed:
    """Its shape and type: every variable here is an array."""
    assert isinstance(variable.aval, Typed)
    return variable.aval


def _now(equation: JaxprEqn, values: list[Value]) -> list[Value]:
    """The outputs of an operation on constants."""
    results = equation.primitive.bind(*(value.array for value in values), **equation.params)
    return [constant(r) for r in (results if equation.primitive.multiple_results else [results])]


def _small(graph: Graph, value: Value) -> str:
    """The name of the stored array."""
    return value.name if value.array is None else graph.constant(value.array)


def _whole(graph: Graph, value: Value) -> str:
    """The name of the value in its full shape."""
    name = _small(graph, value)
    if value.own == value.shape:
        return name
    return graph.node("Expand", name, graph.shape(value.shape))


INSTEAD = {"shrunk": shrunk_by_products}
"""By the names of compiled functions whose operators ONNX lacks: others that give the same."""
SAME = {"stop_gradient", "copy", "copy_p", "sharding_constraint", "optimization_barrier"}
LOOPS = {"scan", "while", "cond"}


def _broadcast(graph: Graph, values: list[Value], params: Params, out: Typed) -> Value:
    own = [1] * len(out.shape)
    for place, size in zip(params["broadcast_dimensions"], values[0].own, strict=True):
        own[place] = size
    value = values[0]
    if value.array is not None:
        return Value(out.shape, out.dtype, tuple(own), array=np.reshape(value.array, own))
    name = value.name if tuple(own) == value.own else graph.reshape(value.name, own)
    return Value(out.shape, out.dtype, tuple(own), name=name)


def _iota(graph: Graph, values: list[Value], params: Params, out: Typed) -> Value:
    place = params["dimension"]
    if prime_of(out.shape[place]):
        raise ValueError("expected a learner that does not count its examples, got one that does")
    own = [out.shape[place] if i == place else 1 for i in range(len(out.shape))]
    array = np.arange(out.shape[place]).astype(out.dtype).reshape(own)
    return Value(out.shape, out.dtype, tuple(own), array=array)


BROADCASTS: dict[str, Callable[[Graph, list[Value], Params, Typed], Value]] = {
    "broadcast_in_dim": _broadcast,
    "iota": _iota,
}


def _cropped(graph: Graph, pictures: str) -> str:
    """Pictures `[n, h, w, 3]` without the ends of their longer side, as `decode.cropped`."""
    sides = graph.node("Shape", pictures, start=1, end=3)
    product = graph.cast(graph.node("ReduceProd", sides, keepdims=1), np.float64)
    kept = graph.cast(graph.node("Floor", graph.node("Sqrt", product)), np.int64)
    cut = graph.node("Max", graph.node("Sub", sides, kept), graph.integers(0))
    first = graph.node("Div", cut, graph.integers(2))
    last = graph.node("Add", first, graph.node("Min", sides, kept))
    return graph.node("Slice", pictures, first, last, graph.integers(1, 2))


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


PREFIX = "extractor_"
"""The beginning of the names of the model's own values."""


def extracted(graph: Graph, pixels: str, extractor: Extractor) -> str:
    """The vectors `[n, d]` of `pixels` `[n, size, size, 3]`, floats from 0 to 255.

    **Raises** `ValueError` for a model that cannot be copied: one of a fixed number of pictures, or
    of operators that cannot be brought to ours.
    """
    model = _copied(graph.onnx, extractor)
    mean, std = extractor.mean, extractor.std
    if mean is not None:
        share = graph.node("Div", pixels, graph.constant(np.float32(255)))
        centred = graph.node("Sub", share, graph.constant(np.asarray(mean, np.float32)))
        pixels = graph.node("Div", centred, graph.constant(np.asarray(std, np.float32)))
    x = graph.cast(pixels, extractor.kind)
    if extractor.channels_first:
        x = graph.node("Transpose", x, perm=[0, 3, 1, 2])
    y = graph.cast(graph.inline(model, x, PREFIX + extractor.about["output"]), np.float32)
    if extractor.rank == 4:
        axes = graph.integers(*((2, 3) if extractor.channels_first else (1, 2)))
        y = graph.node("ReduceMean", y, axes, keepdims=0)
    if extractor.about["unit"]:
        length = graph.node("ReduceL2", y, graph.integers(1), keepdims=1)
        root = graph.constant(np.float32(extractor.dimension**0.5))
        least = graph.constant(np.float32(1e-12))
        y = graph.node("Div", y, graph.node("Max", graph.node("Div", length, root), least))
    return y


def _copied(onnx: Any, extractor: Extractor) -> Any:
    """The model with names of its own and our version of the operators."""
    if extractor.batch == 1:
        raise ValueError(
            f"expected a model for any number of pictures, got {extractor.about['model']} for "
            "one: export it with a free batch dimension (dynamic_axes), or "
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


QUERIES, SUPPORT = PRIMES


def write_predictor(
    path: Path,
    function: Callable[[Array], Array],
    problem: Problem,
    classes: np.ndarray | None,
    extractor: Extractor | None = None,
) -> None:
    """Write the predictions of an adapted `function`.

    **Arguments**

    - `function`: from inputs `[QUERIES, *features]` to the log-odds of the `classes`, or to targets
      `[QUERIES, targets]`.
    - `extractor`: the frozen model that makes the inputs of pictures.

    **Raises** `ValueError` for an operation that ONNX does not have here, or without the package
    `onnx`; `RunError` if the file cannot be written.
    """
    graph, features = Graph(), problem.features
    name = "pictures" if extractor is not None or len(features) == 3 else "inputs"
    x = read_inputs(graph, name, features, QUERIES, "n", extractor)
    graph.metadata = {"features": json.dumps(features)}
    output = "predictions"
    if classes is not None:
        output, graph.metadata["classes"] = "probabilities", json.dumps(classes.tolist())
        answer = convert(graph, lambda inputs: jax.nn.softmax(function(inputs)), x)
    else:
        answer = convert(graph, function, x)
    graph.add_output(answer.name, output, np.float32, ["n", answer.shape[1]])
    graph.save(path)


def write_vectors(path: Path, extractor: Extractor) -> None:
    """Write a frozen model that takes pictures `[n, h, w, 3]` of any size, as bytes, and returns
    their `vectors` `[n, d]`.

    **Raises** `RunError` if the file cannot be written.
    """
    graph = Graph()
    x = read_inputs(graph, "pictures", (extractor.dimension,), QUERIES, "n", extractor)
    graph.add_output(x.name, "vectors", np.float32, ["n", extractor.dimension])
    graph.save(path)


def write_learner_file(
    learner: MetaLearner, problem: Problem, temperature: float, path: Path
) -> None:
    """Write a metric learner for up to as many classes as its problem has; a class without examples
    has probability 0. **Raises** as `write_predictor`."""
    graph, features = Graph(), problem.features
    support = read_inputs(graph, "support", features, SUPPORT, "examples")
    labels = graph.add_input("labels", np.int64, ["examples"])
    y = given(graph.cast(labels, np.int32), (SUPPORT,), np.int32)
    query = read_inputs(graph, "query", features, QUERIES, "n")

    def chances(x: Array, y: Array, query: Array) -> Array:
        adapted = learner.adapt(Examples(x, y), key=jax.random.key(0))
        return jax.nn.softmax(adapted.predict(query) / jnp.float32(temperature))

    answer = convert(graph, chances, support, y, query)
    graph.add_output(answer.name, "probabilities", np.float32, ["n", answer.shape[1]])
    graph.metadata = {"features": json.dumps(features)}
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
        whole = _cropped(graph, value) if extractor.crop else value
        value = extracted(graph, resized(graph, whole, extractor.size), extractor)
    else:
        pixels = resized(graph, value, features[0])
        value = graph.node("Div", pixels, graph.constant(np.float32(255)))
    return given(value, (prime, *features), np.float32)
