"""Hostile, broken and odd archives: refused or handled, in one line, with nothing left behind."""

import gzip
import io
import os
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest

import archives
from archives import add, pack, picture, tar, unpack
from arml.cli import main
from arml.datasets.archives import open_members
from arml.datasets.prepare import open_store, place

NAMES = ["../evil.jpg", "dtd/../../evil.jpg", "/etc/evil.jpg", "C:/evil.jpg", "..\\evil.jpg"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARML_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What `arml data prepare texture` says of an archive when it refuses it."""

    def refuse(path: Path, *more: str) -> str:
        before = {p for p in tmp_path.rglob("*") if "cache" not in p.parts}
        words = ["data", "prepare", "texture", "--size", "16", "--from", str(path), *more]
        assert main([*words, "--unverified"]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.startswith("arml: error: ")
        assert said.err.count("\n") == 1
        assert not place("texture").exists()
        assert {p for p in tmp_path.rglob("*") if "cache" not in p.parts} == before
        return said.err

    return refuse


def with_member(path: Path, change: Callable[[tarfile.TarFile], None]) -> Path:
    """An archive of textures with something more."""
    with tarfile.open(path, "w:gz") as archive:
        for name, data in archives.dtd().items():
            add(archive, name, data)
        change(archive)
    return path


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_names_that_lead_outside(tmp_path, refused, name, kind):
    if kind == "tar":
        path = with_member(tmp_path / "dtd.tar.gz", lambda a: add(a, name, picture(1)))
    else:
        path = pack(tmp_path / "dtd.zip", archives.dtd() | {name: picture(1)})
    assert "leads outside" in refused(path)
    assert not list(tmp_path.parent.rglob("evil.jpg"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_special_files_are_left_out(tmp_path, kind):
    def link(archive: tarfile.TarFile) -> None:
        info = tarfile.TarInfo("dtd/images/banded/link.jpg")
        info.type, info.linkname = kind, "/etc/passwd"
        archive.addfile(info)

    with open_members(with_member(tmp_path / "dtd.tar.gz", link)) as found:
        assert not [member for member in found if "link" in member.name]


def test_a_member_that_says_it_is_huge(tmp_path, refused):
    def lie(archive: tarfile.TarFile) -> None:
        info = tarfile.TarInfo("dtd/images/banded/huge.jpg")
        info.size = 2**40
        archive.addfile(info)
        archive.offset = archive.fileobj.tell()

    assert "more than 268435456 bytes" in refused(with_member(tmp_path / "dtd.tar.gz", lie))


@pytest.mark.parametrize("share", [0.02, 0.3, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("kind", ["tar.gz", "tar", "zip"])
def test_archives_that_are_cut_short(tmp_path, refused, kind, share):
    path = tmp_path / f"dtd.{kind}"
    if kind == "zip":
        pack(path, archives.dtd())
    else:
        tar(path, archives.dtd(), "w:gz" if kind == "tar.gz" else "w")
    data = path.read_bytes().rstrip(b"\0") if kind == "tar" else path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    assert "cut short" in refused(path)


def test_a_tar_that_is_cut_between_two_files(tmp_path, refused):
    path = tar(tmp_path / "dtd.tar", archives.dtd(), "w")
    with tarfile.open(path) as archive:
        third = archive.getmembers()[60]
    path.write_bytes(path.read_bytes()[: third.offset])
    assert "no end mark" in refused(path)


def test_bytes_that_were_altered(tmp_path, refused):
    path = tar(tmp_path / "dtd.tar.gz", archives.dtd())
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 255
    path.write_bytes(data)
    assert "cut short, damaged or" in refused(path)
    path.write_bytes(gzip.compress(b"no tar at all" * 100))
    assert "cut short, damaged or" in refused(path)


@pytest.mark.parametrize("content", [b"", b"<!DOCTYPE html>", b"PK\x03\x04" + bytes(600)])
def test_what_is_no_archive(tmp_path, refused, content):
    path = tmp_path / "dtd-r1.0.1.tar.gz"
    path.write_bytes(content)
    assert "damaged or of another kind" in refused(path)


def test_another_archive_than_the_one_that_is_meant(tmp_path, refused):
    said = refused(tar(tmp_path / "dtd-r1.0.1.tar.gz", archives.aircraft()))
    assert "expected the files of dtd as they are published" in said
    some = {n: d for n, d in archives.dtd().items() if "banded" not in n}
    said = refused(tar(tmp_path / "dtd-r1.0.1.tar.gz", some))
    assert "classes of the split dtd, 1 are not there ('banded', ...)" in said


def test_a_wrong_checksum(tmp_path, capsys):
    path = tar(tmp_path / "dtd-r1.0.1.tar.gz", archives.dtd())
    for name in ("dtd-r1.0.1.tar.gz", "mine.tar.gz"):
        path = path.rename(tmp_path / name)
        assert main(["data", "prepare", "texture", "--from", str(path)]) == 2
        said = capsys.readouterr().err
        assert "expected dtd-r1.0.1.tar.gz as published, with MD5 fff73e5086ae" in said
        assert not place("texture").exists()


def test_a_picture_that_is_none(tmp_path, refused):
    for bad, got in (
        (b"just words", "cannot be decoded"),
        (picture(1)[:-10], "a JPEG that is cut short"),
    ):
        files = archives.dtd() | {"dtd/images/zigzagged/zigzagged_0002.jpg": bad}
        for path in (tar(tmp_path / "dtd.tar.gz", files), pack(tmp_path / "dtd.zip", files)):
            said = refused(path)
            assert got in said
            assert "zigzagged_0002.jpg" in said


def test_a_picture_that_is_a_bomb(tmp_path, refused):
    jpeg = bytearray(picture(1))
    at = jpeg.index(b"\xff\xc0")
    jpeg[at + 5 : at + 9] = b"\xff\xff\xff\xff"
    png = bytearray(picture(1, kind=".png"))
    png[16:24] = (2**16).to_bytes(4, "big") * 2
    png[29:33] = zlib.crc32(png[12:29]).to_bytes(4, "big")
    for bad in (bytes(jpeg), bytes(png)):
        files = archives.dtd() | {"dtd/images/zigzagged/zigzagged_0002.jpg": bad}
        assert "more than 134217728 pixels" in refused(tar(tmp_path / "dtd.tar.gz", files))


def odd_pictures() -> list[bytes]:
    """The same colour in every mode that a file may have."""
    pil = pytest.importorskip("PIL.Image")
    colour = (200, 40, 10)

    def encoded(image: object, kind: str) -> bytes:
        file = io.BytesIO()
        image.save(file, kind)
        return file.getvalue()

    palette = pil.new("P", (6, 6), 1)
    palette.putpalette([0, 0, 0, *colour])
    deep = np.full((6, 6, 3), colour[::-1], np.uint16) * 257
    return [
        encoded(pil.new("RGB", (6, 6), colour).convert("CMYK"), "JPEG"),
        encoded(palette, "PNG"),
        cv2.imencode(".png", deep)[1].tobytes(),
        encoded(pil.new("RGBA", (6, 6), (*colour, 255)), "PNG"),
    ]


def test_odd_colour_modes_are_handled(tmp_path):
    # As in ImageNet, where some files that are called JPEG are CMYK or PNG.
    files = archives.dtd()
    for number, data in enumerate(odd_pictures()):
        files[f"dtd/images/banded/banded_{number:04}.jpg"] = data
    path = tar(tmp_path / "dtd.tar.gz", files)
    words = ["data", "prepare", "texture", "--unverified", "--size", "16"]
    assert main([*words, "--from", str(path)]) == 0
    store = open_store(place("texture"))
    for part in ("train", "validation", "test"):
        (family,) = store.part(part)
        if "banded" in family.classes:
            first = family.first[family.classes.index("banded")]
            shown = family.images[first : first + 4].reshape(4, -1, 3).astype(int)
            assert np.abs(shown - (200, 40, 10)).max() <= 3


def test_unicode_names_are_the_same_in_every_form(tmp_path):
    composed, decomposed = "caf\u00e9/日本 1.jpg", "cafe\u0301/日本 1.jpg"
    for name, make in (("a.tar", tar), ("a.zip", pack), ("folder", unpack)):
        path = make(tmp_path / name, {decomposed: picture(1), "ß/x.jpg": picture(2)})
        with open_members(path) as found:
            assert {member.name for member in found} == {composed, "ß/x.jpg"}


def test_names_that_are_no_text(tmp_path, refused):
    said = refused(with_member(tmp_path / "x.tar.gz", lambda a: add(a, "dtd/a\nb.jpg", b"")))
    assert "not plain text" in said


@pytest.mark.slow
def test_ten_thousand_classes(tmp_path):
    names = [f"class {c}" for c in range(10_000)]
    data = picture(7)
    path = tmp_path / "many.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(f"dtd/images/{name}/a.jpg", data)
    parts = {"train": names[:8000], "validation": names[8000:9000], "test": names[9000:]}
    archives.write_published(tmp_path, {"origin": "dtd", "method": "for a test", "parts": parts})
    code = (
        "import sys; from pathlib import Path; import arml.datasets.published as published; "
        "from arml.cli import main; published.SPLITS = Path(sys.argv[1]); "
        "sys.exit(main(sys.argv[2:]))"
    )
    words = ["data", "prepare", "texture", "--unverified", "--size", "4", "--from", str(path)]
    # In a process of its own, where no shapes are checked.
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), *words],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (train,) = open_store(place("texture")).part("train")
    assert len(train.classes) == len(train.images) == 8000


def test_a_folder_that_cannot_be_read(tmp_path, refused):
    folder = unpack(tmp_path / "unpacked", archives.dtd())
    os.symlink(tmp_path / "nowhere", folder / "dtd/images/zigzagged/zigzagged_0004.jpg")
    assert "a broken link or a special file" in refused(folder)
