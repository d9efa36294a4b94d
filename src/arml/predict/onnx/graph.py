"""An ONNX graph under construction: nodes, constants, and a number of examples that is not known.

A function is traced for a prime number of examples. A dimension that is a multiple of the prime
becomes a dimension that is known only when the file runs.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from arml.results.files import extra, write_bytes

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
