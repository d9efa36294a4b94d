"""Published data sets: how the pictures of each are named and annotated.

Each layout has a function `(paths, wanted) -> Classes`, which lists the pictures of each class.
`paths` are the archives as they are published, or the folders to which they unpack; `wanted` are
the classes that the split names.
"""

import csv
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypedDict

from arml.datasets.archives import open_members
from arml.datasets.folders import PARTS, is_picture
from arml.results.schema import Text, read_as

Box = tuple[int, int, int, int]
"""Left, top, right and bottom in pixels; the last two are outside."""


class Picture(NamedTuple):
    """One picture of an origin."""

    source: int
    """The number of the origin's file or folder that has it."""
    member: str
    box: Box | None = None
    """The part to keep; None for the whole picture."""


Classes = dict[str, list[Picture]]
"""The pictures of each class, in order of name."""


@dataclass(frozen=True)
class Layout:
    """How the files of a data set are arranged."""

    read: Callable[[Sequence[Path], Sequence[str]], Classes]
    top: str = ""
    """The folder to which its archives unpack."""
    marker: str = ""
    """A path inside that folder; empty if the folder cannot be told by one."""
    split: Callable[[Path], dict[str, list[str]]] | None = None
    """The split that the archive states itself."""


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
        """An annotation as text. **Raises** `ValueError` if it is absent or not UTF-8."""
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

    def numbers(self, name: str, cells: Sequence[str]) -> list[float]:
        """Cells of an annotation as numbers."""
        try:
            return [float(cell) for cell in cells]
        except ValueError:
            raise ValueError(
                f"{self.path}: expected numbers in {name}, got {' '.join(cells)[:60]!r}; fetch the "
                "archive again"
            ) from None

    def check_has(self, pictures: Iterable[str]) -> None:
        """Raise `ValueError` if pictures are lacking that the annotations name."""
        if absent := sorted(set(pictures) - set(self.names)):
            raise ValueError(
                f"{self.path}: {len(absent)} pictures that its annotations name are not there "
                f"({absent[0]!a}{', ...' if len(absent) > 1 else ''}); fetch the archive again"
            )


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
            if is_picture(member.name):
                names.append(member.name)
            elif annotations and member.name.endswith(tuple(annotations)):
                texts[member.name] = member.read()
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{path}: {twice!a} is there twice; fetch the archive again")
    return Survey(path, names, texts)


def by_folder(names: Iterable[str], source: int, *, below: str = "", depth: int = 1) -> Classes:
    """The pictures below the folder `below`; the `depth` folders above a picture name its class."""
    classes: Classes = defaultdict(list)
    for name in names:
        parts = name[len(below) :].split("/")
        if name.startswith(below) and len(parts) == depth + 1:
            classes["/".join(parts[:-1])].append(Picture(source, name))
    return _ordered(classes)


def _ordered(classes: Classes) -> Classes:
    return {name: sorted(classes[name]) for name in sorted(classes)}


def _roots(names: Iterable[str], top: str) -> list[str]:
    """The paths up to a folder called `top/`."""
    return sorted({name.partition(top)[0] + top for name in names if top in name})


def _other(path: Path, what: str, wanted: str) -> ValueError:
    return ValueError(
        f"{path}: expected the files of {what} ({wanted}), found none of them; give the archive as "
        "it is published, or the folder to which it unpacks"
    )


def _boxed(x: float, y: float, width: float, height: float) -> Box:
    """The box whose top left pixel is (x, y), counted from 0."""
    left, top = max(round(x), 0), max(round(y), 0)
    return left, top, max(round(x + width), left + 1), max(round(y + height), top + 1)


def cub(paths: Sequence[Path], wanted: Sequence[str]) -> Classes:
    """CUB-200-2011: `CUB_200_2011/images/<class>/<image>.jpg` with tables beside it.

    `images.txt` has an image's number and name, `image_class_labels.txt` its class, and
    `bounding_boxes.txt` its box as x, y, width and height, counted from 1.
    """
    tables = ("images.txt", "image_class_labels.txt", "bounding_boxes.txt", "classes.txt")
    found = survey(paths[0], annotations=tables)
    root = found.root("bounding_boxes.txt")
    if root is None:
        raise _other(paths[0], "CUB-200-2011", "images.txt, bounding_boxes.txt")
    names = dict(found.table(f"{root}images.txt", 2))
    boxes = {row[0]: row[1:] for row in found.table(f"{root}bounding_boxes.txt", 5)}
    labels = dict(found.table(f"{root}image_class_labels.txt", 2))
    known = f"{root}classes.txt" in found.texts
    folders = dict(found.table(f"{root}classes.txt", 2)) if known else {}
    found.check_has(f"{root}images/{name}" for name in names.values())
    classes: Classes = defaultdict(list)
    for number, name in names.items():
        if number not in boxes or number not in labels:
            raise ValueError(
                f"{paths[0]}: expected a box and a class of image {number}, found none; fetch the "
                "archive again"
            )
        x, y, width, height = found.numbers("bounding_boxes.txt", boxes[number])
        box = _boxed(x - 1, y - 1, width, height)
        label = folders.get(labels[number], name.split("/")[0])
        classes[label].append(Picture(0, f"{root}images/{name}", box))
    return _ordered(classes)


def dtd(paths: Sequence[Path], wanted: Sequence[str]) -> Classes:
    """Describable Textures: `dtd/images/<class>/<image>.jpg`."""
    found = survey(paths[0])
    roots = _roots(found.names, "images/")
    if len(roots) != 1:
        raise _other(paths[0], "DTD", "images/<class>/<image>.jpg")
    return by_folder(found.names, 0, below=roots[0])


def aircraft(paths: Sequence[Path], wanted: Sequence[str]) -> Classes:
    """FGVC-Aircraft 2013b: `fgvc-aircraft-2013b/data/images/<number>.jpg` with tables beside it.

    `images_variant_<part>.txt` has an image's number and variant, which may have blanks and
    slashes; `images_box.txt` its box as left, top, right and bottom, counted from 1.

    **Differences.** HSML's preparation reads the box as x, y, width and height, and so keeps too
    large a part. Here the box is read as the publisher says.
    """
    variant_tables = [f"images_variant_{part}.txt" for part in ("train", "val", "trainval", "test")]
    found = survey(paths[0], annotations=("images_box.txt", "variants.txt", *variant_tables))
    root = found.root("images_box.txt")
    if root is None:
        raise _other(paths[0], "FGVC-Aircraft", "variants.txt, images_box.txt")
    known = {line.strip() for line in found.text(f"{root}variants.txt").splitlines()} - {""}
    boxes = {row[0]: row[1:] for row in found.table(f"{root}images_box.txt", 5)}
    variants: dict[str, str] = {}
    for table in variant_tables:
        if f"{root}{table}" in found.texts:
            variants |= dict(found.table(f"{root}{table}", 2))
    found.check_has(f"{root}images/{number}.jpg" for number in variants)
    classes: Classes = defaultdict(list)
    for number, variant in variants.items():
        if variant not in known or number not in boxes:
            raise ValueError(
                f"{paths[0]}: expected a box and a variant of variants.txt for image {number}, got "
                f"{variant!a}; fetch the archive again"
            )
        left, top, right, bottom = found.numbers("images_box.txt", boxes[number])
        box = _boxed(left - 1, top - 1, right - left + 1, bottom - top + 1)
        classes[variant].append(Picture(0, f"{root}images/{number}.jpg", box))
    return _ordered(classes)


class _CocoPicture(TypedDict):
    id: int
    file_name: Text


class _CocoCategory(TypedDict):
    id: int
    name: Text


class _CocoAnnotation(TypedDict):
    image_id: int
    category_id: int


class _Coco(TypedDict):
    images: list[_CocoPicture]
    categories: list[_CocoCategory]
    annotations: list[_CocoAnnotation]


def fungi(paths: Sequence[Path], wanted: Sequence[str]) -> Classes:
    """FGVCx-Fungi 2018: `images/<folder>/<image>.JPG`, with `train.json` and `val.json` as in COCO.
    A class is a species (`Abortiporus biennis`), of training and validation together."""
    found = [survey(path, annotations=("train.json", "val.json")) for path in paths]
    # In archives the file names begin with images/; in a folder there may be a path before it.
    pictures = {
        name[name.find("images/") :]: Picture(source, name)
        for source, one in enumerate(found)
        for name in one.names
        if "images/" in name
    }
    tables = [(one, name) for one in found for name in sorted(one.texts)]
    if not tables or not pictures:
        raise _other(paths[0], "FGVCx-Fungi", "images/, train.json, val.json")
    classes: Classes = defaultdict(list)
    for one, name in tables:
        pairs = coco_labels(one, name)
        one._replace(names=list(pictures)).check_has(file for file, _ in pairs)
        for file, species in pairs:
            classes[species].append(pictures[file])
    return _ordered(classes)


def coco_labels(one: Survey, name: str) -> list[tuple[str, str]]:
    """The file and the category of each annotation. If two categories have the same name, the
    number of the second is added, so that all 1,394 names of the fungi differ."""
    try:
        content = read_as(_Coco, json.loads(one.text(name)), name, "fetch the archive again")
        names: dict[int, str] = {}
        for entry in sorted(content["categories"], key=lambda entry: entry["id"]):
            label = entry["name"].strip()
            twice = label in names.values()
            names[entry["id"]] = f"{label} ({entry['id']})" if twice else label
        files = {image["id"]: image["file_name"] for image in content["images"]}
        return [(files[a["image_id"]], names[a["category_id"]]) for a in content["annotations"]]
    except (ValueError, KeyError, RecursionError) as error:
        raise ValueError(
            f"{one.path}: expected {name} as COCO annotations (images, categories, annotations), "
            f"got: {type(error).__name__} {error}; fetch the archive again"
        ) from error


def imagenet(paths: Sequence[Path], wanted: Sequence[str]) -> Classes:
    """ILSVRC 2012's training pictures: a tar with one tar for each class, or a folder of these tars
    or of their contents; the classes `wanted`, by wnid, in order of number.

    miniImageNet has 600 pictures of a class, which the lists `train.csv`, `val.csv` and `test.csv`
    name [1]. A row is `n0153282900000005.jpg,n01532829`. The number after the class counts the
    pictures of that class from 1, in order of the number in their file names (`n01532829_5.JPEG`).
    tieredImageNet has all pictures.

    [1] Ravi, Larochelle: Optimization as a Model for Few-Shot Learning. ICLR 2017.
    """
    asked = set(wanted)
    lists = [path for path in paths if path.suffix == ".csv"]
    sources = [path for path in paths if path.suffix != ".csv"]
    numbered: defaultdict[str, list[tuple[int, Picture]]] = defaultdict(list)
    for source, path in enumerate(sources):
        found = survey(path, enter=lambda name: Path(name).stem in asked)
        for name in found.names:
            wnid = name.split("/")[-2] if "/" in name else ""
            match = re.search(r"n\d{8}_(\d+)\.\w+$", name)
            if wnid in asked and match:
                numbered[wnid].append((int(match[1]), Picture(source, name)))
    if not numbered:
        raise _other(
            sources[0], "ILSVRC 2012", "n01440764.tar or n01440764/, with n01440764_18.JPEG in it"
        )
    classes = {
        wnid: [picture for _, picture in sorted(numbered[wnid])] for wnid in sorted(numbered)
    }
    return _listed(classes, lists) if lists else classes


def _listed(classes: Classes, lists: Sequence[Path]) -> Classes:
    """The pictures of each class that miniImageNet's lists name."""
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


def omniglot(paths: Sequence[Path], wanted: Sequence[str]) -> Classes:
    """Omniglot: `images_background/<alphabet>/<character>/<image>.png`, and `images_evaluation/`.
    A class is a character (`Greek/character01`)."""
    classes: Classes = {}
    for source, path in enumerate(dict.fromkeys(paths)):
        names = survey(path).names
        for top in ("images_background/", "images_evaluation/"):
            for root in _roots(names, top):
                classes |= by_folder(names, source, below=root, depth=2)
    if not classes:
        raise _other(paths[0], "Omniglot", "images_background/<alphabet>/<character>/")
    return classes


def cifar_fs(paths: Sequence[Path], wanted: Sequence[str]) -> Classes:
    """CIFAR-FS: `cifar100/data/<class>/<image>.png`."""
    names = survey(paths[0]).names
    roots = _roots(names, "data/")
    if len(roots) != 1:
        raise _other(paths[0], "CIFAR-FS", "data/<class>/<image>.png")
    return by_folder(names, 0, below=roots[0])


def cifar_fs_split(path: Path) -> dict[str, list[str]]:
    """The classes in `cifar100/splits/bertinetto/{train,val,test}.txt`, one in a line."""
    files = dict(zip(PARTS, ("train.txt", "val.txt", "test.txt"), strict=True))
    found = survey(path, annotations=[f"splits/bertinetto/{file}" for file in files.values()])
    root = found.root("splits/bertinetto/train.txt")
    if root is None:
        raise _other(path, "CIFAR-FS", "splits/bertinetto/train.txt")
    return {
        part: found.text(f"{root}splits/bertinetto/{file}").split() for part, file in files.items()
    }


LAYOUTS = {
    "cub": Layout(cub, "CUB_200_2011", "bounding_boxes.txt"),
    "dtd": Layout(dtd, "dtd", "images/banded"),
    "aircraft": Layout(aircraft, "fgvc-aircraft-2013b", "data/images_box.txt"),
    "fungi": Layout(fungi, "fungi", "train.json"),
    "omniglot": Layout(omniglot, "omniglot", "images_background"),
    "imagenet": Layout(imagenet),
    "cifar-fs": Layout(cifar_fs, "cifar100", "splits/bertinetto", cifar_fs_split),
}
"""Every layout by name."""

AUTHORS = {
    "bird": "CUB_Bird",
    "texture": "DTD_Texture",
    "aircraft": "FGVC_Aircraft",
    "fungi": "FGVCx_Fungi",
}
AUTHORS_TOPS = {"plain-multi": "plainmulti", "art-multi": "artmulti"}


def authors(path: Path, name: str, families: Sequence[str]) -> dict[str, dict[str, Classes]] | None:
    """The classes of each part of each family in the archive of ARML's authors; None if `path` is
    not this archive.

    Its files are `{plainmulti,artmulti}/<set>[_blur|_pencil]/{train,val,test}/<class>/<image>.jpg`.
    The pictures are cropped, filtered and of 84 x 84 pixels already. A filtered family is named
    like `bird-blur`.

    **Raises** `ValueError` if one of the families or parts is not there.
    """
    top = AUTHORS_TOPS.get(name)
    if top is None:
        return None
    tops = {*AUTHORS_TOPS.values()}
    if path.name not in tops or not path.is_dir():
        with open_members(path) as members:
            first = next(members, None)
        if first is None or not tops & set(first.name.split("/")):
            return None
    names = survey(path).names
    root = (*_roots(names, f"{top}/"), "")[0]
    chosen: dict[str, dict[str, Classes]] = {}
    for family in families:
        plain, _, through = family.partition("-")
        folder = root + AUTHORS[plain] + (f"_{through}" if through else "")
        for part, there in zip(PARTS, ("train", "val", "test"), strict=True):
            classes = by_folder(names, 0, below=f"{folder}/{there}/")
            if not classes:
                raise ValueError(
                    f"{path}: expected pictures in {folder}/{there}/<class>/, found none; fetch "
                    "the archive again"
                )
            chosen.setdefault(family, {})[part] = classes
    return chosen
