"""Pictures and tables that `arml adapt` and `arml predict` read."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from arml.cli.console import tell
from arml.cli.errors import UsageError

if TYPE_CHECKING:
    from arml.predict.inputs import PictureReader
    from arml.predict.learner import FewShotLearner
    from arml.predict.photos import PhotoLearner
    from arml.predict.predictor import Predictor

    Owner = FewShotLearner | Predictor

AT_ONCE = 1_024
"""Photographs between two answers."""


class Queries(NamedTuple):
    """Inputs to predict."""

    names: Sequence[Path | int]
    """Files, or lines of a table."""
    batches: Iterable[Any]
    """The inputs in batches."""
    keys: Mapping[str, Sequence[Any]] = {}
    """Columns of a table that name its rows, for the answers."""


def check_there(*paths: Path) -> None:
    """Raise `UsageError` for a path where nothing is."""
    for path in paths:
        if not path.exists():
            raise UsageError(f"expected files at {path}, found nothing: check the path")


def check_places(out: Path | None, save: Path | None, *read: Path) -> None:
    """Raise `ValueError` if the answers or the predictor cannot be written there, or if the answers
    would replace a file that the command reads, or one that is no CSV file."""
    if out is not None and out.is_dir():
        raise UsageError(f"expected a CSV file for --out, got the folder {out}: name a file")
    if out is not None and out.exists():
        if any(path.exists() and out.samefile(path) for path in read):
            raise UsageError(
                f"expected a file for --out that the command does not read, got {out}: name another"
            )
        if out.suffix.lower() != ".csv":
            raise UsageError(
                f"expected a new file or a CSV file for --out, got {out}, which would be replaced: "
                "name another"
            )
    for place in (out, save):
        check_writable(place)
    if save is not None:
        from arml.predict.places import check_free

        check_free(save, predictor=True)


def check_writable(place: Path | None) -> None:
    """Raise `UsageError` if no file or folder may be made at a place, before any work."""
    if place is None:
        return
    nearest = next(path for path in (place, *place.absolute().parents) if path.exists())
    if not os.access(nearest, os.W_OK):
        raise UsageError(f"expected a place to write {place.name}, got {place}: name another")


def check_kind(owner: "Owner", table: bool, given: str, name: str) -> None:
    """Raise `UsageError` if a learner of pictures is given a table, or a learner of tables anything
    else."""
    pictures = len(owner.problem.features) == 3 or owner.portable.inputs is not None
    if pictures and table:
        raise UsageError(
            f"expected pictures, because {name} reads pictures, got the table {given}: name "
            "folders or images, or use the learner tables"
        )
    if not pictures and not table:
        raise UsageError(
            f"expected one CSV file, because {name} reads tables, got {given}: name a CSV file (a "
            "spreadsheet program saves one), or use the learner starter for pictures"
        )


def check_pictures(query: Sequence[Path], target: str | None, *, labelled: bool = False) -> None:
    """Raise `UsageError` for a table among pictures to predict, and for the name of a column; also
    for a zip, unless its pictures are `labelled` by folders."""
    if target is not None:
        raise UsageError("expected no --target, because pictures have no columns: leave it out")
    for path in query:
        if path.suffix.lower() in (".csv", ".tsv", ".xlsx"):
            raise UsageError(
                f"expected pictures to predict, because the learner reads pictures, got the table "
                f"{path}: name folders or images"
            )
        if path.suffix.lower() == ".zip" and not labelled:
            raise UsageError(
                f"expected images or folders to predict, got the zip {path}: unpack it, and name "
                "its folder"
            )


def pictures_of(reader: "PictureReader", query: Sequence[Path]) -> Queries:
    """The files of the pictures to predict, and the pictures in batches."""
    from arml.datasets.folders import decoded, image_files

    files, others = image_files(query)
    tell_left_out(others)
    parts = decoded(files, size=reader.size, crop=reader.crop)
    return Queries(files, map(reader.read, parts))


def embedded(learner: "PhotoLearner", pictures: Sequence[Any]) -> np.ndarray:
    """The vectors of pictures; on a terminal with a bar of the progress."""
    from arml.cli.data import shown

    with shown() as progress:
        return learner.embed(pictures, lambda done, all_: progress("pictures", done, all_))


def photographs_of(learner: "PhotoLearner", query: Sequence[Path]) -> Queries:
    """The files of the pictures to predict, and their vectors in batches."""
    from arml.datasets.folders import image_files

    files, others = image_files(query)
    tell_left_out(others)
    parts = (files[i : i + AT_ONCE] for i in range(0, len(files), AT_ONCE))
    return Queries(files, (embedded(learner, part) for part in parts))


def tell_left_out(others: Sequence[Path]) -> None:
    """Name the files that are no pictures."""
    if others:
        n = f"{len(others)} files" if len(others) > 1 else "one file"
        tell(
            f"left out {n} whose name has no ending of a picture that can be read: "
            f"{', '.join(map(str, others[:3]))}{', ...' if len(others) > 3 else ''}"
        )
