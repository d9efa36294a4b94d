"""FGVC-Aircraft 2013b: `fgvc-aircraft-2013b/data/images/<number>.jpg` with tables beside it.

`images_variant_<part>.txt` has an image's number and variant, which may have blanks and slashes.
`images_box.txt` has its box as left, top, right and bottom, counted from 1.

**Differences.** HSML's preparation reads the box as x, y, width and height, and so keeps too large
a part. Here the box is read as the publisher says.
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from arml.datasets.layouts import reading

PARTS = ("train", "val", "trainval", "test")
TABLES = ("images_box.txt", "variants.txt", *(f"images_variant_{part}.txt" for part in PARTS))


def read(paths: Sequence[Path], wanted: Sequence[str]) -> reading.Classes:
    """The pictures by variant (`F-16A/B`), each with its box."""
    found = reading.survey(paths[0], annotations=TABLES)
    root = found.root("images_box.txt")
    if root is None:
        raise reading.not_the_layout(paths[0], "FGVC-Aircraft", "variants.txt, images_box.txt")
    known = {line.strip() for line in found.text(f"{root}variants.txt").splitlines()} - {""}
    boxes = {row[0]: row[1:] for row in found.table(f"{root}images_box.txt", 5)}
    variants: dict[str, str] = {}
    for part in PARTS:
        if f"{root}images_variant_{part}.txt" in found.texts:
            variants |= dict(found.table(f"{root}images_variant_{part}.txt", 2))
    reading.missing(found, {f"{root}images/{number}.jpg" for number in variants} - set(found.names))
    classes: reading.Classes = defaultdict(list)
    for number, variant in variants.items():
        if variant not in known or number not in boxes:
            raise ValueError(
                f"{paths[0]}: expected a box and a variant of variants.txt for image {number}, got "
                f"{variant!a}; fetch the archive again"
            )
        left, top, right, bottom = reading.numbers(found, "images_box.txt", boxes[number])
        box = reading.boxed(left - 1, top - 1, right - left + 1, bottom - top + 1)
        classes[variant].append(reading.Picture(0, f"{root}images/{number}.jpg", box))
    return reading.ordered(classes)
