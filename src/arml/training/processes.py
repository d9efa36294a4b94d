"""Several processes, on one machine or many, share one run.

Only the first process reads and writes the run folder and prints. Every process draws and learns
its own tasks. In a run of one process these functions do nothing.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import equinox as eqx
import jax
import numpy as np
from jax.experimental import multihost_utils

from arml.results.files import RunError

AUTO = "auto"
"""A coordinator for which JAX finds the address, the number of processes and the number of this
one: under SLURM, Open MPI, Kubernetes, or on TPU pods."""
LENGTH = 400
"""Bytes of a message from one process to the others."""


def join(coordinator: str, processes: int | None, process: int | None) -> None:
    """Let this process join a run as number `process` of `processes`, counted from 0. They meet at
    the address `coordinator`, HOST:PORT of process 0.

    Call it before JAX touches a device. It returns when all processes have joined.

    **Raises** `ValueError` in one line if the address or the numbers are invalid, and `RunError`
    if the others cannot be reached.
    """
    found = coordinator == AUTO
    if not found:
        if not (coordinator.rpartition(":")[0] and coordinator.rpartition(":")[2].isdigit()):
            raise ValueError(
                f"coordinator must be HOST:PORT of process 0, or {AUTO}, got {coordinator!r}: "
                "change it"
            )
        if processes is None or process is None:
            raise ValueError(
                "expected the number of processes and of this process with a coordinator, got "
                f"{processes} and {process}: give both"
            )
        if not 0 <= process < processes:
            raise ValueError(
                "process must be from 0 to the number of processes less 1, got "
                f"{process} of {processes}: change it"
            )
    try:
        jax.distributed.initialize(None if found else coordinator, processes, process)
    except (RuntimeError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        hint = (
            "start it under srun, mpirun or Kubernetes, or give HOST:PORT"
            if found
            else "check the address, and that every process was started"
        )
        raise RunError(f"the processes of the run could not meet ({first}); {hint}") from error


def alone() -> bool:
    """Whether this process is the whole run."""
    # Unlike `jax.process_count()`, this does not touch a device.
    return not jax.distributed.is_initialized()


def leads() -> bool:
    """Whether this process is the one that writes and prints."""
    return alone() or jax.process_index() == 0


class LostError(RunError):
    """Another process of the run has ended."""


@contextmanager
def attended() -> Iterator[None]:
    """Raise `LostError` if an exchange within the block fails because another process has ended."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if alone() or "RESOURCE_EXHAUSTED" in str(error):
            raise
        first = str(error).strip().splitlines()[0][:200]
        raise LostError(
            f"another process of the run has ended ({first}): read its message; to resume, start "
            "all of them again with the same commands"
        ) from error


def _told(text: str) -> list[str]:
    """The messages of all processes; each process sends one at the same place."""
    own = np.zeros(LENGTH, np.uint8)
    data = text.encode()[:LENGTH]
    own[: len(data)] = np.frombuffer(data, np.uint8)
    rows = np.asarray(multihost_utils.process_allgather(own))
    return [row.tobytes().rstrip(b"\0").decode(errors="ignore") for row in rows]


@contextmanager
def together() -> Iterator[None]:
    """If one process fails within the block, all raise an error at its end: `RunError` in those
    that did not fail themselves. The block may have no other exchange between the processes.
    """
    if alone():
        yield
        return
    try:
        yield
    except BaseException as error:
        _told(f"{error}" or type(error).__name__)
        raise
    for process, said in enumerate(_told("")):
        if said:
            raise RunError(f"process {process} of the run: {said}")


def any_of(wish: bool) -> bool:
    """Whether `wish` is true in one of the processes."""
    if alone():
        return wish
    return any(_told("yes" if wish else ""))


def check_same(what: str, value: object) -> None:
    """Raise `ValueError` if the processes do not have the same value; `what` names it."""
    if alone():
        return
    marks = _told(hashlib.sha256(repr(value).encode()).hexdigest())
    odd = [i for i, mark in enumerate(marks) if mark != marks[0]]
    if odd:
        raise ValueError(
            f"expected the same {what} in every process, but process {odd[0]} differs from process "
            "0: start all with the same command"
        )


T = TypeVar("T")


def of_leader(tree: T) -> T:
    """`tree` with the arrays of the process that leads, bit for bit."""
    if alone():
        return tree
    arrays, rest = eqx.partition(tree, eqx.is_array)
    leaves, structure = jax.tree.flatten(arrays)
    held = [np.asarray(leaf) for leaf in leaves]
    own = b"".join(leaf.tobytes() for leaf in held)
    # As bytes, because the exchange is a sum, in which a negative zero would lose its sign.
    data = np.asarray(multihost_utils.broadcast_one_to_all(np.frombuffer(own, np.uint8))).tobytes()
    ends = np.cumsum([leaf.nbytes for leaf in held])
    parts = [
        np.frombuffer(data[end - leaf.nbytes : end], leaf.dtype).reshape(leaf.shape)
        for leaf, end in zip(held, ends, strict=True)
    ]
    combined: T = eqx.combine(jax.tree.unflatten(structure, parts), rest)
    return combined
