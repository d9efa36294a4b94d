"""Classes split into meta-train, meta-validation and meta-test, and the file that states it.

Classes are ordered by a hash of the seed and their name, so adding or removing a class moves at
most the borders between the parts. The file has a SHA-256 of its content: a file that was edited
raises an error.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from arml.datasets.folders import ImageFamily
from arml.results.files import atomically, checksum
from arml.results.schema import read_as

PARTS = ("train", "validation", "test")
FRACTIONS = (0.64, 0.16, 0.20)
METHOD = "classes in order of sha256('<seed>/<class>'), cut at the fractions"

Split = dict[str, dict[str, list[str]]]
"""`split[family][part]` is a list of classes; the parts are train, validation and test."""


def split_classes(
    family: ImageFamily,
    *,
    seed: int = 0,
    fractions: Sequence[float] = FRACTIONS,
    least: int = 1,
) -> dict[str, list[str]]:
    """Split a family's classes into `train`, `validation` and `test`, at least `least` in each.

    The split does not depend on the order of the classes.

    **Raises** `ValueError` for fewer than three times `least` classes, and for fractions that are
    not three positive numbers with sum one.
    """
    if len(fractions) != 3 or min(fractions) <= 0 or not math.isclose(sum(fractions), 1):
        raise ValueError(
            "expected three positive fractions (train, validation, test) that add up to 1, "
            f"got {tuple(fractions)}; change them"
        )
    total = len(family.classes)
    if total < 3 * least:
        raise ValueError(
            f"{family.name}: expected at least {3 * least} classes, got {total}; add classes"
        )
    order = drawn(family.classes, seed)
    train, validation, _ = part_sizes(total, fractions, least)
    cuts = (order[:train], order[train : train + validation], order[train + validation :])
    return {part: sorted(names) for part, names in zip(PARTS, cuts, strict=True)}


def drawn(names: Iterable[str], seed: int) -> list[str]:
    """Names in an order that depends only on the seed and on each name."""
    return sorted(names, key=lambda name: hashlib.sha256(f"{seed}/{name}".encode()).digest())


def part_sizes(
    total: int, fractions: Sequence[float] = FRACTIONS, least: int = 1
) -> tuple[int, int, int]:
    """How many of `total` classes are for train, validation and test. Each part gets `least` if
    there are enough, whatever the fractions are."""
    test = min(max(least, round(total * fractions[2])), max(total - 2 * least, 1))
    validation = min(max(least, round(total * fractions[1])), max(total - test - least, 1))
    return total - validation - test, validation, test


def write_split(
    path: str | Path,
    families: Sequence[ImageFamily],
    *,
    seed: int = 0,
    least: int = 1,
) -> Split:
    """Split each family, write the split to a JSON file with its hash, and return it.

    **Raises** `ValueError` as `split_classes` does, and if the file cannot be written; an older
    file then stays as it was.
    """
    split = {f.name: split_classes(f, seed=seed, least=least) for f in families}
    content = {
        "format": 1,
        "method": METHOD,
        "seed": seed,
        "fractions": list(FRACTIONS),
        "sources": {family.name: family.digest for family in families},
        "families": split,
    }
    text = json.dumps({**content, "sha256": checksum(content)}, ensure_ascii=False, indent=1)
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomically(path, lambda file: file.write(f"{text}\n".encode()))
    except OSError as error:
        raise ValueError(
            f"{path}: the split cannot be written ({error.strerror or error}); free some space, or "
            "choose another place"
        ) from error
    return split


def read_split(
    path: str | Path, families: Sequence[ImageFamily] | None = None, *, seed: int | None = None
) -> Split:
    """Read a split file; with `families`, also check that it fits them (`check_split`).

    **Raises** `ValueError` for a file that is missing, is not a split, or was altered, and for one
    that states another seed than `seed`.
    """
    advice = "restore the file, or write a new split"
    try:
        content = json.loads(Path(path).read_text("utf-8"))
        stated = content.pop("sha256")
        split = read_as(Split, content["families"], str(path), advice)
    except OSError as error:
        raise ValueError(f"{path}: expected a split file ({error.strerror}); {advice}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path}: expected a split file (JSON with families and sha256), got something else or "
            f"a part of one; {advice}"
        ) from error
    if stated != checksum(content):
        raise ValueError(
            f"{path}: expected content with SHA-256 {str(stated)[:12]}..., got "
            f"{checksum(content)[:12]}...: the split was altered; {advice}"
        )
    if seed is not None and content.get("seed") != seed:
        raise ValueError(
            f"{path}: expected a split with the seed {seed}, got one with {content.get('seed')}; "
            "give that split seed, or remove the file to split anew"
        )
    if families is not None:
        check_split(split, families)
    return split


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
                f"expected a split of the family {family.name!r} into "
                f"{', '.join(PARTS)}, got one of "
                f"{', '.join(split) or 'none'}; write a new split"
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
