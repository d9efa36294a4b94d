"""Few-shot classification episodes, drawn by index from images on the device or on the disk.

A task draws a family, `ways` of its classes, and `shots + queries` images of each, uniformly and
without replacement. The work depends only on the size of the task, not of the data. Data that do
not fit on the device are read on the host, from a memory map; the same key draws the same task.
"""

import mmap
import os
import sys
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt8

from arml.core.episodes import Examples, Facts, Problem, Task, TaskDistribution, protocol_of
from arml.datasets.folders import ImageFamily


def distinct(
    count: Int[Array, ""] | int, number: int, *, key: PRNGKeyArray
) -> Int[Array, " number"]:
    """`number` distinct integers of `0 <= i < count`, every ordered choice equally likely.

    A uniform Lehmer code (draw `i` is a rank among the `count - i` integers left) is decoded from
    its end: each draw adds one to the later ones that are not below it. `count` may be traced."""
    places = jnp.arange(number)
    code = jax.random.randint(key, (number,), 0, jnp.asarray(count, jnp.int32) - places)

    def push(i: Int[Array, ""], drawn: Int[Array, " number"]) -> Int[Array, " number"]:
        at = number - 2 - i
        return drawn + ((places > at) & (drawn >= drawn[at])).astype(drawn.dtype)

    return jax.lax.fori_loop(0, number - 1, push, code)


class ClassTable(eqx.Module):
    """The indices of each class's images, and of each family's classes."""

    first: Int[Array, " classes"]
    """Index of each class's first image."""
    count: Int[Array, " classes"]
    """Images of each class."""
    first_class: Int[Array, " families"]
    """Index of each family's first class in `first` and `count`."""
    classes: Int[Array, " families"]
    """Classes of each family."""


class Episodes(TaskDistribution):
    """Episodes with an identity that may be `stated`, made of the options and the digests of the
    data. If it is empty, the identity is a digest of all their arrays."""

    stated: eqx.AbstractVar[str]

    def identity(self) -> str:
        return self.stated or super().identity()


class Disk:
    """Images in several arrays on the disk, as one list."""

    def __init__(self, arrays: Sequence[UInt8[np.ndarray, "_ size size 3"]]) -> None:
        self.arrays = list(arrays)
        self.first = np.cumsum([0, *map(len, arrays)])

    def gather(
        self, index: Int[Array, "..."] | Int[np.ndarray, "..."]
    ) -> UInt8[np.ndarray, "... size size 3"]:
        """The images with these indices, in memory."""
        flat = np.ravel(np.asarray(index))
        images = np.empty((len(flat), *self.arrays[0].shape[1:]), np.uint8)
        which = np.searchsorted(self.first, flat, side="right") - 1
        for array in np.unique(which):
            rows = np.flatnonzero(which == array)
            places = flat[rows] - self.first[array]
            _expect(self.arrays[array], places)
            images[rows] = self.arrays[array][places]
        return images.reshape(*index.shape, *images.shape[1:])


def _expect(images: UInt8[np.ndarray, "_ size size 3"], places: Int[np.ndarray, " n"]) -> None:
    """Advise the system to read these images of a memory map at once. To read them one by one takes
    thirty times as long from a disk."""
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


class ImageEpisodes(Episodes):
    """`ways`-way, `shots`-shot tasks over one or more families of images.

    `x` is float32 `[n, size, size, 3]` in [0, 1], or `[n, features]` for frozen features; `y` is
    int32 `[n]` with `0 <= y < ways`, in the random order in which the classes were drawn. Support
    and query are ordered by class. Build it with `image_episodes`.
    """

    families: tuple[str, ...] = eqx.field(static=True)
    problem: Problem = eqx.field(static=True)
    stated: str = eqx.field(static=True)
    size: int | None = eqx.field(static=True)
    """Pixels a side of the pictures of frozen features; None for pictures."""
    pixels: UInt8[Array, "n size size 3"] | Float[Array, "n *features"] | None
    """The images on the device; None if they are on the disk."""
    table: ClassTable
    disk: Disk | None = eqx.field(static=True, default=None)
    copies: tuple[str, ...] = eqx.field(static=True, default=())
    """A remark on pictures that were resized before."""

    def protocol(self) -> Facts:
        size = {} if self.size is None else {"size": self.size}
        return {**protocol_of(self.problem), **size, **dict.fromkeys(self.copies, True)}

    def sample(self, key: PRNGKeyArray) -> Task:
        table, problem = self.table, self.problem
        ways, shots, each = problem.outputs, problem.shots, problem.shots + problem.queries
        family_key, class_key, image_key = jax.random.split(key, 3)
        family = jax.random.randint(family_key, (), 0, len(table.classes))
        classes = table.first_class[family] + distinct(table.classes[family], ways, key=class_key)
        places = jax.vmap(lambda count, key: distinct(count, each, key=key))(
            table.count[classes], jax.random.split(image_key, ways)
        )
        index = table.first[classes][:, None] + places
        if self.disk is not None:
            shape = jax.ShapeDtypeStruct((ways, each, *problem.features), jnp.uint8)
            # One call of the host for a whole batch of tasks.
            gather = self.disk.gather
            images = jax.pure_callback(gather, shape, index, vmap_method="broadcast_all")
        else:
            assert self.pixels is not None
            images = self.pixels.at[index].get(mode="promise_in_bounds")
        support, query = (
            examples(part.reshape(-1, *problem.features), ways)
            for part in (images[:, :shots], images[:, shots:])
        )
        return Task(support, query, family, classes)


def examples(
    pixels: UInt8[Array, "n size size 3"] | Float[Array, "n *features"], ways: int
) -> Examples:
    """Labelled examples from images or features, equally many of each class, in order of class."""
    x = pixels.astype(jnp.float32) / 255.0 if pixels.dtype == jnp.uint8 else pixels
    return Examples(x, jnp.repeat(jnp.arange(ways), len(pixels) // ways))


def image_episodes(
    families: Sequence[ImageFamily],
    part: str,
    *,
    ways: int,
    shots: int,
    queries: int,
    stated: str = "",
    size: int | None = None,
    disk: bool = False,
    copies: tuple[str, ...] = (),
) -> ImageEpisodes:
    """Episodes over the classes of one part of each family's split, of which there are enough. With
    `disk` images are read when they are needed, and the part must have all classes."""
    chosen = [
        np.flatnonzero(np.isin(family.classes, (family.split or {})[part])) for family in families
    ]
    pieces = [
        family.images[family.first[i] : family.first[i] + family.counts[i]]
        for family, some in zip(families, chosen, strict=True)
        for i in some
    ]
    count = np.array([len(piece) for piece in pieces], np.int32)
    numbers = np.array([len(some) for some in chosen], np.int32)
    first, first_class = (np.cumsum(n, dtype=np.int32) - n for n in (count, numbers))
    table = ClassTable(*map(jnp.asarray, (first, count, first_class, numbers)))
    images = families[0].images
    inputs = "pictures" if images.ndim == 4 else "vectors"
    problem = Problem("classification", images.shape[1:], ways, shots, queries, len(count), inputs)
    names = tuple(family.name for family in families)
    pixels = None if disk else jnp.asarray(np.concatenate(pieces))
    source = Disk([family.images for family in families]) if disk else None
    return ImageEpisodes(names, problem, stated, size, pixels, table, source, copies)


def device_room() -> int:
    """The most bytes of images that are put on a device; larger data are streamed. By default
    (`$ARML_DEVICE_GIB`) a quarter of an accelerator's memory, or 4 GiB for all cores of a CPU."""
    said = os.environ.get("ARML_DEVICE_GIB")
    if said:
        try:
            return int(float(said) * 2**30)
        except (ValueError, OverflowError):
            raise ValueError(f"ARML_DEVICE_GIB must be a number of GiB, got {said!r}") from None
    memory = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
    return int(memory) // 4 if memory else 4 * 2**30 // jax.local_device_count()


SHOTS_STREAM, VARY_STREAM = 0x73686F74, 0x76617279
"""Folded into the key that draws a task. Small numbers would give the keys of its classes and
pictures again, because `fold_in(key, i)` equals `split(key, n)[i]`."""


class MixedShots(TaskDistribution):
    """Training tasks with k different support examples of each class, each `shots / k` times, where
    k is a random divisor of `shots`: class means and statistics are those of k shots."""

    families: tuple[str, ...] = eqx.field(static=True)
    problem: Problem = eqx.field(static=True)
    tasks: TaskDistribution

    def sample(self, key: PRNGKeyArray) -> Task:
        # The key itself draws the examples, as in `tasks`.
        task, shots = self.tasks.sample(key), self.problem.shots
        divisors = jnp.asarray([k for k in range(1, shots + 1) if shots % k == 0])
        k = jax.random.choice(jax.random.fold_in(key, SHOTS_STREAM), divisors)
        x = task.support.x.reshape(self.problem.outputs, shots, *task.support.x.shape[1:])
        x = x[:, jnp.arange(shots) % k].reshape(task.support.x.shape)
        return task._replace(support=task.support._replace(x=x))


class Augmented(TaskDistribution):
    """Training tasks whose pictures are varied at random, each separately. All are shifted by up to
    about a tenth of their size, and the edge is repeated. In families that keep their classes in a
    mirror (`mirrored`) half of them are mirrored, and brightness, contrast and colour change."""

    families: tuple[str, ...] = eqx.field(static=True)
    problem: Problem = eqx.field(static=True)
    tasks: TaskDistribution
    mirrored: Bool[Array, " families"]

    def sample(self, key: PRNGKeyArray) -> Task:
        # The key itself draws the examples, as in `tasks`.
        task = self.tasks.sample(key)
        support_key, query_key = jax.random.split(jax.random.fold_in(key, VARY_STREAM))
        mirror = self.mirrored[task.family]
        return task._replace(
            support=task.support._replace(x=varied(task.support.x, mirror, key=support_key)),
            query=task.query._replace(x=varied(task.query.x, mirror, key=query_key)),
        )


def varied(
    x: Float[Array, "n h w c"], mirror: Bool[Array, ""], *, key: PRNGKeyArray
) -> Float[Array, "n h w c"]:
    """Each picture shifted at random; if `mirror`, also mirrored and relit."""
    most = max(1, round(x.shape[1] / 10))

    def one(picture: Float[Array, "h w c"], key: PRNGKeyArray) -> Float[Array, "h w c"]:
        flip_key, shift_key, light_key, contrast_key, colour_key = jax.random.split(key, 5)
        padded = jnp.pad(picture, ((most, most), (most, most), (0, 0)), mode="edge")
        down, right = jax.random.randint(shift_key, (2,), 0, 2 * most + 1)
        picture = jax.lax.dynamic_slice(padded, (down, right, 0), picture.shape)
        other = jnp.where(jax.random.bernoulli(flip_key), picture[:, ::-1], picture)
        mean = jnp.mean(other)
        contrast = jax.random.uniform(contrast_key, minval=0.7, maxval=1.3)
        light = jax.random.uniform(light_key, minval=-0.1, maxval=0.1)
        colour = jax.random.uniform(colour_key, picture.shape[-1:], minval=0.9, maxval=1.1)
        other = jnp.clip(((other - mean) * contrast + mean + light) * colour, 0, 1)
        return jnp.where(mirror, other, picture)

    return jax.vmap(one)(x, jax.random.split(key, len(x)))


MIRROR_LOSS = 0.1
"""Families with a smaller `mirror_loss` are mirrored (`benchmarks/results/mirror.json`)."""


def mirror_loss(family: ImageFamily, classes: Sequence[str]) -> float:
    """The share of the separation of the classes that mirroring removes: 0 for symmetric classes.
    Half of the pictures of each class are compared with the class means of the other halves. The
    separation is the probability that the own class is nearer than another one, less one half."""
    from scipy.spatial.distance import cdist  # here, because few trainings need it

    rng = np.random.default_rng(0)
    chosen = rng.permutation(np.flatnonzero(np.isin(family.classes, classes)))[:50]
    means, pictures, own = [], [], []
    for number, i in enumerate(chosen):
        some = rng.permutation(family.counts[i])[:20]
        images = family.images[family.first[i] + np.sort(some)].astype(np.float32) / 255
        half = len(images) // 2
        means.append(images[:half].mean(axis=0))
        pictures.append(images[half:])
        own += [number] * (len(images) - half)
    centres, queries = np.stack(means), np.concatenate(pictures)

    def nearer(x: np.ndarray) -> float:
        apart = cdist(x.reshape(len(x), -1), centres.reshape(len(centres), -1))
        mine = apart[np.arange(len(own)), own][:, None]
        return float(np.mean(apart > mine)) * len(centres) / (len(centres) - 1) - 0.5

    straight = nearer(queries)
    return 1 - nearer(queries[:, :, ::-1]) / straight if straight > 0 else 0.0
