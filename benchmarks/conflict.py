"""The same pictures under two questions: families of tasks that conflict.

One family asks for the content of a picture (a character, a concept, a material), the other for its
style: an angle, an ink and a scale, or for textures a light, a tone and a scale. Both families
draw their pictures from the same distribution, so a picture alone does not show which question is
asked: only the labels of the support set do. The feature that distinguishes the classes of one
family varies within each class of the other. `starter-conflict` asks so about the package's
pictures, in six families:

    arml train starter-conflict/arml --plugin benchmarks/conflict.py --run runs/conflict
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt8

import arml
from arml.core.episodes import Problem, Task
from arml.datasets.folders import SPLIT_PARTS, ImageFamily, Progress
from arml.datasets.splits import Split
from arml.datasets.starter import STARTER_SIZE, load_starter
from arml.tasks.images import Episodes, distinct, examples
from arml.tasks.splits import EpisodeOptions, Splits

DIRECTIONS, TONES, SCALES = 8, 2, 5
"""A style has one of each: there are 80 styles."""
STYLES = DIRECTIONS * TONES * SCALES
DRAWN_SCALES = 0.7, 1.25
"""The smallest and the largest magnification of drawings; the others are spaced between them in
equal ratios."""
WINDOW_SCALES = 1.0, 2.0
"""The same for a window of a texture, which has to stay within the picture."""
LIGHT = 0.25
"""The brightness that a light adds on its own side and removes on the other."""
TONE = 0.4
"""The share of white or black in a texture of a bright or dark tone."""


class Style(NamedTuple):
    """A style by its three numbers."""

    direction: Int[Array, ""]
    tone: Int[Array, ""]
    scale: Int[Array, ""]


def style_of(number: Any) -> Style:
    """The style of that number, `0 <= number < STYLES`."""
    rest, scale = number // SCALES, number % SCALES
    return Style(rest // TONES, rest % TONES, scale)


def styles_of(part: str) -> Int[np.ndarray, " styles"]:
    """The numbers of the styles in a part of the split: 48 for training, 16 for validation, 16 for
    test. Each part has every direction, tone and scale, but in other combinations."""
    numbers = np.arange(STYLES)
    fifth = sum(np.array([1, 3, 2])[:, None] * np.stack(style_of(numbers))) % 5
    parts = {"train": fifth > 1, "validation": fifth == 1, "test": fifth == 0}
    return numbers[parts[part]].astype(np.int32)


def styled(
    picture: UInt8[Array, "size size"], style: Style, texture: Bool[Array, ""]
) -> Float[Array, "size size"]:
    """A picture in a style, in [0, 1].

    A drawing is turned by an eighth of a circle for each direction, inverted for tone 1, and
    magnified. The middle of a texture is magnified, made darker or brighter, and lit from the
    direction.
    """
    size = picture.shape[0]
    direction, tone, scale = (number.astype(jnp.float32) for number in style)
    angle = 2 * jnp.pi * direction / DIRECTIONS
    least, most = (
        jnp.where(texture, a, b) for a, b in zip(WINDOW_SCALES, DRAWN_SCALES, strict=True)
    )
    zoom = least * (most / least) ** (scale / (SCALES - 1))
    across = jnp.linspace(-1, 1, size, dtype=jnp.float32)
    down, right = jnp.meshgrid(across, across, indexing="ij")
    turn = jnp.where(texture, 0.0, angle)
    cosine, sine = jnp.cos(turn) / zoom, jnp.sin(turn) / zoom
    at = jnp.stack([cosine * down - sine * right, sine * down + cosine * right])
    # Between the pixels; outside the picture, the nearest pixel of the border.
    grey = jax.scipy.ndimage.map_coordinates(
        picture.astype(jnp.float32) / 255, list((at + 1) * (size - 1) / 2), order=1, mode="nearest"
    )
    inked = jnp.where(tone == 1, 1 - grey, grey)
    light = LIGHT * (jnp.cos(angle) * down + jnp.sin(angle) * right)
    toned = (1 - TONE) * grey + TONE * tone
    return jnp.where(texture, jnp.clip(toned + light, 0, 1), inked)


class QuestionEpisodes(Episodes):
    """`ways`-way tasks over families that ask for the content or for the style of the same
    pictures. In a task of contents the styles are drawn at random, in a task of styles the
    contents.

    `x` is float32 `[n, size, size, 3]` in [0, 1], `y` int32 `[n]`, ordered by class.
    """

    families: tuple[str, ...] = eqx.field(static=True)
    problem: Problem = eqx.field(static=True)
    stated: str = eqx.field(static=True)
    each: int = eqx.field(static=True)
    """Pictures of a class of contents."""
    pixels: UInt8[Array, "n size size"]
    """The pictures of all families, in order of class."""
    first: Int[Array, " families"]
    """The index of each family's first picture."""
    classes: Int[Array, " families"]
    """Classes of contents of each family."""
    texture: Bool[Array, " families"]
    asks_style: Bool[Array, " families"]
    first_class: Int[Array, " families"]
    """The number of each family's first class in the list of all classes."""
    styles: Int[Array, " styles"]

    def sample(self, key: PRNGKeyArray) -> Task:
        family_key, content_key, style_key = jax.random.split(key, 3)
        family = jax.random.randint(family_key, (), 0, len(self.families))
        ways, shots = self.problem.outputs, self.problem.shots
        by_content, by_style = self._contents(family, content_key), self._styles(family, style_key)
        places, styles, classes = jax.tree.map(
            lambda a, b: jnp.where(self.asks_style[family], b, a), by_content, by_style
        )
        draw = jax.vmap(
            lambda place, style: styled(self.pixels[place], style, self.texture[family])
        )
        grey = draw(places.reshape(-1), style_of(styles.reshape(-1)))
        x = jnp.repeat(grey.reshape(ways, -1, *grey.shape[1:])[..., None], 3, axis=-1)
        support, query = (
            examples(part.reshape(-1, *self.problem.features), ways)
            for part in (x[:, :shots], x[:, shots:])
        )
        return Task(support, query, family, self.first_class[family] + classes)

    def _contents(self, family: Int[Array, ""], key: PRNGKeyArray) -> tuple[Array, Array, Array]:
        """The indices of the pictures, their styles and their classes, for a task of contents."""
        ways, drawn = self.problem.outputs, self.problem.shots + self.problem.queries
        class_key, picture_key, style_key = jax.random.split(key, 3)
        classes = distinct(self.classes[family], ways, key=class_key)
        pictures = jax.vmap(lambda key: distinct(self.each, drawn, key=key))(
            jax.random.split(picture_key, ways)
        )
        places = self.first[family] + classes[:, None] * self.each + pictures
        styles = jax.random.randint(style_key, places.shape, 0, len(self.styles))
        return places, self.styles[styles], classes

    def _styles(self, family: Int[Array, ""], key: PRNGKeyArray) -> tuple[Array, Array, Array]:
        """The same for a task of styles."""
        ways, drawn = self.problem.outputs, self.problem.shots + self.problem.queries
        class_key, picture_key = jax.random.split(key)
        classes = distinct(len(self.styles), ways, key=class_key)
        pictures = distinct(self.classes[family] * self.each, ways * drawn, key=picture_key)
        places = self.first[family] + pictures.reshape(ways, drawn)
        return places, jnp.broadcast_to(self.styles[classes][:, None], places.shape), classes


# --- the package's pictures

QUESTIONS: dict[str, tuple[str, bool, bool]] = {
    f"{name}-{question}": (name, texture, style)
    for name, content, texture in (
        ("glyphs", "character", False),
        ("icons", "concept", False),
        ("textures", "material", True),
    )
    for question, style in ((content, False), ("style", True))
}
"""The pictures of each family, whether they are textures, and whether it asks for their style."""


@dataclass(frozen=True)
class ConflictOptions(EpisodeOptions):
    """Image episodes from the starter pictures under conflicting questions: about the content of a
    picture, or about its style."""

    shots: int = 5
    """Support images of each class."""
    families: tuple[str, ...] = ()
    """The families that tasks are drawn from; all six if none is named."""

    @property
    def size(self) -> int:
        """Pixels a side of an image."""
        return STARTER_SIZE

    def build(self, split: Path, *, progress: Progress | None = None) -> Splits:
        """The tasks of the published split; no file is written."""
        self.check()
        pictures, parts = load_starter()
        sources = {family.name: family.digest for family in pictures}
        train, validation, test = (self._episodes(pictures, parts, part) for part in SPLIT_PARTS)
        # In a mirror a style would be another one.
        none = [False] * len(train.families)
        return Splits(self.varied(train, lambda: none), validation, test, sources)

    def check(self) -> None:
        """Raise `ValueError` for options that are out of range, before any data is read."""
        super().check()
        if not len(set(self.families) & QUESTIONS.keys()) == len(self.families):
            raise ValueError(
                f"expected families of {', '.join(QUESTIONS)}, each at most once, got "
                f"{', '.join(self.families)}: choose among them"
            )

    def _episodes(self, pictures: list[ImageFamily], split: Split, part: str) -> QuestionEpisodes:
        """The tasks over one part of the classes."""
        ways, shots, queries = self.ways_of(part), self.shots, self.queries
        names = self.families or tuple(QUESTIONS)
        by_name = {family.name: family for family in pictures}
        each = int(pictures[0].counts[0])
        styles = styles_of(part)
        if shots + queries > each:
            raise ValueError(
                f"expected at most {each} shots and queries of a class, got {shots} + {queries}; "
                "lower one of them"
            )
        asked = [QUESTIONS[name] for name in names]
        pieces: list[UInt8[np.ndarray, "n size size"]] = []
        places: dict[str, tuple[int, int]] = {}
        for name, texture, _ in asked:
            if name not in places:
                family = by_name[name]
                chosen = np.repeat(np.isin(family.classes, split[name][part]), family.counts)
                shown = family.images[chosen, ..., 0]
                places[name] = sum(map(len, pieces)), len(shown) // each
                pieces.append(shown if texture else dark_on_light(shown))
        numbers = [len(styles) if style else places[name][1] for name, _, style in asked]
        fewest = min(
            [*numbers, *(classes * each // (shots + queries) for _, classes in places.values())]
        )
        if fewest < ways:
            raise ValueError(
                f"expected at least {ways} {part} classes for {ways}-way tasks, got {fewest}; "
                "lower the ways"
            )
        return QuestionEpisodes(
            stated=self.stated({family.name: family.digest for family in pictures}),
            families=names,
            problem=Problem(
                "classification",
                (STARTER_SIZE, STARTER_SIZE, 3),
                ways,
                shots,
                queries,
                sum(numbers),
                inputs="pictures",
            ),
            each=each,
            pixels=jnp.asarray(np.concatenate(pieces)),
            first=jnp.asarray([places[name][0] for name, _, _ in asked]),
            classes=jnp.asarray([places[name][1] for name, _, _ in asked]),
            texture=jnp.asarray([texture for _, texture, _ in asked]),
            asks_style=jnp.asarray([style for _, _, style in asked]),
            first_class=jnp.asarray(np.cumsum(numbers) - numbers),
            styles=jnp.asarray(styles),
        )


def dark_on_light(
    pictures: UInt8[np.ndarray, "n size size"],
) -> UInt8[np.ndarray, "n size size"]:
    """The pictures with dark ink on light paper: a tenth of the starter's drawings have light ink
    on dark paper. The border of a drawing is paper."""
    border = np.concatenate([pictures[:, [0, -1]], pictures[:, :, [0, -1]].swapaxes(1, 2)], axis=1)
    dark = np.median(border, axis=(1, 2)) < 128
    return np.where(dark[:, None, None], 255 - pictures, pictures)


def register() -> None:
    """Make `starter-conflict` known."""
    usual = Problem(
        "classification", (STARTER_SIZE, STARTER_SIZE, 3), 5, shots=5, queries=15, inputs="pictures"
    )
    about = "The pictures in the package under two questions each, six families."
    arml.register("tasks", "starter-conflict", ConflictOptions, usual=usual, about=about)


register()
