"""Tasks of a user's class as data: the module of the class, and its attributes."""

import contextlib
import dataclasses
import importlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from arml.core.episodes import Problem, Tasks, problem_fields
from arml.core.own_tasks import as_tasks
from arml.datasets.folders import Progress
from arml.plugins.identity import module_name
from arml.plugins.loading import load_plugins
from arml.plugins.sources import Source, source_of, warn_of_change
from arml.results.files import RunError
from arml.tasks.splits import Splits

_MAX_ARRAY_SIZE = 10_000
"""Numbers of an array in a run's configuration."""


@dataclass(frozen=True)
class OwnOptions:
    """Tasks of a user's class: the module of its definition, and its attributes."""

    module: str = ""
    """The module; for a script, the name of its file."""
    name: str = ""
    """The class."""
    state: str = "{}"
    """The attributes, as JSON."""
    file: str = ""
    """The name of the file that defines the class, or of its installed package."""
    version: str = ""
    """A digest of that file, or the version of the package."""

    needs: ClassVar[str] = "--plugin FILE"

    @classmethod
    def of(cls, tasks: Tasks) -> "OwnOptions":
        """The options of a task distribution, or of any object that draws tasks. **Raises**
        `ValueError` in one line for a class that is defined inside a function, and for attributes
        that cannot be written as JSON."""
        as_tasks(tasks)
        kind = type(tasks)
        if "<locals>" in kind.__qualname__:
            raise ValueError(
                f"expected tasks of a class at the top of a file, got {kind.__qualname__}: move "
                "it there, or the run folder cannot be opened later"
            )
        fields = getattr(kind, "__dataclass_fields__", None)
        names = getattr(tasks, "__dict__", {}) if fields is None else fields
        state = {n: encoded(getattr(tasks, n), f"{kind.__name__}.{n}") for n in names}
        source = source_of(kind)
        # A notebook has neither file nor version.
        held_by = source if source is not None and source.version else ("", "")
        return cls(module_name(kind.__module__), kind.__qualname__, json.dumps(state), *held_by)

    def check(self) -> None:
        if not self.name:
            raise ValueError("expected tasks, got none: give arml.run(..., tasks=DISTRIBUTION)")
        try:
            _attributes(self.state)
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise ValueError(
                f"expected the attributes of tasks as JSON, got others ({error}): restore the file"
            ) from error

    def build(self, split: Path, *, progress: Progress | None = None) -> Splits:
        """All three parts are the same distribution, with different keys. **Raises** `RunError` if
        the class is not found."""
        kind = self._class()
        warn_of_change(source_of(kind), self.version, f"the tasks {self.name}")
        tasks = object.__new__(kind)
        for name, value in _attributes(self.state).items():
            object.__setattr__(tasks, name, value)
        whole = as_tasks(tasks)
        return Splits(whole, whole, whole, {})

    def _class(self) -> Any:
        load_plugins()
        # The first one: a script that is run has the same name as when it is imported.
        named = (m for name, m in list(sys.modules.items()) if module_name(name) == self.module)
        found: Any = next(named, None)
        # No other module is imported: the configuration may be a stranger's.
        if found is None and self.module.startswith("arml."):
            with contextlib.suppress(ImportError):
                found = importlib.import_module(self.module)
        for part in self.name.split("."):
            found = getattr(found, part, None)
        if not (isinstance(found, type) and callable(getattr(found, "sample", None))):
            file = self.file or self.module
            remedy = Source(self.file or "FILE.py", self.version).remedy
            if "." in self.module:
                remedy = f"import {self.module} first, or give --plugin FILE of a file that does"
            raise RunError(
                f"the tasks of this run are of the class {self.name} of {file}, which is not "
                f"loaded: {remedy}"
            )
        return found


def encoded(value: object, name: str) -> object:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Problem():
            return {"problem": dataclasses.asdict(value)}
        case tuple():
            return {"tuple": [encoded(item, name) for item in value]}
        case list():
            return [encoded(item, name) for item in value]
        case Mapping() if all(isinstance(key, str) for key in value):
            return {"mapping": {key: encoded(item, name) for key, item in value.items()}}
        case np.ndarray() | jax.Array() if (
            value.size <= _MAX_ARRAY_SIZE and value.dtype.kind in "biuf"
        ):
            kind = "jax" if isinstance(value, jax.Array) else "numpy"
            return {kind: np.asarray(value).tolist(), "dtype": str(value.dtype)}
    raise ValueError(
        f"{name}: expected a value that a run's configuration can hold (numbers, texts, lists, "
        f"arrays of at most {_MAX_ARRAY_SIZE:,} numbers), got {type(value).__name__}: make it from "
        "such values, or register options with arml.register"
    )


def _attributes(state: str) -> dict[str, Any]:
    held = json.loads(state)
    if not isinstance(held, dict):
        raise ValueError(f"expected an object, got {type(held).__name__}")
    return {name: decoded(value) for name, value in held.items()}


def decoded(value: object) -> Any:
    match value:
        case {"problem": dict(held)}:
            return Problem(**problem_fields(held))
        case {"tuple": list(items)}:
            return tuple(map(decoded, items))
        case {"mapping": dict(items)}:
            return {key: decoded(item) for key, item in items.items()}
        case {"jax": items, "dtype": dtype}:
            return jnp.asarray(items, dtype)
        case {"numpy": items, "dtype": dtype}:
            return np.asarray(items, dtype)
        case list():
            return [decoded(item) for item in value]
    return value
