"""Folders and zips of images: what is read, what is refused, and that the cache never lies."""

import os
import zipfile
import zlib
from contextlib import ExitStack
from pathlib import Path

import cv2
import numpy as np
import pytest

from arml.datasets import archives
from arml.datasets.decode import decoded
from arml.datasets.folders import (
    ImageFamily,
    default_folder,
    load_families,
    open_source,
    pictures_of,
)
from arml.results import files


def png(value: int | np.ndarray = 0, size: int = 8) -> bytes:
    image = np.full((size, size), value, np.uint8) if isinstance(value, int) else value
    return cv2.imencode(".png", image)[1].tobytes()


def members(classes: int = 4, images: int = 3) -> dict[str, bytes]:
    return {f"c{c}/{i}.png": png(10 * c + i) for c in range(classes) for i in range(images)}


def pack(path: Path, contents: dict[str, bytes], *, method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", method) as file:
        for name, data in contents.items():
            file.writestr(name, data)
    return path


def unpack(path: Path, contents: dict[str, bytes]) -> Path:
    for name, data in contents.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def load(path: Path, size: int = 8) -> ImageFamily:
    return load_families([path], size=size)[0]


@pytest.fixture
def no_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("decoded again")

    monkeypatch.setattr("arml.datasets.folders.decoded", refuse)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARML_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def value(family: ImageFamily, at: int) -> int:
    return int(family.images[at, 0, 0, 0])


@pytest.mark.parametrize("make", [pack, unpack])
@pytest.mark.parametrize("top", ["", "birds/", "a/b/"])
def test_a_folder_and_a_zip_hold_the_same(tmp_path, make, top):
    extra = {
        "__MACOSX/c0/._0.png": b"junk",
        f"{top}c0/.DS_Store": b"junk",
        f"{top}c1/Thumbs.db": b"junk",
        f"{top}README.md": b"words",
        f"{top}c0/0.xml": b"an annotation",
        f"{top}@eaDir/0.png": b"junk",
        f"{top}$RECYCLE.BIN/0.png": b"junk",
        f"{top}lost+found/0.png": b"junk",
        f"{top}c1/Icon\r": b"junk",
    }
    path = tmp_path / ("birds.zip" if make is pack else "birds")
    family = load(make(path, {f"{top}{n}": d for n, d in members().items()} | extra))
    assert family.name == "birds"
    assert family.classes == ("c0", "c1", "c2", "c3")
    assert family.counts.tolist() == [3, 3, 3, 3]
    assert family.first.tolist() == [0, 3, 6, 9]
    assert family.images.shape == (12, 8, 8, 3)
    assert family.images.dtype == np.uint8
    assert [value(family, i) for i in range(12)] == [0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32]
    assert isinstance(family.images, np.memmap)
    assert not family.images.flags.writeable


def test_names_are_unicode_and_alike_on_every_system(tmp_path):
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    names = {f"{composed}/é.png": png(1), "日本/x.png": png(2), "ß/y.png": png(3)}
    family = load(unpack(tmp_path / "ünïcode", names))
    assert family.name == "ünïcode"
    assert set(family.classes) == {composed, "日本", "ß"}
    again = load(
        pack(tmp_path / "z.zip", {n.replace(composed, decomposed): d for n, d in names.items()})
    )
    assert again.classes == family.classes


def test_odd_spaces_are_fine_and_control_letters_are_not(tmp_path):
    odd = {"c0/at 10\u202fAM.png": png(1), "c1/\u200cx.png": png(), "c\u30002/x.png": png()}
    assert len(load(unpack(tmp_path / "odd", odd)).classes) == 3
    for bad in ("c0/a\nb.png", "c0/a\udcffb.png"):
        with pytest.raises(ValueError, match="not plain text") as caught:
            load(unpack(tmp_path / "bad", members() | {bad: png()}))
        assert "\n" not in str(caught.value)
        (tmp_path / "bad" / bad).unlink()


def test_backslashes_in_a_zip_are_separators(tmp_path):
    contents = {n.replace("/", "\\"): d for n, d in members().items()}
    assert load(pack(tmp_path / "w.zip", contents)).classes == ("c0", "c1", "c2", "c3")


def test_linked_folders_of_the_user_are_followed(tmp_path):
    real = unpack(tmp_path / "real", members(1))
    source = unpack(tmp_path / "source", {n: d for n, d in members().items() if "c0" not in n})
    (source / "c0").symlink_to(real / "c0")
    (source / "c1" / "loop").symlink_to(source)
    with pytest.raises(ValueError, match="one level deeper"):
        load(source)
    (source / "c1" / "loop").unlink()
    assert load(source).counts.tolist() == [3, 3, 3, 3]


def test_what_is_no_whole_image_is_named_and_refused(tmp_path):
    jpeg = cv2.imencode(".jpg", np.random.default_rng(0).integers(0, 255, (40, 40, 3)))[1].tobytes()
    head = b"IHDR" + (2**16).to_bytes(4, "big") * 2 + png()[24:29]
    huge = png()[:12] + head + zlib.crc32(head).to_bytes(4, "big") + png()[33:]
    for bad, got in (
        (b"", "an empty file"),
        (b"just words", "cannot be decoded"),
        (png()[:-24], "a PNG that is cut short"),
        (jpeg[: len(jpeg) // 2], "a JPEG that is cut short"),
        (huge, "more than 134217728 pixels"),
    ):
        contents = members() | {"c2/1.png": bad}
        for source in (pack(tmp_path / "f.zip", contents), unpack(tmp_path / "f", contents)):
            with pytest.raises(ValueError, match=got) as caught:
                load(source)
            assert "c2/1.png: expected an image" in str(caught.value)
            assert "\n" not in str(caught.value)
    assert not list((tmp_path / "cache").rglob("*.*"))


# --- what is refused


def test_missing_empty_and_misplaced(tmp_path):
    refused = [
        (tmp_path / "none", "found nothing"),
        (unpack(tmp_path / "hidden", {".x/a.png": png()}), "no images"),
        (unpack(tmp_path / "loose", members() | {"a.png": png()}), "outside"),
        (unpack(tmp_path / "flat", {"a.png": png(), "b.png": png()}), "outside"),
        (unpack(tmp_path / "deep", members() | {"c0/x/a.png": png()}), "one level deeper"),
    ]
    for source, message in refused:
        with pytest.raises(ValueError, match=message) as caught:
            load(source)
        assert "\n" not in str(caught.value)


def test_arguments_are_checked_first(tmp_path):
    one, two = pack(tmp_path / "a.zip", members()), unpack(tmp_path / "a", members())
    with pytest.raises(ValueError, match="different name"):
        load_families([one, two], size=8)


def test_what_is_no_zip(tmp_path):
    whole = pack(tmp_path / "whole.zip", members()).read_bytes()
    for content in (b"", whole[: len(whole) // 2], b"Rar!"):
        (tmp_path / "bad.zip").write_bytes(content)
        with pytest.raises(ValueError, match="cut short, damaged or of another kind"):
            load(tmp_path / "bad.zip")


@pytest.mark.parametrize(
    "name", ["../evil.png", "c0/../../evil.png", "/etc/evil.png", "C:/evil.png", "..\\evil.png"]
)
def test_a_zip_that_leads_outside_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match="leads outside"):
        load(pack(tmp_path / "z.zip", members() | {name: png()}))
    assert not list(tmp_path.rglob("evil*"))


def test_encryption_and_huge_members_are_refused(tmp_path, monkeypatch):
    path = pack(tmp_path / "locked.zip", members())
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="encrypted"):
        load(path)

    bomb = {"c0/bomb.png": bytes(9 * 2**20)}
    path = pack(tmp_path / "bomb.zip", members() | bomb, method=zipfile.ZIP_DEFLATED)
    monkeypatch.setattr(archives, "SIZE_LIMIT", 2**20)
    with pytest.raises(ValueError, match="more than 1048576 bytes"):
        load(path)


def test_a_damaged_member_is_named(tmp_path):
    path = pack(tmp_path / "z.zip", members())
    content = bytearray(path.read_bytes())
    content[content.index(b"IDAT") + 6] ^= 255  # the zip's CRC no longer fits
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"c0/0\.png: cannot be read"):
        load(path)


# --- the cache


def test_decoded_once_whatever_the_name(tmp_path, request):
    seen: list[tuple[str, int, int]] = []
    path = pack(tmp_path / "a.zip", members())
    first = load_families([path], size=8, progress=lambda *at: seen.append(at))[0]
    assert seen == [("a", 12, 12)]
    request.getfixturevalue("no_decoding")
    again = load(path.rename(tmp_path / "b.zip"))
    assert (again.name, again.digest, again.classes) == ("b", first.digest, first.classes)
    np.testing.assert_array_equal(again.images, first.images)


def test_the_default_cache_is_where_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.setenv("ARML_CACHE", str(tmp_path / "here"))
    load_families([unpack(tmp_path / "a", members())], size=8)
    assert len(list((tmp_path / "here" / "images").iterdir())) == 1
    monkeypatch.delenv("ARML_CACHE")
    assert default_folder() == Path.home() / ".cache" / "arml"


def test_other_content_or_size_is_decoded_anew(tmp_path):
    source = unpack(tmp_path / "a", members())
    before = load(source)
    (source / "c0" / "0.png").write_bytes(png(99))  # the same number of bytes
    after = load(source)
    assert (value(before, 0), value(after, 0)) == (0, 99)
    assert before.digest != after.digest
    smaller = load(source, 4)
    assert smaller.images.shape[1:] == (4, 4, 3)
    assert smaller.digest == after.digest
    (source / "c0" / "0.png").rename(source / "c0" / "9.png")
    assert [value(load(source), i) for i in range(3)] == [1, 2, 99]


@pytest.mark.parametrize("harm", ["cut", "empty", "remove"])
def test_a_damaged_cache_is_rebuilt(tmp_path, harm):
    path = pack(tmp_path / "a.zip", members())
    expected = np.array(load(path).images)
    (file,) = (tmp_path / "cache" / "images").iterdir()
    content = file.read_bytes()
    if harm == "remove":
        file.unlink()
    else:
        file.write_bytes({"cut": content[:-20], "empty": b""}[harm])
    np.testing.assert_array_equal(load(path).images, expected)


@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_an_interrupted_write_leaves_nothing_behind(tmp_path, monkeypatch, call):
    path = pack(tmp_path / "a.zip", members())

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(files.os, call, interrupted)
        with pytest.raises(KeyboardInterrupt):
            load(path)
    assert not list((tmp_path / "cache" / "images").iterdir())
    assert load(path).counts.tolist() == [3, 3, 3, 3]


def test_a_full_disk_is_one_line(tmp_path, monkeypatch):
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(ValueError, match=r"No space left.*free some space"):
        load(pack(tmp_path / "a.zip", members()))
    assert not list((tmp_path / "cache" / "images").iterdir())


# --- folders and zips as people have them


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
            file.writestr(info, png(number))
    return path


def unicode_field(raw: bytes, name: str) -> bytes:
    """The extra field of a zip that has a name in UTF-8, too."""
    content = b"\1" + zlib.crc32(raw).to_bytes(4, "little") + name.encode()
    return b"\x75\x70" + len(content).to_bytes(2, "little") + content


@pytest.mark.parametrize("page", ["cp932", "cp936", "cp1250", "cp1251"])
def test_zips_with_names_in_a_code_page(tmp_path, page):
    label = {"cp932": "ソ猫", "cp936": "猫", "cp1250": "kočka", "cp1251": "кот"}[page]
    names = [f"{label}/a.png", "dog/b.png", "cow/c.png"]
    raw = {name.encode(page): unicode_field(name.encode(page), name) for name in names}
    with open_source(old_zip(tmp_path / "with.zip", raw)) as source:
        assert sorted(source.labels) == sorted(["dog", "cow", label])
    path = old_zip(tmp_path / "without.zip", dict.fromkeys(raw, b""))
    with (
        pytest.raises(ValueError, match="the code page of another system"),
        open_source(path),
    ):
        pass
    path = old_zip(tmp_path / "utf8.zip", {name.encode(): b"" for name in names}, 3)
    with open_source(path) as source:
        assert set(source.labels) == {"dog", "cow", label}


def test_annotations_are_left_out_of_every_kind_of_folder(tmp_path):
    source = unpack(tmp_path / "a", members() | {"c0/0.xml": b"<a/>", "annotations/0.txt": b"0"})
    assert load(source).classes == ("c0", "c1", "c2", "c3")
    with open_source(source) as found:
        pass
    assert found.labels == [f"c{c}" for c in range(4) for _ in range(3)]
    pictures, others = pictures_of([source], ExitStack())
    assert [p.where for p in pictures] == found.files
    assert [p.name for p in others] == [p.name for p in found.left_out] == ["0.txt", "0.xml"]


def test_a_table_names_the_labels(tmp_path):
    table = "file,label\nimages/0.png, caf\u00e9 \n1,tea\n\n2.png,cafe\u0301\n"
    contents = {f"images/{i}.png": png(i) for i in range(4)}
    for name, text in (("a", table), ("b", table.replace(",", ";"))):
        source = unpack(tmp_path / name, contents | {"labels.csv": text.encode()})
        with open_source(source) as found:
            pixels = np.stack(list(decoded(found.pictures, size=8)))
        assert list(zip(found.labels, pixels[:, 0, 0, 0].tolist(), strict=True)) == [
            ("caf\u00e9", 0),
            ("caf\u00e9", 2),
            ("tea", 1),
        ]
    for row, said in (("7.png,tea", "there are 0 pictures"), ("1.png", "there are 1 pictures")):
        (source / "labels.csv").write_text(f"{table}{row}\n")
        with (
            pytest.raises(ValueError, match=rf"labels\.csv: .* line 6, .*{said}"),
            open_source(source),
        ):
            pass


def test_folders_may_state_the_split(tmp_path):
    parts = {"Train": (0, 1), "valid": (2,), "test": (3,)}
    contents = {f"{p}/c{c}/{i}.png": png(c) for p, cs in parts.items() for c in cs for i in (0, 1)}
    family = load(unpack(tmp_path / "a", contents))
    assert family.split == {"train": ["c0", "c1"], "validation": ["c2"], "test": ["c3"]}
    assert load(unpack(tmp_path / "b", members())).split is None
    with pytest.raises(ValueError, match="'c0' in two of them"):
        load(unpack(tmp_path / "a", {"test/c0/x.png": png()}))


def test_a_name_in_another_encoding_is_refused_before_any_work(tmp_path):
    path = Path(os.fsdecode(os.fsencode(tmp_path / "caf") + b"\xe9.png"))
    path.write_bytes(png())
    for asked in (path, tmp_path):
        with pytest.raises(ValueError, match=r"caf\\udce9\.png' is not plain text") as caught:
            pictures_of([asked], ExitStack())
        str(caught.value).encode()


def test_the_sets_of_meta_album_are_read_as_they_are(tmp_path):
    rows = [f"{c}{i}.png,class {c},top" for c in range(4) for i in range(3)]
    table = "\n".join(["FILE_NAME,CATEGORY,SUPER_CATEGORY", *rows])
    contents = {f"SET_Mini/images/{c}{i}.png": png(c) for c in range(4) for i in range(3)}
    contents |= {"SET_Mini/labels.csv": table.encode(), "SET_Mini/info.json": b"{}"}
    family = load(pack(tmp_path / "SET_Mini.zip", contents))
    assert family.classes == ("class 0", "class 1", "class 2", "class 3")
    assert [value(family, i) for i in range(12)] == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
