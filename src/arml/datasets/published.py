"""The splits in the package: which classes of an origin are for training, validation and test.

A file in `arml/data/splits/` has the classes of each part. If they depend on how many pictures a
class has, it has the rule that draws them instead. It also says how it was made, and has a SHA-256
of its content.
"""

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from arml.datasets.forms import PublishedSplit, Rule
from arml.datasets.layouts.reading import Classes
from arml.datasets.splits import PARTS, drawn
from arml.results.files import Json, checksum
from arml.results.schema import read_as, read_stated


@dataclass(frozen=True)
class Published:
    """One split."""

    origin: str
    method: str
    """How it was made."""
    sha256: str
    seed: int = 0
    parts: dict[str, list[str]] | None = None
    """Classes of each part, or alphabets if that is the `unit`."""
    unit: str = "class"
    rule: Rule | None = None
    keep: int | None = None
    """How many pictures of a class are kept; all if None."""

    def wanted(self) -> list[str]:
        """The classes that it names."""
        return sorted(name for names in (self.parts or {}).values() for name in names)


def published(origin: str, path: Path | None = None) -> Published:
    """The package's split of an origin. If `path` is a file, its split; if it is a folder, that of
    its file `<origin>.json`.

    **Raises** `ValueError` for a file that is damaged or is not a split.
    """
    if path is None:
        path = Path(str(files("arml"))) / "data" / "splits"
    path = path / f"{origin}.json" if path.is_dir() else path
    advice = "restore the file"
    content = read_stated(path, PublishedSplit, advice)
    found: Json = {**read_as(PublishedSplit, content, str(path), advice)}
    split = Published(**found, sha256=checksum(content))
    if (split.parts is None) == (split.rule is None):
        raise ValueError(f"{path}: expected a rule, or the parts {', '.join(PARTS)}; {advice}")
    return split


def select(split: Published, classes: Classes, where: object) -> dict[str, Classes]:
    """The pictures of each part.

    **Raises** `ValueError` if classes or pictures are lacking.
    """
    parts = split.parts if split.rule is None else _drawn_parts(split, split.rule, classes, where)
    assert parts is not None  # a split has parts or a rule
    chosen: dict[str, Classes] = {}
    for part in PARTS:
        names = sorted(parts[part])
        if split.unit == "alphabet":
            tops = set(names)
            there = {name.split("/")[0] for name in classes}
            names, lacking = [n for n in classes if n.split("/")[0] in tops], tops - there
        else:
            lacking = set(names) - set(classes)
        if lacking:
            raise ValueError(
                f"{where}: expected the {len(parts[part])} {part} classes of the split "
                f"{split.origin}, {len(lacking)} are not there ({min(lacking)!a}, ...); fetch the "
                "archive again, or give another split"
            )
        chosen[part] = {name: _kept(split, name, classes, where) for name in names}
    return chosen


def _drawn_parts(
    split: Published, rule: Rule, classes: Classes, where: object
) -> dict[str, list[str]]:
    enough = [
        name
        for name, pictures in classes.items()
        if len(pictures) == rule.images or (len(pictures) > rule.images and not rule.exactly)
    ]
    if len(enough) < sum(rule.sizes):
        raise ValueError(
            f"{where}: expected {sum(rule.sizes)} classes of {'' if rule.exactly else 'at least '}"
            f"{rule.images} pictures, got {len(enough)} of {len(classes)}; fetch the archive "
            "again, or give another split"
        )
    order, parts, first = drawn(enough, split.seed), {}, 0
    for part, size in zip(PARTS, rule.sizes, strict=True):
        parts[part] = order[first : first + size]
        first += size
    return parts


def _kept(split: Published, name: str, classes: Classes, where: object) -> list[Any]:
    pictures = classes[name]
    if split.keep is None:
        return pictures
    if len(pictures) < split.keep:
        raise ValueError(
            f"{where}: expected at least {split.keep} pictures of {name!a}, got {len(pictures)}; "
            "fetch the archive again, or give another split"
        )
    if len(pictures) == split.keep:
        return pictures
    by_name = {picture.member.rpartition("/")[2]: picture for picture in pictures}
    return [by_name[file] for file in sorted(drawn(by_name, split.seed)[: split.keep])]
