"""The files of a folder, a zip or a tar (also compressed, also of tars), without extracting them.

No file is written to the disk. An archive may come from a stranger, so its names, sizes and kinds
are checked before its content is read. A name that leads outside, a link, a special file, and a
member that is too large or unpacks to many times its size raise an error. Names are compared in
Unicode NFC; the files that file managers and packers leave behind are skipped.
"""

import contextlib
import gzip
import os
import re
import stat
import struct
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple

MEMBER_LIMIT = 256 * 2**20
"""Bytes of one member, unpacked: more than any photograph."""
NESTED_LIMIT = 4 * 2**30
"""The most bytes of a tar within a tar, which is read member by member."""
TOTAL_LIMIT = 256 * 2**30
"""Bytes of all members of one zip, unpacked."""
RATIO_LIMIT = 200
"""The largest ratio of unpacked to packed size, for members of more than `RATIO_FROM` bytes."""
RATIO_FROM = 8 * 2**20
BLOCK = 2**20
DEEPEST = 8
"""Folders within folders: a link to a parent folder would make an endless loop."""
JUNK = {
    "__macosx", "thumbs.db", "ehthumbs.db", "desktop.ini", "icon\r", "@eadir", "lost+found",
    "$recycle.bin", "system volume information",
}  # fmt: skip
"""Files and folders of file managers, packers and disks, beside those that begin with a point."""
DAMAGE = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile)


class Member(NamedTuple):
    """One file of a folder or an archive."""

    name: str
    """Its path with `/`, in Unicode NFC."""
    where: str
    """Its path on the disk, or the archive and its name there."""
    read: Callable[[], bytes]
    """Its content. For a tar, this works only until the next member is asked for."""


class Listing(NamedTuple):
    """The files of a folder or a zip, in order of name, which can be read in any order."""

    path: Path
    members: list[Member]
    empty: list[str]
    """Folders without any file."""


@contextmanager
def open_listing(path: Path) -> Iterator[Listing]:
    """List a folder or a zip file.

    **Raises** `ValueError` in one line for anything else, and for unsafe members.
    """
    if path.is_dir():
        yield _listed_folder(path)
        return
    with _opened(path) as file, _zip(path, file) as archive:
        yield _listed_zip(path, archive)


@contextmanager
def open_members(
    path: Path, *, enter: Callable[[str], bool] = lambda name: True
) -> Iterator[Iterator[Member]]:
    """The files of a folder, a zip or a tar, one after the other in a fixed order.

    **Arguments**

    - `enter`: called with the name of each tar within a tar or a folder. If it returns true, the
      files of that tar follow, named `<name without .tar>/<their names>`.

    **Raises** `ValueError` in one line for a file that is missing, unsafe, cut short or of another
    kind. Some damage is found only when the reading reaches it.
    """
    if path.is_dir():
        yield _of_folder(_listed_folder(path), enter)
        return
    with _opened(path) as file:
        head = file.read(512)
        file.seek(0)
        if head.startswith(b"PK"):
            with _zip(path, file) as archive:
                yield iter(_listed_zip(path, archive).members)
        elif head.startswith(b"\x1f\x8b"):
            with gzip.GzipFile(fileobj=file) as unpacked:
                yield _of_tar(path, _Watched(unpacked, path, file), enter)
        elif head[257:262] == b"ustar":
            yield _of_tar(path, _Watched(file, path), enter)
        else:
            raise _another_kind(path, head, "a folder, a zip or a tar (.tar, .tar.gz, .tgz)")


def is_junk(name: str) -> bool:
    """Whether any part of a path is the name of a file that was left behind by a program."""
    return any(part.startswith(".") or part.lower() in JUNK for part in name.split("/"))


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise ValueError(
            f"{path}: expected a folder or an archive, got: {error.strerror}; check the path"
        ) from error


def _another_kind(path: Path, head: bytes, wanted: str) -> ValueError:
    start = head.lstrip().lower()
    got = (
        "an empty file" if not head else
        "a web page" if start.startswith((b"<!doctype", b"<html", b"<?xml")) else
        "a zip that is cut short or damaged" if start.startswith(b"pk") else
        "a file of another kind"
    )  # fmt: skip
    return ValueError(f"{path}: expected {wanted}, got {got}; fetch or pack it again")


def _refused(path: Path, name: str, problem: str) -> ValueError:
    return ValueError(
        f"{path}: expected plain files, but {name!a} is refused: {problem}; fetch the archive "
        "again, or pack it without it"
    )


def _safe(path: Path, name: str, problem: str | None = None) -> str:
    """A member's name with `/`, in NFC. **Raises** `ValueError` for a name that leads outside or is
    not plain text, and if there is another `problem`."""
    there = name.replace("\\", "/")
    parts = [part for part in there.split("/") if part not in ("", ".")]
    if there.startswith("/") or re.match(r"[A-Za-z]:", there) or ".." in parts:
        problem = "its name leads outside"
    if problem:
        raise _refused(path, name, problem)
    return check_plain(path, "/".join(parts))


def check_plain(path: Path, name: str) -> str:
    """A name in NFC. **Raises** `ValueError` for one that is not plain text, unless it is junk: no
    table or message could have it."""
    if not is_junk(name) and any(unicodedata.category(c) in ("Cc", "Cs") for c in name):
        where = str(path).encode(errors="backslashreplace").decode()
        raise ValueError(f"{where}: the name {name!a} is not plain text; rename the file")
    return unicodedata.normalize("NFC", name)


def _distinct(path: Path, members: list[Member]) -> list[Member]:
    members.sort(key=lambda member: member.name)
    for one, other in pairwise(members):
        if one.name == other.name:
            raise ValueError(f"{path}: two files are called {one.name}; rename or remove one")
    return members


# --- folders


def _listed_folder(path: Path) -> Listing:
    members, empty = [], []
    for here, folders, files in os.walk(path, followlinks=True, onerror=_unreadable):
        parts = Path(here).relative_to(path).parts
        folders[:] = [] if len(parts) > DEEPEST else [f for f in folders if not is_junk(f)]
        kept = [file for file in files if not is_junk(file)]
        if not folders and not kept:
            empty.append("/".join(parts))
        for file in kept:
            # A backslash is a letter here, and no separator.
            full = os.path.join(here, file)
            members.append(
                Member(check_plain(path, "/".join((*parts, file))), full, partial(_read, full))
            )
    return Listing(path, _distinct(path, members), empty)


def _read(path: str) -> bytes:
    if not os.path.isfile(path):
        raise ValueError(f"{path}: expected a file, got a broken link or a special file; remove it")
    try:
        return Path(path).read_bytes()
    except OSError as error:
        _unreadable(error)
        raise


def _unreadable(error: OSError) -> None:
    raise ValueError(
        f"{error.filename}: expected to read it, got {error.strerror!r}; check its permissions"
    ) from error


def _of_folder(listing: Listing, enter: Callable[[str], bool]) -> Iterator[Member]:
    for member in listing.members:
        if not member.name.endswith(".tar"):
            yield member
        elif enter(member.name):
            full = Path(member.where)
            with full.open("rb") as file:
                yield from _of_tar(full, _Watched(file, full), enter, f"{member.name[:-4]}/")


# --- zip files


def _zip(path: Path, file: BinaryIO) -> zipfile.ZipFile:
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        file.seek(0)
        raise _another_kind(path, file.read(256), "a folder or a zip file") from error
    total = sum(info.file_size for info in archive.infolist())
    if total > TOTAL_LIMIT:
        raise ValueError(
            f"{path}: expected at most {TOTAL_LIMIT} bytes when unpacked, but it unpacks to "
            f"{total}; unpack it yourself, if you trust it, and give the folder"
        )
    return archive


def _listed_zip(path: Path, archive: zipfile.ZipFile) -> Listing:
    members, folders = [], []
    for info in archive.infolist():
        kind = stat.S_IFMT(info.external_attr >> 16)
        name = _safe(
            path,
            _zipped_name(path, info),
            "it is a link or a special file" if kind not in (0, stat.S_IFREG, stat.S_IFDIR) else
            "it is encrypted" if info.flag_bits & 1 else
            f"it unpacks to {info.file_size} bytes, the limit is {MEMBER_LIMIT}"
            if info.file_size > MEMBER_LIMIT else
            f"it unpacks to more than {RATIO_LIMIT} times its size"
            if info.file_size > max(RATIO_FROM, RATIO_LIMIT * info.compress_size) else
            None,
        )  # fmt: skip
        if is_junk(name):
            continue
        if info.is_dir():
            folders.append(name)
        else:
            read = partial(_unzipped, path, archive, info)
            members.append(Member(name, f"{path}: {name}", read))
    full = {parent for m in members for parent in map(str, Path(m.name).parents)}
    return Listing(path, _distinct(path, members), sorted(set(folders) - full))


def _zipped_name(path: Path, info: zipfile.ZipInfo) -> str:
    """The name of a member. Packers that do not say that it is UTF-8 use a code page of their
    country, in which a byte of a letter may be that of a backslash."""
    if info.flag_bits & 0x800 or info.orig_filename.isascii():
        return info.orig_filename
    raw, extra = info.orig_filename.encode("cp437"), info.extra
    while len(extra) >= 4:
        kind, length = struct.unpack("<HH", extra[:4])
        field, extra = extra[4 : 4 + length], extra[4 + length :]
        # The name in UTF-8 behind a version and a checksum of the other name.
        if kind == 0x7075 and field[1:5] == struct.pack("<I", zlib.crc32(raw)):
            return field[5:].decode(errors="replace")
    # Packers of Unix write UTF-8. In Windows' code pages some words are UTF-8 of other words.
    with contextlib.suppress(UnicodeDecodeError):
        if info.create_system:
            return raw.decode()
    raise ValueError(
        f"{path}: the names in this zip are in the code page of another system (one is "
        f"{info.orig_filename!a}), so that classes would get wrong names; unpack it there and give "
        "the folder, or pack it again with names in UTF-8"
    )


def _unzipped(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    try:
        return archive.read(info)
    except Exception as error:  # zipfile, zlib, lzma and bz2 each have errors of their own
        raise ValueError(
            f"{path}: {info.filename} cannot be unpacked ({error}); fetch or pack the zip again"
        ) from error


# --- tar files


class _Watched:
    """A file that counts the bytes that it unpacks, and raises an error if they are too many for
    its packed size."""

    def __init__(self, file: Any, path: Path, packed: IO[bytes] | None = None) -> None:
        self.file, self.path, self.packed = file, path, packed

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return int(self.file.tell())

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= MEMBER_LIMIT:
            # A tar's header may ask for any number of bytes.
            raise _refused(self.path, "a header", f"it asks for {size} bytes at once")
        data: bytes = self.file.read(size)
        if self.packed is not None:
            limit = max(RATIO_FROM, RATIO_LIMIT * self.packed.tell())
            if self.file.tell() > limit:
                problem = f"it unpacks to more than {RATIO_LIMIT} times its size"
                raise _refused(self.path, "its content", problem)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if self.packed is None or whence != os.SEEK_SET or offset <= self.tell():
            return int(self.file.seek(offset, whence))
        while (left := offset - self.tell()) > 0 and self.read(min(left, BLOCK)):
            pass
        return self.tell()


def _of_tar(
    path: Path, file: _Watched, enter: Callable[[str], bool], prefix: str = ""
) -> Iterator[Member]:
    try:
        with tarfile.open(fileobj=file, mode="r:") as archive:  # type: ignore[call-overload]
            while (info := archive.next()) is not None:
                # Otherwise `archive` would keep every member, and there may be a million.
                archive.members.clear()
                limit = NESTED_LIMIT if info.name.endswith(".tar") else MEMBER_LIMIT
                name = _safe(
                    path,
                    info.name,
                    "it is a link or a special file" if not (info.isreg() or info.isdir()) else
                    f"it unpacks to {info.size} bytes, the limit is {limit}"
                    if info.size > limit else
                    None,
                )  # fmt: skip
                if info.isdir() or is_junk(name):
                    continue
                if not name.endswith(".tar") or prefix:
                    full = prefix + name
                    yield Member(full, f"{path}: {full}", partial(_untarred, path, archive, info))
                elif enter(name):
                    inner = archive.extractfile(info)
                    yield from _of_tar(path, _Watched(inner, path), enter, f"{name[:-4]}/")
            end = archive.offset
        # A tar ends with blocks of zeros: one without them was cut short between two files.
        file.seek(end)
        last = file.read(512)
        if len(last) < 512 or last.strip(b"\0"):
            raise tarfile.ReadError("no end mark")
        while file.packed is not None and file.read(BLOCK):
            pass  # A compressed file has its checksum at the end.
    except DAMAGE as error:
        raise ValueError(
            f"{path}: expected a whole archive, got one that is cut short or damaged ({error}); "
            "fetch it again"
        ) from error


def _untarred(path: Path, archive: tarfile.TarFile, info: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(info)
    assert file is not None, info.name  # `_of_tar` has checked that it is a plain file
    try:
        data = file.read()
    except DAMAGE as error:
        raise ValueError(
            f"{path}: {info.name!a} cannot be unpacked ({error}); fetch the archive again"
        ) from error
    if len(data) != info.size:
        raise ValueError(
            f"{path}: expected {info.size} bytes of {info.name!a}, got {len(data)}: the archive "
            "is cut short; fetch it again"
        )
    return data
