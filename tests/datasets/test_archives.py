"""Hostile, broken and odd folders, zips and tars: refused or handled, in one line."""

import gzip
import io
import os
import tarfile
import zipfile
import zlib
from pathlib import Path

import pytest

from archives import add, pack, tar, unpack
from arml.datasets import archives
from arml.datasets.archives import open_members

FILES = {f"c{c}/{i}.png": os.urandom(200) for c in range(4) for i in range(5)}


def content(path: Path) -> dict[str, bytes]:
    with open_members(path) as found:
        return {member.name: member.read() for member in found}


def refused(path: Path, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        content(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("make", [pack, tar, unpack])
def test_files_are_the_same_however_they_are_packed(tmp_path, make):
    junk = ("__MACOSX/c0/._0.png", "c0/.DS_Store", "c1/Thumbs.db", "@eaDir/0.png", "c1/Icon\r",
            "$RECYCLE.BIN/0.png", "lost+found/0.png")  # fmt: skip
    composed, decomposed = "caf\u00e9/日本 1.jpg", "cafe\u0301/日本 1.jpg"
    path = make(tmp_path / "x", {**FILES, decomposed: b"1", **dict.fromkeys(junk, b"")})
    assert content(path) == {**FILES, composed: b"1"}


@pytest.mark.parametrize("make", [pack, tar])
@pytest.mark.parametrize(
    "name", ["../evil.jpg", "c0/../../evil.jpg", "/etc/evil.jpg", "C:/evil.jpg", "..\\evil.jpg"]
)
def test_names_that_lead_outside(tmp_path, make, name):
    refused(make(tmp_path / "x", {**FILES, name: b""}), "leads outside")


@pytest.mark.parametrize("name", ["c0/a\nb.jpg", "c0/a\udcffb.jpg"])
@pytest.mark.parametrize("make", [tar, unpack])
def test_letters_that_are_no_text_are_replaced(tmp_path, make, name):
    path = make(tmp_path / "x", {**FILES, name: b"1"})
    assert content(path) == {**FILES, "c0/a\ufffdb.jpg": b"1"}


def test_backslashes_in_a_zip_are_separators(tmp_path):
    path = pack(tmp_path / "x.zip", {name.replace("/", "\\"): b"1" for name in FILES})
    assert content(path).keys() == FILES.keys()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_special_files_of_a_tar_are_left_out(tmp_path, kind):
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as archive:
        add(archive, "a.png", b"1")
        info = tarfile.TarInfo("link.png")
        info.type, info.linkname = kind, "/etc/passwd"
        archive.addfile(info)
    assert content(path) == {"a.png": b"1"}


def test_links_in_a_folder_of_the_user_are_followed(tmp_path):
    real, folder = unpack(tmp_path / "real", {"0.png": b"0"}), unpack(tmp_path / "x", FILES)
    (folder / "c9").symlink_to(real)
    assert content(folder) == {**FILES, "c9/0.png": b"0"}
    (folder / "c1" / "loop").symlink_to(folder)
    assert len(content(folder)) < 300
    (folder / "c0" / "gone.png").symlink_to(tmp_path / "nowhere")
    refused(folder, "a broken link or a special file")


def test_files_that_are_huge(tmp_path, monkeypatch):
    path = tmp_path / "lie.tar"
    with tarfile.open(path, "w") as archive:
        info = tarfile.TarInfo("huge.jpg")
        info.size = 2**40
        archive.addfile(info)
        archive.offset = archive.fileobj.tell()
    refused(path, "more than 268435456 bytes")
    monkeypatch.setattr(archives, "SIZE_LIMIT", 2**20)
    refused(pack(tmp_path / "bomb.zip", {"a.png": bytes(9 * 2**20)}), "more than 1048576 bytes")


@pytest.mark.parametrize("share", [0.02, 0.5, 0.999])
@pytest.mark.parametrize("kind", ["tar.gz", "tar", "zip"])
def test_archives_that_are_cut_short(tmp_path, kind, share):
    path = tmp_path / f"x.{kind}"
    data = (pack(path, FILES) if kind == "zip" else tar(path, FILES, f"w:{kind[4:]}")).read_bytes()
    data = data.rstrip(b"\0") if kind == "tar" else data
    path.write_bytes(data[: int(len(data) * share)])
    refused(path, "cut short|cannot be read")


def test_a_tar_that_is_cut_between_two_files(tmp_path):
    path = tar(tmp_path / "x.tar", FILES, "w")
    with tarfile.open(path) as archive:
        place = archive.getmembers()[10].offset
    path.write_bytes(path.read_bytes()[:place])
    refused(path, "no end mark")


ODD = gzip.compress(b"no tar at all" * 100, mtime=0)  # no clock: both workers name the test alike


@pytest.mark.parametrize("data", [b"", b"<!DOCTYPE html>", b"PK\x03\x04" + bytes(600), ODD])
def test_what_is_no_archive(tmp_path, data):
    (tmp_path / "x").write_bytes(data)
    refused(tmp_path / "x", "cut short, damaged or of another kind")
    refused(tmp_path / "none", "found nothing")


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz"])
def test_bytes_of_a_compressed_tar_that_were_altered(tmp_path, kind):
    path = tar(tmp_path / "x.tar", FILES, f"w:{kind}")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 255
    path.write_bytes(data)
    refused(path, "cut short, damaged or|cannot be read")


def test_a_zip_with_an_altered_file_or_an_encrypted_one(tmp_path):
    path = pack(tmp_path / "x.zip", FILES)
    whole = path.read_bytes()
    for at, bits, said in (
        (whole.index(b"c1/2.png") + 60, 255, r"c1/2\.png: cannot be read"),
        (whole.index(b"PK\x01\x02") + 8, 1, "encrypted"),
    ):
        data = bytearray(whole)
        data[at] ^= bits
        path.write_bytes(data)
        refused(path, said)


class OldName(zipfile.ZipInfo):
    """A name in a code page, without the flag of UTF-8."""

    raw: bytes

    def _encodeFilenameFlags(self) -> tuple[bytes, int]:
        return self.raw, 0


def old_zip(path: Path, names: dict[bytes, bytes], system: int = 0) -> Path:
    """A zip of such names, each with an extra field, made on Windows (0) or Unix (3)."""
    with zipfile.ZipFile(path, "w") as file:
        for number, (raw, extra) in enumerate(names.items()):
            info = OldName(f"x{number}")
            info.raw, info.extra, info.create_system = raw, extra, system
            file.writestr(info, b"1")
    return path


def unicode_field(raw: bytes, name: str) -> bytes:
    """The extra field of a zip that has a name in UTF-8, too."""
    content = b"\1" + zlib.crc32(raw).to_bytes(4, "little") + name.encode()
    return b"\x75\x70" + len(content).to_bytes(2, "little") + content


@pytest.mark.parametrize(
    ("page", "word"), [("cp932", "ソ猫"), ("cp936", "猫"), ("cp1250", "kočka"), ("cp1251", "кот")]
)
def test_zips_with_names_in_a_code_page(tmp_path, page, word):
    names = [f"{word}/a.png", "dog/b.png", "cow/c.png"]
    raw = {name.encode(page): unicode_field(name.encode(page), name) for name in names}
    assert content(old_zip(tmp_path / "with.zip", raw)).keys() == set(names)
    path = old_zip(tmp_path / "without.zip", dict.fromkeys(raw, b""))
    refused(path, "the code page of another system")
    path = old_zip(tmp_path / "utf8.zip", {name.encode(): b"" for name in names}, 3)
    assert content(path).keys() == set(names)


def test_a_tar_of_tars(tmp_path):
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w") as archive:
        add(archive, "0.png", b"1")
    path = tar(tmp_path / "x.tar", {"a.tar": inner.getvalue(), "b.tar": inner.getvalue()})
    with open_members(path, enter=lambda name: name == "b.tar") as found:
        assert [(member.name, member.read()) for member in found] == [("b/0.png", b"1")]
