"""The archive of ARML's authors.

Its files are `{plainmulti,artmulti}/<set>[_blur|_pencil]/{train,val,test}/<class>/<image>.jpg`.
The pictures are cropped, filtered and of 84 x 84 pixels already. The folders state the split.
"""

from collections.abc import Sequence
from pathlib import Path

from arml.datasets.archives import open_members
from arml.datasets.layouts.reading import Classes, by_folder, survey
from arml.datasets.splits import PARTS

SETS = {
    "bird": "CUB_Bird",
    "texture": "DTD_Texture",
    "aircraft": "FGVC_Aircraft",
    "fungi": "FGVCx_Fungi",
}
TOPS = {"plain-multi": "plainmulti", "art-multi": "artmulti"}
FOLDERS = dict(zip(PARTS, ("train", "val", "test"), strict=True))
METHOD = "the folders of the authors' archive"

Chosen = dict[str, dict[str, Classes]]
"""The classes of each part of each family."""


def read(path: Path, name: str, families: Sequence[str]) -> Chosen | None:
    """The families of the data set `name`; a filtered family is named like `bird-blur`. None if
    `path` is not this archive.

    **Raises** `ValueError` if one of its families or parts is not there.
    """
    top = TOPS.get(name)
    if top is None or not _begins(path):
        return None
    found = survey(path)
    inside = [n for n in found.names if f"{top}/" in n]
    root = inside[0].partition(f"{top}/")[0] + f"{top}/" if inside else ""
    chosen: Chosen = {}
    for family in families:
        plain, _, filtered = family.partition("-")
        folder = SETS[plain] + (f"_{filtered}" if filtered else "")
        chosen[family] = {
            part: by_folder(found.names, 0, below=f"{root}{folder}/{there}/")
            for part, there in FOLDERS.items()
        }
        for part, classes in chosen[family].items():
            if not classes:
                raise ValueError(
                    f"{path}: expected pictures in {root}{folder}/{FOLDERS[part]}/<class>/, found "
                    "none; fetch the archive again"
                )
    return chosen


def _begins(path: Path) -> bool:
    """Whether the first file of `path` is in a folder of the authors' archive."""
    tops = {*TOPS.values()}
    if path.is_dir() and path.name in tops:
        return True
    with open_members(path) as members:
        first = next(members, None)
    return first is not None and bool(tops & set(first.name.split("/")))
