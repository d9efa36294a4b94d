"""Predictors as ONNX files, which run without JAX: on a phone, in a browser.

The file of a predictor of pictures reads bytes `pictures [n, h, w, 3]` of any size and gives
`probabilities [n, classes]`, columns in the order of the metadata's `classes`. Tables are read as
floats `inputs [n, columns]`; regression gives `predictions [n, targets]`. Weights, the statistics
of the support set, the resizing and the temperature are inside; a learner on the features of a
frozen model has that model inside, too.

A traced JAX function becomes ONNX operators one primitive at a time; what depends on constants
alone is computed here. Sizes that are known only when the file runs (the number of queries, the
height and width of pictures) are prime numbers in the trace. An array that was broadcast keeps its
small shape as long as only operators read it that broadcast on their own.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, SupportsIndex

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun
from jaxtyping import Array, DTypeLike
from numpy.typing import ArrayLike

from arml.core.episodes import Problem
from arml.datasets.decode import Crop
from arml.datasets.features import Extractor
from arml.results.files import JsonView, write_bytes
from arml.results.machine import extra

_Shape = tuple[int, ...]
QUERIES, HEIGHT, WIDTH = 1009, 1013, 1019
_FREE = {QUERIES: "n", HEIGHT: "height", WIDTH: "width"}
"""Names of the sizes that are known only when the file runs."""
OPSET = 18
"""Version of the operators."""
IR = 9
"""Version of the file format."""
PREFIX = "extractor_"
"""The beginning of the names of a frozen model's own values."""


@dataclass(frozen=True, eq=False)
class Value:
    """A variable of the traced function: a constant `array`, or the output `name` of a node."""

    shape: _Shape
    dtype: Any  # NumPy's, or JAX's own for a random key
    stored: _Shape
    """The shape of the stored array; its dimensions of 1 are still to be broadcast to `shape`."""
    array: Any = None
    name: str = ""


def constant(array: Any) -> Value:
    """A value that is known now."""
    shape = tuple(np.shape(array))
    return Value(shape, array.dtype, shape, array=array)


def free(sizes: Sequence[int]) -> list[int]:
    """The positions of the sizes that are known only when the file runs."""
    return [i for i, size in enumerate(sizes) if size and any(size % prime == 0 for prime in _FREE)]


class Graph:
    """Nodes in the order in which they run, and the constants that they read."""

    def __init__(self) -> None:
        self.onnx = extra("onnx", "onnx", "ONNX files")
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.models: list[Any] = []
        """Models whose nodes are among those of the graph."""
        self.metadata: dict[str, str] = {}
        self._constants: dict[tuple[bytes, str, _Shape], tuple[str, Any]] = {}
        self._lengths: dict[int, str] = {}

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add an operator; returns the name of its output."""
        name = attributes.pop("output", f"v{len(self.nodes)}")
        self.nodes.append(self.onnx.helper.make_node(operator, [*inputs], [name], **attributes))
        return name

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

    def cast(self, value: str, dtype: DTypeLike) -> str:
        """`value` with another type of numbers."""
        return self.node("Cast", value, to=self._kind(dtype))

    def add_input(self, name: str, dtype: DTypeLike, shape: _Shape) -> Value:
        """An input of the file."""
        for axis in free(shape):
            length = self.node("Shape", name, start=axis, end=axis + 1)
            self._lengths.setdefault(shape[axis], length)
        self.inputs.append(self._described(name, dtype, shape))
        return Value(shape, np.dtype(dtype), shape, name=name)

    def add_output(self, value: Value, name: str) -> None:
        """Make a value an output of the file."""
        self.node("Identity", value.name, output=name)
        self.outputs.append(self._described(name, value.dtype, value.shape))

    def _described(self, name: str, dtype: DTypeLike, shape: _Shape) -> Any:
        sizes = [_FREE.get(size, size) for size in shape]
        return self.onnx.helper.make_tensor_value_info(name, self._kind(dtype), sizes)

    def _kind(self, dtype: DTypeLike) -> int:
        return int(self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def length(self, size: int) -> str:
        """A size as a vector of one number."""
        assert size in self._lengths or not free([size]), size
        return self._lengths[size] if size in self._lengths else self.integers(size)

    def reshape(self, value: str, sizes: Sequence[int]) -> str:
        """`value` in another shape, of which one size at most is known only when the file runs."""
        shape = [-1 if i in free(sizes) else size for i, size in enumerate(sizes)]
        return self.node("Reshape", value, self.integers(*shape))

    def stored(self, value: Value) -> str:
        """The name of the stored array."""
        return value.name if value.array is None else self.constant(value.array)

    def whole(self, value: Value) -> str:
        """The name of the value in its full shape."""
        name = self.stored(value)
        if value.stored == value.shape:
            return name
        sizes = (self.length(size) for size in value.shape)
        return self.node("Expand", name, self.node("Concat", *sizes, axis=0))

    def inline(self, model: Any, x: Value, own: str, output: str, others: JsonView) -> str:
        """Copy the nodes and weights of a model that its output needs; returns the output's name.
        `own` is its input; `others` are constants for further ones. No name of the model may be one
        of this graph."""
        needed, nodes = {output}, []
        for node in reversed(model.graph.node):
            if needed & {*node.output}:
                nodes.append(node)
                subgraphs = [a.g for a in node.attribute if a.HasField("g")]
                needed |= {*node.input, *(n for g in subgraphs for m in g.node for n in m.input)}
        kept = [tensor for tensor in model.graph.initializer if tensor.name in needed]
        model.graph.ClearField("initializer")
        model.graph.initializer.extend(kept)
        self.node("Identity", x.name, output=own)
        for name in needed & {*others}:
            self.node("Identity", self.constant(others[name]), output=name)
        self.nodes += nodes[::-1]
        self.models.append(model)
        return output

    def save(self, path: Path) -> None:
        """Check the graph and write it. **Raises** `RunError` if the file cannot be written."""
        helper = self.onnx.helper
        weights = [tensor for _, tensor in self._constants.values()]
        weights += [tensor for model in self.models for tensor in model.graph.initializer]
        graph = helper.make_graph(self.nodes, "arml", self.inputs, self.outputs, weights)
        more = {(one.domain, one.version) for model in self.models for one in model.opset_import}
        versions = [("", OPSET), *sorted(more - {("", OPSET)})]
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid(*version) for version in versions],
            functions=[function for model in self.models for function in model.functions],
            ir_version=IR,
            producer_name="arml",
        )
        helper.set_model_props(model, self.metadata)
        self.onnx.checker.check_model(model, full_check=True)
        write_bytes(path, model.SerializeToString())


# The operators.


class Call(NamedTuple):
    """A primitive of the traced function. A call adds a node of its inputs, or of others."""

    graph: Graph
    names: list[str]
    """Its inputs in the graph."""
    shapes: list[_Shape]
    """Those of its inputs."""
    params: JsonView
    """The primitive's parameters."""
    out: Any
    """The shape and the type of its output."""

    def __call__(self, operator: str, *inputs: str, **attributes: Any) -> str:
        return self.graph.node(operator, *(inputs or self.names), **attributes)


def _reduction(call: Call, operator: str) -> str:
    return call(operator, *call.names, call.graph.integers(*call.params["axes"]), keepdims=0)


def _slice(call: Call) -> str:
    starts, ends = call.params["start_indices"], call.params["limit_indices"]
    strides, (shape,) = call.params["strides"] or [1] * len(starts), call.shapes
    bounds = enumerate(zip(starts, ends, strides, strict=True))
    axes = [i for i, bound in bounds if bound != (0, shape[i], 1)]
    if {*free(shape)} & {*axes}:
        raise ValueError("the learner reads a part of the queries, which no file can hold")
    parts = [[each[i] for i in axes] for each in (starts, ends)]
    vectors = [*parts, axes, [strides[i] for i in axes]]
    return call("Slice", *call.names, *(call.graph.integers(*vector) for vector in vectors))


def _pad(call: Call) -> str:
    low, high, between = zip(*call.params["padding_config"], strict=True)
    if any(between):
        raise ValueError("the learner pads between the entries of an array, which ONNX cannot")
    return call("Pad", call.names[0], call.graph.integers(*low, *high), call.names[1])


def _product(call: Call) -> str:
    (left, right), (left_batch, right_batch) = call.params["dimension_numbers"]
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    first, second = ([next(letters) for _ in shape] for shape in call.shapes)
    for i, j in zip((*left, *left_batch), (*right, *right_batch), strict=True):
        second[j] = first[i]
    result = [first[i] for i in left_batch]
    result += [a for i, a in enumerate(first) if i not in {*left, *left_batch}]
    result += [b for j, b in enumerate(second) if j not in {*right, *right_batch}]
    equation = f"{''.join(first)},{''.join(second)}->{''.join(result)}"
    return call("MatMul") if equation == "ab,bd->ad" else call("Einsum", equation=equation)


def _convolution(call: Call) -> str:
    params, numbers = call.params, call.params["dimension_numbers"]
    if {*params["lhs_dilation"]} != {1} or params["batch_group_count"] != 1:
        raise ValueError("the learner has a convolution with a dilated input, which ONNX lacks")
    low, high = zip(*params["padding"], strict=True)
    convolved = call(
        "Conv",
        call("Transpose", call.names[0], perm=[*numbers.lhs_spec]),
        call("Transpose", call.names[1], perm=[*numbers.rhs_spec]),
        strides=[*params["window_strides"]],
        pads=[*low, *high],
        dilations=[*params["rhs_dilation"]],
        group=params["feature_group_count"],
    )
    return call("Transpose", convolved, perm=[int(i) for i in np.argsort(numbers.out_spec)])


def _reshape(call: Call) -> str:
    return call.graph.reshape(call.names[0], call.out.shape)


def _stack(call: Call) -> str:
    axis, shape = call.params["axis"], call.shapes[0]
    one = (*shape[:axis], 1, *shape[axis:])
    return call("Concat", *(call.graph.reshape(name, one) for name in call.names), axis=axis)


Operator = str | Callable[[Call], str]
ELEMENTWISE: dict[str, Operator] = {
    **{name: name.capitalize() for name in ("add", "sub", "mul", "div", "max", "min", "pow")},
    **{name: name.capitalize() for name in ("neg", "abs", "sign", "floor", "round", "sqrt")},
    **{name: name.capitalize() for name in ("exp", "log", "tanh", "erf", "sin", "cos", "atan")},
    **{name: name.capitalize() for name in ("and", "or", "not")},
    "add_any": "Add",
    "logistic": "Sigmoid",
    "eq": "Equal",
    "lt": "Less",
    "le": "LessOrEqual",
    "gt": "Greater",
    "ge": "GreaterOrEqual",
    "ne": lambda call: call("Not", call("Equal")),
    "is_finite": lambda call: call("Not", call("Or", call("IsInf"), call("IsNaN"))),
    "square": lambda call: call("Mul", *call.names, *call.names),
    "integer_pow": lambda call: call(
        "Pow", *call.names, call.graph.constant(np.float32(call.params["y"]))
    ),
    "rsqrt": lambda call: call("Reciprocal", call("Sqrt")),
    "select_n": lambda call: call("Where", *(call.names[i] for i in (0, 2, 1))),
    "convert_element_type": lambda call: call.graph.cast(call.names[0], call.params["new_dtype"]),
}
"""The operators of primitives that work on each entry; they broadcast on their own."""
WHOLE: dict[str, Operator] = {
    "reshape": _reshape,
    "squeeze": _reshape,
    "transpose": lambda call: call("Transpose", perm=[*call.params["permutation"]]),
    "concatenate": lambda call: call("Concat", axis=call.params["dimension"]),
    "stack": _stack,
    "reduce_sum": lambda call: _reduction(call, "ReduceSum"),
    "reduce_max": lambda call: _reduction(call, "ReduceMax"),
    "slice": _slice,
    "pad": _pad,
    "dot_general": _product,
    "conv_general_dilated": _convolution,
}
"""The operators of primitives that need their inputs in full shape."""
SAME = {"stop_gradient", "copy", "copy_p", "sharding_constraint", "optimization_barrier"}
LOOPS = {"scan", "while", "cond"}


# The conversion of a traced function.


def convert(graph: Graph, function: Callable[..., Any], *inputs: Value) -> list[Value]:
    """Add the operations of `function` on the inputs to the graph; returns its results, whole.

    **Raises** `ValueError` if it uses a primitive that has no operator here.
    """
    like = [jax.ShapeDtypeStruct(value.shape, value.dtype) for value in inputs]
    traced = jax.make_jaxpr(function)(*like)
    results = _run(graph, traced.jaxpr, [constant(c) for c in traced.consts], inputs)
    return [replace(one, name=graph.whole(one), stored=one.shape, array=None) for one in results]


def _run(
    graph: Graph, jaxpr: Jaxpr, consts: Sequence[Value], inputs: Sequence[Value]
) -> list[Value]:
    known: dict[Var, Value] = {}
    known.update(zip(jaxpr.constvars, consts, strict=True))
    known.update(zip(jaxpr.invars, inputs, strict=True))

    def read(atom: Var | Literal) -> Value:
        if isinstance(atom, Literal):
            return constant(np.asarray(atom.val, getattr(atom.aval, "dtype", None)))
        return known[atom]

    for equation in jaxpr.eqns:
        values = [read(atom) for atom in equation.invars]
        known.update(zip(equation.outvars, _equation(graph, equation, values), strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _equation(graph: Graph, equation: JaxprEqn, values: list[Value]) -> list[Value]:
    name, params = equation.primitive.name, equation.params
    out: Any = equation.outvars[0].aval
    if name in SAME:
        return [values[0]]
    if name == "broadcast_in_dim":
        return [_broadcast(graph, values[0], [int(i) for i in params["broadcast_dimensions"]], out)]
    if name == "iota" and free(out.shape):
        zero, one = graph.constant(np.int64(0)), graph.constant(np.int64(1))
        last = graph.node("Squeeze", graph.length(*out.shape))
        counted = graph.cast(graph.node("Range", zero, last, one), out.dtype)
        return [Value(out.shape, out.dtype, out.shape, name=counted)]
    inner = next((params[key] for key in ("jaxpr", "call_jaxpr", "call") if key in params), None)
    known = all(value.array is not None and value.stored == value.shape for value in values)
    if known and not any(free(each.aval.shape) for each in equation.outvars):  # type: ignore[attr-defined]
        # Random numbers, too, are drawn here: ONNX has no such bits.
        arrays = [value.array for value in values]
        if inner is not None and name not in LOOPS:
            return [constant(each) for each in jaxpr_as_fun(inner)(*arrays)]
        results = equation.primitive.bind(*arrays, **params)
        several = equation.primitive.multiple_results
        return [constant(each) for each in (results if several else [results])]
    if inner is not None and name not in LOOPS:
        return _run(graph, inner.jaxpr, [constant(c) for c in inner.consts], values)
    elementwise = name in ELEMENTWISE
    operator = ELEMENTWISE.get(name) or WHOLE.get(name)
    if operator is None:
        raise ValueError(
            f"ONNX has no operator for {name}, which the learner uses: export a predictor of "
            "another method"
        )
    names = [graph.stored(value) if elementwise else graph.whole(value) for value in values]
    stored = np.broadcast_shapes(*(v.stored for v in values)) if elementwise else out.shape
    call = Call(graph, names, [value.shape for value in values], params, out)
    result = call(operator) if isinstance(operator, str) else operator(call)
    return [Value(out.shape, out.dtype, stored, name=result)]


def _broadcast(graph: Graph, value: Value, places: Sequence[int], out: Any) -> Value:
    stored = [1] * len(out.shape)
    for place, size in zip(places, value.stored, strict=True):
        stored[place] = size
    array, name = value.array, value.name
    if array is not None:
        array = np.reshape(array, stored)
    elif tuple(stored) != value.stored:
        name = graph.reshape(name, stored)
    return Value(out.shape, out.dtype, tuple(stored), array, name)


# Pictures.


def resized(pictures: Array, size: int, crop: Crop = False) -> Array:
    """Bytes `[n, h, w, 3]` to whole numbers from 0 to 255, as floats `[n, size, size, 3]`: as
    `decode.resize` after `decode.cropped`."""
    x = pictures.astype(jnp.float32)
    places = [lax.iota(jnp.float32, side) for side in x.shape[1:3]]
    sides = [jnp.max(place) + 1 for place in places]
    if crop is True:
        kept = jnp.floor(jnp.sqrt(sides[0] * sides[1]))
    elif crop:
        kept = jnp.maximum(jnp.round(crop * jnp.minimum(*sides)), 1)
    else:
        kept = jnp.maximum(*sides)
    lengths = [jnp.minimum(side, kept) for side in sides]
    starts = [jnp.floor((a - b) / 2) for a, b in zip(sides, lengths, strict=True)]
    shrinking = [
        _areas(place - start, length, size)
        for place, start, length in zip(places, starts, lengths, strict=True)
    ]
    for passes in (shrinking, [_between(length, size) for length in lengths]):
        for axis, weights in enumerate(passes, start=1):
            x = jnp.moveaxis(jnp.tensordot(weights, x, (1, axis)), 0, axis)
        x = jnp.round(x)  # half to even, as OpenCV
    return x


def _areas(place: Array, length: Array, size: int) -> Array:
    """The weight of each input pixel in each of `size` output pixels where a side shrinks: their
    common area. A side that is shorter stays as it is, and fills the first pixels. A `place`
    outside of [0, length) has no weight."""
    first = lax.iota(jnp.float32, size)[:, None]
    scale = length / size  # input pixels in an output pixel
    low, high = jnp.maximum(first * scale, place), jnp.minimum((first + 1) * scale, place + 1)
    same = jnp.where((first == place) & (place < length), 1.0, 0.0)
    return jnp.where(length > size, jnp.maximum(high - low, 0) / scale, same)


def _between(length: Array, size: int) -> Array:
    """The weights of linear interpolation from the first `length` of `size` pixels to all, or the
    identity if there are more."""
    first = lax.iota(jnp.float32, size)
    length = jnp.minimum(length, size)
    scale = length / size
    centre = jnp.clip((first[:, None] + 0.5) * scale - 0.5, 0, length - 1)
    return jnp.maximum(1 - jnp.abs(centre - first), 0)


def _vectors(graph: Graph, pictures: Value, extractor: Extractor) -> Value:
    """The vectors `[n, d]` of pictures of any size by a frozen model.

    **Raises** `ValueError` for a model that cannot be copied: one of a fixed number of pictures, or
    of operators that cannot be brought to our version.
    """

    def prepared(x: Array) -> Array:
        return extractor.prepared(resized(x, extractor.size, extractor.crop), jnp)

    model, (x,) = _copied(graph.onnx, extractor), convert(graph, prepared, pictures)
    others = {PREFIX + name: array for name, array in extractor.texts.items()}
    y = graph.inline(model, x, PREFIX + extractor.input, PREFIX + extractor.output, others)
    shape = (QUERIES, *extractor.shape[1:])
    output = Value(shape, extractor.type, shape, name=y)
    return convert(graph, partial(extractor.pooled, xp=jnp), output)[0]


def _copied(onnx: Any, extractor: Extractor) -> Any:
    """The model with names of its own and our version of the operators."""
    name = extractor.about["model"]
    if extractor.fixed:
        raise ValueError(
            f"{name} takes {extractor.batch} pictures at once, and the file needs a model for any "
            "number: export it with a free batch dimension (dynamic_axes)"
        )
    model = onnx.load(str(extractor.path))
    version = next((one.version for one in model.opset_import if not one.domain), OPSET)
    if version != OPSET:
        try:
            model = onnx.version_converter.convert_version(model, OPSET)
        except Exception as error:  # the converter raises RuntimeError and others
            raise ValueError(
                f"the operators of {name} have version {version}, which could not be converted to "
                f"{OPSET} ({' '.join(str(error).split())[:100]}): export it with "
                f"opset_version={OPSET}"
            ) from error
    return onnx.compose.add_prefix(model, PREFIX)


# The files.


def write_predictor(
    path: Path,
    function: Callable[[Array], Any],
    problem: Problem,
    classes: np.ndarray | None,
    extractor: Extractor | None = None,
) -> None:
    """Write the predictions of an adapted `function`.

    **Arguments**

    - `function`: from inputs `[QUERIES, *features]` to the log-odds of the `classes`, or to targets
      `[QUERIES, targets]`; of photographs the novelty `[QUERIES]`, too.
    - `extractor`: the frozen model that makes the inputs of pictures.

    **Raises** `ValueError` for an operation that ONNX does not have here, or without the package
    `onnx`; `RunError` if the file cannot be written.
    """
    graph, features = Graph(), problem.features
    graph.metadata = {"features": json.dumps(features)}
    if extractor is not None:
        x = _vectors(graph, _pictures(graph), extractor)
    elif problem.inputs == "pictures":
        (x,) = convert(graph, lambda x: resized(x, features[0]) / 255, _pictures(graph))
    else:
        x = graph.add_input("inputs", np.float32, (QUERIES, *features))
    if classes is not None:
        graph.metadata["classes"] = json.dumps(classes.tolist())
    names = ("predictions",) if classes is None else ("probabilities", "novelty")

    def answers(x: Array) -> list[Array]:
        found = function(x)
        first, *more = found if isinstance(found, tuple) else (found,)
        return [first if classes is None else jax.nn.softmax(first), *more]

    for value, name in zip(convert(graph, answers, x), names, strict=False):
        graph.add_output(value, name)
    graph.save(path)


def write_function(
    path: Path, function: Callable[..., Any], inputs: Mapping[str, _Shape], outputs: Sequence[str]
) -> None:
    """Write a function of floats of these shapes. **Raises** as `write_predictor`."""
    graph = Graph()
    values = [graph.add_input(name, np.float32, shape) for name, shape in inputs.items()]
    for value, name in zip(convert(graph, function, *values), outputs, strict=True):
        graph.add_output(value, name)
    graph.save(path)


def write_vectors(path: Path, extractor: Extractor) -> None:
    """Write a frozen model that takes pictures `[n, h, w, 3]` of any size, as bytes, and returns
    their `vectors` `[n, d]`. **Raises** `RunError` if the file cannot be written."""
    graph = Graph()
    graph.add_output(_vectors(graph, _pictures(graph), extractor), "vectors")
    graph.save(path)


def _pictures(graph: Graph) -> Value:
    return graph.add_input("pictures", np.uint8, (QUERIES, HEIGHT, WIDTH, 3))
