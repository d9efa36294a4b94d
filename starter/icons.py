"""Icons: a class is a concept, a sample one author's drawing of it.

The npm package `@iconify/json` holds open-source icon sets, each a JSON file of SVG bodies with its
licence and author. Only sets of one colour under the licences below are used; brands, emoji and
flags are left out. One author's several sets count once.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import resvg_py

from vary import CANVAS, drawn, fitted, generator, likeness

FAMILY = "icons"
SAMPLES = 20
LICENCES = {"MIT", "Apache-2.0", "ISC", "CC0-1.0", "CC-BY-4.0", "CC-BY-3.0"}
LEFT_OUT = {"Logos", "Emoji", "Flags / Maps", "Programming", "UI Multicolor"}
ALIKE = 0.93
"""Two drawings of a greater correlation are one, whoever signed them."""
STYLES = set(Path(__file__).with_name("styles.txt").read_text("utf-8").split())
"""Words at the end of an icon's name that say its style, not what it shows."""
CONCEPTS = Path(__file__).with_name("concepts.txt").read_text("utf-8").split()
"""Chosen by hand: each has `SAMPLES` drawings, no two are one thing, none is a brand."""


def samples(folder: Path) -> dict[str, list[tuple[str, np.ndarray]]]:
    """`{class: [(source, uint8 [32, 32]), ...]}` from the unpacked package."""
    found = drawings(folder)
    made = {}
    for concept in CONCEPTS:
        by_author = found[concept]
        order = sorted(by_author, key=lambda author: generator(FAMILY, concept, author).random())
        kept: list[tuple[str, np.ndarray]] = []
        for author in order:
            name, svg = by_author[author]
            shape = render(svg)
            if shape is not None and all(likeness(shape, other) < ALIKE for _, other in kept):
                kept.append((name, shape))
            if len(kept) == SAMPLES:
                break
        if len(kept) < SAMPLES:
            raise ValueError(f"{concept}: expected {SAMPLES} drawings, found {len(kept)}")
        made[concept] = [
            (name, drawn(shape, rng=generator(FAMILY, concept, name))) for name, shape in kept
        ]
    return made


def sets(folder: Path) -> dict[str, dict[str, Any]]:
    """The icon sets that may be used, by prefix."""
    known = json.loads((folder / "collections.json").read_text("utf-8"))
    return {
        prefix: about
        for prefix, about in sorted(known.items())
        if about["license"].get("spdx") in LICENCES
        and not about.get("palette")
        and about.get("category") not in LEFT_OUT
    }


def drawings(folder: Path) -> dict[str, dict[str, tuple[str, str]]]:
    """`{concept: {author: (source, SVG)}}`: of an author's several, the plainest name's."""
    found: dict[str, dict[str, tuple[str, str]]] = {concept: {} for concept in CONCEPTS}
    for prefix, about in sets(folder).items():
        content = json.loads((folder / "json" / f"{prefix}.json").read_text("utf-8"))
        author = about["author"]["name"]
        for name, concept in sorted(named(content["icons"]), key=lambda pair: (len(pair[0]), pair)):
            if author not in found[concept]:
                found[concept][author] = (f"{prefix}:{name}", svg_of(content, name))
    return found


def named(names: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The icons of known concepts, each with its concept."""
    wanted = set(CONCEPTS)
    for name in names:
        words = name.split("-")
        while len(words) > 1 and words[-1] in STYLES:
            words.pop()
        if (concept := "-".join(words)) in wanted:
            yield name, concept


def svg_of(content: dict[str, Any], name: str) -> str:
    icon = content["icons"][name]
    box = {
        key: icon.get(key, content.get(key, default))
        for key, default in (("left", 0), ("top", 0), ("width", 16), ("height", 16))
    }
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'color="black" viewBox="{box["left"]} {box["top"]} {box["width"]} {box["height"]}" '
        f'width="{CANVAS}" height="{CANVAS}">{icon["body"]}</svg>'
    )


def render(svg: str) -> np.ndarray | None:
    """The coverage of a drawing on its canvas; None if it is empty or a full block."""
    png = np.frombuffer(bytes(resvg_py.svg_to_bytes(svg_string=svg)), np.uint8)
    image = cv2.imdecode(png, cv2.IMREAD_UNCHANGED)
    if image is None or image.ndim != 3 or image.shape[2] != 4:
        return None
    shape = fitted(image[..., 3])
    return None if shape is None or shape.mean() < 4 else shape
