"""Splits of a user's classes into meta-train, meta-validation and meta-test.

A split orders the classes by a hash of the seed and their name: a new or removed class moves at
most the borders between the parts.
"""

import hashlib
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TypedDict

from arml.datasets.folders import SPLIT_PARTS, ImageFamily, Parts
from arml.results.files import Text, read_as, read_json, write_json

PART_FRACTIONS = (0.64, 0.16, 0.20)
SPLIT_METHOD = "classes in order of sha256('<seed>/<class>'), cut at the fractions"

Split = dict[str, Parts]
"""`split[family][part]` is a list of classes; the parts are train, validation and test."""


def split_classes(classes: Iterable[str], *, seed: int = 0, least: int = 1) -> Parts:
    """Split classes into `train`, `validation` and `test`, at least `least` in each if there are
    enough. The split does not depend on the order of the classes."""
    order = drawn(classes, seed)
    return cut(order, part_sizes(len(order), least))


def drawn(names: Iterable[str], seed: int) -> list[str]:
    """Names in an order that depends only on the seed and on each name."""
    return sorted(names, key=lambda name: hashlib.sha256(f"{seed}/{name}".encode()).digest())


def cut(order: Sequence[str], sizes: tuple[int, int, int]) -> Parts:
    """The names of each part, one part after the other, each in order of name."""
    ends = [0, *accumulate(sizes)]
    return {p: sorted(order[a:b]) for p, (a, b) in zip(SPLIT_PARTS, pairwise(ends), strict=True)}


def part_sizes(total: int, least: int = 1) -> tuple[int, int, int]:
    """The numbers of classes for train, validation and test. Each part gets at least `least` if
    there are enough, whatever `PART_FRACTIONS` are."""
    test = min(max(least, round(total * PART_FRACTIONS[2])), max(total - 2 * least, 1))
    validation = min(max(least, round(total * PART_FRACTIONS[1])), max(total - test - least, 1))
    return total - validation - test, validation, test


class SplitFile(TypedDict):
    """`split.json`: the classes of each part of each family."""

    families: dict[Text, dict[Text, list[Text]]]
    seed: int


def write_split(
    path: Path, families: Sequence[ImageFamily], *, seed: int = 0, least: int = 1
) -> Split:
    """Split each family, write the split to a JSON file, and return it. **Raises** `RunError` if
    the file cannot be written; an older file then does not change."""
    split = {f.name: split_classes(f.classes, seed=seed, least=least) for f in families}
    sources = {family.name: family.digest for family in families}
    content = {
        "method": SPLIT_METHOD,
        "seed": seed,
        "fractions": PART_FRACTIONS,
        "sources": sources,
    }
    write_json(path, {**content, "families": split})
    return split


def read_split(path: Path, *, seed: int = 0) -> Split:
    """Read a split file, which `check_split` compares with the data. **Raises** `ValueError` for a
    file that is missing or is not a split, and for another seed."""
    content = read_as(
        SplitFile, read_json(path), str(path), "restore the file, or write a new split"
    )
    if content["seed"] != seed:
        raise ValueError(
            f"{path}: expected a split with the seed {seed}, got one with {content['seed']}; "
            "give that split seed, or remove the file to split anew"
        )
    return content["families"]


def check_split(families: Iterable[ImageFamily]) -> None:
    """Raise `ValueError` unless the split of each family has three disjoint parts of its classes.
    Classes in no part are not used."""
    for family in families:
        parts = family.split or {}
        named = [name for part in SPLIT_PARTS for name in parts.get(part, ())]
        problem = ""
        if set(parts) != set(SPLIT_PARTS):
            problem = f"it has the parts {', '.join(parts) or 'none'}, not {', '.join(SPLIT_PARTS)}"
        elif len(set(named)) < len(named):
            problem = "it has a class twice"
        elif lacking := set(named) - set(family.classes):
            problem = f"it names {len(lacking)} classes that the data lacks ({min(lacking)}, ...)"
        if problem:
            raise ValueError(
                f"the split does not fit the family {family.name!r}: {problem}; restore the data, "
                "or write a new split"
            )
