"""One run of several processes, on one machine or on many, joined by `jax.distributed`.

Every process runs the same program on the same options, and adapts to its part of each step's
tasks. All read the run folder. Only process 0 writes and prints. After each interval they agree
whether to stop.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import jax
import numpy as np
from jax.sharding import Mesh

from arml.results.files import brief

DEAD_SECONDS = 30
"""Seconds without a heartbeat after which a process counts as dead, and the rest end."""
PROCESS_COUNTS = ("SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")
"""Variables with the number of processes of a job."""


@dataclass(frozen=True)
class Processes:
    """The processes that train one run."""

    distributed: bool = False
    """Train one run in several processes, each with this command. In jobs of SLURM, Open MPI and
    Kubernetes and on TPU pods they find each other; elsewhere the next three are needed."""
    coordinator: str = ""
    """HOST:PORT at which the processes find process 0."""
    processes: int = 0
    """How many processes there are."""
    process: int = 0
    """The number of this process, from 0."""

    @property
    def several(self) -> bool:
        """Whether there are several processes."""
        return self != Processes()

    def check(self, batch: int, devices: int) -> None:
        """Raise `ValueError`, before any process waits, if an option is invalid or if the processes
        with `devices` (or 1) each cannot share the batch."""
        if self.coordinator or self.processes or self.process:
            if not self.coordinator.rpartition(":")[2].isdigit():
                raise ValueError(f"coordinator must be HOST:PORT, got {self.coordinator!r}")
            if self.processes < 1:
                raise ValueError(f"processes must be at least 1, got {self.processes}")
            if not 0 <= self.process < self.processes:
                raise ValueError(
                    f"process must be from 0 to {self.processes - 1}, got {self.process}"
                )
        found = self.processes or next(
            (int(os.environ[k]) for k in PROCESS_COUNTS if k in os.environ), 1
        )
        if batch % (several := found * (devices or 1)):
            raise ValueError(
                f"batch must be a multiple of the {several} devices of the {found} processes, got "
                f"{batch}: change one of them"
            )

    def join(self) -> None:
        """Wait for the other processes, and connect. Call it before JAX is used. **Raises**
        `ValueError` in one line."""
        if jax.distributed.is_initialized():
            return
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        named = bool(self.coordinator)
        try:
            jax.distributed.initialize(
                self.coordinator or None,
                self.processes if named else None,
                self.process if named else None,
                heartbeat_timeout_seconds=DEAD_SECONDS,
                shutdown_timeout_seconds=DEAD_SECONDS,
            )
        except (ValueError, RuntimeError) as error:
            raise ValueError(
                f"the processes did not find each other ({brief(error, 200)}): "
                "outside of SLURM, Open MPI, Kubernetes and TPU pods give --coordinator HOST:PORT "
                "--processes N --process I; in Python call jax.distributed.initialize first"
            ) from error


def is_first() -> bool:
    """Whether this process is the one that writes and prints."""
    return not jax.distributed.is_initialized() or jax.process_index() == 0


def of_all(mesh: Mesh | None, value: int) -> list[int]:
    """The value that each process gives."""
    if mesh is None or not mesh.is_multi_process:
        return [value]
    from jax.experimental.multihost_utils import process_allgather

    return [int(one) for one in process_allgather(np.asarray(value, np.int32))]


@contextmanager
def in_turn(mesh: Mesh | None) -> Iterator[None]:
    """Process 0 does this first, and the rest of the mesh then, because they read its files."""
    of_all(mesh, 0)  # now, because Gloo waits 30 seconds for a first message, and then for ever
    if not is_first():
        of_all(mesh, 0)
    yield
    if is_first():
        of_all(mesh, 0)


@contextmanager
def ending(several: bool) -> Iterator[None]:
    """End the program at once after an error in one of several processes: Python's own end would
    wait for the others, which now notice and also end."""
    if several:
        ctypes.CDLL(None).signal(signal.SIGABRT, _aborted)
    try:
        yield
    except (ValueError, OSError, jax.errors.JaxRuntimeError) as error:
        if not several:
            raise
        lost = isinstance(error, jax.errors.JaxRuntimeError)
        _end(f"{_LOST_PROCESS}: " * lost + brief(error))


_LOST_PROCESS = "another process of the run has ended; the same command continues it"


def _end(why: str) -> None:
    print(f"arml: error: {why}", file=sys.stderr, flush=True)
    os._exit(2)


_aborted = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda number: _end(_LOST_PROCESS))
"""Called where XLA aborts the program, as it does when process 0 is lost."""
