"""The identity of a value: a digest that two values share only if they have the same content.

- Data count by their content, and objects by the state that `copy` would copy.
- Functions count by their bytecode, constants, defaults, closure and the globals that they read, so
  the digest depends on the version of Python. Classes count by their name, bases, methods and
  constants.
- Functions and classes of Python, of this package and of its dependencies count by their name, and
  those of other installed packages by their name and the package's version.

A value whose content cannot be read, such as an open file, has no identity.
"""

import copyreg
import dis
import hashlib
import sys
import sysconfig
from dataclasses import fields, is_dataclass
from functools import cached_property
from inspect import getattr_static, isdatadescriptor
from pathlib import Path
from types import CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from arml.plugins.sources import package_of

_PLAIN_TYPES = (type(None), str, bytes, bool, int, float, complex)
CONTENT_ATTRIBUTES: dict[type, tuple[str, ...]] = {
    ModuleType: ("__name__",),
    MethodType: ("__func__", "__self__"),
    property: ("fget",),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    cached_property: ("func",),
}
"""The attributes that are the content of an object, by its type."""
NAMED_PACKAGES = ("arml", "equinox", "jax", "jaxlib", "jaxtyping", "numpy", "optax", "scipy")
"""Packages whose functions and classes count by their name alone."""
STDLIB_FOLDER = sysconfig.get_path("stdlib")


def identity_of(value: object) -> str:
    """The name of the value's class, and twelve hexadecimal digits of a digest of its content.

    **Raises** `ValueError` in one line for content that cannot be read.
    """
    content, name = _Content(), type(value).__qualname__
    try:
        content.add(value)
    except (_UnknownError, RecursionError) as error:
        what = error if isinstance(error, _UnknownError) else "an object that holds itself"
        raise ValueError(
            f"{name}: expected content that can be compared, so that only scores on the same tasks "
            f"are paired, got {what}: give {name} a method identity(), which returns a text"
        ) from error
    return f"{class_name(type(value))} {content.digest.hexdigest()[:12]}"


def class_name(kind: Any) -> str:
    """`module.Class`, with the module's name as `module_name` gives it."""
    return f"{module_name(kind.__module__ or '')}.{kind.__qualname__}"


def module_name(name: str) -> str:
    """The name of a module; for a script the name of its file, whether it is run or imported."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if "." in name or file is None or Path(file).name == "__init__.py":
        return name
    return Path(file).stem


class _UnknownError(Exception):
    """A value whose content cannot be read."""


def _library(module: str) -> str | None:
    """The version of the installed package of a module; empty if the version does not count, and
    None for a module of the user."""
    top = module.partition(".")[0]
    file = getattr(sys.modules.get(module), "__file__", None)
    if top in NAMED_PACKAGES or (file is None and top in sys.stdlib_module_names):
        return ""
    if {"site-packages", "dist-packages"} & {*Path(file or "").parts}:
        package = package_of(module)
        return "" if package is None else package.version
    return "" if file and file.startswith(STDLIB_FOLDER) else None


class _Content:
    """A digest of values of any kind."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.seen: dict[int, tuple[int, object]] = {}
        """The functions and classes added so far, which may refer to each other."""

    def note(self, *parts: object) -> None:
        """Add each part with its length, so ("ab", "c") and ("a", "bc") have different digests."""
        for part in parts:
            data = part if isinstance(part, bytes) else str(part).encode()
            self.digest.update(len(data).to_bytes(8, "little") + data)

    def add(self, *values: Any) -> None:
        """Add the content of values."""
        for value in values:
            kind = type(value)
            if kind in _PLAIN_TYPES:
                self.note(kind.__name__, repr(value))
            elif isinstance(value, np.ndarray | np.generic | jax.Array):
                self.array(value)
            elif kind in (list, tuple, dict, MappingProxyType, set, frozenset):
                self.note(kind.__name__, len(value))
                if kind in (set, frozenset):
                    self.note(*sorted(identity_of(item) for item in value))
                else:
                    self.add(*(value if kind in (list, tuple) else value.items()))
            elif kind in CONTENT_ATTRIBUTES:
                content = [getattr(value, name) for name in CONTENT_ATTRIBUTES[kind]]
                self.add(kind.__name__, *content)
            elif isinstance(value, type) or isinstance(getattr(value, "__qualname__", None), str):
                self.named(value)
            elif is_dataclass(kind):
                self.add(kind, {f.name: getattr(value, f.name, None) for f in fields(kind)})
            else:
                self.object(value)

    def array(self, value: Any) -> None:
        """Add the shape, type and elements of an array, and the mask of a masked array."""
        if isinstance(value, jax.core.Tracer):
            raise _UnknownError("an array that JAX traces")
        if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            value = jax.random.key_data(value)
        array = np.asarray(value)
        self.note("array", array.dtype, array.shape)
        if isinstance(value, np.ma.MaskedArray):
            self.note(np.ma.getmaskarray(value).tobytes())
        if array.dtype.hasobject:
            self.add(array.tolist())
        else:
            self.note(np.ascontiguousarray(array).tobytes())

    def named(self, value: Any) -> None:
        """Add a function or a class."""
        function = isinstance(value, FunctionType)
        place = getattr(value, "__module__", None)
        # Not the function's `__module__`: a wrapper that JAX made has that of the user's function.
        place = value.__globals__.get("__name__") if function else place
        version = _library(place or "")
        new = len(self.seen), value
        known = self.seen.setdefault(id(value), new)
        if version is None and known is not new:
            self.note("number", known[0])
        elif version is not None:
            self.note(place, value.__qualname__, version)
            if function and "<locals>" in value.__code__.co_qualname:  # a wrapper of a function
                self.add([cell.cell_contents for cell in value.__closure__ or ()])
        elif function:
            self.code(value.__code__, value.__globals__, value.__doc__)
            self.add(value.__defaults__, value.__kwdefaults__)
            self.add([cell.cell_contents for cell in value.__closure__ or ()])
        elif isinstance(value, type):
            self.class_(value)
        elif (
            wrapped := getattr(value, "__wrapped__", None)
        ) is not None:  # by jax.jit, for example
            self.add(type(value), wrapped)
        else:
            self.object(value)

    def code(self, code: CodeType, scope: dict[str, Any], doc: str | None = None) -> None:
        """Add bytecode, constants and the globals that the code reads, but not the docstring."""
        self.note(code.co_code, code.co_exceptiontable, code.co_names)
        self.note(code.co_argcount, code.co_kwonlyargcount)
        for constant in code.co_consts[doc is not None and code.co_consts[:1] == (doc,) :]:
            if isinstance(constant, CodeType):
                self.code(constant, scope)
            else:
                self.add(constant)
        steps = list(dis.get_instructions(code))
        for i, step in enumerate(steps):
            if step.opname not in ("LOAD_GLOBAL", "LOAD_NAME") or step.argval not in scope:
                continue
            found = scope[step.argval]
            for later in steps[i + 1 :]:  # helpers.scale reads a global of another module
                attribute = later.opname in ("LOAD_ATTR", "LOAD_METHOD")
                if type(found) is not ModuleType or not attribute:
                    break
                found = getattr(found, later.argval, None)
            self.add(found)

    def class_(self, kind: type) -> None:
        """Add name, bases, methods and constants of a class, without what Python or Equinox add."""
        self.note(class_name(kind))
        self.add(*kind.__bases__)
        own = {"_abc_impl", *getattr(kind, "__dataclass_fields__", {})}
        for name, item in sorted(vars(kind).items()):
            written = isinstance(item, FunctionType) and item.__code__.co_filename != "<string>"
            slot = isdatadescriptor(item) and type(item) is not property
            if name not in own and (written or not (name.startswith("__") or slot)):
                self.add(name, item)

    def object(self, value: Any) -> None:
        """Add any other object: its class, and the state that a copy would have."""
        kind = type(value)
        try:
            reduce = copyreg.dispatch_table.get(kind)
            made: Any = value.__reduce_ex__(4) if reduce is None else reduce(value)
        except Exception as error:
            raise _UnknownError(f"a value of {class_name(kind)}") from error
        if isinstance(made, str):  # the name of a global
            self.note(class_name(kind), made)
            return
        make, arguments, state, items, pairs = (*made, *[None] * 5)[:5]
        if isinstance(state, dict):  # without cached properties
            static = {name: getattr_static(kind, name, None) for name in state}
            state = {k: v for k, v in state.items() if not isinstance(static[k], cached_property)}
        self.add(kind, make, arguments, state, [*(items or ())], [*(pairs or ())])
