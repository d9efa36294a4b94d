"""Published data sets: their archives, the contents of these, and the splits of their classes.

`arml/data/benchmarks.toml` has the archives, authors and terms of each family. Data that may not be
passed on are never downloaded: the user must accept their terms at the publisher. The splits are in
`arml/data/splits/`: the classes of each part, or the rule that draws them by the number of pictures
of each class.
"""

import json
import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files as resources
from pathlib import Path
from typing import Literal, NamedTuple

from msgspec import convert

from arml.datasets.archives import Box, open_members
from arml.datasets.folders import SPLIT_PARTS, Parts, has_suffix
from arml.datasets.splits import cut, drawn
from arml.results.files import brief, read_json

DATA_FOLDER = Path(str(resources("arml"))) / "data"
SPLITS_FOLDER = DATA_FOLDER / "splits"


@dataclass(frozen=True)
class Archive:
    """A file that a publisher offers; the fields are described in `benchmarks.toml`."""

    name: str
    md5: str | None = None
    url: str | None = None
    get: str = ""
    list: bool = False

    @property
    def instructions(self) -> str:
        return self.get or f"fetch {self.url}"


@dataclass(frozen=True)
class Family:
    """A published collection of pictures, which becomes one family of tasks. `size` is in pixels a
    side; `square` is the side of the publisher's pictures, if all are square."""

    layout: str
    split: str
    about: str
    pictures: int
    licence: str
    citation: str
    archives: tuple[Archive, ...]
    folder: str = ""
    size: int = 84
    square: int = 0


@dataclass(frozen=True)
class DataSet:
    """A data set that `arml data prepare` makes: the families of these names, and each also
    through the filters. `pixels` a side; if 0, those of the families."""

    about: str
    names: tuple[str, ...]
    filters: tuple[str, ...] = ()
    pixels: int = 0

    @property
    def families(self) -> list[Family]:
        return [PUBLISHED_FAMILIES[name] for name in self.names]

    @property
    def pictures(self) -> int:
        """The pictures of all families, including filtered ones."""
        return (1 + len(self.filters)) * sum(family.pictures for family in self.families)

    @property
    def size(self) -> int:
        return self.pixels or self.families[0].size


PUBLISHED_FAMILIES: dict[str, Family] = convert(
    tomllib.loads((DATA_FOLDER / "benchmarks.toml").read_text("utf-8")), dict[str, Family]
)
PLAIN_MULTI = ("bird", "texture", "aircraft", "fungi")
REAL_FOUR = ("bird-2010", "flower", "omniglot", "mini-imagenet")
DATA_SETS: dict[str, DataSet] = {
    "plain-multi": DataSet("Bird, texture, aircraft and fungi, a family each", PLAIN_MULTI),
    "art-multi": DataSet(
        "Plain-Multi, and the same through a blur and a pencil filter: twelve families",
        PLAIN_MULTI,
        ("blur", "pencil"),
    ),
    "real-four": DataSet(
        "Birds, flowers, characters and objects, a family each", REAL_FOUR, pixels=32
    ),
    **{name: DataSet(family.about, (name,)) for name, family in PUBLISHED_FAMILIES.items()},
}


# --- the pictures of each class


class Picture(NamedTuple):
    """One picture of a family: the archive or folder that has it, its name there, and the box to
    keep; None for the whole."""

    source: Path
    name: str
    box: Box | None = None


Classes = dict[str, list[Picture]]
"""The pictures of each class."""
Listed = Iterable[tuple[str, str, Box | None]]
"""The class, the name and the box of each picture."""
ANNOTATION_FILES = re.compile(
    r"(^|/)((images|image_class_labels|bounding_boxes|classes|images_box)\.txt"
    r"|images_variant_\w+\.txt|(train|val)\.json|splits/bertinetto/\w+\.txt"
    r"|(train|val|test)\.csv)$"
)
"""The files that the layouts below read."""


class Files(NamedTuple):
    """The content of the archives of a family."""

    pictures: dict[str, Path]
    """The archive or folder that has each picture, by its name there."""
    annotations: dict[str, bytes]

    def text(self, name: str) -> str:
        return self.annotations[name].decode("utf-8-sig")

    def table(self, name: str) -> dict[str, str]:
        """The rest of each line of an annotation by the line's first word."""
        lines = self.text(name).strip().splitlines()
        return {first: rest.strip() for first, rest in (line.split(maxsplit=1) for line in lines)}

    def root(self, name: str) -> str:
        """The folder of the annotation `name`, with a final `/`, or empty."""
        places = [one for one in self.annotations if f"/{one}".endswith(f"/{name}")]
        if not places:
            raise LookupError(name)
        return min(places, key=len).removesuffix(name)


def survey(paths: Sequence[Path], enter: Callable[[str], bool] = lambda name: True) -> Files:
    """Read archives, folders and lists once: the names of their pictures, and their annotations.
    `enter` is that of `open_members`."""
    found = Files({}, {})
    for path in paths:
        if path.suffix == ".csv":
            found.annotations[path.name] = path.read_bytes()
            continue
        with open_members(path, enter=enter) as members:
            for member in members:
                if has_suffix(member.name):
                    found.pictures[member.name] = path
                elif ANNOTATION_FILES.search(member.name):
                    found.annotations[member.name] = member.read()
    return found


def classes_of(layout: str, files: Files) -> Classes:
    """The pictures of each class, in order of class. **Raises** `ValueError` in one line for files
    that are not as published."""
    classes: defaultdict[str, list[Picture]] = defaultdict(list)
    problem = ""
    try:
        for label, name, box in ARCHIVE_LAYOUTS[layout](files):
            classes[label].append(Picture(files.pictures[name], name, box))
    except LookupError as error:
        problem = f"they lack {' '.join(map(ascii, error.args))}"
    except (ValueError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        problem = brief(error, 200)
    if problem or not classes:
        shown = ", ".join(sorted({str(path) for path in files.pictures.values()})) or "no pictures"
        raise ValueError(
            f"expected the files of {layout} as they are published, got {shown}"
            f"{f': {problem}' * bool(problem)}; fetch the archive again"
        )
    return dict(sorted(classes.items()))


def _box(text: str, *, corners: bool) -> Box:
    """The box of x, y, width and height, or of the corners; both are counted from 1."""
    x, y, a, b = map(float, text.split())
    left, top = max(round(x - 1), 0), max(round(y - 1), 0)
    right, bottom = (round(a), round(b)) if corners else (round(x - 1 + a), round(y - 1 + b))
    return left, top, max(right, left + 1), max(bottom, top + 1)


def _by_folder(files: Files, top: str, depth: int = 1) -> Listed:
    """The pictures below the folders `top`; the `depth` folders above a picture name its class."""
    for name in sorted(files.pictures):
        *folders, _ = name.split("/")
        if len(folders) > depth and folders[-1 - depth] == top:
            yield "/".join(folders[-depth:]), name, None


def cub(files: Files) -> Listed:
    """CUB-200-2011: `images/<class>/<image>.jpg`; tables by the image's number have its name, its
    class, and its box as x, y, width and height."""
    root = files.root("bounding_boxes.txt")
    tables = ("images", "image_class_labels", "classes", "bounding_boxes")
    names, labels, classes, boxes = (files.table(f"{root}{table}.txt") for table in tables)
    return sorted(
        (classes[labels[n]], f"{root}images/{name}", _box(boxes[n], corners=False))
        for n, name in names.items()
    )


def aircraft(files: Files) -> Listed:
    """FGVC-Aircraft 2013b: `images/<number>.jpg`; tables by the image's number have its variant,
    which may have blanks and slashes, and its box as left, top, right and bottom. HSML's
    preparation reads the box as x, y, width and height, and so keeps too large a part."""
    root = files.root("images_box.txt")
    boxes = files.table(f"{root}images_box.txt")
    return sorted(
        (variant, f"{root}images/{number}.jpg", _box(boxes[number], corners=True))
        for part in ("train", "val", "test")
        for number, variant in files.table(f"{root}images_variant_{part}.txt").items()
    )


def fungi(files: Files) -> Listed:
    """FGVCx-Fungi 2018: `images/<folder>/<image>.JPG`, with `train.json` and `val.json` as in COCO.
    A class is a species (`Abortiporus biennis`), of training and validation together."""
    # In archives the file names begin with images/; in a folder a path may precede it.
    pictures = {name[name.find("images/") :]: name for name in files.pictures if "images/" in name}
    return sorted(
        (species, pictures[file], None)
        for table in sorted(files.annotations)
        for file, species in coco_labels(files.text(table))
    )


def coco_labels(text: str) -> Iterator[tuple[str, str]]:
    """The file and the category of each annotation. If two categories have the same name, the
    number of the second is added: the 1,394 names of the fungi then differ."""
    content = json.loads(text)
    names: dict[int, str] = {}
    for entry in sorted(content["categories"], key=lambda entry: int(entry["id"])):
        name, number = entry["name"].strip(), entry["id"]
        names[number] = f"{name} ({number})" if name in names.values() else name
    files = {image["id"]: image["file_name"] for image in content["images"]}
    for one in content["annotations"]:
        yield files[one["image_id"]], names[one["category_id"]]


def imagenet(files: Files) -> Listed:
    """ILSVRC 2012's training pictures: a tar with one tar for each class, or a folder of these tars
    or of their contents; the pictures of a class in order of number (`n01532829_5.JPEG`).

    The lists of Ravi and Larochelle (ICLR 2017) name 600 pictures of a class of miniImageNet: in
    `n0153282900000005.jpg,n01532829` the number after the class counts its pictures from 1. Copies
    of miniImageNet have only these 600, in a folder for each class or all in one folder.
    """
    classes: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for name in sorted(files.pictures, key=lambda name: [*map(int, re.findall(r"\d+", name))]):
        if match := re.search(r"(?:^|/)(?:(n\d{8})/([^/]+)|((n\d{8})\d{8}\.\w+))$", name):
            classes[match[1] or match[4]][match[2] or match[3]] = name
    listed: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    lists = [name for name in files.annotations if name.endswith(".csv")]
    for row in (row for name in lists for row in files.text(name).split()[1:]):
        match = re.search(r"\b((n\d{8})(\d{8})\.jpg),\2$", row)
        if match is None:
            raise ValueError(
                f"expected rows like n0153282900000005.jpg,n01532829, got {row[:60]!a}"
            )
        listed[match[2]].append((match[1], int(match[3])))
    for wnid, names in classes.items():
        wanted, every = listed[wnid], [*names.values()]
        if not lists or len(wanted) == len(every):
            yield from ((wnid, name, None) for name in every)
        elif any(file in names for file, _ in wanted):
            yield from ((wnid, names[file], None) for file, _ in wanted if file in names)
        else:
            for _, place in wanted:
                if not 1 <= place <= len(every):
                    raise LookupError(f"picture {place} of {wnid}")
                yield wnid, every[place - 1], None


OMNIGLOT_CHARACTERS = 1623


def omniglot(files: Files) -> Listed:
    """Omniglot: `images_background/<alphabet>/<character>/<image>.png`, and `images_evaluation/`.
    A class is a character (`Greek/character01`). In copies without the alphabets the names of the
    files begin with its number (`0394_01.png`); `first` has the first number of each alphabet."""
    yield from _by_folder(files, "images_background", depth=2)
    yield from _by_folder(files, "images_evaluation", depth=2)
    if not any("images_" in name for name in files.pictures):
        first = {number: alphabet for alphabet, number in published("omniglot").first.items()}
        for name in sorted(files.pictures):
            file = name.rpartition("/")[2]
            number = int(digits[0]) if (digits := re.match(r"\d+(?=_)", file)) else 0
            if not 1 <= number <= OMNIGLOT_CHARACTERS:
                raise ValueError(
                    f"{file!a} does not begin with a number of 1 to {OMNIGLOT_CHARACTERS}"
                )
            at = max(at for at in first if at <= number)
            yield f"{first[at]}/character{number - at + 1:02}", name, None


def folders(files: Files) -> Listed:
    """A folder for each class, below any folders."""
    pictures = ((name.split("/")[-2:], name) for name in files.pictures)
    return ((label, name, None) for (label, _), name in sorted(pictures))


ARCHIVE_LAYOUTS: dict[str, Callable[[Files], Listed]] = {
    "dtd": partial(_by_folder, top="images"),  # dtd/images/<class>/<image>.jpg
    "cifar_fs": partial(_by_folder, top="data"),  # cifar100/data/<class>/<image>.png
    **{one.__name__: one for one in (cub, aircraft, fungi, imagenet, omniglot, folders)},
}


# --- splits


@dataclass(frozen=True)
class _Rule:
    """Take the classes with `images` images, or more if not `exactly`, in order of
    sha256('<seed>/<class>'): `sizes` of them for train, validation and test."""

    images: int
    exactly: bool
    sizes: tuple[int, int, int]


@dataclass(frozen=True)
class Published:
    """The split of a published data set, by its parts or by a rule; `method` describes it. `keep`
    pictures of each class are kept, or all. Omniglot's parts are alphabets, and `first` has the
    number of the first character of each."""

    origin: str
    method: str
    sha256: str = ""
    seed: int = 0
    unit: Literal["class", "alphabet"] = "class"
    parts: Parts | None = None
    rule: _Rule | None = None
    keep: int | None = None
    first: dict[str, int] = field(default_factory=dict)

    def wanted(self) -> set[str]:
        return {name for names in (self.parts or {}).values() for name in names}


def published(origin: str) -> Published:
    """The package's split of an origin."""
    return convert(read_json(SPLITS_FOLDER / f"{origin}.json"), Published)


def split_of_archive(files: Files) -> Published:
    """The split that the archive of CIFAR-FS states, in `splits/bertinetto/{train,val,test}.txt`.
    **Raises** `ValueError` if it states none."""
    try:
        root = files.root("splits/bertinetto/train.txt") + "splits/bertinetto/"
        names = zip(SPLIT_PARTS, ("train", "val", "test"), strict=True)
        parts = {part: files.text(f"{root}{name}.txt").split() for part, name in names}
    except (LookupError, UnicodeDecodeError) as error:
        raise ValueError(
            f"expected an archive with its split, got one without {error}; fetch it again"
        ) from error
    return Published("cifar-fs", "as the archive states it", parts=parts)


def select(split: Published, classes: Classes, where: object) -> dict[str, Classes]:
    """The pictures of each part. **Raises** `ValueError` if classes or pictures are lacking."""
    named = split.parts or _drawn_parts(split, classes, where)
    alphabets = defaultdict(list)
    for name in classes:
        alphabets[name.split("/")[0] if split.unit == "alphabet" else name].append(name)
    chosen: dict[str, Classes] = {}
    for part in SPLIT_PARTS:
        if lacking := set(named[part]) - alphabets.keys():
            raise ValueError(
                f"{where}: expected the {len(named[part])} {part} classes of the split "
                f"{split.origin}, {len(lacking)} are not there ({min(lacking)!a}, ...); fetch the "
                "archive again"
            )
        names = [name for one in sorted(named[part]) for name in alphabets[one]]
        chosen[part] = {name: _kept(split, classes[name]) for name in names}
    few = [
        f"{len(pictures)} of {name!a}"
        for part in chosen.values()
        for name, pictures in part.items()
        if len(pictures) < (split.keep or 1)
    ]
    if few:
        more = f" and of {len(few) - 5} more classes" if len(few) > 5 else ""
        raise ValueError(
            f"{where}: expected at least {split.keep} pictures of each class, got "
            f"{', '.join(few[:5])}{more}; fetch the archive again"
        )
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
            f"{rule.images} pictures, got {len(enough)} of {len(classes)}; fetch the archive again"
        )
    return cut(drawn(enough, split.seed), rule.sizes)


def _kept(split: Published, pictures: list[Picture]) -> list[Picture]:
    if split.keep is None or len(pictures) <= split.keep:
        return pictures
    by_name = {picture.name.rpartition("/")[2]: picture for picture in pictures}
    return [by_name[file] for file in sorted(drawn(by_name, split.seed)[: split.keep])]
