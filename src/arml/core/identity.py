"""The identity of a value: a digest that two values share only if they have the same content.

- Data count by their content, and objects by the state that `copy` would copy.
- Functions count by their bytecode, constants, defaults, closure and the globals that they read, so
  the digest depends on the version of Python. Classes count by their name, bases, methods and
  constants.
- Functions and classes of Python, of this package and of its dependencies count by their name, and
  those of other installed packages by their name and the package's version.

A value whose content cannot be read, such as an open file, has no identity.
"""

import dis
import hashlib
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cached_property
from inspect import getattr_static
from pathlib import Path
from types import (
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from arml.core.registry import package_of

PLAIN = (type(None), str, bytes, bool, int, float, complex)
NAMED = ("arml", "equinox", "jax", "jaxlib", "jaxtyping", "numpy", "optax", "scipy")
"""Packages whose functions and classes count by their name alone."""
STDLIB = sysconfig.get_path("stdlib")


def identity_of(value: object) -> str:
    """The name of the value's class, and twelve hexadecimal digits of a digest of its content.

    **Raises** `ValueError` in one line for content that cannot be read.
    """
    digest, name = hashlib.sha256(), type(value).__qualname__
    try:
        # With the length of each part: without it, two values that are cut in different places
        # could have the same digest.
        for part in _Content().parts(value):
            digest.update(len(part).to_bytes(8, "little") + part)
    except (_UnknownError, RecursionError) as error:
        what = error if isinstance(error, _UnknownError) else "an object that holds itself"
        raise ValueError(
            f"{name}: expected content that can be compared, so that only scores on the same tasks "
            f"are paired, got {what}: give {name} a method identity(), which returns a text"
        ) from error
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


class _UnknownError(Exception):
    """A value whose content cannot be read."""


def _library(module: str) -> str | None:
    """The version of the installed package that a module is of, as far as it counts; None for a
    module of the user's own."""
    top = module.partition(".")[0]
    if top in NAMED:
        return ""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return "" if top in sys.stdlib_module_names else None
    if {"site-packages", "dist-packages"} & {*Path(file).parts}:
        package = package_of(module)
        return "" if package is None else package.version
    return "" if file.startswith(STDLIB) else None


class _Content:
    """Gives the content of a value as a series of byte strings."""

    def __init__(self) -> None:
        self.seen: dict[int, tuple[int, object]] = {}
        """The functions and classes so far, which may refer to each other."""

    def parts(self, value: Any) -> Iterator[bytes]:
        """The content of a value of any kind."""
        kind = type(value)
        if kind in PLAIN:
            yield f"{kind.__name__} {value!r}".encode()
        elif isinstance(value, np.ndarray | np.generic | jax.Array):
            yield from self.array(value)
        elif kind in (list, tuple):
            yield f"{kind.__name__} {len(value)}".encode()
            for item in value:
                yield from self.parts(item)
        elif kind in (dict, MappingProxyType):
            yield f"mapping {len(value)}".encode()
            for item in value.items():
                yield from self.parts(item)
        elif kind in (set, frozenset):
            yield f"{kind.__name__} {len(value)}".encode()
            yield from sorted(b"".join(self.parts(item)) for item in value)
        elif kind is ModuleType:
            yield f"module {value.__name__}".encode()
        elif kind is MethodType:
            yield from self.parts(("method", value.__func__, value.__self__))
        elif kind in (property, staticmethod, classmethod, cached_property):
            wrapped = (getattr(value, name, None) for name in ("fget", "__func__", "func"))
            yield from self.parts((kind.__name__, *wrapped))
        elif isinstance(value, type) or isinstance(getattr(value, "__qualname__", None), str):
            yield from self.named(value)
        elif is_dataclass(kind):
            state = {field.name: getattr(value, field.name, None) for field in fields(kind)}
            yield from self.parts((kind, state))
        else:
            yield from self.object(value)

    def array(self, value: Any) -> Iterator[bytes]:
        """Shape, type and elements; the mask of a masked array, too."""
        if isinstance(value, jax.core.Tracer):
            raise _UnknownError("an array that JAX traces")
        if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            value = jax.random.key_data(value)
        array = np.asarray(value)
        yield f"array {array.dtype} {array.shape}".encode()
        if isinstance(value, np.ma.MaskedArray):
            yield np.ma.getmaskarray(value).tobytes()
        if array.dtype.hasobject:
            yield from self.parts(array.tolist())
        else:
            yield np.ascontiguousarray(array).tobytes()

    def named(self, value: Any) -> Iterator[bytes]:
        """A function or a class."""
        function = isinstance(value, FunctionType)
        place = getattr(value, "__module__", None)
        # Not the function's `__module__`, which is the user's where JAX wraps a user's function.
        place = value.__globals__.get("__name__") if function else place
        version = _library(place or "")
        known, _ = self.seen.setdefault(id(value), (len(self.seen), value))
        if version is not None:
            yield f"{place}.{value.__qualname__} {version}".encode()
            if function and "<locals>" in value.__code__.co_qualname:  # a wrapper
                yield from self.closure(value)
        elif known < len(self.seen) - 1:
            yield f"number {known}".encode()
        elif function:
            yield from self.code(value.__code__, value.__globals__, value.__doc__)
            yield from self.parts((value.__defaults__, value.__kwdefaults__))
            yield from self.closure(value)
        elif isinstance(value, type):
            yield from self.class_(value)
        elif (wrapped := getattr(value, "__wrapped__", None)) is not None:  # by jax.jit, say
            yield from self.parts((type(value), wrapped))
        else:
            yield from self.object(value)

    def closure(self, function: FunctionType) -> Iterator[bytes]:
        """The values of the variables that a function has from the functions around it."""
        for cell in function.__closure__ or ():
            yield from self.parts(cell.cell_contents)

    def code(
        self, code: CodeType, scope: dict[str, Any], doc: str | None = None
    ) -> Iterator[bytes]:
        """Bytecode and constants, and the globals that the code reads, but not the docstring."""
        yield code.co_code + code.co_exceptiontable
        yield repr((code.co_names, code.co_argcount, code.co_kwonlyargcount)).encode()
        for constant in code.co_consts[doc is not None and code.co_consts[:1] == (doc,) :]:
            if isinstance(constant, CodeType):
                yield from self.code(constant, scope)
            else:
                yield from self.parts(constant)
        steps = list(dis.get_instructions(code))
        for i, step in enumerate(steps):
            if step.opname not in ("LOAD_GLOBAL", "LOAD_NAME") or step.argval not in scope:
                continue
            found = scope[step.argval]
            for later in steps[i + 1 :]:  # helpers.scale reads a global of another module
                if not isinstance(found, ModuleType) or later.opname not in ATTRIBUTES:
                    break
                found = getattr(found, later.argval, None)
            yield from self.parts(found)

    def class_(self, kind: type) -> Iterator[bytes]:
        """Name, bases, methods and constants; those that Python or Equinox add count nothing."""
        yield class_name(kind).encode()
        for base in kind.__bases__:
            yield from self.named(base)
        own = getattr(kind, "__dataclass_fields__", {})
        for name, item in sorted(vars(kind).items()):
            special = name.startswith("__")
            written = isinstance(item, FunctionType) and item.__code__.co_filename != "<string>"
            slots = isinstance(item, MemberDescriptorType | GetSetDescriptorType)
            if (special and not written) or name == "_abc_impl" or name in own or slots:
                continue
            yield name.encode()
            yield from self.parts(item)

    def object(self, value: Any) -> Iterator[bytes]:
        """Any other object: its class, and the state that a copy has."""
        kind = type(value)
        try:
            made = value.__reduce_ex__(4)
        except Exception as error:
            raise _UnknownError(f"a value of {class_name(kind)}") from error
        if isinstance(made, str):  # the name of a global
            yield f"{class_name(kind)} {made}".encode()
            return
        make, arguments, state, items, pairs = (*made, *[None] * 5)[:5]
        if isinstance(state, dict):  # without values that are computed when they are read
            static = {name: getattr_static(kind, name, None) for name in state}
            state = {k: v for k, v in state.items() if not isinstance(static[k], cached_property)}
        yield from self.parts((kind, make, arguments, state, [*(items or ())], [*(pairs or ())]))


ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
