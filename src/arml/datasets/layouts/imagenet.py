"""ILSVRC 2012's training pictures: a tar with one tar for each class, or a folder of these tars or
of their contents.

miniImageNet has 600 pictures of a class, which the lists `train.csv`, `val.csv` and `test.csv` name
[1]. A row is `n0153282900000005.jpg,n01532829`. The number after the class counts the pictures of
that class from 1, in order of the number in their file names (`n01532829_5.JPEG`). tieredImageNet
has all pictures.

[1] Ravi, Larochelle: Optimization as a Model for Few-Shot Learning. ICLR 2017.
"""

import csv
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from arml.datasets.layouts.reading import Classes, Picture, not_the_layout, survey


def read(paths: Sequence[Path], wanted: Sequence[str]) -> Classes:
    """The pictures of the classes `wanted`, by wnid, in order of number."""
    asked = set(wanted)
    lists = [path for path in paths if path.suffix == ".csv"]
    sources = [path for path in paths if path.suffix != ".csv"]
    classes: Classes = defaultdict(list)
    for source, path in enumerate(sources):
        found = survey(path, enter=lambda name: Path(name).stem in asked)
        for name in found.names:
            wnid = name.split("/")[-2] if "/" in name else ""
            if wnid in asked and _number(name) is not None:
                classes[wnid].append(Picture(source, name))
    if not classes:
        raise not_the_layout(
            sources[0], "ILSVRC 2012", "n01440764.tar or n01440764/, with n01440764_18.JPEG in it"
        )
    numbered = {
        wnid: sorted(classes[wnid], key=lambda picture: _number(picture.member) or 0)
        for wnid in sorted(classes)
    }
    return _listed(numbered, lists) if lists else numbered


def _number(name: str) -> int | None:
    match = re.search(r"n\d{8}_(\d+)\.\w+$", name)
    return int(match[1]) if match else None


def _listed(classes: Classes, lists: Sequence[Path]) -> Classes:
    """The pictures of each class that the lists name."""
    chosen: Classes = {wnid: [] for wnid in classes}
    for path in lists:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.reader(file))
        for number, row in enumerate(rows[1:], 2):
            match = re.fullmatch(r"(n\d{8})(\d{8})\.jpg", row[0]) if len(row) == 2 else None
            if match is None or match[1] != row[1]:
                raise ValueError(
                    f"{path}: expected rows like n0153282900000005.jpg,n01532829, got "
                    f"{','.join(row)[:60]!a} in line {number}; fetch the file again"
                )
            if match[1] not in classes:
                continue
            place, pictures = int(match[2]) - 1, classes[match[1]]
            if not 0 <= place < len(pictures):
                raise ValueError(
                    f"{path}: expected picture {place + 1} of {match[1]}, got {len(pictures)} in "
                    "all; fetch ILSVRC2012_img_train.tar again"
                )
            chosen[match[1]].append(pictures[place])
    return chosen
