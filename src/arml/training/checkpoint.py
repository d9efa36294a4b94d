"""Checkpoints of a run: the training state, saved whole or not at all, by Orbax."""

import contextlib
import logging
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from arml.results.folder import RunError

KEEP = 2
"""Checkpoints that stay: the newest, and one more in case."""


def _manager(folder: Path) -> Any:
    # Orbax takes seconds to import: only runs pay for it.
    import orbax.checkpoint as ocp

    # It logs, with a traceback, what it raises as well.
    logging.getLogger("absl").setLevel(logging.CRITICAL)
    options = ocp.CheckpointManagerOptions(max_to_keep=KEEP, enable_async_checkpointing=False)
    if jax.process_count() > 1:
        # What is on every device needs one writer, which then has nobody to wait for.
        alone = jax.process_index()
        options.multiprocessing_options = ocp.options.MultiprocessingOptions(
            primary_host=alone, active_processes={alone}, barrier_sync_key_prefix="leader"
        )
        options.create = False
        folder.mkdir(parents=True, exist_ok=True)
    return ocp.CheckpointManager(folder.absolute(), options=options)


def named(state: Any) -> dict[str, Any]:
    """The arrays of a pytree, or their shapes, by where they stand in it."""
    leaves = jax.tree_util.tree_flatten_with_path(eqx.filter(state, is_array))[0]
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def is_array(leaf: Any) -> bool:
    """Whether it is an array, or the shape of one."""
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


@contextlib.contextmanager
def _quiet_threads() -> Iterator[None]:
    """Let Orbax's own threads print nothing: what they raise is raised again in ours, and writes
    that end after the first has failed complain that nobody waits for them."""
    hook, unraisable = threading.excepthook, sys.unraisablehook

    def later(event: Any) -> None:
        if str(event.exc_value) != "Event loop is closed":
            unraisable(event)

    threading.excepthook, sys.unraisablehook = lambda _: None, later
    try:
        yield
    except BaseException:
        # The other writes end soon after; nothing tells when.
        time.sleep(1.0)
        raise
    finally:
        threading.excepthook, sys.unraisablehook = hook, unraisable


def save(folder: Path, step: int, state: Any) -> None:
    """Save the arrays of `state` as the checkpoint of `step`, atomically.

    **Raises** `RunError` if the disk does not take it; older checkpoints stay as they were.
    """
    import orbax.checkpoint as ocp

    arrays = {name: np.asarray(leaf) for name, leaf in named(state).items()}
    try:
        with _quiet_threads(), contextlib.closing(_manager(folder)) as manager:
            manager.save(step, args=ocp.args.StandardSave(arrays), force=True)
    except (OSError, ValueError) as error:
        raise RunError(
            f"could not write the checkpoint of step {step} in {folder}: {_brief(error)}; earlier "
            "checkpoints are unchanged: free some space or check the folder, and run the same "
            "command again"
        ) from error


def latest(folder: Path) -> int | None:
    """The step of the newest whole checkpoint, or None."""
    steps = [int(p.name) for p in folder.glob("[0-9]*") if p.name.isdigit() and p.is_dir()]
    return max(steps, default=None)


def restore(folder: Path, step: int, like: Any) -> Any:
    """`like`, of which the arrays' shapes are enough, with those of the checkpoint of `step`.

    **Raises** `RunError` if the checkpoint is damaged or belongs to another learner.
    """
    import orbax.checkpoint as ocp

    expected = {
        name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for name, leaf in named(like).items()
    }
    try:
        with contextlib.closing(_manager(folder)) as manager:
            arrays = manager.restore(step, args=ocp.args.StandardRestore(expected))
    except Exception as error:
        raise RunError(
            f"the checkpoint {folder / str(step)} cannot be read ({_brief(error)}): expected the "
            "state of this run; delete that folder to go on from the one before it, or the whole "
            "run folder to start anew"
        ) from error
    state, static = eqx.partition(like, is_array)
    structure = jax.tree.structure(state)
    leaves = [jnp.asarray(arrays[name]) for name in expected]
    return eqx.combine(jax.tree.unflatten(structure, leaves), static)


def _brief(error: BaseException) -> str:
    text = str(error).strip()
    # The storage names the system's reason last, after long paths.
    if reason := re.search(r": ([^:]+) \[os_error_code", text):
        return reason[1]
    return text.splitlines()[0][:200] if text else type(error).__name__
