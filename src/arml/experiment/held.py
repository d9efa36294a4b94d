"""`Splits` that were given to `arml.run`, as data: the parts as text, their arrays in a file of the
run folder."""

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from arml.core.losses import score_of
from arml.core.own_tasks import own_of
from arml.datasets.folders import Progress
from arml.results.files import RunError, read_arrays, serialised
from arml.tasks.own import OwnOptions, decoded, encoded
from arml.tasks.splits import Splits

ARRAYS_FILE = "tasks.safetensors"
"""The file of the run folder with the arrays."""


@dataclass(frozen=True)
class SplitsOptions:
    """Tasks that were given as `arml.Splits`."""

    state: str = "{}"
    """The parts, as JSON."""
    sha256: str = ""
    """The checksum of the file with their arrays."""

    needs: ClassVar[str] = "--plugin FILE"

    @classmethod
    def of(cls, splits: Splits) -> tuple["SplitsOptions", bytes]:
        """The options, and the content of the file with the arrays. **Raises** `ValueError` in one
        line for tasks that a folder cannot hold."""
        arrays: dict[str, np.ndarray] = {}
        parts = [own_of(part) for part in splits[:3]]
        known = {id(part): part for part in parts}
        state = {
            "metric": score_of(splits.train.problem)[0],
            "tasks": [_held(part, str(i), arrays) for i, part in enumerate(known.values())],
            "parts": [[*known].index(id(part)) for part in parts],
            "sources": dict(splits.sources),
            "inputs": splits.inputs,
        }
        data = serialised(arrays)
        return cls(json.dumps(state), hashlib.sha256(data).hexdigest()), data

    @property
    def metric(self) -> str:
        """accuracy or mse."""
        return str(json.loads(self.state)["metric"])

    def check(self) -> None:
        """Raise `ValueError` if there are no tasks."""
        if not self.sha256:
            raise ValueError("expected tasks, got none: give arml.run(..., tasks=SPLITS)")

    def build(self, split: Path, *, progress: Progress | None = None) -> Splits:
        """The tasks. **Raises** `RunError` if their arrays or their classes are missing."""
        arrays = read_arrays(split.parent / ARRAYS_FILE, self.sha256)
        try:
            state = json.loads(self.state)
            tasks = [_made(one, arrays) for one in state["tasks"]]
            train, validation, test = (tasks[i] for i in state["parts"])
            return Splits(train, validation, test, state["sources"], state["inputs"])
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            if isinstance(error, RunError):
                raise
            raise RunError(
                f"{split.parent}: its tasks cannot be read ({error}): restore config.json"
            ) from error


def _held(value: Any, name: str, arrays: dict[str, np.ndarray]) -> object:
    kind = type(value)
    if isinstance(value, np.ndarray | jax.Array):
        arrays[name] = np.asarray(value)
        return {"array": name, "jax": isinstance(value, jax.Array)}
    if isinstance(value, eqx.Module) and kind.__module__.startswith("arml."):
        fields = [field.name for field in dataclasses.fields(value)]
        held = {one: _held(getattr(value, one), f"{name}.{one}", arrays) for one in fields}
        return {"class": f"{kind.__module__}:{kind.__qualname__}", "fields": held}
    if hasattr(value, "sample"):
        return {"own": dataclasses.asdict(OwnOptions.of(value))}
    return encoded(value, f"{kind.__name__} {name}")


def _made(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    match value:
        case {"array": str(name), "jax": bool(on_device)}:
            return jnp.asarray(arrays[name]) if on_device else arrays[name]
        case {"own": dict(options)}:
            return OwnOptions(**options).build(Path()).train
        case {"class": str(place), "fields": dict(fields)} if place.startswith("arml."):
            kind = EntryPoint("", place, "").load()
            if not (isinstance(kind, type) and issubclass(kind, eqx.Module)):
                raise TypeError(f"{place} is not a class of tasks")
            made = object.__new__(kind)
            for name, one in fields.items():
                object.__setattr__(made, name, _made(one, arrays))
            return made
    return decoded(value)
