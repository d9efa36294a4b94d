"""Several devices share a training. The mathematics does not depend on it:
`over_tasks` gives each device its part of the tasks, adds up the sums over tasks, and gathers the
values of single tasks. Every device has all parameters.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

TASKS_AXIS = "tasks"
"""The name of the mesh's only axis."""
Work = Callable[[PyTree, PyTree], tuple[PyTree, PyTree]]
"""Maps values and the keys of tasks to the sums over tasks and the values of each task."""


def mesh_of(devices: int, *, processes: bool = False) -> Mesh | None:
    """The first `devices` devices of this process, or of each of the joined processes; None for a
    single one. **Raises** `ValueError` if there are fewer."""
    found = len(jax.local_devices())
    if not 1 <= devices <= found:
        raise ValueError(
            f"devices must be from 1 to the {found} that this process has, got {devices}: change it"
        )
    owners = range(jax.process_count()) if processes else [jax.process_index()]
    known = [one for owner in owners for one in jax.local_devices(owner)[:devices]]
    return Mesh(np.asarray(known), (TASKS_AXIS,)) if len(known) > 1 else None


def own_cores() -> int:
    """How many CPU cores this process has as devices; 1 with accelerators, because others may need
    the rest of them. XLA uses one core for most operations on small images, so two tasks on one
    core each finish sooner than one after the other on both."""
    return jax.local_device_count() if jax.default_backend() == "cpu" else 1


def sharing(batch: int, chunk: int, devices: int) -> int:
    """How many of `devices` can share `batch` tasks evenly, `chunk` at once on each; at least 1."""
    own = {n: batch // n for n in range(1, devices + 1) if batch % n == 0}
    return max((n for n in own if own[n] % min(chunk, own[n]) == 0), default=1)


def share(mesh: Mesh | None, batch: int) -> int:
    """How many tasks of a batch one device gets. **Raises** `ValueError` if the batch cannot be
    shared evenly."""
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
        if leaf.sharding == whole:
            return leaf
        own = np.asarray(leaf)
        return jax.make_array_from_callback(own.shape, whole, lambda part: own[part])

    return jax.tree.map(lambda leaf: put(leaf) if eqx.is_array(leaf) else leaf, tree)


def over_tasks(mesh: Mesh | None, work: Work) -> Work:
    """`work(values, keys)`, where the devices of the mesh share the tasks: `keys` are arrays with a
    leading axis of tasks, and each device gets its part of them, and all of `values`. It returns
    sums over its tasks, and arrays with a leading axis of its tasks; the function returned gives
    those of all tasks. Without a mesh it is `work` itself."""
    if mesh is None:
        return work

    def shared(values: PyTree, keys: PyTree) -> tuple[PyTree, PyTree]:
        arrays, rest = eqx.partition(values, eqx.is_array)

        def part(arrays: PyTree, keys: PyTree) -> tuple[PyTree, PyTree]:
            total, each = work(eqx.combine(arrays, rest), keys)
            return jax.lax.psum(total, TASKS_AXIS), jax.lax.all_gather(each, TASKS_AXIS, tiled=True)

        specs = (PartitionSpec(), PartitionSpec(TASKS_AXIS))
        whole = jax.shard_map(
            part, mesh=mesh, in_specs=specs, out_specs=PartitionSpec(), check_vma=False
        )
        return whole(arrays, keys)

    return shared
