"""Episodes from images that stay on the disk.

The same function draws a task from the same key as when the images are on the device. Only its
pixels are gathered on the host, from a memory map. A thread that knows the keys of the next steps
gathers their pixels ahead, so that a step does not wait for the disk. It changes no number: pixels
that it has not gathered in time are gathered when a step needs them.
"""

import mmap
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, UInt8

from arml.core.episodes import Problem, Task, TaskDistribution
from arml.tasks.images import Episodes, Listed, Table, Varied, draw, examples

AHEAD = 3
"""The most batches that are gathered ahead."""


class Pixels:
    """Images in several arrays, as one list. Several threads may use it."""

    def __init__(self, arrays: Sequence[UInt8[np.ndarray, "_ size size 3"]]) -> None:
        self.arrays = list(arrays)
        self.first = np.cumsum([0, *map(len, arrays)])
        self.lock = threading.Lock()
        self.ready: dict[bytes, np.ndarray] = {}
        self.late: set[bytes] = set()
        """Requests that came before their batch was prepared."""
        self.room = threading.Semaphore(AHEAD)

    def gather(self, index: Int[np.ndarray, "..."]) -> UInt8[np.ndarray, "... size size 3"]:
        """The images of these numbers, in memory."""
        flat = np.ravel(index)
        images = np.empty((len(flat), *self.arrays[0].shape[1:]), np.uint8)
        which = np.searchsorted(self.first, flat, side="right") - 1
        for array in np.unique(which):
            rows = np.flatnonzero(which == array)
            places = flat[rows] - self.first[array]
            _expect(self.arrays[array], places)
            images[rows] = self.arrays[array][places]
        return images.reshape(*index.shape, *images.shape[1:])

    def prepare(self, index: Int[np.ndarray, "..."]) -> None:
        """Gather images ahead of a call of `take`."""
        name = _name(index)
        with self.lock:
            wanted = name not in self.late
            self.late.discard(name)
        images = self.gather(index) if wanted else None
        with self.lock:
            if images is not None and name not in self.late:
                self.ready[name] = images
            self.late.discard(name)

    def take(self, index: Int[np.ndarray, "..."]) -> UInt8[np.ndarray, "... size size 3"]:
        """The images of these numbers, prepared or gathered now; makes room for the next."""
        name = _name(index)
        with self.lock:
            images = self.ready.pop(name, None)
            if images is None:
                self.late.add(name)
        self.room.release()
        return self.gather(index) if images is None else images

    def answer(self, index: Array) -> UInt8[np.ndarray, "... size size 3"]:
        """`take`, for a compiled program."""
        return self.take(np.asarray(index))

    def reset(self, parts: int = 1) -> None:
        """Forget the prepared arrays. Each batch will be taken in so many parts."""
        with self.lock:
            self.ready.clear()
            self.late.clear()
            self.room = threading.Semaphore(AHEAD * parts)


def _expect(images: UInt8[np.ndarray, "_ size size 3"], places: Int[np.ndarray, " n"]) -> None:
    """Tell the system to read these images of a memory map all at once. To read them one by one
    takes thirty times as long from a disk."""
    if sys.platform == "win32" or not isinstance(images, np.memmap):
        return
    file: object = images.base
    if not isinstance(file, mmap.mmap):  # a part of a larger map
        return
    each, before = images.strides[0], images.offset % mmap.ALLOCATIONGRANULARITY
    for place in places.tolist():
        first = before + place * each
        page = first - first % mmap.PAGESIZE
        file.madvise(mmap.MADV_WILLNEED, page, first + each - page)


def _name(index: Int[np.ndarray, "..."]) -> bytes:
    return np.ascontiguousarray(index).tobytes()


class StreamedEpisodes(Episodes):
    """The tasks of `ImageEpisodes` over the same images, which are read when they are needed."""

    families: tuple[str, ...] = eqx.field(static=True)
    problem: Problem = eqx.field(static=True)
    stated: str = eqx.field(static=True)
    pixels: Pixels = eqx.field(static=True)
    table: Table

    def sample(self, key: PRNGKeyArray) -> Task:
        drawn = draw(self.table, self.problem, key=key)
        ways, each = drawn.images.shape
        shape = jax.ShapeDtypeStruct((ways, each, *self.problem.features), jnp.uint8)
        # One call of the host for a whole batch of tasks.
        pixels = jax.pure_callback(
            self.pixels.answer, shape, drawn.images, vmap_method="broadcast_all"
        )
        shots = self.problem.shots
        support, query = (
            examples(some.reshape(-1, *self.problem.features), ways)
            for some in (pixels[:, :shots], pixels[:, shots:])
        )
        return Task(support, query, drawn.family, drawn.classes)


def streamed_episodes(
    listed: Listed, arrays: Sequence[UInt8[np.ndarray, "_ size size 3"]], *, stated: str = ""
) -> StreamedEpisodes:
    """Episodes over the listed images, which `arrays` hold in the same order."""
    return StreamedEpisodes(listed.families, listed.problem, stated, Pixels(arrays), listed.table)


@contextmanager
def prefetched(
    tasks: TaskDistribution,
    keys: Callable[[Int[Array, ""]], Array],
    *,
    start: int,
    stop: int,
    parts: Sequence[slice] = (slice(None),),
) -> Iterator[None]:
    """Gather the pixels of the steps from `start` to `stop`, some steps ahead of their use.

    It does nothing for tasks that are not streamed.

    **Arguments**

    - `keys`: the keys of a step's tasks, from which `sample` draws them.
    - `parts`: which of these tasks each device of this process draws.
    """
    cpu = _cpu()
    if isinstance(tasks, Varied):
        tasks = tasks.tasks
    if not isinstance(tasks, StreamedEpisodes) or cpu is None:
        yield
        return
    pixels, problem = tasks.pixels, tasks.problem
    # On the CPU, whatever the device: it draws the same numbers, and does not wait for training.
    table = jax.device_put(tasks.table, cpu)
    over = threading.Event()

    @jax.jit
    def indices(step: Int[Array, ""]) -> Int[Array, "tasks ways each"]:
        return jax.vmap(lambda key: draw(table, problem, key=key).images)(keys(step))

    def ahead() -> None:
        for step in range(start, stop):
            with jax.default_device(cpu):
                index = np.asarray(indices(jnp.asarray(step, jnp.int32)))
            for part in parts:
                pixels.room.acquire()
                if over.is_set():
                    return
                pixels.prepare(index[part])

    pixels.reset(len(parts))
    thread = threading.Thread(target=ahead, name="prefetch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        pixels.room.release()
        thread.join()
        pixels.reset()


def _cpu() -> jax.Device | None:
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return None
