"""From a traced JAX function to ONNX operators, one primitive at a time.

A `Value` is a constant or the name of a node's output. An array that was broadcast keeps its small
shape as long as only operators read it that broadcast on their own.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import jax
import numpy as np
from jax.extend.core import Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun
from jaxtyping import Array

from arml.nn.heads import shrunk_by_products
from arml.predict.onnx.graph import Graph, prime_of
from arml.predict.onnx.operators import ELEMENTWISE, WHOLE, Call
from arml.predict.onnx.values import Params, Typed, Value, constant, given


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
