"""Several devices and several processes, on one machine or many, share one run.

One mesh spans the devices of all processes. The mathematics does not depend on it: `over_tasks`
gives each device its part of the tasks, adds up the sums over tasks, and gathers the values of
single tasks. Every device has all parameters.

Only the main process, number 0, reads and writes the run folder and prints. Every process draws and
learns its own tasks. In a run of one process the functions on processes do nothing.
"""

import hashlib
import platform
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

import equinox as eqx
import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from arml.results.files import Json, RunError, cores

TASKS = "tasks"
"""The name of the mesh's only axis."""
Work = Callable[[PyTree, PyTree], tuple[PyTree, PyTree]]
"""Maps values and the keys of tasks to the sums over tasks and the values of each task."""


def mesh_of(devices: int) -> Mesh | None:
    """The first `devices` devices of each process, or None for a single one in all.

    **Raises** `ValueError` if a process has fewer.
    """
    if not 1 <= devices <= jax.local_device_count():
        raise ValueError(
            f"devices must be from 1 to the {jax.local_device_count()} that this process has, got "
            f"{devices}: change it"
        )
    if devices * jax.process_count() == 1:
        return None
    by_process: dict[int, list[jax.Device]] = {}
    for device in jax.devices():
        by_process.setdefault(device.process_index, []).append(device)
    return Mesh(np.ravel([by_process[i][:devices] for i in sorted(by_process)]), (TASKS,))


def own_cores() -> int:
    """How many CPU cores this process has as devices; 1 with accelerators, because others may need
    the rest of them.

    XLA uses one core for most operations on small images, so two tasks on one core each finish
    sooner than one after the other on both.
    """
    return jax.local_device_count() if jax.default_backend() == "cpu" else 1


def sharing(batch: int, chunk: int, devices: int) -> int:
    """How many of `devices` can share `batch` tasks evenly, `chunk` at once on each; at least 1."""
    own = {n: batch // n for n in range(1, devices + 1) if batch % n == 0}
    return max((n for n in own if own[n] % min(chunk, own[n]) == 0), default=1)


def share(mesh: Mesh | None, batch: int) -> int:
    """How many tasks of a batch one device gets.

    **Raises** `ValueError` if the batch cannot be shared evenly.
    """
    if mesh is None:
        return batch
    if batch % mesh.size:
        raise ValueError(
            f"batch must be a multiple of the {mesh.size} devices of the run, got {batch}: change "
            "one of them"
        )
    return batch // mesh.size


def at_once(chunk: int, own: int) -> int:
    """How many of its `own` tasks a device adapts to at once: `chunk`, or all if they are fewer.

    **Raises** `ValueError` if `chunk` does not divide them.
    """
    if own % min(chunk, own):
        raise ValueError(
            f"chunk must divide the {own} tasks that a device has of a batch, or be larger, got "
            f"{chunk}: change one of them"
        )
    return min(chunk, own)


def everywhere(mesh: Mesh | None, tree: PyTree) -> PyTree:
    """The same arrays on every device of the mesh."""
    if mesh is None:
        return tree
    whole = NamedSharding(mesh, PartitionSpec())

    def place(leaf: PyTree) -> PyTree:
        if not eqx.is_array(leaf):
            return leaf
        # Not `device_put`: it sends the array to every process, to check that all have the same.
        values = np.asarray(leaf)
        # A copy for each device, because a device may keep it and write to it.
        return jax.make_array_from_callback(values.shape, whole, lambda at: np.array(values[at]))

    return jax.tree.map(place, tree)


def over_tasks(mesh: Mesh | None, work: Work) -> Work:
    """`work(values, keys)`, where the devices of the mesh share the tasks: `keys` are arrays with a
    leading axis of tasks, and each device gets its part of them, and all of `values`.

    **Arguments**

    - `work`: returns sums over its tasks, and arrays with a leading axis of its tasks.

    **Returns** a function with the same results for all tasks; without a mesh, `work` itself.
    """
    if mesh is None:
        return work

    def shared(values: PyTree, keys: PyTree) -> tuple[PyTree, PyTree]:
        arrays, rest = eqx.partition(values, eqx.is_array)

        def part(arrays: PyTree, keys: PyTree) -> tuple[PyTree, PyTree]:
            total, each = work(eqx.combine(arrays, rest), keys)
            return jax.lax.psum(total, TASKS), jax.lax.all_gather(each, TASKS, tiled=True)

        specs = (PartitionSpec(), PartitionSpec(TASKS))
        whole = jax.shard_map(
            part, mesh=mesh, in_specs=specs, out_specs=PartitionSpec(), check_vma=False
        )
        return whole(arrays, keys)

    return shared


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
    host, _, port = coordinator.rpartition(":")
    if coordinator == AUTO:
        address, hint = None, "start it under srun, mpirun or Kubernetes, or give HOST:PORT"
    elif not (host and port.isdigit()):
        raise ValueError(
            f"coordinator must be HOST:PORT of process 0, or {AUTO}, got {coordinator!r}: change it"
        )
    elif processes is None or process is None:
        raise ValueError(
            "expected the number of processes and of this process with a coordinator, got "
            f"{processes} and {process}: give both"
        )
    elif not 0 <= process < processes:
        raise ValueError(
            "process must be from 0 to the number of processes less 1, got "
            f"{process} of {processes}: change it"
        )
    else:
        address, hint = coordinator, "check the address, and that every process was started"
    try:
        jax.distributed.initialize(address, processes, process)
    except (RuntimeError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise RunError(f"the processes of the run could not meet ({first}); {hint}") from error


def single_process() -> bool:
    """Whether this process is the whole run."""
    # Unlike `jax.process_count()`, this does not touch a device.
    return not jax.distributed.is_initialized()


def is_main_process() -> bool:
    """Whether this process is the one that writes and prints."""
    return single_process() or jax.process_index() == 0


def _messages(text: str) -> list[str]:
    """The messages of all processes; each process sends one at the same place."""
    own = np.frombuffer(text.encode()[:LENGTH].ljust(LENGTH, b"\0"), np.uint8)
    rows = np.asarray(multihost_utils.process_allgather(own))
    return [row.tobytes().rstrip(b"\0").decode(errors="ignore") for row in rows]


@contextmanager
def failing_together() -> Iterator[None]:
    """If one process fails within the block, all raise an error at its end: `RunError` in those
    that did not fail themselves. The block may have no other exchange between the processes.
    """
    try:
        yield
    except BaseException as error:
        if not single_process():
            _messages(f"{error}" or type(error).__name__)
        raise
    for process, message in enumerate([] if single_process() else _messages("")):
        if message:
            raise RunError(f"process {process} of the run: {message}")


def any_process(wish: bool) -> bool:
    """Whether `wish` is true in one of the processes."""
    return wish if single_process() else any(_messages("yes" if wish else ""))


def check_same(what: str, value: object) -> None:
    """Raise `ValueError` if the processes do not have the same value; `what` names it."""
    if single_process():
        return
    digests = _messages(hashlib.sha256(repr(value).encode()).hexdigest())
    odd = [i for i, digest in enumerate(digests) if digest != digests[0]]
    if odd:
        raise ValueError(
            f"expected the same {what} in every process, but process {odd[0]} differs from process "
            "0: start all with the same command"
        )


T = TypeVar("T")


def from_main_process(tree: T) -> T:
    """`tree` with the arrays of the main process, bit for bit."""
    if single_process():
        return tree

    def received(leaf: PyTree) -> np.ndarray:
        own = np.asarray(leaf)
        # As bytes, because JAX would round float64.
        every = multihost_utils.process_allgather(np.frombuffer(own.tobytes(), np.uint8))
        return np.frombuffer(np.asarray(every)[0].tobytes(), own.dtype).reshape(own.shape)

    same: T = jax.tree.map(lambda leaf: received(leaf) if eqx.is_array(leaf) else leaf, tree)
    return same


def provenance(devices: int = 1) -> Json:
    """Where a run is made: `commit`, `versions` and `device`. Several devices have their number in
    front; on a CPU that is the number of processes, because `device` counts the cores itself."""
    count = jax.process_count() if jax.default_backend() == "cpu" else devices
    several = f"{count} × " if count > 1 else ""
    return {"commit": commit(), "versions": versions(), "device": several + device()}


def versions() -> dict[str, str]:
    """The versions that a score may depend on."""
    packages = ("arml", "jax", "jaxlib", "equinox", "optax", "numpy")
    return {"python": platform.python_version()} | {name: version(name) for name in packages}


def device() -> str:
    """The accelerator, if any, and the processor with its usable cores."""
    model = platform.processor() or platform.machine()
    with suppress(OSError):
        named = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        model = named[1] if named else model
    host = f"{model}, {cores()} core{'s' if cores() != 1 else ''}"
    first = jax.devices()[0]
    return host if first.platform == "cpu" else f"{first.device_kind} ({host})"


def commit() -> str | None:
    """The commit of the checkout that this package runs from, with -dirty if a file differs; None
    for an installed package."""
    package = Path(__file__).resolve().parents[1]

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(package), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    with suppress(OSError):  # there may be no git
        # An environment inside somebody's repository is not a checkout of ours.
        if Path(git("rev-parse", "--show-toplevel")).resolve() / "src" / "arml" == package:
            return git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*") or None
    return None
