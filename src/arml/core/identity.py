"""A digest of a value: equal for equal values, in every process and on every machine."""

import dataclasses
import hashlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import jax
import numpy as np


def identity_of(value: object) -> str:
    """The name of the value's class, and twelve hexadecimal digits of a digest of its content."""
    digest = hashlib.sha256()
    for part in _parts(value):
        digest.update(len(part).to_bytes(8, "little") + part)
    return f"{class_name(type(value))} {digest.hexdigest()[:12]}"


def class_name(kind: object) -> str:
    """`module.Class`, with the module's name as `module_name` gives it."""
    module = module_name(getattr(kind, "__module__", "") or "")
    return f"{module}.{getattr(kind, '__qualname__', type(kind).__qualname__)}"


def module_name(name: str) -> str:
    """The name of a module; for a script the name of its file, whether it is run or imported."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if "." in name or file is None or Path(file).name == "__init__.py":
        return name
    return Path(file).stem


def _parts(value: object) -> Iterator[bytes]:
    """The value as a series of byte strings. `identity_of` adds the length of each: without it, two
    values that are cut in different places could have the same digest."""
    if isinstance(value, str | bytes | bool | int | float | complex | None):
        yield f"{type(value).__name__} {value!r}".encode()
    elif isinstance(value, np.ndarray | np.generic | jax.Array):
        if isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
            value = jax.random.key_data(value)
        array = np.asarray(value)
        yield f"array {array.dtype.str} {array.shape}".encode()
        yield np.ascontiguousarray(array).tobytes()
    elif isinstance(value, Mapping):
        yield f"mapping {len(value)}".encode()
        for key in value:
            yield from _parts(key)
            yield from _parts(value[key])
    elif isinstance(value, list | tuple):
        yield f"{type(value).__name__} {len(value)}".encode()
        for item in value:
            yield from _parts(item)
    elif isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        yield class_name(value).encode()
        for cell in getattr(value, "__closure__", None) or ():
            yield from _parts(cell.cell_contents)
    else:
        yield class_name(type(value)).encode()
        if dataclasses.is_dataclass(value):
            held = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        else:
            held = getattr(value, "__dict__", {})
        yield from _parts(held)
