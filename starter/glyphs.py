"""Glyphs: a class is a character, a sample a free font family's drawing of it.

Latin, Greek and Cyrillic letters, digits, hiragana and katakana. Size does not tell classes apart,
so that of letters which are one shape (o and O, A and Alpha) only the first is a class.
"""

import json
import unicodedata
from pathlib import Path
from typing import NamedTuple

import numpy as np
from fontTools.ttLib import TTFont
from PIL import Image, ImageDraw, ImageFont

from vary import CANVAS, coarse, drawn, fitted, generator, likeness

FAMILY = "glyphs"
SAMPLES = 20
ALIKE = 0.97
"""Two drawings of a greater correlation are one font's."""
ONE = 0.9
"""Two characters of which a font's drawings correlate more are one shape in that font ..."""
OFTEN = 0.15
"""... and one class, if they are in more than this part of the fonts."""
CHARACTERS = (
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabdefghijklmnqrtuy0123456789"
    "ΓΔΘΛΞΠΣΦΨΩαβγδεζηθλμξπσφψω"
    "БДЖЗИЙЛУЦЧШЩЭЮЯбвджилфцшюя"
    "あいうえおかきくけこさしすせそたちつてとなにぬねのはひふへほまみむめもやゆよらりるれろわをん"
    "アイウエオカキクケコサシスセソタチツテトナニヌネノハヒフヘホマミムメモヤユヨラリルレロワヲン"
)


class Font(NamedTuple):
    family: str
    file: Path
    characters: frozenset[str]


def samples(packages: dict[str, Path]) -> dict[str, list[tuple[str, np.ndarray]]]:
    """`{class: [(font family, uint8 [32, 32]), ...]}`."""
    fonts = [read(font["family"], packages[font["package"]] / font["file"]) for font in listed()]
    made: dict[str, list[tuple[str, np.ndarray]]] = {}
    chosen: list[dict[str, np.ndarray]] = []
    for character in CHARACTERS:
        shapes = drawings(character, fonts)
        vectors = {family: coarse(shape) for family, shape in shapes.items()}
        kept = unlike(character, shapes)
        if len(kept) < SAMPLES or any(same(vectors, other) for other in chosen):
            continue
        chosen.append(vectors)
        name = class_name(character)
        made[name] = [
            (family, drawn(shape, rng=generator(FAMILY, name, family))) for family, shape in kept
        ]
    return made


def listed() -> list[dict[str, str]]:
    """The fonts of `sources.json`."""
    text = Path(__file__).with_name("sources.json").read_text("utf-8")
    fonts: list[dict[str, str]] = json.loads(text)["fonts"]
    return fonts


def read(family: str, file: Path) -> Font:
    with TTFont(file, lazy=True) as font:
        return Font(family, file, frozenset(map(chr, font.getBestCmap())))


def class_name(character: str) -> str:
    """`latin-capital-letter-a`."""
    return unicodedata.name(character).lower().replace(" ", "-")


def drawings(character: str, fonts: list[Font]) -> dict[str, np.ndarray]:
    """Each font's drawing on its canvas, by family."""
    found = {f.family: draw(character, f.file) for f in fonts if character in f.characters}
    return {family: shape for family, shape in found.items() if shape is not None}


def draw(character: str, file: Path) -> np.ndarray | None:
    font = ImageFont.truetype(str(file), CANVAS, layout_engine=ImageFont.Layout.BASIC)
    image = Image.new("L", (3 * CANVAS, 3 * CANVAS))
    ImageDraw.Draw(image).text((CANVAS, CANVAS // 2), character, fill=255, font=font)
    return fitted(np.asarray(image))


def unlike(character: str, shapes: dict[str, np.ndarray]) -> list[tuple[str, np.ndarray]]:
    """At most `SAMPLES` fonts in an order of chance, no two of which draw the character alike."""
    kept: list[tuple[str, np.ndarray]] = []
    for family in sorted(shapes, key=lambda family: generator(FAMILY, character, family).random()):
        shape = shapes[family]
        if all(likeness(shape, other) < ALIKE for _, other in kept):
            kept.append((family, shape))
        if len(kept) == SAMPLES:
            break
    return kept


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    """Whether two characters, each as its drawings' `coarse` by family, are often one shape."""
    both = one.keys() & other.keys()
    alike = sum(float(one[family] @ other[family]) > ONE for family in both)
    return bool(both) and alike > OFTEN * len(both)
