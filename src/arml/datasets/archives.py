"""The files of a folder, a zip or a tar (also compressed, also of tars), without extracting them.

An archive may come from a stranger: a name that leads outside and a file that is too large raise an
error, and links and special files of a tar are skipped. So are the files of file managers and
packers, and links to a folder that contains them. Names are in Unicode NFC.
"""

import contextlib
import lzma
import os
import re
import struct
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from arml.results.files import brief

SIZE_LIMIT = 256 * 2**20  # bytes of one file, unpacked: more than any photograph

JUNK_NAMES = {
    *("__macosx", "thumbs.db", "ehthumbs.db", "desktop.ini", "icon\r"),
    *("@eadir", "lost+found", "$recycle.bin", "system volume information"),
}
"""Files and folders of file managers, packers and disks, besides those that begin with a dot."""
_DAMAGE_ERRORS = (
    tarfile.TarError,
    zipfile.BadZipFile,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    OSError,
    NotImplementedError,
)
Box = tuple[int, int, int, int]
"""Left, top, right and bottom in pixels; right and bottom are exclusive."""


class Member(NamedTuple):
    """One file of a folder or an archive."""

    where: str
    """Its path on the disk, or the archive and its name there, for messages."""
    read: Callable[[], bytes]
    """Returns its content. For a tar, this works only until the next member is drawn."""
    name: str = ""
    """Its path within the folder or archive with `/`, in Unicode NFC."""
    box: Box | None = None
    """The part of a picture to keep; None for the whole."""


@contextmanager
def open_members(
    path: Path, *, enter: Callable[[str], bool] = lambda name: True
) -> Iterator[Iterator[Member]]:
    """The files of a folder, a zip or a tar, one after the other.

    `enter` is called with the name of each tar within a tar or a folder. If it returns true, the
    files of that tar follow, named `<name without .tar>/<their names>`. **Raises** `ValueError` in
    one line for a file that is missing, unsafe, cut short or of another kind, perhaps later."""
    try:
        if path.is_dir():
            yield _of_folder(path, enter)
        elif zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                yield _of_zip(path, archive)
        else:
            yield _of_tar(path, enter)
    except FileNotFoundError as error:
        raise ValueError(
            f"{path}: expected a folder or an archive, found nothing; check the path"
        ) from error
    except _DAMAGE_ERRORS as error:
        if isinstance(error, OSError) and error.errno is not None:  # not one of gzip or bz2
            raise
        raise ValueError(
            f"{path}: expected a folder, a zip or a tar, got a file that is cut short, damaged or "
            f"of another kind ({brief(error, 200)}); fetch or pack it again"
        ) from error


def is_junk(name: str) -> bool:
    """Whether any part of a path is the name of a file of a file manager, a packer or a disk."""
    return any(part.startswith(".") or part.lower() in JUNK_NAMES for part in name.split("/"))


def printable(name: str) -> str:
    """A name with U+FFFD for line breaks, control characters, and bytes that are not UTF-8."""
    odd = ("Cc", "Cs")
    return "".join("\ufffd" if unicodedata.category(c) in odd else c for c in name)


def _plain_name(name: str) -> str:
    return unicodedata.normalize("NFC", printable(name))


def _packed_name(path: Path, name: str, size: int) -> str:
    """The name with `/`. **Raises** `ValueError` if it leads outside, or the file is too large."""
    name = name.replace("\\", "/")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    outside = name.startswith("/") or re.match(r"[A-Za-z]:", name) or ".." in parts
    if outside or size > SIZE_LIMIT:
        problem = "its name leads outside" if outside else f"it has more than {SIZE_LIMIT} bytes"
        raise ValueError(f"{path}: {name!a} is refused: {problem}; pack the archive without it")
    return "/".join(parts)


def _whole(where: str, read: Callable[[], bytes]) -> bytes:
    try:
        return read()
    except Exception as error:  # zipfile, tarfile, zlib, lzma and bz2 have different errors
        raise ValueError(
            f"{where}: cannot be read ({brief(error, 200)}); check the file, or "
            "fetch or pack the archive again"
        ) from error


def _of_folder(path: Path, enter: Callable[[str], bool]) -> Iterator[Member]:
    for here, folders, files in os.walk(path, followlinks=True, onerror=_unreadable):
        parts = Path(here).relative_to(path).parts
        above = [path.joinpath(*parts[:depth]) for depth in range(len(parts) + 1)]
        kept = [f for f in folders if not (is_junk(f) or _leads_back(Path(here, f), above))]
        folders[:] = sorted(kept)
        for file in sorted(f for f in files if not is_junk(f)):
            # A backslash is a letter here, not a separator.
            name, full = _plain_name("/".join((*parts, file))), os.path.join(here, file)
            if not name.endswith(".tar"):
                where = printable(full)
                yield Member(where, partial(_whole, where, partial(_content, full)), name)
            elif enter(name):
                yield from _of_tar(Path(full), enter, f"{name[:-4]}/")


def _leads_back(folder: Path, above: Sequence[Path]) -> bool:
    """Whether a folder is a link to one that contains it: to follow it would have no end."""
    return folder.is_symlink() and any(
        place.resolve().is_relative_to(folder.resolve()) for place in above
    )


def _content(path: str) -> bytes:
    if not os.path.isfile(path):
        raise ValueError("a broken link or a special file")
    return Path(path).read_bytes()


def _unreadable(error: OSError) -> None:
    raise ValueError(
        f"{error.filename}: cannot be read ({error.strerror}); check its permissions"
    ) from error


def _of_zip(path: Path, archive: zipfile.ZipFile) -> Iterator[Member]:
    for info in archive.infolist():
        name = _packed_name(path, _zipped_name(path, info), info.file_size)
        if not info.is_dir() and not is_junk(name):
            name = _plain_name(name)
            where = f"{path}: {name}"
            yield Member(where, partial(_whole, where, partial(archive.read, info)), name)


def _zipped_name(path: Path, info: zipfile.ZipInfo) -> str:
    """The name of a member. Packers that do not declare UTF-8 use a code page of their country, in
    which a byte of a letter may be that of a backslash."""
    if info.flag_bits & 0x800 or info.orig_filename.isascii():
        return info.orig_filename
    raw, extra = info.orig_filename.encode("cp437"), info.extra
    while len(extra) >= 4:
        kind, length = struct.unpack("<HH", extra[:4])
        field, extra = extra[4 : 4 + length], extra[4 + length :]
        # The name in UTF-8 after a version and a checksum of the other name.
        if kind == 0x7075 and field[1:5] == struct.pack("<I", zlib.crc32(raw)):
            return field[5:].decode(errors="replace")
    # Packers of Unix write UTF-8. In Windows' code pages some words are UTF-8 of other words.
    with contextlib.suppress(UnicodeDecodeError):
        if info.create_system:
            return raw.decode()
    raise ValueError(
        f"{path}: the names in this zip are in the code page of another system (one is "
        f"{info.orig_filename!a}), and classes would get wrong names; unpack it there and give "
        "the folder, or pack it again with names in UTF-8"
    )


def _of_tar(
    path: Path, enter: Callable[[str], bool], prefix: str = "", file: Any = None
) -> Iterator[Member]:
    """The files of a tar, which is `file` if that is given."""
    with tarfile.open(path, fileobj=file) as archive:
        while (info := archive.next()) is not None:
            # Otherwise `archive` would keep every member, perhaps a million.
            archive.members.clear()  # type: ignore[attr-defined]
            nested = info.name.endswith(".tar") and not prefix
            name = _packed_name(path, info.name, 0 if nested else info.size)
            if not info.isreg() or is_junk(name):
                continue
            name = prefix + _plain_name(name)
            if nested:
                if enter(name):
                    inner = archive.extractfile(info)
                    yield from _of_tar(path, enter, f"{name[:-4]}/", inner)
                continue
            where = f"{path}: {name}"
            yield Member(where, partial(_whole, where, partial(_untarred, archive, info)), name)
        # A tar ends with blocks of zeros: one without them was cut short between two files.
        assert archive.fileobj is not None
        archive.fileobj.seek(archive.offset)
        if archive.fileobj.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            raise tarfile.ReadError("no end mark")
        while archive.fileobj.read(2**20):
            pass  # A compressed file has its checksum at the end.


def _untarred(archive: tarfile.TarFile, info: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(info)
    assert file is not None, info.name  # it is a plain file
    data = file.read()
    if len(data) != info.size:
        raise EOFError(f"expected {info.size} bytes, got {len(data)}")
    return data
