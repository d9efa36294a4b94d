"""Omniglot: `images_background/<alphabet>/<character>/<image>.png`, and `images_evaluation/...`."""

from collections.abc import Sequence
from pathlib import Path

from arml.datasets.layouts.reading import Classes, by_folder, not_the_layout, survey

TOPS = ("images_background", "images_evaluation")


def read(paths: Sequence[Path], wanted: Sequence[str]) -> Classes:
    """The pictures by character (`Greek/character01`)."""
    classes: Classes = {}
    for source, path in enumerate(dict.fromkeys(paths)):
        found = survey(path)
        for top in TOPS:
            roots = {
                name.partition(f"{top}/")[0] + f"{top}/"
                for name in found.names
                if f"{top}/" in name
            }
            for root in sorted(roots):
                classes |= by_folder(found.names, source, below=root, depth=2)
    if not classes:
        raise not_the_layout(paths[0], "Omniglot", "images_background/<alphabet>/<character>/")
    return classes
