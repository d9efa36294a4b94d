"""`starter-conflict`: the package's pictures under two questions each, in six families."""

from dataclasses import dataclass
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jaxtyping import UInt8

from arml.core.episodes import Problem
from arml.datasets.folders import ImageFamily, Progress
from arml.datasets.splits import PARTS, Split
from arml.datasets.starter import SIZE, load_starter
from arml.tasks.options import Splits
from arml.tasks.questions import QuestionEpisodes, Source, styles_of
from arml.tasks.shape import EpisodeOptions

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
        return SIZE

    def build(self, split: Path, *, progress: Progress | None = None) -> Splits:
        """The tasks of the published split; no file is written."""
        self.check()
        pictures, parts = load_starter()
        sources = {family.name: family.digest for family in pictures}
        train, validation, test = (self._episodes(pictures, parts, part) for part in PARTS)
        return Splits(self.varied(train), validation, test, sources)

    def check(self) -> None:
        """Raise `ValueError` for options that are out of range, before any data is read."""
        super().check()
        for name in self.families:
            if name not in QUESTIONS:
                raise ValueError(
                    f"expected families of {', '.join(QUESTIONS)}, got {name!r}; choose among them"
                )
        if len(set(self.families)) < len(self.families):
            raise ValueError(
                f"expected each family once, got {', '.join(self.families)}; leave repetitions out"
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
                shown = _of_part(by_name[name], split[name][part])
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
            problem=Problem("classification", (SIZE, SIZE, 3), ways, shots, queries, sum(numbers)),
            each=each,
            pixels=jnp.asarray(np.concatenate(pieces)),
            sources=Source(
                jnp.asarray([places[name][0] for name, _, _ in asked]),
                jnp.asarray([places[name][1] for name, _, _ in asked]),
                jnp.asarray([texture for _, texture, _ in asked]),
            ),
            asks_style=jnp.asarray([style for _, _, style in asked]),
            first_class=jnp.asarray(np.cumsum(numbers) - numbers),
            styles=jnp.asarray(styles),
        )


def _of_part(family: ImageFamily, classes: list[str]) -> UInt8[np.ndarray, "n size size"]:
    """The grey pictures of those classes."""
    shown = np.repeat(np.isin(family.classes, classes), family.counts)
    return family.images[shown, ..., 0]


def dark_on_light(
    pictures: UInt8[np.ndarray, "n size size"],
) -> UInt8[np.ndarray, "n size size"]:
    """The pictures with dark ink on light paper: a tenth of the starter's drawings have light ink
    on dark paper. The border of a drawing is paper."""
    border = np.concatenate([pictures[:, [0, -1]], pictures[:, :, [0, -1]].swapaxes(1, 2)], axis=1)
    dark = np.median(border, axis=(1, 2)) < 128
    return np.where(dark[:, None, None], 255 - pictures, pictures)
