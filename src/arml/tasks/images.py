"""Few-shot classification episodes, drawn by index from images on the device.

A task draws a family, `ways` of its classes, and `shots + queries` images of each: all uniformly,
all without replacement. The work per task depends on its own size only, not on how many images,
classes or families there are.

Training tasks may have more variety than the data. Each class is turned, mirrored, inverted and
coloured as a whole, which makes new classes [1]; each picture is turned a little, magnified, moved
and lit in another way, so that the network learns to ignore these changes; and some tasks have
fewer different examples of each class.

[1] Santoro et al., Meta-Learning with Memory-Augmented Neural Networks, ICML 2016: new classes of
    Omniglot by quarter turns.
"""

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Int, PRNGKeyArray, UInt8

from arml.core.episodes import Examples, Facts, Problem, Task, TaskDistribution, protocol_of
from arml.datasets.folders import ImageFamily
from arml.datasets.splits import check_split


def distinct(
    count: Int[Array, ""] | int, number: int, *, key: PRNGKeyArray
) -> Int[Array, " number"]:
    """`number` distinct integers of `0 <= i < count`, every ordered choice equally likely.

    A uniform Lehmer code (draw `i` is a rank among the `count - i` integers left), decoded from
    its end: each draw pushes up the later ones that are not below it. `count` may be traced; it
    must be at least `number`.
    """
    places = jnp.arange(number)
    code = jax.random.randint(key, (number,), 0, jnp.asarray(count, jnp.int32) - places)

    def push(i: Int[Array, ""], drawn: Int[Array, " number"]) -> Int[Array, " number"]:
        at = number - 2 - i
        return drawn + ((places > at) & (drawn >= drawn[at])).astype(drawn.dtype)

    return jax.lax.fori_loop(0, number - 1, push, code)


class Table(eqx.Module):
    """Where the images of each class are in the list of all images, and which classes a family has
    in the list of all classes."""

    first: Int[Array, " classes"]
    """Index of each class's first image."""
    count: Int[Array, " classes"]
    """Images of each class."""
    first_class: Int[Array, " families"]
    """Index of each family's first class in `first` and `count`."""
    classes: Int[Array, " families"]
    """Classes of each family."""


class Episodes(TaskDistribution):
    """Episodes of pictures whose identity may be given.

    `stated` is the text of their identity, made of the options and the digests of the data. If it
    is empty, the identity is a digest of all their arrays.
    """

    stated: eqx.AbstractVar[str]

    def identity(self) -> str:
        return self.stated or super().identity()


class ImageEpisodes(Episodes):
    """`ways`-way, `shots`-shot tasks over one or more families of images.

    `x` is float32 `[n, size, size, 3]` in [0, 1], or `[n, features]` for frozen features; `y` is
    int32 `[n]` with `0 <= y < ways`, in the random order in which the classes were drawn. Support
    and query are ordered by class. Build it with `listed`, which checks that every task can be
    drawn.
    """

    families: tuple[str, ...] = eqx.field(static=True)
    problem: Problem = eqx.field(static=True)
    stated: str = eqx.field(static=True)
    size: int | None = eqx.field(static=True)
    """Pixels a side of the pictures that frozen features were made of; None for pictures."""
    pixels: UInt8[Array, "n size size 3"] | Float[Array, "n features"]
    table: Table

    def protocol(self) -> Facts:
        size = {} if self.size is None else {"size": self.size}
        return {**protocol_of(self.problem), **size}

    def sample(self, key: PRNGKeyArray) -> Task:
        drawn = draw(self.table, self.problem, key=key)
        shots = self.problem.shots
        support = self._examples(drawn.images[:, :shots])
        return Task(support, self._examples(drawn.images[:, shots:]), drawn.family, drawn.classes)

    def _examples(self, index: Int[Array, "ways each"]) -> Examples:
        return examples(
            self.pixels.at[index.reshape(-1)].get(mode="promise_in_bounds"), index.shape[0]
        )


class Drawn(NamedTuple):
    """The images of a task, as indices into the list of all."""

    family: Int[Array, ""]
    classes: Int[Array, " ways"]
    images: Int[Array, "ways each"]
    """The support images of each class, then its queries."""


def draw(table: Table, problem: Problem, *, key: PRNGKeyArray) -> Drawn:
    """Draw ONE task of the classes and images of a table."""
    ways, each = problem.outputs, problem.shots + problem.queries
    family_key, class_key, image_key = jax.random.split(key, 3)
    family = jax.random.randint(family_key, (), 0, len(table.classes))
    chosen = table.first_class[family] + distinct(table.classes[family], ways, key=class_key)
    places = jax.vmap(lambda count, key: distinct(count, each, key=key))(
        table.count[chosen], jax.random.split(image_key, ways)
    )
    return Drawn(family, chosen, table.first[chosen][:, None] + places)


def examples(
    pixels: UInt8[Array, "n size size 3"] | Float[Array, "n *features"], ways: int
) -> Examples:
    """Labelled examples from images or features: as many of each class, in order of class."""
    x = pixels.astype(jnp.float32) / 255.0 if pixels.dtype == jnp.uint8 else pixels
    return Examples(x, jnp.repeat(jnp.arange(ways), len(pixels) // ways))


class Listed(NamedTuple):
    """The images of one part of the families' classes, on the host."""

    families: tuple[str, ...]
    problem: Problem
    pieces: list[UInt8[np.ndarray, "_ size size 3"]] | list[Float32[np.ndarray, "_ features"]]
    """The images of each class."""
    table: Table

    def on_the_device(self, *, stated: str = "", size: int | None = None) -> ImageEpisodes:
        """Episodes over these images, which are put on the device."""
        pixels = jnp.asarray(np.concatenate(self.pieces))
        return ImageEpisodes(self.families, self.problem, stated, size, pixels, self.table)


def listed(
    families: Sequence[ImageFamily],
    split: Mapping[str, Mapping[str, Sequence[str]]],
    *,
    part: str,
    ways: int,
    shots: int,
    queries: int,
) -> Listed:
    """List the images of one `part` of each family's split: `train`, `validation` or `test`.

    **Raises** `ValueError`, before any work, if the split does not fit the families, a family has
    fewer than `ways` classes in that part, or a class has fewer than `shots + queries` images.
    """
    for name, value, least in (("ways", ways, 2), ("shots", shots, 1), ("queries", queries, 1)):
        if value < least:
            raise ValueError(f"expected {name} of at least {least}, got {value}; raise it")
    if not families or len({family.images.shape[1:] for family in families}) > 1:
        raise ValueError(
            "expected one or more families of one image size, got "
            f"{[family.images.shape[1:] for family in families]}; load them with one size"
        )
    names = tuple(family.name for family in families)
    if len(set(names)) < len(names):
        raise ValueError(f"expected families of different names, got {', '.join(names)}; rename")
    check_split(split, families)
    chosen: list[list[int]] = []
    for family in families:
        if part not in split[family.name]:
            raise ValueError(
                f"expected a part of {', '.join(split[family.name])}, got {part!r}; choose one"
            )
        wanted = set(split[family.name][part])
        chosen.append([i for i, name in enumerate(family.classes) if name in wanted])
        if len(wanted) < ways:
            raise ValueError(
                f"{family.name}: expected at least {ways} {part} classes for {ways}-way tasks, got "
                f"{len(wanted)}; lower the ways, add classes or split otherwise"
            )
        for i in chosen[-1]:
            if family.counts[i] < shots + queries:
                raise ValueError(
                    f"{family.name}: expected at least {shots + queries} images of each class "
                    f"({shots} shots and {queries} queries), got {family.counts[i]} in "
                    f"{family.classes[i]!r} ({part}); lower the shots or queries, or add images"
                )
    pieces = [
        family.images[family.first[i] : family.first[i] + family.counts[i]]
        for family, classes in zip(families, chosen, strict=True)
        for i in classes
    ]
    count = np.array([len(piece) for piece in pieces], np.int32)
    classes = np.array([len(of_family) for of_family in chosen], np.int32)
    first, first_class = (np.cumsum(n, dtype=np.int32) - n for n in (count, classes))
    features = families[0].images.shape[1:]
    problem = Problem("classification", features, ways, shots, queries, len(count))
    table = Table(*map(jnp.asarray, (first, count, first_class, classes)))
    return Listed(names, problem, pieces, table)


def device_room() -> int:
    """The most bytes of images that are put on a device; larger data are streamed.

    `$ARML_DEVICE_GIB` sets it. It is not part of an experiment, because it changes no task. The
    default is a quarter of an accelerator's memory, or 4 GiB in all for the cores of a CPU, each of
    which may hold a copy.
    """
    said = os.environ.get("ARML_DEVICE_GIB")
    if said:
        try:
            return int(float(said) * 2**30)
        except (ValueError, OverflowError):
            raise ValueError(f"ARML_DEVICE_GIB must be a number of GiB, got {said!r}") from None
    memory = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
    return int(memory) // 4 if memory else 4 * 2**30 // jax.local_device_count()


# --- variety

TURN, ZOOM, MOVE = 0.25, 0.2, 0.24
"""The most that a picture is turned (radians), magnified (logarithm) and moved (halves of it)."""
COLOURS, LIGHT = 0.7, 0.3
"""The most that black and white move towards each other: in a class's colours, in a picture."""


class Varied(TaskDistribution):
    """The tasks of a distribution, varied. Test tasks are never of this kind."""

    families: tuple[str, ...] = eqx.field(static=True)
    problem: Problem = eqx.field(static=True)
    tasks: TaskDistribution
    pictures: bool = eqx.field(static=True)
    """Vary the pictures."""
    shots: bool = eqx.field(static=True)
    """Vary the number of different support examples of each class."""

    def sample(self, key: PRNGKeyArray) -> Task:
        # The key itself draws the examples, as without variety, so that pictures on the disk can be
        # gathered ahead.
        task = self.tasks.sample(key)
        picture_key, shot_key = jax.random.split(jax.random.fold_in(key, 1))
        if self.pictures:
            task = with_other_pictures(task, self.problem, key=picture_key)
        if self.shots:
            task = task._replace(support=fewer(task.support, self.problem, key=shot_key))
        return task


def with_variety(
    tasks: TaskDistribution, *, pictures: bool = False, shots: bool = False
) -> TaskDistribution:
    """The tasks with varied pictures, varied shots, or both; the same tasks if neither is asked."""
    if not (pictures or shots):
        return tasks
    return Varied(tasks.families, tasks.problem, tasks, pictures, shots)


def fewer(support: Examples, problem: Problem, *, key: PRNGKeyArray) -> Examples:
    """A support set of k different examples of each class, each `shots / k` times.

    k is a random divisor of `shots`, so that class means and statistics are those of k shots.
    """
    divisors = jnp.asarray([k for k in range(1, problem.shots + 1) if problem.shots % k == 0])
    k = jax.random.choice(key, divisors)
    x = support.x.reshape(problem.outputs, problem.shots, *support.x.shape[1:])
    return support._replace(x=x[:, jnp.arange(problem.shots) % k].reshape(support.x.shape))


def with_other_pictures(task: Task, problem: Problem, *, key: PRNGKeyArray) -> Task:
    """The task with its classes and its pictures varied."""
    ways, features = problem.outputs, problem.features
    support, query = (part.x.reshape(ways, -1, *features) for part in (task.support, task.query))
    x = varied(jnp.concatenate([support, query], axis=1), key=key)
    parts = jnp.split(x, [problem.shots], axis=1)
    support, query = (part.reshape(-1, *features) for part in parts)
    return task._replace(
        support=task.support._replace(x=support), query=task.query._replace(x=query)
    )


class Frame(NamedTuple):
    """The places from which the pixels of a picture are taken: a linear map of places in [-1, 1],
    and an offset."""

    linear: Float[Array, "2 2"]
    offset: Float[Array, "2"]


def varied(
    x: Float[Array, "ways each h w c"], *, key: PRNGKeyArray
) -> Float[Array, "ways each h w c"]:
    """The pictures of ONE task, `each` of a class, in [0, 1]."""
    ways, each, channels = x.shape[0], x.shape[1], x.shape[-1]
    class_key, picture_key, colour_key, light_key, tone_key = jax.random.split(key, 5)
    turned = jax.vmap(lambda key: quarter_turn(key=key))(jax.random.split(class_key, ways))
    frames = jax.vmap(jax.vmap(lambda key: small_move(key=key)))(
        jax.random.split(picture_key, (ways, each))
    )
    frames = Frame(turned[:, None] @ frames.linear, frames.offset)
    moved = jax.vmap(jax.vmap(moved_picture))(x, frames)
    inverted, coloured, strength = jax.random.uniform(tone_key, (3,))
    moved = jnp.where(inverted < 0.5, 1 - moved, moved)
    # In a third of the tasks each class has a colour, which tells the classes apart. In another
    # third each picture has a colour, which does not.
    of_classes, of_pictures = jax.random.split(colour_key)
    most = strength * COLOURS
    by_class = jnp.where((coloured > 1 / 3) & (coloured < 2 / 3), most, 0.0)
    by_picture = jnp.where(coloured > 2 / 3, most, 0.0)
    moved = relit(moved, by_class, (ways, 1, 1, 1, channels), key=of_classes)
    moved = relit(moved, by_picture, (ways, each, 1, 1, channels), key=of_pictures)
    return relit(moved, LIGHT, (ways, each, 1, 1, 1), key=light_key)


def quarter_turn(*, key: PRNGKeyArray) -> Float[Array, "2 2"]:
    """One of the eight symmetries of a square, as a map of places."""
    quarters, mirrored = jax.random.randint(key, (2,), 0, jnp.array([4, 2]))
    mirror = jnp.where(mirrored, -1.0, 1.0)
    return _rotation(quarters.astype(jnp.float32) * (jnp.pi / 2)) * jnp.array([[1.0, mirror]])


def small_move(*, key: PRNGKeyArray) -> Frame:
    """A small turn, magnification and shift."""
    turn, zoom, down, right = jax.random.uniform(key, (4,), minval=-1.0)
    return Frame(_rotation(TURN * turn) * jnp.exp(ZOOM * zoom), MOVE * jnp.stack([down, right]))


def _rotation(angle: Float[Array, ""]) -> Float[Array, "2 2"]:
    cosine, sine = jnp.cos(angle), jnp.sin(angle)
    return jnp.stack([jnp.stack([cosine, -sine]), jnp.stack([sine, cosine])])


def moved_picture(picture: Float[Array, "h w c"], frame: Frame) -> Float[Array, "h w c"]:
    """The picture at the places of a frame, between its pixels; outside it, the nearest pixel of
    the border."""
    height, width = picture.shape[:2]
    places = jnp.stack(
        jnp.meshgrid(jnp.linspace(-1, 1, height), jnp.linspace(-1, 1, width), indexing="ij")
    )
    at = jnp.einsum("ij,jhw->ihw", frame.linear, places) + frame.offset[:, None, None]
    most = jnp.array([height - 1, width - 1], jnp.float32)[:, None, None]
    at = jnp.clip((at + 1) * most / 2, 0, most)
    low = jnp.clip(jnp.floor(at), 0, most - 1)
    (down, right), (row, column) = (at - low)[..., None], low.astype(jnp.int32)
    corners = [
        [picture.at[row + i, column + j].get(mode="promise_in_bounds") for j in (0, 1)]
        for i in (0, 1)
    ]
    above, below = ((1 - right) * left + right * other for left, other in corners)
    return (1 - down) * above + down * below


def relit(
    x: Float[Array, "ways each h w c"],
    most: Float[Array, ""] | float,
    shape: tuple[int, ...],
    *,
    key: PRNGKeyArray,
) -> Float[Array, "ways each h w c"]:
    """The pictures with black and white moved towards each other, by at most `most`, which is drawn
    once for each place of `shape`."""
    black, white = most * jax.random.uniform(key, (2, *shape))
    return black + x * (1 - white - black)
