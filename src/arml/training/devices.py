"""Several devices share the tasks of a batch: one mesh spans the devices of all processes.

The mathematics does not depend on it: `over_tasks` gives each device its part of the tasks, adds up
the sums over tasks, and gathers the values of single tasks. Every device has all parameters.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, PyTree

TASKS = "tasks"
"""The name of the mesh's only axis."""
Work = Callable[[PyTree, PyTree], tuple[PyTree, PyTree]]
"""Given values and the keys of tasks, the sums over tasks and the values of each task."""


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


def own_parts(mesh: Mesh | None, batch: int) -> list[slice]:
    """The tasks of a batch that each device of this process gets, as slices."""
    if mesh is None:
        return [slice(None)]
    each, here = batch // mesh.size, jax.process_index()
    owners = [device.process_index for device in mesh.devices]
    return [slice(i * each, (i + 1) * each) for i, owner in enumerate(owners) if owner == here]


def everywhere(mesh: Mesh | None, tree: PyTree) -> PyTree:
    """The same arrays on every device of the mesh."""
    if mesh is None:
        return tree
    whole = NamedSharding(mesh, PartitionSpec())

    def place(leaf: PyTree) -> PyTree:
        if not eqx.is_array(leaf):
            return leaf
        # Not `device_put`: it sends the array to every process, to check that all have the same.
        held = np.asarray(leaf)
        # A copy for each device, because a device may keep it and write to it.
        return jax.make_array_from_callback(held.shape, whole, lambda at: np.array(held[at]))

    return jax.tree.map(place, tree)


def over_tasks(mesh: Mesh | None, work: Work) -> Work:
    """`work(given, keys)`, where the devices of the mesh share the tasks: `keys` are arrays with a
    leading axis of tasks, and each device gets its part of them, and all of `given`.

    **Arguments**

    - `work`: returns sums over its tasks, and arrays with a leading axis of its tasks. All are real
      numbers, or integers below 2^24.

    **Returns** a function with the same results for all tasks; without a mesh, `work` itself.
    """
    if mesh is None:
        return work

    def shared(given: PyTree, keys: PyTree) -> tuple[PyTree, PyTree]:
        arrays, rest = eqx.partition(given, eqx.is_array)

        def part(arrays: PyTree, keys: PyTree) -> tuple[PyTree, PyTree]:
            total, each = work(eqx.combine(arrays, rest), keys)
            # Values of single tasks are placed among zeros, so that one sum over devices serves
            # both: the time of a small step depends on the number of messages, not on their length.
            spread = jax.tree.map(placed, each)
            numbers = jax.tree.map(lambda a: a.astype(float), (total, spread))
            flat, restored = ravel_pytree(numbers)
            summed = restored(jax.lax.psum(flat, TASKS))
            typed: tuple[PyTree, PyTree] = jax.tree.map(
                lambda a, like: a.astype(like.dtype), summed, (total, spread)
            )
            return typed

        def placed(own: Array) -> Array:
            every = jnp.zeros((mesh.size * own.shape[0], *own.shape[1:]), own.dtype)
            first = jax.lax.axis_index(TASKS) * own.shape[0]
            return jax.lax.dynamic_update_slice_in_dim(every, own, first, 0)

        specs = (PartitionSpec(), PartitionSpec(TASKS))
        whole = jax.shard_map(
            part, mesh=mesh, in_specs=specs, out_specs=PartitionSpec(), check_vma=False
        )
        return whole(arrays, keys)

    return shared
