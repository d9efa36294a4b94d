"""The files of a folder, a tar (also compressed, also of tars) or a zip, one after the other.

No file is extracted to the disk. An archive that could harm its reader raises an error. The
reasons are a name that leads outside, a link, a special file, and a member that is too large or
unpacks to many times its size.
"""

import gzip
import os
import re
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

from arml.datasets.archive import (
    MEMBER_LIMIT,
    RATIO_FROM,
    RATIO_LIMIT,
    is_junk,
    open_zip,
    read_file,
    read_zipped,
    refuse,
    safe_parts,
)

NESTED_LIMIT = 4 * 2**30
"""The most bytes of a tar within a tar, which is read member by member."""
BLOCK = 2**20

Enter = Callable[[str], bool]
"""Whether to read the files of the tar of that name, which is within a tar or a folder."""


class Member(NamedTuple):
    """One file. `read` works only until the next member is asked for."""

    name: str
    """Its path with `/`, in Unicode NFC."""
    read: Callable[[], bytes]


def everything(name: str) -> bool:
    """Enter every tar."""
    return True


@contextmanager
def open_members(path: Path, *, enter: Enter = everything) -> Iterator[Iterator[Member]]:
    """The files of `path` in a fixed order, without hidden ones.

    **Arguments**

    - `enter`: called with the name of each tar within the tar or folder. If it returns true, the
      files of that tar follow, named `<name without .tar>/<their names>`.

    **Raises** `ValueError` in one line for a file that is missing, unsafe, cut short or of another
    kind. Some damage is found only when the reading reaches it.
    """
    if path.is_dir():
        yield _of_folder(path, enter)
        return
    try:
        file = path.open("rb")
    except OSError as error:
        raise ValueError(
            f"{path}: expected a folder or an archive, got {error.strerror!r}; check the path"
        ) from error
    with file:
        head = file.read(512)
        file.seek(0)
        if head.startswith(b"PK"):
            with open_zip(path, file) as archive:
                yield _of_zip(path, archive)
        elif head.startswith(b"\x1f\x8b"):
            with gzip.GzipFile(fileobj=file) as unpacked:
                yield _of_tar(path, _Watched(unpacked, path, file), enter)
        else:
            _check_tar(path, head)
            yield _of_tar(path, _Watched(file, path), enter)


def _check_tar(path: Path, head: bytes) -> None:
    got = (
        "an empty file" if not head else
        "a web page" if head.lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml")) else
        "a file of another kind" if head[257:262] != b"ustar" else
        None
    )  # fmt: skip
    if got:
        raise ValueError(
            f"{path}: expected a folder, a zip or a tar (.tar, .tar.gz, .tgz), got {got}; "
            "fetch it again"
        )


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
                raise _refused(
                    self.path,
                    "its content",
                    f"it unpacks to more than {RATIO_LIMIT} times its size",
                )
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if self.packed is None or whence != os.SEEK_SET or offset <= self.tell():
            return int(self.file.seek(offset, whence))
        while (left := offset - self.tell()) > 0 and self.read(min(left, BLOCK)):
            pass
        return self.tell()

    def drain(self) -> None:
        """Read to the end, where a compressed file has its checksum."""
        while self.read(BLOCK):
            pass


def _refused(path: Path, name: str, problem: str) -> ValueError:
    return ValueError(
        f"{path}: expected plain files, but {name!a} is refused: {problem}; fetch the archive from "
        "where it is published"
    )


def _of_tar(path: Path, file: Any, enter: Enter, prefix: str = "") -> Iterator[Member]:
    """The files of a tar. `file` reads, seeks and tells."""
    try:
        with tarfile.open(fileobj=file, mode="r:") as archive:
            while (info := archive.next()) is not None:
                # Otherwise `archive` would keep every member, and there may be a million.
                archive.members.clear()  # type: ignore[attr-defined]
                name = _safe_name(path, info)
                if info.isdir() or _is_hidden(name):
                    continue
                if name.endswith(".tar") and not prefix:
                    if enter(name):
                        inner = archive.extractfile(info)
                        assert inner is not None
                        yield from _of_tar(path, _Watched(inner, path), enter, f"{name[:-4]}/")
                    continue
                yield Member(prefix + name, _reader(path, archive, info))
            end = archive.offset
        # A tar ends with blocks of zeros: one without them was cut short between two files.
        file.seek(end)
        last = file.read(512)
        if len(last) < 512 or last.strip(b"\0"):
            raise tarfile.ReadError("no end mark")
        if isinstance(file, _Watched) and file.packed is not None:
            file.drain()
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(
            f"{path}: expected a whole archive, got one that is cut short or damaged ({error}); "
            "fetch it again"
        ) from error


def _reader(path: Path, archive: tarfile.TarFile, info: tarfile.TarInfo) -> Callable[[], bytes]:
    def read() -> bytes:
        file = archive.extractfile(info)
        assert file is not None, info.name  # `_safe_name` has checked that it is a plain file
        try:
            data = file.read()
        except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(
                f"{path}: {info.name!a} cannot be unpacked ({error}); fetch the archive again"
            ) from error
        if len(data) != info.size:
            raise ValueError(
                f"{path}: expected {info.size} bytes of {info.name!a}, got {len(data)}: the "
                "archive is cut short; fetch it again"
            )
        return data

    return read


def _safe_name(path: Path, info: tarfile.TarInfo) -> str:
    name = info.name.replace("\\", "/")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    nested = name.endswith(".tar")
    limit = NESTED_LIMIT if nested else MEMBER_LIMIT
    problem = None
    if name.startswith("/") or re.match(r"[A-Za-z]:/", name) or ".." in parts:
        problem = "its name leads outside the archive"
    elif not (info.isreg() or info.isdir()):
        problem = "it is a link or a special file"
    elif info.size > limit:
        problem = f"it unpacks to {info.size} bytes, the limit is {limit}"
    elif any(unicodedata.category(letter) in ("Cc", "Cs") for letter in name):
        problem = "its name is not plain text"
    if problem:
        raise _refused(path, info.name, problem)
    return unicodedata.normalize("NFC", "/".join(parts))


def _of_zip(path: Path, archive: zipfile.ZipFile) -> Iterator[Member]:
    for info in archive.infolist():
        name = unicodedata.normalize("NFC", "/".join(safe_parts(path, info)))
        if not info.is_dir() and not _is_hidden(name):
            yield Member(name, partial(read_zipped, path, archive, info.filename))


def _of_folder(path: Path, enter: Enter) -> Iterator[Member]:
    for here, folders, files in os.walk(path, followlinks=True, onerror=refuse):
        where = Path(here).relative_to(path)
        # No layout is this deep, and a link to a parent folder would make an endless loop.
        folders[:] = [] if len(where.parts) > 8 else sorted(folders)
        for file in sorted(files):
            name = unicodedata.normalize("NFC", (where / file).as_posix())
            full = Path(here) / file
            if _is_hidden(name):
                continue
            if file.endswith(".tar"):
                if enter(name):
                    with full.open("rb") as opened:
                        yield from _of_tar(full, _Watched(opened, full), enter, f"{name[:-4]}/")
            else:
                yield Member(name, partial(read_file, str(full)))


def _is_hidden(name: str) -> bool:
    return any(is_junk(part) for part in name.split("/"))
