"""Describable Textures: `dtd/images/<class>/<image>.jpg`."""

from collections.abc import Sequence
from pathlib import Path

from arml.datasets.layouts.reading import Classes, by_folder, not_the_layout, survey


def read(paths: Sequence[Path], wanted: Sequence[str]) -> Classes:
    """The pictures by class (`banded`)."""
    found = survey(paths[0])
    roots = {name.partition("images/")[0] + "images/" for name in found.names if "images/" in name}
    if len(roots) != 1:
        raise not_the_layout(paths[0], "DTD", "images/<class>/<image>.jpg")
    return by_folder(found.names, 0, below=roots.pop())
