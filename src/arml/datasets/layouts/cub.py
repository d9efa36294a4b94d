"""CUB-200-2011: `CUB_200_2011/images/<class>/<image>.jpg` with three tables beside it.

`images.txt` has an image's number and name, `image_class_labels.txt` has its class, and
`bounding_boxes.txt` has its box as x, y, width and height, counted from 1.
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from arml.datasets.layouts import reading

TABLES = ("images.txt", "image_class_labels.txt", "bounding_boxes.txt", "classes.txt")


def read(paths: Sequence[Path], wanted: Sequence[str]) -> reading.Classes:
    """The pictures by class (`001.Black_footed_Albatross`), each with its box."""
    found = reading.survey(paths[0], annotations=TABLES)
    root = found.root("bounding_boxes.txt")
    if root is None:
        raise reading.not_the_layout(paths[0], "CUB-200-2011", "images.txt, bounding_boxes.txt")
    names = dict(found.table(f"{root}images.txt", 2))
    boxes = {row[0]: row[1:] for row in found.table(f"{root}bounding_boxes.txt", 5)}
    labels = dict(found.table(f"{root}image_class_labels.txt", 2))
    folders = (
        dict(found.table(f"{root}classes.txt", 2)) if f"{root}classes.txt" in found.texts else {}
    )
    classes: reading.Classes = defaultdict(list)
    there = set(found.names)
    reading.missing(found, {f"{root}images/{name}" for name in names.values()} - there)
    for number, name in names.items():
        if number not in boxes or number not in labels:
            raise ValueError(
                f"{paths[0]}: expected a box and a class of image {number}, found none; fetch the "
                "archive again"
            )
        x, y, width, height = reading.numbers(found, "bounding_boxes.txt", boxes[number])
        box = reading.boxed(x - 1, y - 1, width, height)
        label = folders.get(labels[number], name.split("/")[0])
        classes[label].append(reading.Picture(0, f"{root}images/{name}", box))
    return reading.ordered(classes)
