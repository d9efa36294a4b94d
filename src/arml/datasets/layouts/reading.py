"""Functions that the published layouts share: from names and annotations to pictures."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from arml.datasets.archives import open_members
from arml.datasets.decode import SUFFIXES

Box = tuple[int, int, int, int]
"""Left, top, right and bottom in pixels; the last two are outside."""

ANNOTATION_SUFFIXES = {".txt", ".json", ".csv"}


class Picture(NamedTuple):
    """One picture of an origin."""

    source: int
    """The number of the origin's file or folder that has it."""
    member: str
    box: Box | None = None
    """The part to keep; None for the whole picture."""


Classes = dict[str, list[Picture]]
"""The pictures of each class, in order of name."""


class Survey(NamedTuple):
    """The content of one file or folder."""

    path: Path
    names: list[str]
    """Its pictures."""
    texts: dict[str, bytes]
    """Its annotations."""

    def root(self, marker: str) -> str | None:
        """The folder in which `marker` is, with a final `/` or empty; None if it is nowhere."""
        found = [
            name[: len(name) - len(marker)]
            for name in self.texts
            if name == marker or name.endswith(f"/{marker}")
        ]
        return min(found, key=len) if found else None

    def text(self, name: str) -> str:
        """An annotation as text.

        **Raises** `ValueError` if it is absent or not UTF-8.
        """
        if name not in self.texts:
            raise ValueError(
                f"{self.path}: expected a file {name}, found none; fetch the archive again"
            )
        try:
            return self.texts[name].decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.path}: expected {name} in UTF-8, got: {error}") from error

    def table(self, name: str, columns: int) -> list[list[str]]:
        """The lines of an annotation, each cut at blanks into `columns`: the last has the rest."""
        rows = [
            line.split(maxsplit=columns - 1)
            for line in self.text(name).splitlines()
            if line.strip()
        ]
        for number, row in enumerate(rows, 1):
            if len(row) != columns:
                raise ValueError(
                    f"{self.path}: expected {columns} columns in line {number} of {name}, got "
                    f"{len(row)}; fetch the archive again"
                )
        return [[cell.strip() for cell in row] for row in rows]


def survey(
    path: Path,
    *,
    enter: Callable[[str], bool] = lambda name: True,
    annotations: Sequence[str] = (),
) -> Survey:
    """Read `path` once: the names of its pictures, and the annotations whose names end with one of
    `annotations`."""
    names: list[str] = []
    texts: dict[str, bytes] = {}
    with open_members(path, enter=enter) as members:
        for member in members:
            suffix = Path(member.name).suffix.lower()
            if suffix in SUFFIXES:
                names.append(member.name)
            elif suffix in ANNOTATION_SUFFIXES and member.name.endswith(tuple(annotations)):
                texts[member.name] = member.read()
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{path}: {twice!a} is there twice; fetch the archive again")
    return Survey(path, names, texts)


def by_folder(names: Iterable[str], source: int, *, below: str = "", depth: int = 1) -> Classes:
    """The pictures below the folder `below`; the `depth` folders above a picture name its class."""
    classes: Classes = defaultdict(list)
    for name in names:
        if name.startswith(below):
            parts = name[len(below) :].split("/")
            if len(parts) == depth + 1:
                classes["/".join(parts[:-1])].append(Picture(source, name))
    return ordered(classes)


def ordered(classes: Classes) -> Classes:
    """The classes in order of name, each with its pictures in order of member."""
    return {name: sorted(classes[name]) for name in sorted(classes)}


def not_the_layout(path: Path, what: str, wanted: str) -> ValueError:
    """The error for another archive than `what`."""
    return ValueError(
        f"{path}: expected the files of {what} ({wanted}), found none of them; give the archive as "
        "it is published, or the folder to which it unpacks"
    )


def boxed(x: float, y: float, width: float, height: float) -> Box:
    """The box whose top left pixel is (x, y), counted from 0."""
    left, top = max(round(x), 0), max(round(y), 0)
    return left, top, max(round(x + width), left + 1), max(round(y + height), top + 1)


def numbers(survey: Survey, name: str, cells: Sequence[str]) -> list[float]:
    """Cells of an annotation as numbers."""
    try:
        return [float(cell) for cell in cells]
    except ValueError:
        raise ValueError(
            f"{survey.path}: expected numbers in {name}, got {' '.join(cells)[:60]!r}; fetch the "
            "archive again"
        ) from None


def missing(survey: Survey, lacking: Iterable[str]) -> None:
    """Raise `ValueError` if pictures are lacking that the annotations name."""
    absent = sorted(lacking)
    if absent:
        raise ValueError(
            f"{survey.path}: {len(absent)} pictures that its annotations name are not there "
            f"({absent[0]!a}{', ...' if len(absent) > 1 else ''}); fetch the archive again"
        )
