"""Variables of a traced function, in an ONNX graph."""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import DTypeLike, PyTree

from arml.results.files import JsonView

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
