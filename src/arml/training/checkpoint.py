"""Checkpoints of a run: one safetensors file for each, which a rename puts in its place whole.

The header has the SHA-256 of the arrays, which is verified when the file is read: a disk or a copy
may damage what was written.
"""

import hashlib
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import ArrayLike, PyTree
from safetensors import SafetensorError, safe_open

from arml.results.files import RunError, atomically, serialised

_KEPT_CHECKPOINTS = 2
"""The newest checkpoint, and one more in case it is damaged."""
FILE_ENDING = ".safetensors"
DAMAGED_FOLDER = "damaged"
"""The folder of a run for damaged checkpoints."""


S = TypeVar("S")


class DamagedError(RunError):
    """A checkpoint that was cut short or altered."""


def named(state: PyTree) -> dict[str, PyTree]:
    """The arrays of a pytree, or their shapes, by their paths in it."""
    leaves = jax.tree_util.tree_flatten_with_path(eqx.filter(state, is_array))[0]
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def is_array(leaf: object) -> bool:
    """Whether a leaf is an array, or the shape of one."""
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def filled(like: S, arrays: Mapping[str, ArrayLike]) -> S:
    """`like` with these arrays, found by their paths; `like` may have shapes for its arrays."""
    state, static = eqx.partition(like, is_array)
    leaves = [jax.device_put(arrays[name]) for name in named(like)]
    combined: S = eqx.combine(jax.tree.unflatten(jax.tree.structure(state), leaves), static)
    return combined


def place_of(folder: Path, step: int) -> Path:
    """The file of the checkpoint of `step`."""
    return folder / f"{step}{FILE_ENDING}"


def save(folder: Path, step: int, state: PyTree) -> None:
    """Save the arrays of `state` as the checkpoint of `step`, atomically. **Raises** `RunError` if
    it cannot be written; earlier checkpoints are then unchanged."""
    arrays = {name: np.asarray(leaf) for name, leaf in named(state).items()}
    data = serialised(arrays, sha256=_digest(arrays))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        atomically(place_of(folder, step), lambda file: file.write(data))
    except OSError as error:
        raise RunError(
            f"could not write the checkpoint of step {step} in {folder}: "
            f"{error.strerror or error}; earlier checkpoints are unchanged: free some space or "
            "check the folder, and run the same command again"
        ) from error
    for old in _steps(folder)[_KEPT_CHECKPOINTS:]:
        place_of(folder, old).unlink(missing_ok=True)


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of the names, types, shapes and values of arrays."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _steps(folder: Path) -> list[int]:
    """The steps of the checkpoints, the newest first."""
    found = [int(path.stem) for path in folder.glob(f"*{FILE_ENDING}") if path.stem.isdigit()]
    return sorted(found, reverse=True)


def latest(folder: Path) -> int | None:
    """The step of the newest checkpoint, or None."""
    return max(_steps(folder), default=None)


def restore(folder: Path, step: int, like: S) -> S:
    """`like`, which may have shapes for its arrays, with those of the checkpoint of `step`.
    **Raises** `DamagedError` if the checkpoint was cut short or altered, and `RunError` if it
    belongs to another learner."""
    arrays = _read(path := place_of(folder, step))
    wanted, found = (
        {name: f"{leaf.dtype}{list(leaf.shape)}" for name, leaf in leaves.items()}
        for leaves in (named(like), arrays)
    )
    for name in sorted({*wanted, *found}):
        if wanted.get(name) != found.get(name):
            raise RunError(
                f"the checkpoint {path} is of another learner: expected {name} as "
                f"{wanted.get(name, 'no array')}, got {found.get(name, 'no array')}; restore the "
                "run's own config.json and checkpoints, or train in a new folder"
            )
    return filled(like, arrays)


def restore_newest(folder: Path, like: S) -> tuple[int, S] | None:
    """The step and the state of the newest checkpoint that is not damaged; None without any. Newer
    ones, which are damaged, move to the folder `damaged` of the run, with a warning. **Raises**
    `DamagedError` if all are damaged, and `RunError` as `restore`."""
    errors: dict[int, DamagedError] = {}
    for step in _steps(folder):
        try:
            state = restore(folder, step, like)
        except DamagedError as error:
            errors[step] = error
            continue
        aside = folder.parent / DAMAGED_FOLDER
        for damaged, why in errors.items():
            aside.mkdir(exist_ok=True)
            os.replace(place_of(folder, damaged), place_of(aside, damaged))
            said = f"going on from the checkpoint of step {step}, the damaged one is now in {aside}"
            warnings.warn(f"{why}; {said}", stacklevel=2)
        return step, state
    if errors:
        raise DamagedError(
            f"{next(iter(errors.values()))}, and no other checkpoint is left: restore it, or "
            "delete the run folder to start again"
        )
    return None


def is_sound(folder: Path, step: int) -> bool:
    """Whether the checkpoint of `step` can be read, and its digest matches."""
    try:
        _read(place_of(folder, step))
    except RunError:
        return False
    return True


def _read(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a checkpoint, after a check of their digest."""
    try:
        with safe_open(path, framework="numpy") as file:
            stated = (file.metadata() or {}).get("sha256")
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, ValueError, SafetensorError) as error:
        raise DamagedError(f"the checkpoint {path} cannot be read ({error})") from error
    if _digest(arrays) != stated:
        raise DamagedError(f"the checkpoint {path} was altered: its digest does not match")
    return arrays
