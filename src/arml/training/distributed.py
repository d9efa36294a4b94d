"""One run of several processes, on one machine or on many, joined by `jax.distributed`.

Every process runs the same program on the same options, and adapts to its part of each step's
tasks. Process 0 alone writes and prints. All agree after each interval whether to stop.
"""

import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

import equinox as eqx
import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from arml.core.checks import at_least
from arml.results.files import RunError, checksum

T = TypeVar("T")
SILENT = 30
"""Seconds without a sign of life after which a process counts as dead, and the others end."""
COUNTS = ("SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")
"""Variables with the number of processes of a job."""


@dataclass(frozen=True)
class Processes:
    """The processes of a run. JAX finds them itself in jobs of SLURM, Open MPI and Kubernetes, and
    on TPU pods, if nothing is given."""

    coordinator: str | None = None
    """HOST:PORT of process 0, where the others find it."""
    processes: int | None = None
    process: int | None = None
    """The number of this process, from 0."""

    def check(self, batch: int, devices: int) -> None:
        """Raise `ValueError` if they cannot share the batch, `devices` (or 1) in each, or if an
        option is invalid. Nothing waits here."""
        given = (self.coordinator, self.processes, self.process)
        if None in given and given != (None, None, None):
            raise ValueError(
                "--coordinator HOST:PORT, --processes N and --process I come together: give all "
                "three, or none where JAX finds the processes itself"
            )
        if self.coordinator is not None:
            at_least(self, ("processes",), 1)
            at_least(self, ("process",), 0, most=(self.processes or 1) - 1)
            if not self.coordinator.rpartition(":")[2].isdigit():
                raise ValueError(f"coordinator must be HOST:PORT, got {self.coordinator!r}")
        found = self.processes or next((int(os.environ[k]) for k in COUNTS if k in os.environ), 1)
        several = found * (devices or 1)
        if batch % several:
            raise ValueError(
                f"batch must be a multiple of the {several} devices of the {found} processes, got "
                f"{batch}: change one of them"
            )

    def join(self) -> None:
        """Wait for the other processes, and connect. Call it before JAX is used.

        **Raises** `ValueError` in one line.
        """
        if jax.distributed.is_initialized():
            return
        with suppress(AttributeError):  # a JAX that has no other collectives
            jax.config.update("jax_cpu_collectives_implementation", "gloo")
        try:
            jax.distributed.initialize(
                self.coordinator,
                self.processes,
                self.process,
                heartbeat_timeout_seconds=SILENT,
                shutdown_timeout_seconds=SILENT,
            )
        except (ValueError, RuntimeError) as error:
            first = " ".join(str(error).split())[:200]
            raise ValueError(
                f"the processes of the run did not find each other ({first}): outside of SLURM, "
                "Open MPI, Kubernetes and TPU pods give --coordinator HOST:PORT --processes N "
                "--process I; from Python call jax.distributed.initialize before anything else"
            ) from error


def is_first() -> bool:
    """Whether this process is the one that writes and prints."""
    return not jax.distributed.is_initialized() or jax.process_index() == 0


@contextmanager
def same_end(mesh: Mesh | None) -> Iterator[None]:
    """An error of the connection is raised as the end of another process.

    **Raises** `RunError`.
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if mesh is None or not mesh.is_multi_process:
            raise
        first = " ".join(str(error).split())[:120]
        raise RunError(
            f"another process of the run has ended, and so does this one ({first}); the same "
            "command continues at the newest checkpoint"
        ) from error


@contextmanager
def ending() -> Iterator[None]:
    """End the program at once after an error, so that the other processes notice and end, too:
    Python's own end would wait for them."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, ValueError | OSError):
            traceback.print_exc()
        print(f"arml: error: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
        os._exit(2)


def in_turn(mesh: Mesh | None, work: Callable[[], T]) -> T:
    """`work()`, in process 0 before the others, because it may write files that they read."""
    if mesh is None or not mesh.is_multi_process:
        return work()
    found = work() if is_first() else None
    multihost_utils.sync_global_devices("the first process is done")
    return work() if found is None else found


def any_of(mesh: Mesh | None, value: bool) -> bool:
    """Whether the value is true in one of the processes of the mesh, for all of them."""
    if mesh is None or not mesh.is_multi_process:
        return value
    return bool(np.any(multihost_utils.process_allgather(np.asarray(value))))


def from_first(mesh: Mesh | None, tree: T) -> T:
    """The arrays of process 0, in all processes of the mesh."""
    if mesh is None or not mesh.is_multi_process:
        return tree
    arrays, rest = eqx.partition(tree, eqx.is_array)
    sent: T = eqx.combine(multihost_utils.broadcast_one_to_all(arrays), rest)
    return sent


def same_in_all(mesh: Mesh | None, what: str, value: object) -> None:
    """Raise `RunError` in every process if the processes of the mesh differ in a value, which JSON
    can hold."""
    if mesh is None or not mesh.is_multi_process:
        return
    digest = np.frombuffer(bytes.fromhex(checksum(value)), np.uint8)
    if np.any(multihost_utils.process_allgather(digest) != digest):
        raise RunError(
            f"the processes of the run differ in {what}: give all the same options, on a folder "
            "that all can read"
        )
