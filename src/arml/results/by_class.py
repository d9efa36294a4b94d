"""Which classes of a run's test tasks are hard: `classes.json` of the run folder."""

from pathlib import Path

import msgspec

from arml.results.files import Json, RunError, read_json, write_json
from arml.results.manifest import check_sealed, sealed
from arml.results.marks import Mistake
from arml.results.schema import read_as

KEPT = "classes.json"


class OneClass(msgspec.Struct):
    """A class of the split, over all tasks that it was drawn for."""

    name: str
    accuracy: float
    n: int
    """Queries."""


class Pair(msgspec.Struct):
    """Queries of one class that were predicted as another."""

    label: str
    predicted: str
    count: int
    of: int
    """Queries of the label's class in tasks that had both."""


class ByClass(msgspec.Struct):
    """The content of `classes.json`: the hardest classes, the most frequent confusions and the
    most confident mistakes come first."""

    split: str
    step: int
    tasks: int
    classes: list[OneClass]
    pairs: list[Pair]
    mistakes: list[Mistake]


def write_by_class(folder: Path, found: ByClass) -> None:
    """Write `classes.json`, and its digest in the folder's manifest."""
    with sealed(folder / KEPT):
        content: Json = msgspec.to_builtins(found)
        write_json(folder / KEPT, content)


def read_by_class(folder: Path, step: int) -> ByClass | None:
    """The scores by class of the checkpoint `step`; None if there is none.

    **Raises** `RunError` if it is damaged.
    """
    path = folder / KEPT
    if not path.is_file():
        return None
    check_sealed(path)
    advice = "make the file again with `arml evaluate`"
    found = read_as(ByClass, read_json(path), str(path), advice)
    if any(one.picture is not None and not one.picture.isascii() for one in found.mistakes):
        raise RunError(f"{path}: expected pictures in base64, got other letters; {advice}")
    return found if found.step == step else None
