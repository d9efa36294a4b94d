"""Several devices share a training. The mathematics does not depend on it:
`over_tasks` gives each device its part of the tasks, adds up the sums over tasks, and gathers the
values of single tasks. Every device has all parameters.
"""

import platform
import re
import subprocess
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from arml.results.files import Json, cores

TASKS = "tasks"
"""The name of the mesh's only axis."""
Work = Callable[[PyTree, PyTree], tuple[PyTree, PyTree]]
"""Maps values and the keys of tasks to the sums over tasks and the values of each task."""


def mesh_of(devices: int, *, processes: bool = False) -> Mesh | None:
    """The first `devices` devices of this process, or of each of the joined processes; None for a
    single one.

    **Raises** `ValueError` if there are fewer.
    """
    found = len(jax.local_devices())
    if not 1 <= devices <= found:
        raise ValueError(
            f"devices must be from 1 to the {found} that this process has, got {devices}: change it"
        )
    owners = range(jax.process_count()) if processes else [jax.process_index()]
    known = [one for owner in owners for one in jax.local_devices(owner)[:devices]]
    return Mesh(np.asarray(known), (TASKS,)) if len(known) > 1 else None


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
    """How many of its `own` tasks a device adapts to at once: the divisor of their number that is
    nearest to `chunk` (as a ratio), which is all if they are fewer."""
    divisors = (n for n in range(1, own + 1) if own % n == 0)
    return min(divisors, key=lambda n: max(n / chunk, chunk / n))


def everywhere(mesh: Mesh | None, tree: PyTree) -> PyTree:
    """The same arrays on every device of the mesh; each process has all of them already."""
    if mesh is None:
        return tree
    whole = NamedSharding(mesh, PartitionSpec())
    if not mesh.is_multi_process:
        return eqx.filter_shard(tree, whole)

    def put(leaf: jax.Array) -> jax.Array:
        own = np.asarray(leaf)
        return jax.make_array_from_callback(own.shape, whole, lambda part: own[part])

    return jax.tree.map(lambda leaf: put(leaf) if eqx.is_array(leaf) else leaf, tree)


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


def provenance(devices: int = 1) -> Json:
    """Where a run is made: `commit`, `versions` and `device`, with the number of accelerators in
    front if there are several; `device` itself counts the cores of a CPU."""
    several = f"{devices} × " if devices > 1 and jax.default_backend() != "cpu" else ""
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
