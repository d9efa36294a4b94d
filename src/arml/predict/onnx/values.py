"""What a variable of a traced function is in an ONNX graph."""

from dataclasses import dataclass
from typing import Any

import numpy as np

Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Value:
    """What a variable of the traced function is in the graph."""

    shape: Shape
    dtype: Any
    own: Shape
    """The shape of what is stored; its dimensions of 1 are still to be broadcast to `shape`."""
    array: Any = None
    name: str = ""


def constant(array: Any) -> Value:
    """A value that is known now."""
    shape = tuple(np.shape(array))
    return Value(shape, array.dtype, shape, array=array)


def given(name: str, shape: Shape, dtype: Any) -> Value:
    """A value that is known when the file runs."""
    return Value(shape, np.dtype(dtype), shape, name=name)
