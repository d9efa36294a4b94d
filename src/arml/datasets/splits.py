"""Classes split into meta-train, meta-validation and meta-test.

A split of one's own classes orders them by a hash of the seed and their name, so adding or removing
a class moves at most the borders between the parts. The splits of published data sets are in
`arml/data/splits/`: each file has the classes of each part, or the rule that draws them if they
depend on how many pictures a class has, and says how it was made.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal, TypedDict

from msgspec import Meta

from arml.datasets.folders import PARTS, ImageFamily, Parts
from arml.datasets.layouts import Classes, Picture
from arml.results.files import RunError, checksum, read_json, write_json
from arml.results.schema import Count, Text, read_as, read_checked

FRACTIONS = (0.64, 0.16, 0.20)
METHOD = "classes in order of sha256('<seed>/<class>'), cut at the fractions"

Split = dict[str, Parts]
"""`split[family][part]` is a list of classes; the parts are train, validation and test."""


# --- one's own classes


def split_classes(family: ImageFamily, *, seed: int = 0, least: int = 1) -> Parts:
    """Split a family's classes into `train`, `validation` and `test`, at least `least` in each.

    The split does not depend on the order of the classes.

    **Raises** `ValueError` for fewer than three times `least` classes.
    """
    total = len(family.classes)
    if total < 3 * least:
        raise ValueError(
            f"{family.name}: expected at least {3 * least} classes, got {total}; add classes"
        )
    return cut(drawn(family.classes, seed), part_sizes(total, least))


def drawn(names: Iterable[str], seed: int) -> list[str]:
    """Names in an order that depends only on the seed and on each name."""
    return sorted(names, key=lambda name: hashlib.sha256(f"{seed}/{name}".encode()).digest())


def cut(order: Sequence[str], sizes: tuple[int, int, int]) -> Parts:
    """The first so many names for each part, each part in order of name."""
    ends = [sum(sizes[: i + 1]) for i in range(3)]
    starts = [0, *ends[:2]]
    return {
        part: sorted(order[start:end]) for part, start, end in zip(PARTS, starts, ends, strict=True)
    }


def part_sizes(total: int, least: int = 1) -> tuple[int, int, int]:
    """How many of `total` classes are for train, validation and test. Each part gets `least` if
    there are enough, whatever `FRACTIONS` are."""
    test = min(max(least, round(total * FRACTIONS[2])), max(total - 2 * least, 1))
    validation = min(max(least, round(total * FRACTIONS[1])), max(total - test - least, 1))
    return total - validation - test, validation, test


class SplitFile(TypedDict):
    """`split.json`: the classes of each part of each family."""

    families: dict[Text, dict[Text, list[Text]]]
    seed: int


def write_split(
    path: Path, families: Sequence[ImageFamily], *, seed: int = 0, least: int = 1
) -> Split:
    """Split each family, write the split to a JSON file, and return it.

    **Raises** `ValueError` as `split_classes` does, and if the file cannot be written; an older
    file then stays as it was.
    """
    split = {f.name: split_classes(f, seed=seed, least=least) for f in families}
    sources = {family.name: family.digest for family in families}
    content = {"method": METHOD, "seed": seed, "fractions": FRACTIONS, "sources": sources}
    write_json(path, {**content, "families": split})
    return split


def read_split(path: Path, *, seed: int | None = None) -> Split:
    """Read a split file; `check_split` says whether it fits the data.

    **Raises** `ValueError` for a file that is missing or is not a split, and for one that states
    another seed than `seed`.
    """
    content = read_checked(path, SplitFile, "restore the file, or write a new split")
    if seed is not None and content["seed"] != seed:
        raise ValueError(
            f"{path}: expected a split with the seed {seed}, got one with {content['seed']}; "
            "give that split seed, or remove the file to split anew"
        )
    return content["families"]


def check_split(
    split: Mapping[str, Mapping[str, Sequence[str]]], families: Sequence[ImageFamily]
) -> None:
    """Raise `ValueError` unless each family has three disjoint parts, whose classes it has.

    The data may have classes that no part names: they are not used.
    """
    for family in families:
        parts = split.get(family.name)
        if parts is None or set(parts) != set(PARTS):
            raise ValueError(
                f"expected a split of the family {family.name!r} into {', '.join(PARTS)}, got one "
                f"of {', '.join(split) or 'none'}; write a new split"
            )
        named = [name for part in PARTS for name in parts[part]]
        if len(set(named)) < len(named):
            twice = next(name for name in named if named.count(name) > 1)
            raise ValueError(
                f"{family.name}: expected each class in one part of the split, got {twice!r} "
                "twice; write a new split"
            )
        if lacking := sorted(set(named) - set(family.classes)):
            raise ValueError(
                f"{family.name}: the split names {len(lacking)} classes that the data lacks "
                f"({', '.join(lacking[:3])}{', ...' if len(lacking) > 3 else ''}); "
                "restore the data, or write a new split"
            )


# --- published data sets


@dataclass(frozen=True)
class Rule:
    """Take the classes that have enough pictures, in order of sha256('<seed>/<class>')."""

    images: Annotated[int, Meta(ge=1, le=2**31)]
    """Pictures that a class must have."""
    exactly: bool
    """Whether a class must have exactly so many."""
    sizes: tuple[Count, Count, Count]
    """Classes of train, validation and test."""


@dataclass(frozen=True)
class Published:
    """The split of a published data set."""

    origin: Text
    method: Text
    """How it was made."""
    sha256: Text = ""
    """A checksum of the rest."""
    seed: Count = 0
    unit: Literal["class", "alphabet"] = "class"
    parts: dict[Text, list[Text]] | None = None
    """Classes of each part, or alphabets if that is the `unit`."""
    rule: Rule | None = None
    keep: Annotated[int, Meta(ge=1, le=2**31)] | None = None
    """How many pictures of a class are kept; all if None."""

    def wanted(self) -> list[str]:
        """The classes that it names."""
        return sorted(name for names in (self.parts or {}).values() for name in names)


def published(origin: str, path: Path | None = None) -> Published:
    """The package's split of an origin. If `path` is a file, its split; if it is a folder, that of
    its file `<origin>.json`.

    **Raises** `ValueError` for a file that is not a split.
    """
    path = path or Path(str(files("arml"))) / "data" / "splits"
    path = path / f"{origin}.json" if path.is_dir() else path
    content = read_json(path)
    content.pop("sha256", None)
    split = read_as(
        Published, {**content, "sha256": checksum(content)}, str(path), "restore the file"
    )
    if (split.parts is None) == (split.rule is None) or set(split.parts or PARTS) != set(PARTS):
        raise RunError(
            f"{path}: expected a rule, or the parts {', '.join(PARTS)}; restore the file"
        )
    return split


def select(split: Published, classes: Classes, where: object) -> dict[str, Classes]:
    """The pictures of each part.

    **Raises** `ValueError` if classes or pictures are lacking.
    """
    parts = split.parts or _drawn_parts(split, classes, where)
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
        chosen[part] = {name: _kept(split, name, classes[name], where) for name in names}
    return chosen


def _drawn_parts(split: Published, classes: Classes, where: object) -> Parts:
    rule = split.rule
    assert rule is not None  # a split has parts or a rule
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
    return cut(drawn(enough, split.seed), rule.sizes)


def _kept(split: Published, name: str, pictures: list[Picture], where: object) -> list[Picture]:
    if split.keep is None or len(pictures) == split.keep:
        return pictures
    if len(pictures) < split.keep:
        raise ValueError(
            f"{where}: expected at least {split.keep} pictures of {name!a}, got {len(pictures)}; "
            "fetch the archive again, or give another split"
        )
    by_name = {picture.member.rpartition("/")[2]: picture for picture in pictures}
    return [by_name[file] for file in sorted(drawn(by_name, split.seed)[: split.keep])]
