"""A person's own pictures: folders and zips with labelled pictures, and pictures to predict.

One rule holds for support, query and training folders. A file is a picture if its name ends like
one; the files of file managers are skipped, and all others (notes, annotations) are left out. The
label of a picture is the name of its folder, or stands in a table `labels.csv`. For training, a
source becomes one family of tasks; its decoded pictures are kept in `$ARML_CACHE/images` under a
key that is made of their content.
"""

import csv
import hashlib
import io
import os
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, takewhile
from pathlib import Path
from typing import BinaryIO

import numpy as np
from jaxtyping import Float32, Int, UInt8

from arml.datasets.archives import Listing, Member, check_plain, open_listing
from arml.datasets.decode import SUFFIXES, Encoded
from arml.datasets.decode import decoded as each_decoded
from arml.results.files import RunError, atomically

FORMAT = 2
"""Raise it whenever the same files would give other pixels than before."""
CHUNK = 256
SIZES = range(4, 1025)
LABELS = "labels.csv"
PARTS = ("train", "validation", "test")
PART_FOLDERS = {
    **dict.fromkeys(("train", "training", "meta-train"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "meta-val", "meta-valid"), "validation"),
    **dict.fromkeys(("test", "testing", "meta-test"), "test"),
}
"""Folders that state the split of their classes."""
LAYOUT = "expected one folder for each class with the images directly inside it"

Progress = Callable[[str, int, int], None]
"""Called with the name of the work, such as a family, how much is done, and how much there is."""
Parts = dict[str, list[str]]
"""The classes of each of `PARTS`."""


@dataclass(frozen=True)
class Source:
    """Labelled pictures: the members of each class, both in order of name."""

    path: Path
    classes: dict[str, list[Member]]
    split: Parts | None
    """The split that its folders state."""
    left_out: list[str]
    """Its files that are no pictures."""

    @property
    def pictures(self) -> list[Member]:
        """All pictures, in order of class."""
        return [member for members in self.classes.values() for member in members]

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
    """All images of one source, in order of class and then of file name.

    `images` is a read-only memory map of pixels, or of vectors that stand for images. Class `i` has
    `counts[i]` of them, from `first[i]` on. `digest` is a SHA-256 of the source's content, the same
    at every size. `split` is the published or stated split of its classes, if it has one.
    """

    name: str
    classes: tuple[str, ...]
    images: UInt8[np.ndarray, "n size size 3"] | Float32[np.ndarray, "n features"]
    counts: Int[np.ndarray, " classes"]
    digest: str
    split: Parts | None = None

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
def open_source(path: Path) -> Iterator[Source]:
    """Open a folder or a zip file of labelled pictures.

    The pictures are in one folder for each class, perhaps below common top folders. These folders
    may be in folders `train`, `valid` and `test`, which state a split. Or a table `labels.csv` has
    the name of a picture and its label in its first two columns, under a header.

    **Raises** `ValueError` in one line for a source that is missing, unsafe or laid out in another
    way.
    """
    if not (path.is_dir() or path.is_file()):
        raise ValueError(
            f"{path}: expected a folder or a zip file with one folder for each class, found "
            "nothing; check the path"
        )
    with open_listing(path) as listing:
        pictures = [member for member in listing.members if is_picture(member.name)]
        others = [member for member in listing.members if not is_picture(member.name)]
        if not pictures:
            raise ValueError(f"{path}: {LAYOUT}, got no images at all; check the path")
        tables = [member for member in others if member.name.split("/")[-1].lower() == LABELS]
        if tables:
            table = min(tables, key=lambda member: member.name.count("/"))
            classes, split = _by_table(table, pictures), None
        else:
            classes, split = _by_folder(listing, pictures)
        left_out = [member.where for member in others if member not in tables]
        yield Source(path, classes, split, left_out)


def is_picture(name: str) -> bool:
    """Whether a file's name ends like that of a picture."""
    return Path(name).suffix.lower() in SUFFIXES


def _by_folder(
    listing: Listing, pictures: Sequence[Member]
) -> tuple[dict[str, list[Member]], Parts | None]:
    paths = [member.name.split("/") for member in pictures]
    levels = zip(*(path[:-1] for path in paths), strict=False)
    top = [names[0] for names in takewhile(lambda names: len(set(names)) == 1, levels)]
    depth = max(min(len(top), max(map(len, paths)) - 2), 0)
    loose = [path for path in paths if len(path) <= depth + 1]
    if loose:
        raise ValueError(
            f"{listing.path}: {LAYOUT}, got the image {'/'.join(loose[0])} outside them; move it "
            f"into one, or name the labels in a table {LABELS}"
        )
    heads = {path[depth] for path in paths}
    parted = all(len(path) == depth + 3 for path in paths) and {
        PART_FOLDERS.get(head.lower()) for head in heads
    } == set(PARTS)
    deeper = [path for path in paths if len(path) > depth + 2]
    if deeper and not parted:
        raise ValueError(
            f"{listing.path}: {LAYOUT}, got {'/'.join(deeper[0])} one level deeper; move the class "
            "folders side by side"
        )
    for folder in (name.split("/") for name in listing.empty):
        if len(folder) == depth + 1 and folder[:depth] == top[:depth]:
            raise ValueError(
                f"{listing.path}: {LAYOUT}, got the folder {folder[-1]} without images; fill or "
                "remove it"
            )
    classes: defaultdict[str, list[Member]] = defaultdict(list)
    split: dict[str, set[str]] = {part: set() for part in PARTS}
    for path, member in zip(paths, pictures, strict=True):
        classes[path[-2]].append(member)
        if parted:
            split[PART_FOLDERS[path[depth].lower()]].add(path[-2])
    parts = {part: sorted(names) for part, names in split.items()}
    for name in classes:
        if parted and sum(name in names for names in split.values()) > 1:
            raise ValueError(
                f"{listing.path}: expected other classes in each of the folders "
                f"{', '.join(sorted(heads))}, got {name!r} in two of them: few-shot learning is "
                "tested on classes that had no part in the training"
            )
    return {name: classes[name] for name in sorted(classes)}, parts if parted else None


def _by_table(table: Member, pictures: Sequence[Member]) -> dict[str, list[Member]]:
    """The pictures of each label of `labels.csv`; a picture is named by its path from the table on,
    by its file name, or by its file name without its ending."""
    folder = table.name.rpartition("/")[0]
    named: defaultdict[str, list[Member]] = defaultdict(list)
    for member in pictures:
        file = Path(member.name)
        for name in {member.name.removeprefix(f"{folder}/"), file.name, file.stem}:
            named[name].append(member)
    try:
        text = table.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{table.where}: expected a table in UTF-8, got: {error}") from error
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    classes: defaultdict[str, list[Member]] = defaultdict(list)
    for row in islice(rows, 1, None):
        if not any(map(str.strip, row)):
            continue
        cells = [unicodedata.normalize("NFC", cell.strip()) for cell in row[:2]]
        name, label = (*cells, "", "")[:2]
        found = named[name.replace("\\", "/")]
        if not label or len(found) != 1:
            raise ValueError(
                f"{table.where}: expected the name of a picture and its label in line "
                f"{rows.line_num}, got {','.join(row)[:60]!r}, of which there are {len(found)} "
                "pictures: correct the line"
            )
        classes[label] += found
    return {name: sorted(classes[name]) for name in sorted(classes)}


# --- a few examples, and pictures to predict


def labelled_images(
    source: Path, *, size: int, crop: bool = False
) -> tuple[UInt8[np.ndarray, "n size size 3"], list[str]]:
    """The pictures of a folder or zip, and the label of each.

    **Raises** `ValueError` in one line as `open_source` does, for a file that is not a picture, and
    if all pictures are identical.
    """
    with open_source(source) as opened:
        images = np.stack(list(each_decoded(map(encoded, opened.pictures), size=size, crop=crop)))
    if len(images) > 1 and not np.any(images != images[0]):
        raise ValueError(
            f"{source}: all {len(images)} pictures are identical: they cannot tell the classes "
            "apart"
        )
    return images, [name for name, members in opened.classes.items() for _ in members]


def encoded(member: Member) -> Encoded:
    """A member as a picture that can be decoded."""
    return Encoded(member.where, member.read)


def labelled_files(source: Path) -> list[str]:
    """The names of the pictures that `labelled_images` reads, in the same order."""
    with open_source(source) as opened:
        return [member.where for member in opened.pictures]


def image_files(paths: Sequence[Path]) -> list[Path]:
    """The files among `paths`, and every picture below the folders among them, in order of name.

    **Raises** `ValueError` for a path that does not exist, and if there is no picture.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += [file for file in _files(path) if is_picture(file.name)]
        elif path.is_file():
            check_plain(path, path.name)
            found.append(path)
        else:
            raise ValueError(
                f"{path}: expected an image or a folder of images, found nothing; check the path"
            )
    if not found:
        raise ValueError(
            f"expected images ({', '.join(sorted(SUFFIXES))}) in "
            f"{', '.join(map(str, paths)) or 'the queries'}, found none: check the path"
        )
    return found


def other_files(paths: Sequence[Path]) -> list[Path]:
    """The files below the folders among `paths` that are left out, because their names do not end
    like those of pictures."""
    every = (file for path in paths if path.is_dir() for file in _files(path))
    return [file for file in every if not is_picture(file.name) and file.name.lower() != LABELS]


def _files(folder: Path) -> list[Path]:
    """The files below a folder, without those that file managers leave behind."""
    with open_listing(folder) as listing:
        return [Path(member.where) for member in listing.members]


def decoded(
    files: Sequence[Path], *, size: int, crop: bool = False, chunk: int = CHUNK
) -> Iterator[np.ndarray]:
    """The pictures as bytes `[at most chunk, size, size, 3]`, a chunk at a time.

    **Raises** `ValueError` for a file that is not a picture.
    """
    yield from batches(
        each_decoded((Encoded(str(f), f.read_bytes) for f in files), size=size, crop=crop), chunk
    )


def batches(pictures: Iterable[np.ndarray], number: int) -> Iterator[np.ndarray]:
    """Arrays of at most so many pictures."""
    left = iter(pictures)
    while some := list(islice(left, number)):
        yield np.stack(some)


# --- training


def load_families(
    sources: Sequence[str | Path],
    *,
    size: int,
    least: int = 1,
    cache: Path | None = None,
    check: Callable[[str, int, Parts | None], None] = lambda name, classes, split: None,
    progress: Progress | None = None,
) -> list[ImageFamily]:
    """Load folders or zip files of labelled pictures, one family each, named after the source.

    **Arguments**

    - `sources`: as `open_source` reads them.
    - `size`: images become `size x size` pixels (stretched when they are not square).
    - `least`: the fewest images that a class may have.
    - `cache`: where decoded images are kept; `$ARML_CACHE` or `~/.cache/arml` by default.
    - `check`: called with the name, the number of classes and the stated split of each source; it
      may raise an error.
    - `progress`: called with `(family, done, total)` while images are decoded.

    **Raises** `ValueError` in one line for a source that is missing, empty, unsafe or damaged, or
    that has fewer than three classes, a class of fewer than `least` images or a file that is not an
    image; and for two sources of one name. All sources are listed and checked before any image is
    decoded.
    """
    if isinstance(sources, str | Path) or not sources:
        raise ValueError(
            f"expected a list of one or more folders or zip files, got {sources!r}; name them"
        )
    if size not in SIZES:
        raise ValueError(
            f"expected a size of {SIZES[0]} to {SIZES[-1]} pixels a side, got {size}; change it"
        )
    paths = [Path(source).expanduser().absolute() for source in sources]
    names = [family_name(path) for path in paths]
    for name in names:
        if names.count(name) > 1:
            same = ", ".join(str(p) for p, n in zip(paths, names, strict=True) if n == name)
            raise ValueError(
                f"expected a different name for each family, got {name!r} from {same}; rename one"
            )
    folder = (cache or default_folder()).expanduser() / "images"
    for name, path in zip(names, paths, strict=True):
        with open_source(path) as source:
            _check_counts(source, least)
            check(name, len(source.classes), source.split)
    return [
        _load(name, path, size, folder, progress) for name, path in zip(names, paths, strict=True)
    ]


def family_name(path: Path) -> str:
    """The name of a source's family."""
    path = path.resolve() if path.name in ("", "..") else path
    return path.stem if path.suffix.lower() == ".zip" else path.name


def _check_counts(source: Source, least: int) -> None:
    if len(source.classes) < 3:
        raise ValueError(
            f"{source.path}: expected at least 3 class folders (one each for training, validation "
            f"and test), got {len(source.classes)} ({', '.join(source.classes)}); add classes"
        )
    for name, images in source.classes.items():
        if len(images) < least:
            raise TooFewError(
                f"{source.path}: expected at least {least} images of each class (shots and "
                f"queries), got {len(images)} in {name!r}; lower the shots or queries, or add "
                "images"
            )


def _load(name: str, path: Path, size: int, folder: Path, progress: Progress | None) -> ImageFamily:
    with open_source(path) as source:
        pictures, digest = source.pictures, source.digest()
        key = hashlib.sha256(f"{FORMAT} {size} {digest}".encode()).hexdigest()[:32]
        place, shape = folder / f"{key}.npy", (len(pictures), size, size, 3)
        images = _kept(place, shape)
        if images is None:

            def write(file: BinaryIO) -> None:
                # Plain writes, not a memory map: on a full disk a map kills the process.
                file.write(npy_header("|u1", shape))
                done = 0
                for some in batches(each_decoded(map(encoded, pictures), size=size), CHUNK):
                    file.write(some.tobytes())
                    done += len(some)
                    if progress is not None:
                        progress(name, done, len(pictures))

            try:
                folder.mkdir(parents=True, exist_ok=True)
                atomically(place, write)
            except (OSError, RunError) as error:
                raise ValueError(
                    f"{folder}: the cache of decoded images cannot be written ({error}); free some "
                    "space, or set ARML_CACHE to another folder"
                ) from error
            images = _kept(place, shape)
            assert images is not None  # it was written just now
    counts = np.asarray([len(members) for members in source.classes.values()])
    return ImageFamily(name, tuple(source.classes), images, counts, digest, source.split)


def _kept(place: Path, shape: tuple[int, ...]) -> np.ndarray | None:
    try:
        images = np.load(place, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return images if images.dtype == np.uint8 and images.shape == shape else None


def npy_header(kind: str, shape: tuple[int, ...]) -> bytes:
    """The header of a `.npy` file of numbers of this kind, such as `|u1` or `<f4`."""
    header = io.BytesIO()
    about = {"descr": kind, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, about)
    return header.getvalue()
