"""A user's pictures: folders and zips with labelled pictures, and pictures to predict.

One rule holds for support, query and training folders: a file is a picture if it has the suffix of
one, and all others are left out. The label of a picture is the name of its folder, or is in a table
`labels.csv`. For training, a source becomes one family of tasks. Its decoded pictures are cached in
`$ARML_CACHE/images` by their content.
"""

import csv
import hashlib
import io
import os
import unicodedata
import zipfile
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice, takewhile
from pathlib import Path
from typing import BinaryIO

import numpy as np
from jaxtyping import Float32, Int, UInt8

from arml.datasets.archives import Member, open_members, printable
from arml.datasets.decode import LOG, SUFFIXES, Crop, decoded
from arml.results.files import write_whole

CACHE_FORMAT = 3
"""Version of cached pictures. Raise it if the same files would now give other pixels."""
PICTURES_PER_WRITE = 128
"""Pictures that are decoded before each write."""
LABELS_FILE = "labels.csv"
SPLIT_PARTS = ("train", "validation", "test")
PART_FOLDERS = {
    **dict.fromkeys(("train", "training", "meta-train"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "meta-val", "meta-valid"), "validation"),
    **dict.fromkeys(("test", "testing", "meta-test"), "test"),
}
"""Folders that state the split of their classes."""
Progress = Callable[[str, int, int], None]
"""Called with the name of the work (for example of a family), the amount done, and the total."""


def quiet(what: str, done: int, total: int) -> None:
    """A `Progress` that does nothing."""


Parts = dict[str, list[str]]
"""The classes of each of `SPLIT_PARTS`."""


@dataclass(frozen=True)
class LabelledFiles:
    """Labelled pictures: the members of each class, both in order of name."""

    path: Path
    classes: dict[str, list[Member]]
    split: Parts | None
    """The split that its folders state."""
    left_out: list[Path]
    """Its files that are not pictures."""
    remarks: list[str]
    """The interpretation of its folders, where there are others."""

    @property
    def pictures(self) -> list[Member]:
        """All pictures, in order of class."""
        return [member for members in self.classes.values() for member in members]

    @property
    def counts(self) -> dict[str, int]:
        return {name: len(members) for name, members in self.classes.items()}

    @property
    def labels(self) -> list[str]:
        return [name for name, members in self.classes.items() for _ in members]

    @property
    def files(self) -> list[str]:
        return [member.where for member in self.pictures]

    def digest(self) -> str:
        """A SHA-256 of the classes, the names of the files and their content."""
        digest = hashlib.sha256()
        for name, members in self.classes.items():
            for member in members:
                digest.update(f"{name}\0{member.name.rpartition('/')[2]}\0".encode())
                digest.update(hashlib.sha256(member.read()).digest())
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class ImageFamily:
    """All images of one source, in order of class and then of file name: a read-only memory map of
    pixels, or of vectors of images. Class `i` has `counts[i]` of them, from `first[i]` on. `digest`
    is a SHA-256 of the source's content, the same for every size. `split` may be published."""

    name: str
    classes: tuple[str, ...]
    images: UInt8[np.ndarray, "n size size 3"] | Float32[np.ndarray, "n *features"]
    counts: Int[np.ndarray, " classes"]
    digest: str
    split: Parts | None = None

    @property
    def sizes(self) -> dict[str, int]:
        return dict(zip(self.classes, self.counts.tolist(), strict=True))

    @property
    def first(self) -> Int[np.ndarray, " classes"]:
        """The index of each class's first image."""
        return np.cumsum(self.counts) - self.counts


class TooFewError(ValueError):
    """A family has too few classes, or a class too few images, for the tasks."""


def default_folder() -> Path:
    """The cache: `$ARML_CACHE`, or `~/.cache/arml`."""
    return Path(os.environ.get("ARML_CACHE") or Path.home() / ".cache" / "arml")


# --- labels


@contextmanager
def open_source(
    path: Path, suffixes: Collection[str] = SUFFIXES, one: str = "image"
) -> Iterator[LabelledFiles]:
    """Open a folder or a zip file of labelled pictures, or of other files with these suffixes.

    The pictures are in one folder for each class, perhaps below common top folders, and some in
    folders within it. These folders may be in folders `train`, `valid` and `test`, which state a
    split. Or a table `labels.csv` has a header, and in its first two columns names and labels.
    **Raises** `ValueError` in one line for a source that is missing, unsafe or of another layout.
    """
    if path.is_file() and has_suffix(path.name, suffixes):
        raise ValueError(f"{path}: {_layout(one)}, got one {one}; name the folder of these folders")
    if path.is_file() and not zipfile.is_zipfile(path):
        raise ValueError(
            f"{path}: expected a folder or a zip file, got a file that is cut short, damaged or of "
            "another kind; pack it again"
        )
    with open_members(path) as found:
        members = sorted(found, key=lambda member: member.name)
        pictures = [member for member in members if has_suffix(member.name, suffixes)]
        others = [member for member in members if not has_suffix(member.name, suffixes)]
        if not pictures:
            kinds = ", ".join(sorted(suffixes))
            raise ValueError(
                f"{path}: {_layout(one)}, got no {one} at all ({kinds}); check the path"
            )
        tables = [member for member in others if member.name.split("/")[-1].lower() == LABELS_FILE]
        if tables:
            table = min(tables, key=lambda member: member.name.count("/"))
            (classes, remarks), split = _by_table(table, pictures), None
        else:
            classes, split, remarks = _by_folder(path, pictures, one)
        left_out = [Path(member.where) for member in others if member not in tables]
        yield LabelledFiles(path, dict(sorted(classes.items())), split, left_out, remarks)


def has_suffix(name: str, suffixes: Collection[str] = SUFFIXES) -> bool:
    """Whether a file's name ends with one of the suffixes, those of pictures if not given."""
    return Path(name).suffix.lower() in suffixes


def _layout(one: str) -> str:
    return f"expected one folder for each class with the {one}s directly inside it"


def _by_folder(
    path: Path, pictures: Sequence[Member], one: str
) -> tuple[dict[str, list[Member]], Parts | None, list[str]]:
    """The pictures of each folder, the split that the folders above state, and remarks."""
    names = [member.name.split("/") for member in pictures]
    levels = zip(*(name[:-1] for name in names), strict=False)
    top = list(takewhile(lambda folders: len(set(folders)) == 1, levels))
    depth = max(min(len(top), max(map(len, names)) - 2), 0)
    for name in names:
        if len(name) < depth + 2:
            raise ValueError(
                f"{path}: {_layout(one)}, got the {one} {'/'.join(name)} outside them; "
                f"move it into one, or name the labels in a table {LABELS_FILE}"
            )
    part_of = {name[depth]: PART_FOLDERS.get(name[depth].lower()) for name in names}
    parted = {*part_of.values()} == {*SPLIT_PARTS} and all(len(name) == depth + 3 for name in names)
    pairs, remarks = [*zip(names, pictures, strict=True)], list[str]()
    if not parted:
        if len(part_of) > 1 and None not in part_of.values():
            raise ValueError(
                f"{path}: {_layout(one)}, got the parts of a data set "
                f"({', '.join(sorted(part_of))}); name the one whose folders are your classes"
            )
        own = {name[depth] for name in names if len(name) == depth + 2}
        aside = {head for head, part in part_of.items() if part in ("validation", "test")}
        if len(own - aside) > 1:
            pairs = [(name, member) for name, member in pairs if name[depth] not in aside]
            remarks = [
                f"the folder {head} is left out, because it is named after a part of a data set; "
                "rename it if it is a class"
                for head in sorted(aside)
            ]
        inner = {"/".join(name[depth:-1]): name for name, _ in pairs if len(name) > depth + 2}
        for folder, name in sorted(inner.items()):
            if name[depth] not in own:
                raise ValueError(
                    f"{path}: {_layout(one)}, got {folder}, and no {one} directly in "
                    f"{name[depth]}; move its {one}s up if it is one class, or move the class "
                    "folders side by side"
                )
            remarks.append(f"the {one}s in {folder} count as {name[depth]}")
    classes: defaultdict[str, list[Member]] = defaultdict(list)
    split: Parts = {part: [] for part in SPLIT_PARTS}
    for name, member in pairs:
        label, part = name[depth + parted], part_of[name[depth]]
        if parted and part is not None and label not in split[part]:
            if label in classes:
                raise ValueError(
                    f"{path}: expected different classes in the folders train, valid and test, got "
                    f"{label!r} in two of them: training is tested on new classes, so remove "
                    f"it from one; for `arml adapt` name {path / 'train'} or another part"
                )
            split[part].append(label)
        classes[label].append(member)
    return classes, {part: sorted(split[part]) for part in SPLIT_PARTS} if parted else None, remarks


def _by_table(
    table: Member, pictures: Sequence[Member]
) -> tuple[dict[str, list[Member]], list[str]]:
    """The pictures of each label of `labels.csv`, and remarks. It names a picture by its path below
    the table's folder, or by its file name with or without the suffix."""
    folder = table.name.rpartition("/")[0]
    named: defaultdict[str, list[Member]] = defaultdict(list)
    for member in pictures:
        file = Path(member.name)
        for name in {member.name.removeprefix(f"{folder}/"), file.name, file.stem}:
            named[name].append(member)
    try:
        text = unicodedata.normalize("NFC", table.read().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{table.where}: expected a table in UTF-8, got: {error}") from error
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    classes: defaultdict[str, list[Member]] = defaultdict(list)
    header, seen = [*map(str.strip, next(rows, []))], set[str]()
    for row in rows:
        if any(map(str.strip, row)):
            name, label = (*map(str.strip, row[:2]), "")[:2]
            found = named[name.replace("\\", "/")]
            if not label or len(found) != 1:
                raise ValueError(
                    f"{table.where}: expected the name of a picture and its label in line "
                    f"{rows.line_num}, got {','.join(row)[:60]!r}, of which there are {len(found)} "
                    "pictures: correct the line"
                )
            if found[0].name in seen:
                raise ValueError(
                    f"{table.where}: line {rows.line_num} names {name!r} again: keep one"
                )
            seen.add(found[0].name)
            classes[label] += found
    first = header[0].replace("\\", "/") if header else ""
    if first in named and ("." in first or header[1:2] in [[label] for label in classes]):
        raise ValueError(f"{table.where}: expected a header, got {first!r}: add file,label above")
    if not classes:
        raise ValueError(
            f"{table.where}: expected a header, and then the name of a picture and its label in "
            "each line, got no such line: fill it, or remove it if the folders are the classes"
        )
    left = [member.where for member in pictures if member.name not in seen]
    said = f"left out {len(left)} files that {LABELS_FILE} does not name: {', '.join(left[:3])}"
    more = f"{table.where}: the labels are in {header[1:2]}, not in {header[2:]}"
    remarks = [more] * any(header[2:]) + [said] * bool(left)
    return {k: sorted(some, key=lambda m: m.name) for k, some in classes.items()}, remarks


# --- a few examples, and pictures to predict


def files_of(
    paths: Sequence[Path],
    opened: ExitStack,
    suffixes: Collection[str] = SUFFIXES,
    many: str = "images",
) -> tuple[list[Member], list[Path]]:
    """The files among `paths`, and in the folders and zips among them every file with one of these
    suffixes; and the other files there. Zips stay open as long as `opened`. **Raises** `ValueError`
    for a path that does not exist, and if no file is found."""
    pictures: list[Member] = []
    others: list[Path] = []
    for path in paths:
        if path.is_file() and path.suffix.lower() != ".zip":
            pictures.append(Member(printable(str(path)), path.read_bytes))
            continue
        for member in sorted(opened.enter_context(open_members(path)), key=lambda one: one.name):
            if has_suffix(member.name, suffixes):
                pictures.append(member)
            elif member.name.rpartition("/")[2].lower() != LABELS_FILE:
                others.append(Path(member.where))
    if not pictures:
        raise ValueError(
            f"expected {many} ({', '.join(sorted(suffixes))}) in "
            f"{', '.join(map(str, paths)) or 'the queries'}, found none: check the path"
        )
    return pictures, others


# --- training


def load_families(
    sources: Sequence[str | Path],
    *,
    size: int,
    check: Callable[[str, dict[str, int], Parts | None], None] = lambda name, counts, split: None,
    progress: Progress | None = None,
) -> list[ImageFamily]:
    """Load folders or zip files of labelled pictures (see `open_source`), one family each.

    Images become `size x size` pixels. `check` gets the name, the images of each class and the
    stated split of each source before any image is decoded, and may raise an error.

    **Raises** `ValueError` in one line for a source that is missing, empty, unsafe or damaged, and
    for two sources of one name.
    """
    with ExitStack() as opened:
        paths = named_sources(sources).items()
        found = {name: opened.enter_context(open_source(path)) for name, path in paths}
        for name, source in found.items():
            check(name, source.counts, source.split)
        return [_load(name, source, size, progress or quiet) for name, source in found.items()]


def named_sources(sources: Sequence[str | Path]) -> dict[str, Path]:
    """The absolute path of each source by the name of its family. **Raises** `ValueError` for two
    sources of one name."""
    paths = [Path(source).expanduser().absolute() for source in sources]
    found = {family_name(path): path for path in paths}
    if len(found) < len(paths):
        raise ValueError(
            "expected a different name for each family, got "
            f"{', '.join(map(str, sources))}; rename one"
        )
    return found


def family_name(path: Path) -> str:
    path = path.resolve() if path.name in ("", "..") else path
    return path.stem if path.suffix.lower() == ".zip" else path.name


def _load(name: str, source: LabelledFiles, size: int, progress: Progress) -> ImageFamily:
    pictures, digest, split = source.pictures, source.digest(), source.split
    key = hashlib.sha256(f"{CACHE_FORMAT} {size} {digest}".encode()).hexdigest()[:32]
    place, shape = default_folder() / "images" / f"{key}.npy", (len(pictures), size, size, 3)
    images = _cached(place, shape)
    if images is None:
        for remark in source.remarks:
            LOG.warning(f"{name}: {remark}")
        write_pictures(place, pictures, size=size, progress=partial(progress, name))
        images = np.load(place, mmap_mode="r", allow_pickle=False)
    counts = np.asarray([*source.counts.values()])
    return ImageFamily(name, tuple(source.classes), images, counts, digest, split)


def write_pictures(
    path: Path,
    pictures: Sequence[Member],
    *,
    size: int,
    crop: Crop = False,
    convert: Callable[[np.ndarray], np.ndarray] = lambda pixels: pixels,
    progress: Callable[[int, int], None],
) -> None:
    """Write pictures, or the rows that `convert` makes of them, as a `.npy` file, atomically.
    **Raises** `ValueError` for a file that is not a picture, and if nothing can be written."""

    def write(file: BinaryIO) -> None:
        # Plain writes, not a memory map: on a full disk a map kills the process.
        done, left = 0, decoded(pictures, size=size, crop=crop)
        while some := list(islice(left, PICTURES_PER_WRITE)):
            rows = convert(np.stack(some))
            if not done:
                file.write(npy_header(rows.dtype.str, (len(pictures), *rows.shape[1:])))
            file.write(rows.tobytes())
            done += len(some)
            progress(done, len(pictures))

    write_whole(path, write)


def _cached(place: Path, shape: tuple[int, ...]) -> np.ndarray | None:
    try:
        images = np.load(place, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return images if images.dtype == np.uint8 and images.shape == shape else None


def npy_header(kind: str, shape: tuple[int, ...]) -> bytes:
    """The header of a `.npy` file of numbers of this kind, for example `|u1` or `<f4`."""
    header = io.BytesIO()
    about = {"descr": kind, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, about)
    return header.getvalue()
