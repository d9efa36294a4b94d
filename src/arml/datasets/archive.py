"""A folder or a zip file with one folder for each class: list its members, and read them.

Zip files are read in memory and never extracted. Their names, sizes and kinds are checked before
anything is read, because a zip may come from a stranger.
"""

import hashlib
import os
import re
import stat
import unicodedata
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple

from arml.datasets.decode import SUFFIXES

Parts = tuple[str, ...]

MEMBER_LIMIT = 256 * 2**20
"""Bytes of one zip member, unpacked: more than any photograph."""
TOTAL_LIMIT = 256 * 2**30
"""Bytes of all members of one zip, unpacked."""
RATIO_LIMIT = 200
"""The largest ratio of unpacked to packed size, for members of more than `RATIO_FROM` bytes."""
RATIO_FROM = 8 * 2**20

JUNK = {"__macosx", "thumbs.db", "ehthumbs.db", "desktop.ini"}
LAYOUT = "expected one folder for each class with the images directly inside it"


class Source(NamedTuple):
    """`read` takes a member, `classes[name][image]`; `digest` is a SHA-256 of the content."""

    path: Path
    classes: dict[str, dict[str, str]]
    read: Callable[[str], bytes]
    digest: str

    def where(self, member: str) -> str:
        """The name of a member in messages: a file in a folder is a path already."""
        return member if self.path.is_dir() else f"{self.path}: {member}"


@contextmanager
def open_source(path: Path) -> Iterator[Source]:
    """Open a folder or a zip file. Classes and images are in order of name (Unicode NFC)."""
    check_exists(path)
    if path.is_dir():
        yield _listed_folder(path)
    else:
        try:
            file = path.open("rb")
        except OSError as error:
            raise _unreadable(error) from error
        with file, open_zip(path, file) as archive:
            yield _listed_zip(path, file, archive)


def check_exists(path: Path) -> None:
    """Raise `ValueError` unless `path` is a folder or a file."""
    if not (path.is_dir() or path.is_file()):
        raise ValueError(
            f"{path}: expected a folder or a zip file with one folder for each class, found "
            "nothing; check the path"
        )


def _listed_folder(path: Path) -> Source:
    files: dict[Parts, str] = {}
    folders: list[Parts] = []
    for here, names, contents in os.walk(path, followlinks=True, onerror=refuse):
        parts = Path(here).relative_to(path).parts
        # No valid layout is this deep, and a link to a parent folder would make an endless loop.
        names[:] = [] if len(parts) > 8 else [n for n in names if not is_junk(n)]
        folders.append(parts)
        files.update({(*parts, name): os.path.join(here, name) for name in contents})
    classes = arrange(files, folders, path)
    digest = hashlib.sha256()
    for name, images in classes.items():
        for image, member in images.items():
            digest.update(f"{name}\0{image}\0".encode())
            digest.update(hashlib.sha256(read_file(member)).digest())
    return Source(path, classes, read_file, digest.hexdigest())


def read_file(path: str) -> bytes:
    """The content of a file in a folder.

    **Raises** `ValueError` in one line if it is a special file or cannot be read.
    """
    if not os.path.isfile(path):
        raise ValueError(f"{path}: expected a file, got a broken link or a special file; remove it")
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise _unreadable(error) from error


def _unreadable(error: OSError) -> ValueError:
    return ValueError(
        f"{error.filename}: expected to read it, got {error.strerror!r}; check its permissions"
    )


def refuse(error: OSError) -> None:
    """Raise `ValueError` for a folder that cannot be read."""
    raise _unreadable(error) from error


def open_zip(path: Path, file: BufferedReader) -> zipfile.ZipFile:
    """Open a zip file.

    **Raises** `ValueError` in one line for another file, and for a zip that unpacks to too much.
    """
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        file.seek(0)
        head = file.read(256).lstrip().lower()
        got = (
            "a web page" if head.startswith((b"<!doctype", b"<html")) else
            "a zip that is cut short or damaged" if head.startswith(b"pk") else
            "an empty file" if not head else
            "a file of another kind"
        )  # fmt: skip
        raise ValueError(
            f"{path}: expected a folder or a zip file, got {got}; fetch or pack it again"
        ) from error
    total = sum(info.file_size for info in archive.infolist())
    if total > TOTAL_LIMIT:
        raise ValueError(
            f"{path}: expected at most {TOTAL_LIMIT} bytes when unpacked, but it unpacks to "
            f"{total}; unpack it yourself, if you trust it, and give the folder"
        )
    return archive


def _listed_zip(path: Path, file: BufferedReader, archive: zipfile.ZipFile) -> Source:
    files: dict[Parts, str] = {}
    folders: list[Parts] = []
    for info in archive.infolist():
        parts = safe_parts(path, info)
        if info.is_dir():
            folders.append(parts)
        elif parts in files:
            raise ValueError(f"{path}: it has {info.filename} twice; pack the zip again")
        else:
            files[parts] = info.filename
    classes = arrange(files, folders, path)
    file.seek(0)
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Source(path, classes, partial(read_zipped, path, archive), digest)


def read_zipped(path: Path, archive: zipfile.ZipFile, member: str) -> bytes:
    """The content of a member of the zip file `path`.

    **Raises** `ValueError` in one line if it is damaged.
    """
    try:
        return archive.read(member)
    except Exception as error:  # zipfile, zlib, lzma and bz2 each have errors of their own
        raise ValueError(
            f"{path}: {member} cannot be unpacked ({error}); fetch the zip or pack it again"
        ) from error


def safe_parts(path: Path, info: zipfile.ZipInfo) -> Parts:
    """The parts of a member's name.

    **Raises** `ValueError` in one line for a member that could harm its reader.
    """
    name = info.filename.replace("\\", "/")
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    kind = stat.S_IFMT(info.external_attr >> 16)
    problem = None
    if name.startswith("/") or re.match(r"[A-Za-z]:", name) or ".." in parts:
        problem = "its name leads outside the zip"
    elif kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        problem = "it is a link or a special file"
    elif info.flag_bits & 1:
        problem = "it is encrypted"
    elif info.file_size > MEMBER_LIMIT:
        problem = f"it unpacks to {info.file_size} bytes, the limit is {MEMBER_LIMIT}"
    elif info.file_size > max(RATIO_FROM, RATIO_LIMIT * info.compress_size):
        problem = f"it unpacks to more than {RATIO_LIMIT} times its size"
    if problem:
        raise ValueError(
            f"{path}: expected plain image files, but {info.filename!r} is refused: {problem}; "
            "pack the zip again without it"
        )
    return parts


def is_junk(name: str) -> bool:
    """Whether it is the name of a file that file managers and packers leave behind."""
    return name.startswith(".") or name.lower() in JUNK


def arrange(
    files: Mapping[Parts, str], folders: Iterable[Parts], where: Path
) -> dict[str, dict[str, str]]:
    """Sort members into classes, below the top folders that all of them share.

    Other files beside the class folders (a licence, a table) are ignored.

    **Raises** `ValueError` in one line for an image outside a class folder, for class folders
    inside each other, and for a class without images.
    """
    left = {parts: m for parts, m in files.items() if not any(map(is_junk, parts))}
    depth = 0
    while True:
        loose = [p for p in left if len(p) == depth + 1]
        images = [p for p in loose if Path(p[-1]).suffix.lower() in SUFFIXES]
        left = {p: m for p, m in left.items() if len(p) > depth + 1}
        if images:
            raise ValueError(
                f"{where}: {LAYOUT}, got the image {'/'.join(min(images))} outside them; "
                "move it into one"
            )
        heads = {p[: depth + 1] for p in left}
        if len(heads) != 1 or max(map(len, left)) <= depth + 2:
            break
        depth += 1
    if not left:
        raise ValueError(f"{where}: {LAYOUT}, got no images at all; check the path")
    if deeper := [p for p in left if len(p) > depth + 2]:
        raise ValueError(
            f"{where}: {LAYOUT}, got {'/'.join(min(deeper))} one level deeper; "
            "move the class folders side by side"
        )
    top = next(iter(left))[:depth]
    classes: dict[str, dict[str, str]] = {}
    for parts, member in left.items():
        name, image = (unicodedata.normalize("NFC", part) for part in parts[-2:])
        if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in name + image):
            raise ValueError(
                f"{where}: the name {name + '/' + image!a} is not plain text; rename it"
            )
        if classes.setdefault(name, {}).setdefault(image, member) != member:
            raise ValueError(f"{where}: two files are called {name}/{image}; rename one")
    for folder in folders:
        if len(folder) == depth + 1 and folder[:depth] == top and not is_junk(folder[-1]):
            name = unicodedata.normalize("NFC", folder[-1])
            if name not in classes:
                raise ValueError(
                    f"{where}: {LAYOUT}, got the folder {name} without images; fill or remove it"
                )
    return {name: dict(sorted(classes[name].items())) for name in sorted(classes)}
