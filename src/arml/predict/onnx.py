"""Predictors as ONNX files, which run without JAX: on a phone, in a browser.

The file of a predictor of pictures reads bytes `pictures [n, h, w, 3]` of any size and gives
`probabilities [n, classes]`, columns in the order of the metadata's `classes`. Tables are read as
floats `inputs [n, columns]`; regression gives `predictions [n, targets]`. The file includes the
frozen model.

A traced JAX function becomes ONNX operators one primitive at a time. Values that depend only on
constants are computed here. Prime numbers in the trace stand for sizes that are known only when the
file runs. A broadcast array keeps its small shape while only operators that broadcast read it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Jaxpr, Literal, Primitive, Var, jaxpr_as_fun
from jaxtyping import Array, DTypeLike

from arml.core.episodes import Problem
from arml.datasets.decode import Crop
from arml.datasets.features import Extractor, read_model
from arml.results.files import brief, write_bytes
from arml.results.machine import extra

_Shape = tuple[int, ...]
_Value = Any
"""The value of a variable of the trace: a constant array, or the name of a node's output."""
_Equation = Any
"""A `JaxprEqn`. Its declared type does not give its variables shapes."""
ANY_QUERIES, ANY_HEIGHT, ANY_WIDTH = 1009, 1013, 1019
_FREE_AXES = {ANY_QUERIES: "n", ANY_HEIGHT: "height", ANY_WIDTH: "width"}
"""Names of the sizes that are known only when the file runs."""
ANY_PICTURES = jax.ShapeDtypeStruct((ANY_QUERIES, ANY_HEIGHT, ANY_WIDTH, 3), np.uint8)
"""Pictures of any number and size."""
ONNX_OPSET = 18
"""The version of the operators."""
ONNX_IR_VERSION = 9
"""The version of the file format."""
EXTRACTOR_PREFIX = "extractor_"
"""The prefix of the names of a frozen model's values."""


def free(sizes: Sequence[int]) -> list[int]:
    """The positions of the sizes that are known only when the file runs."""
    return [
        i for i, size in enumerate(sizes) if size and any(size % prime == 0 for prime in _FREE_AXES)
    ]


class Graph:
    """A file under construction: nodes in their order of execution, and their constants."""

    def __init__(self, metadata: Mapping[str, str]) -> None:
        self.onnx = extra("onnx", "onnx", "ONNX files")
        helper = self.onnx.helper
        self.file = helper.make_model(
            helper.make_graph([], "arml", [], []),
            opset_imports=[helper.make_opsetid("", ONNX_OPSET)],
            ir_version=ONNX_IR_VERSION,
            producer_name="arml",
        )
        helper.set_model_props(self.file, metadata)
        self.nodes, self.weights = self.file.graph.node, self.file.graph.initializer
        self.shapes: dict[str, _Shape] = {}
        """The shapes of the stored arrays. A dimension of 1 may not be broadcast yet."""
        self._constants: dict[tuple[bytes, str, _Shape], str] = {}
        self._lengths: dict[int, str] = {}

    def __call__(self, operator: str, *inputs: _Value, **attributes: Any) -> str:
        """Add a node, whose inputs are names or constants; returns the name of its output."""
        name = attributes.pop("output", f"v{len(self.nodes)}")
        names = [one if isinstance(one, str) else self._constant(one) for one in inputs]
        self.nodes.append(self.onnx.helper.make_node(operator, names, [name], **attributes))
        return name

    def _constant(self, array: _Value) -> str:
        """The name of a constant. Equal constants are stored once."""
        array = np.asarray(array, order="C")
        key = (array.tobytes(), array.dtype.str, array.shape)
        if key not in self._constants:
            self._constants[key] = f"c{len(self._constants)}"
            self.weights.append(self.onnx.numpy_helper.from_array(array, self._constants[key]))
        return self._constants[key]

    def add_input(self, name: str, like: Any) -> str:
        """An input of the file, with the shape and the type of `like`."""
        for axis in free(like.shape):
            length = self("Shape", name, start=axis, end=axis + 1)
            self._lengths.setdefault(like.shape[axis], length)
        self.file.graph.input.append(self._described(name, like))
        self.shapes[name] = like.shape
        return name

    def add_output(self, name: str, value: _Value, like: Any) -> None:
        """Make a value an output of the file."""
        self("Identity", self.whole(value, like.shape), output=name)
        self.file.graph.output.append(self._described(name, like))

    def _described(self, name: str, like: Any) -> Any:
        sizes = [_FREE_AXES.get(size, size) for size in like.shape]
        return self.onnx.helper.make_tensor_value_info(name, self.kind(like.dtype), sizes)

    def kind(self, dtype: DTypeLike) -> int:
        """ONNX's number for a type."""
        return int(self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def length(self, size: int) -> _Value:
        """A size as a vector of one number."""
        assert size in self._lengths or not free([size]), size
        return self._lengths.get(size, [size])

    def stored(self, value: _Value) -> _Shape:
        """The shape of the stored array."""
        return self.shapes[value] if isinstance(value, str) else np.shape(value)

    def reshape(self, value: _Value, shape: Sequence[int]) -> _Value:
        """`value` in another shape, of which one size at most is known only when the file runs."""
        if not isinstance(value, str):
            return np.reshape(value, shape)
        if tuple(shape) == self.shapes[value]:
            return value
        sizes = [-1 if i in free(shape) else size for i, size in enumerate(shape)]
        name = self("Reshape", value, sizes)
        self.shapes[name] = tuple(shape)
        return name

    def whole(self, value: _Value, shape: _Shape) -> _Value:
        """`value` broadcast to its full shape."""
        if self.stored(value) == shape:
            return value
        return self("Expand", value, self("Concat", *map(self.length, shape), axis=0))


# The operators: functions of the graph, the equation and the values that it reads.


def _reduction(operator: str, graph: Graph, equation: _Equation, x: _Value) -> str:
    return graph(operator, x, equation.params["axes"], keepdims=0)


def _slice(graph: Graph, equation: _Equation, x: _Value) -> str:
    shape, params = equation.invars[0].aval.shape, equation.params
    starts, ends = params["start_indices"], params["limit_indices"]
    strides = params["strides"] or [1] * len(shape)
    bounds = enumerate(zip(starts, ends, strides, strict=True))
    axes = [i for i, bound in bounds if bound != (0, shape[i], 1)]
    if {*free(shape)} & {*axes}:
        raise ValueError("the learner reads a part of the queries, which ONNX files cannot do")
    first, last, step = ([each[i] for i in axes] for each in (starts, ends, strides))
    return graph("Slice", x, first, last, axes, step)


def _pad(graph: Graph, equation: _Equation, x: _Value, value: _Value) -> str:
    low, high, between = zip(*equation.params["padding_config"], strict=True)
    if any(between):
        raise ValueError("the learner pads between the entries of an array, which ONNX lacks")
    return graph("Pad", x, [*low, *high], value)


def _product(graph: Graph, equation: _Equation, x: _Value, y: _Value) -> str:
    (left, right), (left_batch, right_batch) = equation.params["dimension_numbers"]
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    first, second = ([next(letters) for _ in atom.aval.shape] for atom in equation.invars)
    for i, j in zip((*left, *left_batch), (*right, *right_batch), strict=True):
        second[j] = first[i]
    result = [first[i] for i in left_batch]
    result += [a for i, a in enumerate(first) if i not in {*left, *left_batch}]
    result += [b for j, b in enumerate(second) if j not in {*right, *right_batch}]
    sums = f"{''.join(first)},{''.join(second)}->{''.join(result)}"
    return graph("MatMul", x, y) if sums == "ab,bd->ad" else graph("Einsum", x, y, equation=sums)


def _convolution(graph: Graph, equation: _Equation, x: _Value, kernel: _Value) -> str:
    params, numbers = equation.params, equation.params["dimension_numbers"]
    if {*params["lhs_dilation"]} != {1} or params["batch_group_count"] != 1:
        raise ValueError("the learner has a convolution with a dilated input, which ONNX lacks")
    low, high = zip(*params["padding"], strict=True)
    convolved = graph(
        "Conv",
        graph("Transpose", x, perm=numbers.lhs_spec),
        graph("Transpose", kernel, perm=numbers.rhs_spec),
        strides=params["window_strides"],
        pads=[*low, *high],
        dilations=params["rhs_dilation"],
        group=params["feature_group_count"],
    )
    return graph("Transpose", convolved, perm=np.argsort(numbers.out_spec).tolist())


def _reshape(graph: Graph, equation: _Equation, x: _Value) -> str:
    return str(graph.reshape(x, equation.outvars[0].aval.shape))


def _stack(graph: Graph, equation: _Equation, *parts: _Value) -> str:
    axis, shape = equation.params["axis"], equation.outvars[0].aval.shape
    one = (*shape[:axis], 1, *shape[axis + 1 :])
    return graph("Concat", *(graph.reshape(part, one) for part in parts), axis=axis)


def _iota(graph: Graph, equation: _Equation) -> str:
    out = equation.outvars[0].aval
    last = graph("Squeeze", graph.length(*out.shape))
    return graph("Cast", graph("Range", np.int64(0), last, np.int64(1)), to=graph.kind(out.dtype))


Operator = str | Callable[..., str]
ELEMENTWISE_OPERATORS: dict[str, Operator] = {
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
    "ne": lambda graph, _, x, y: graph("Not", graph("Equal", x, y)),
    "is_finite": lambda graph, _, x: graph(
        "Not", graph("Or", graph("IsInf", x), graph("IsNaN", x))
    ),
    "square": lambda graph, _, x: graph("Mul", x, x),
    "integer_pow": lambda graph, equation, x: graph("Pow", x, np.float32(equation.params["y"])),
    "rsqrt": lambda graph, _, x: graph("Reciprocal", graph("Sqrt", x)),
    "select_n": lambda graph, _, which, no, yes: graph("Where", which, yes, no),
    "convert_element_type": lambda graph, equation, x: graph(
        "Cast", x, to=graph.kind(equation.params["new_dtype"])
    ),
}
"""The operators of primitives that work on each entry. They broadcast their inputs."""
ARRAY_OPERATORS: dict[str, Operator] = {
    "reshape": _reshape,
    "squeeze": _reshape,
    "transpose": lambda graph, equation, x: graph(
        "Transpose", x, perm=equation.params["permutation"]
    ),
    "concatenate": lambda graph, equation, *parts: graph(
        "Concat", *parts, axis=equation.params["dimension"]
    ),
    "stack": _stack,
    "reduce_sum": partial(_reduction, "ReduceSum"),
    "reduce_max": partial(_reduction, "ReduceMax"),
    "slice": _slice,
    "pad": _pad,
    "iota": _iota,
    "dot_general": _product,
    "conv_general_dilated": _convolution,
}
"""The operators of primitives that need their inputs in full shape."""
IDENTITY_PRIMITIVES = {
    "stop_gradient",
    "copy",
    "copy_p",
    "sharding_constraint",
    "optimization_barrier",
}
LOOP_PRIMITIVES = {"scan", "while", "cond"}


# The conversion of a traced function.


def _run(
    graph: Graph, jaxpr: Jaxpr, consts: Sequence[_Value], inputs: Sequence[_Value]
) -> list[_Value]:
    """Add the operations of a traced function to the graph; returns its results."""
    known: dict[Var, _Value] = {}
    known.update(zip(jaxpr.constvars, consts, strict=True))
    known.update(zip(jaxpr.invars, inputs, strict=True))

    def read(atom: Any) -> _Value:
        literal = isinstance(atom, Literal)
        return np.asarray(atom.val, atom.aval.dtype) if literal else known[atom]

    for equation in jaxpr.eqns:
        values = [read(atom) for atom in equation.invars]
        known.update(zip(equation.outvars, _equation(graph, equation, values), strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _equation(graph: Graph, equation: _Equation, values: list[_Value]) -> Sequence[_Value]:
    name, params = equation.primitive.name, equation.params
    given = [atom.aval.shape for atom in equation.invars]
    out = [variable.aval.shape for variable in equation.outvars]
    if name in IDENTITY_PRIMITIVES:
        return values
    if name == "broadcast_in_dim":
        (value,), sizes = values, [1] * len(out[0])
        for place, size in zip(params["broadcast_dimensions"], graph.stored(value), strict=True):
            sizes[place] = size
        return [graph.reshape(value, sizes)]
    keys = () if name in LOOP_PRIMITIVES else ("jaxpr", "call_jaxpr", "call")
    inner = next((params[key] for key in keys if key in params), None)
    constants = not any(isinstance(value, str) for value in values)
    if constants and [*map(np.shape, values)] == given and not any(map(free, out)):
        # Random numbers are also drawn here, because ONNX lacks their generator.
        run = partial(equation.primitive.bind, **params) if inner is None else jaxpr_as_fun(inner)
        results = run(*values)
        return results if isinstance(results, Sequence) else [results]
    if inner is not None:
        return _run(graph, inner.jaxpr, inner.consts, values)
    operator = ELEMENTWISE_OPERATORS.get(name) or ARRAY_OPERATORS.get(name)
    if name in ELEMENTWISE_OPERATORS:
        stored = np.broadcast_shapes(*map(graph.stored, values))
    else:
        values, stored = [*map(graph.whole, values, given)], out[0]
    if operator is None:
        raise ValueError(
            f"ONNX has no operator for {name}, which the learner uses: export a predictor of "
            "another method"
        )
    if isinstance(operator, str):
        result = graph(operator, *values)
    else:
        result = operator(graph, equation, *values)
    graph.shapes[result] = stored
    return [result]


# Pictures.


def resized(pictures: Array, size: int, crop: Crop = False) -> Array:
    """Crop and resize bytes `[n, h, w, 3]` to floats `[n, size, size, 3]`, whole numbers from 0 to
    255, in the same way as `decode.resize` after `decode.cropped`."""
    x = pictures.astype(jnp.float32)
    places = [lax.iota(jnp.float32, side) for side in x.shape[1:3]]
    sides = [jnp.max(place) + 1 for place in places]
    if crop is True:
        kept = [jnp.floor(jnp.sqrt(sides[0] * sides[1]))] * 2
    elif isinstance(crop, Sequence):
        kept = [jnp.round(share * side) for share, side in zip(crop, sides, strict=True)]
    else:
        kept = [jnp.round(crop * jnp.minimum(*sides))] * 2 if crop else sides
    lengths = [jnp.clip(k, 1, side) for k, side in zip(kept, sides, strict=True)]
    starts = [jnp.floor((a - b) / 2) for a, b in zip(sides, lengths, strict=True)]
    shrinking = [
        _areas(place - start, length, size)
        for place, start, length in zip(places, starts, lengths, strict=True)
    ]
    for down, right in (shrinking, [_between(length, size) for length in lengths]):
        x = jnp.einsum("ah,nhwc->nawc", down, x)
        x = jnp.round(jnp.einsum("bw,nawc->nabc", right, x))  # half to even, as OpenCV
    return x


def _areas(place: Array, length: Array, size: int) -> Array:
    """The weight of each input pixel in each of `size` output pixels of a side that shrinks: the
    area that they share. A shorter side does not change, and fills the first pixels. A pixel whose
    `place` is outside of [0, length) has no weight."""
    first = lax.iota(jnp.float32, size)[:, None]
    scale = length / size  # input pixels in an output pixel
    low, high = jnp.maximum(first * scale, place), jnp.minimum((first + 1) * scale, place + 1)
    same = jnp.where((first == place) & (place < length), 1.0, 0.0)
    return jnp.where(length > size, jnp.maximum(high - low, 0) / scale, same)


def _between(length: Array, size: int) -> Array:
    """The weights of linear interpolation from the first `length` of `size` pixels to all, or
    the identity if `length` is larger."""
    first = lax.iota(jnp.float32, size)
    length = jnp.minimum(length, size)
    scale = length / size
    centre = jnp.clip((first[:, None] + 0.5) * scale - 0.5, 0, length - 1)
    return jnp.maximum(1 - jnp.abs(centre - first), 0)


# Frozen models: each is a primitive of the trace, and its nodes are copied into the file.


_FROZEN_MODEL = Primitive("frozen_model")
_FROZEN_MODEL.def_abstract_eval(
    lambda x, extractor: jax.core.ShapedArray((ANY_QUERIES, *extractor.shape[1:]), extractor.type)
)


def vectors_of(pictures: Array, extractor: Extractor) -> Array:
    """The vectors `[n, d]` of pictures of any size by a frozen model, in a trace for `write`, which
    raises `ValueError` for a model that cannot be copied: one of a fixed number of pictures, or of
    operators that cannot be converted to our version."""
    x = extractor.prepared(resized(pictures, extractor.size, extractor.crop), jnp)
    return extractor.pooled(_FROZEN_MODEL.bind(x, extractor=extractor), jnp)


def _frozen_model(graph: Graph, equation: _Equation, x: _Value) -> str:
    """Copy the nodes and weights that the model's output needs."""
    extractor = equation.params["extractor"]
    model = _copied(graph.onnx, extractor)
    output = EXTRACTOR_PREFIX + extractor.output
    needed, nodes = {output}, []
    for node in reversed(model.graph.node):
        if needed & {*node.output}:
            nodes.append(node)
            subgraphs = [a.g for a in node.attribute if a.HasField("g")]
            needed |= {*node.input, *(n for g in subgraphs for m in g.node for n in m.input)}
    for name, value in {extractor.input: x, **extractor.texts}.items():
        if EXTRACTOR_PREFIX + name in needed:
            graph("Identity", value, output=EXTRACTOR_PREFIX + name)
    graph.nodes.extend(reversed(nodes))
    graph.weights.extend(each for each in model.graph.initializer if each.name in needed)
    versions = graph.file.opset_import
    versions.extend(version for version in model.opset_import if version not in versions)
    graph.file.functions.extend(model.functions)
    return output


ARRAY_OPERATORS["frozen_model"] = _frozen_model


def _copied(onnx: Any, extractor: Extractor) -> Any:
    """The model with prefixed names and our version of the operators."""
    name = extractor.about["model"]
    if extractor.fixed:
        raise ValueError(
            f"{name} takes {extractor.batch} pictures at once, and the file needs a model for any "
            "number: export it with a free batch dimension (dynamic_axes)"
        )
    model = onnx.load(str(extractor.path), load_external_data=False)
    _, outside = read_model(extractor.path)
    for tensor in model.graph.initializer:
        if tensor.external_data:
            at = {one.key: one.value for one in tensor.external_data}
            rest = memoryview(outside[at["location"]])[int(at.get("offset", 0)) :]
            tensor.raw_data = bytes(rest[: int(at["length"])] if "length" in at else rest)
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]
    version = next((one.version for one in model.opset_import if not one.domain), ONNX_OPSET)
    if version != ONNX_OPSET:
        try:
            model = onnx.version_converter.convert_version(model, ONNX_OPSET)
        except Exception as error:  # the converter raises RuntimeError and others
            raise ValueError(
                f"the operators of {name} have version {version}, which could not be converted to "
                f"{ONNX_OPSET} ({brief(error, 100)}): export it with "
                f"opset_version={ONNX_OPSET}"
            ) from error
    return onnx.compose.add_prefix(model, EXTRACTOR_PREFIX)


# The files.


def write(
    path: Path,
    function: Callable[..., Any],
    inputs: Mapping[str, jax.ShapeDtypeStruct],
    outputs: Sequence[str],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write a function as a file with these names of `inputs` and `outputs`.

    **Raises** `ValueError` for a primitive that has no operator here, or without the package
    `onnx`; `RunError` if the file cannot be written.
    """
    graph, traced = Graph(metadata or {}), jax.make_jaxpr(function)(*inputs.values())
    names = [graph.add_input(name, like) for name, like in inputs.items()]
    results = _run(graph, traced.jaxpr, traced.consts, names)
    for name, value, like in zip(outputs, results, traced.out_avals, strict=False):
        graph.add_output(name, value, like)
    graph.onnx.checker.check_model(graph.file, full_check=True)
    write_bytes(path, graph.file.SerializeToString())


def write_predictor(
    path: Path,
    function: Callable[[Array], Any],
    problem: Problem,
    classes: np.ndarray | None,
    extractor: Extractor | None = None,
) -> None:
    """Write the predictions of an adapted `function`. **Raises** as `write`.

    **Arguments**

    - `function`: from inputs `[n, *features]` to the log-odds of the `classes`, or to targets
      `[n, targets]`; for photographs also to the novelty `[n]`.
    - `extractor`: the frozen model that turns pictures into inputs.
    """
    features, pictures = problem.features, extractor is not None or problem.spatial
    metadata = {"features": json.dumps(features)}
    if classes is not None:
        metadata["classes"] = json.dumps(classes.tolist())

    def answers(x: Array) -> list[Array]:
        if extractor is not None:
            x = vectors_of(x, extractor)
        elif pictures:
            x = resized(x, features[0]) / 255
        found = function(x)
        first, *more = found if isinstance(found, tuple) else (found,)
        return [first if classes is None else jax.nn.softmax(first), *more]

    vectors = jax.ShapeDtypeStruct((ANY_QUERIES, *features), np.float32)
    inputs = {"pictures": ANY_PICTURES} if pictures else {"inputs": vectors}
    outputs = ("predictions",) if classes is None else ("probabilities", "novelty")
    write(path, answers, inputs, outputs, metadata)
