"""Training tasks with more variety than the data have.

Pictures: each class is turned, mirrored, inverted and coloured as a whole, which makes new classes
[1]. Each picture is turned a little, magnified, moved and lit in another way, so that the network
learns to ignore these changes. Shots: some tasks have fewer different examples of each class.

[1] Santoro et al., Meta-Learning with Memory-Augmented Neural Networks, ICML 2016: new classes of
    Omniglot by quarter turns.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from arml.core.episodes import Examples, Problem, Task, TaskDistribution

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
