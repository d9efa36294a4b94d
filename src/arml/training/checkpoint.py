"""Checkpoints of a run: Orbax saves the training state whole or not at all.

Orbax notices files that are cut short, but not all that are altered. So each checkpoint carries the
shape, the type and the SHA-256 of each of its arrays, which are verified when it is read.
"""

import contextlib
import hashlib
import logging
import re
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from arml.results.files import Json, JsonView, RunError

KEEP = 2
"""How many checkpoints are kept: the newest, and one more in case it is damaged."""
DAMAGED = "damaged"
"""Folder of a run in which damaged checkpoints are put aside."""


S = TypeVar("S")
Shapes = Mapping[str, PyTree]


class DamagedError(RunError):
    """A checkpoint that was cut short or altered."""


def _manager(folder: Path) -> Any:
    # Here, because importing Orbax takes seconds.
    import orbax.checkpoint as ocp

    # It also logs the errors that it raises, with tracebacks.
    logging.getLogger("absl").setLevel(logging.CRITICAL)
    options = ocp.CheckpointManagerOptions(max_to_keep=KEEP, enable_async_checkpointing=False)
    if jax.process_count() > 1:
        # Every device has the same arrays: one process writes them, and waits for no other.
        alone = jax.process_index()
        options.multiprocessing_options = ocp.options.MultiprocessingOptions(
            primary_host=alone, active_processes={alone}, barrier_sync_key_prefix="leader"
        )
        options.create = False
        folder.mkdir(parents=True, exist_ok=True)
    return ocp.CheckpointManager(folder.absolute(), options=options)


def named(state: PyTree) -> dict[str, PyTree]:
    """The arrays of a pytree, or their shapes, by their paths in it."""
    leaves = jax.tree_util.tree_flatten_with_path(eqx.filter(state, is_array))[0]
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def is_array(leaf: object) -> bool:
    """Whether a leaf is an array, or the shape of one."""
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def filled(like: S, arrays: Mapping[str, Any]) -> S:
    """`like` with these arrays, found by their paths; `like` may have shapes for its arrays."""
    state, static = eqx.partition(like, is_array)
    leaves = [jax.device_put(arrays[name]) for name in named(like)]
    return eqx.combine(jax.tree.unflatten(jax.tree.structure(state), leaves), static)


@contextlib.contextmanager
def _quiet_threads() -> Iterator[None]:
    """Let Orbax's own threads print nothing: our thread raises their errors again, and writes that
    end after the first has failed complain that nobody waits for them."""
    hook, unraisable = threading.excepthook, sys.unraisablehook

    def later(event: Any) -> None:
        if str(event.exc_value) != "Event loop is closed":
            unraisable(event)

    threading.excepthook, sys.unraisablehook = lambda _: None, later
    try:
        yield
    except BaseException:
        # The other writes end soon after, but nothing tells when.
        time.sleep(1.0)
        raise
    finally:
        threading.excepthook, sys.unraisablehook = hook, unraisable


def save(folder: Path, step: int, state: PyTree) -> None:
    """Save the arrays of `state` as the checkpoint of `step`, atomically.

    **Raises** `RunError` if it cannot be written; earlier checkpoints are then unchanged.
    """
    import orbax.checkpoint as ocp

    arrays = {name: np.asarray(leaf) for name, leaf in named(state).items()}
    described = _described(arrays)
    try:
        with _quiet_threads(), contextlib.closing(_manager(folder)) as manager:
            manager.save(
                step,
                args=ocp.args.StandardSave(arrays),
                force=True,
                custom_metadata={"arrays": described},
            )
    except (OSError, ValueError) as error:
        raise RunError(
            f"could not write the checkpoint of step {step} in {folder}: {_brief(error)}; earlier "
            "checkpoints are unchanged: free some space or check the folder, and run the same "
            "command again"
        ) from error


def _described(arrays: Mapping[str, np.ndarray]) -> Json:
    """Shape, type and digest of each array, in the types of JSON."""
    return {
        name: [list(array.shape), str(array.dtype), hashlib.sha256(array.tobytes()).hexdigest()]
        for name, array in arrays.items()
    }


def _steps(folder: Path) -> list[int]:
    found = [int(p.name) for p in folder.glob("[0-9]*") if p.name.isdigit() and p.is_dir()]
    return sorted(found, reverse=True)


def latest(folder: Path) -> int | None:
    """The step of the newest whole checkpoint, or None."""
    return max(_steps(folder), default=None)


def restore(folder: Path, step: int, like: S) -> S:
    """`like` with the arrays of the checkpoint of `step`; `like` may have shapes for its arrays.

    **Raises** `DamagedError` if the checkpoint was cut short or altered, and `RunError` if it
    belongs to another learner.
    """
    return filled(like, _read(folder, step, named(like)))


def restore_newest(folder: Path, like: S) -> tuple[int, S] | None:
    """The step and the state of the newest checkpoint that is not damaged; None without any.

    Newer ones, which are damaged, move to the folder `damaged` of the run, with a warning.

    **Raises** `DamagedError` if all are damaged, and `RunError` as `restore`.
    """
    damaged: list[DamagedError] = []
    for step in _steps(folder):
        try:
            state = restore(folder, step, like)
        except DamagedError as error:
            damaged.append(error)
            continue
        for bad in (each for each in _steps(folder) if each > step):
            _put_aside(folder, bad)
        if damaged:
            warnings.warn(
                f"{damaged[0]}; going on from the checkpoint of step {step}, the damaged one is "
                f"now in {folder.parent / DAMAGED}",
                stacklevel=2,
            )
        return step, state
    if damaged:
        raise DamagedError(
            f"{damaged[0]}, and no other checkpoint is left: restore it, or delete the run "
            "folder to start again"
        )
    return None


def is_sound(folder: Path, step: int) -> bool:
    """Whether the checkpoint of `step` can be read, and its digests, if it has any, match."""
    try:
        _read(folder, step, None)
    except RunError:
        return False
    return True


def _put_aside(folder: Path, step: int) -> None:
    aside = folder.parent / DAMAGED
    aside.mkdir(exist_ok=True)
    place, again = aside / str(step), 1
    while place.exists():
        place, again = aside / f"{step}-{again}", again + 1
    (folder / str(step)).rename(place)


def _read(folder: Path, step: int, expected: Shapes | None) -> Mapping[str, np.ndarray]:
    """The arrays of a checkpoint in NumPy, after checks of their digests and, unless `expected` is
    None, of their names, shapes and types."""
    import orbax.checkpoint as ocp

    place = folder / str(step)
    with _reading(place), contextlib.closing(_manager(folder)) as manager:
        stated = (manager.metadata(step).custom_metadata or {}).get("arrays")
    if expected is not None and stated is not None:
        _check_like(place, stated, expected)
    # Placeholders that take no memory.
    targets = expected and {
        name: np.broadcast_to(np.zeros((), leaf.dtype), leaf.shape)
        for name, leaf in expected.items()
    }
    with _reading(place), contextlib.closing(_manager(folder)) as manager:
        found = manager.restore(step, args=ocp.args.StandardRestore(targets))
        arrays = {name: np.asarray(found[name]) for name in expected or found}
    described = _described(arrays)
    if stated is not None and stated != described:
        raise DamagedError(f"the checkpoint {place} was altered: its arrays have changed")
    if expected is not None:
        _check_like(place, described, expected)
    return arrays


@contextlib.contextmanager
def _reading(place: Path) -> Iterator[None]:
    try:
        with _quiet_threads():
            yield
    except Exception as error:
        raise DamagedError(f"the checkpoint {place} cannot be read ({_brief(error)})") from error


def _check_like(place: Path, found: JsonView, expected: Shapes) -> None:
    wanted = {name: [list(leaf.shape), str(leaf.dtype)] for name, leaf in expected.items()}
    given = {name: about[:2] for name, about in found.items()}
    odd = sorted(name for name in {*wanted, *given} if wanted.get(name) != given.get(name))
    if odd:
        name = odd[0]
        raise RunError(
            f"the checkpoint {place} is of another learner: expected {name} as "
            f"{_shown(wanted.get(name))}, got {_shown(given.get(name))}; restore the "
            "run's own config.json and checkpoints, or train in a new folder"
        )


def _shown(about: Sequence[object] | None) -> str:
    return "no array" if about is None else f"{about[1]}{about[0]}"


def _brief(error: BaseException) -> str:
    text = str(error).strip()
    # The storage gives the system's reason last, after long paths.
    if reason := re.search(r": ([^:]+) \[os_error_code", text):
        return reason[1]
    return text.splitlines()[0][:200] if text else type(error).__name__
