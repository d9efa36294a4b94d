"""Learners and predictors through `pickle`, and so through joblib and scikit-learn's searches.

A pickle holds the files that `save` writes (JSON and safetensors) and nothing of the learner's own
objects: these have functions inside that pickle cannot name, and another version of the package may
arrange them differently. Unpickling reads the files and checks their checksums.
"""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

Owner = TypeVar("Owner")


def packed(save: Callable[[Path], None]) -> dict[str, bytes]:
    """The files that `save` writes into a folder, by name."""
    with TemporaryDirectory() as place:
        folder = Path(place) / "kept"
        save(folder)
        return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def unpacked(load: Callable[[Path], Owner], files: dict[str, bytes]) -> Owner:
    """The object that `load` reads from the folder with these files."""
    with TemporaryDirectory() as folder:
        for name, data in files.items():
            (Path(folder) / name).write_bytes(data)
        return load(Path(folder))
