"""Folders and zips of images: what is read, what is refused, and that the cache never lies."""

import os
from contextlib import ExitStack
from pathlib import Path

import cv2
import numpy as np
import pytest

from archives import pack, unpack
from arml.datasets.decode import decoded
from arml.datasets.folders import (
    ImageFamily,
    default_folder,
    files_of,
    load_families,
    open_source,
)
from arml.results import files


def png(value: int = 0) -> bytes:
    return cv2.imencode(".png", np.full((8, 8), value, np.uint8))[1].tobytes()


def members(classes: int = 4, images: int = 3) -> dict[str, bytes]:
    return {f"c{c}/{i}.png": png(10 * c + i) for c in range(classes) for i in range(images)}


def load(path: Path, size: int = 8) -> ImageFamily:
    return load_families([path], size=size)[0]


def values(family: ImageFamily) -> list[int]:
    return family.images[:, 0, 0, 0].tolist()


@pytest.mark.parametrize("make", [pack, unpack])
@pytest.mark.parametrize("top", ["", "birds/", "a/b/"])
def test_a_folder_and_a_zip_hold_the_same(tmp_path, make, top):
    path = tmp_path / ("birds.zip" if make is pack else "birds")
    family = load(make(path, {f"{top}{name}": data for name, data in members().items()}))
    assert family.name == "birds"
    assert family.classes == ("c0", "c1", "c2", "c3")
    assert family.counts.tolist() == [3, 3, 3, 3]
    assert family.first.tolist() == [0, 3, 6, 9]
    assert family.images.shape == (12, 8, 8, 3)
    assert family.images.dtype == np.uint8
    assert values(family) == [0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32]
    assert isinstance(family.images, np.memmap)
    assert not family.images.flags.writeable


@pytest.mark.parametrize("make", [pack, unpack])
def test_what_is_no_whole_image_is_named_and_refused(tmp_path, make, cache):
    for bad, got in ((b"", "an empty file"), (png()[:-24], "a PNG that is cut short")):
        source = make(tmp_path / "f", members() | {"c2/1.png": bad})
        with pytest.raises(ValueError, match=rf"c2/1\.png: expected an image .*{got}") as caught:
            load(source)
        assert "\n" not in str(caught.value)
    if make is unpack:
        (tmp_path / "f/c2/1.png").unlink()
        (tmp_path / "f/c2/1.png").symlink_to("nowhere")
        with pytest.raises(ValueError, match=r"c2/1\.png: cannot be read \(a broken link"):
            load(tmp_path / "f")
    assert not list(cache.rglob("*.*"))


@pytest.mark.parametrize(
    ("contents", "said"),
    [
        ({".x/a.png": png()}, "no image at all"),
        (members() | {"a.png": png()}, "outside"),
        ({"a.png": png(), "b.png": png()}, "outside"),
        ({f"a/{name}": data for name, data in members().items()} | {"b/0.png": png()},
         "got a/c0, and no image directly in a; move"),
        ({f"{part}/{name}": data for part in ("train", "test") for name, data in members().items()},
         r"parts of a data set \(test, train\); name the one"),
        ({f"{part}/c{c}/0.png": png() for part, c in
          (("train", 0), ("valid", 1), ("test", 0))}, "'c0' in two of them"),
        (members() | {"labels.csv": b"file,label\n"}, "got no such line: fill it"),
        (members() | {"labels.csv": b""}, "got no such line: fill it"),
        (members() | {"labels.csv": b"file,label\n0.png,\xff"}, "expected a table in UTF-8"),
        (members() | {"labels.csv": b"c0/0.png,a\nc1/0.png,b\n"}, "expected a header, got 'c0/0"),
        (members() | {"labels.csv": b"file,label\nc0/0.png,a\nc0/0.png,b\n"}, "line 3 names 'c0"),
    ],
)  # fmt: skip
def test_other_layouts_are_refused_in_one_line(tmp_path, contents, said):
    with pytest.raises(ValueError, match=said) as caught:
        load(unpack(tmp_path / "x", contents))
    assert "\n" not in str(caught.value)


def test_sources_are_checked_before_any_is_decoded(tmp_path, cache):
    one, two = pack(tmp_path / "a.zip", members()), unpack(tmp_path / "a", members())
    (tmp_path / "bad.zip").write_bytes(one.read_bytes()[:100])
    for sources, said in (
        ([one, two], "different name"),
        ([one, tmp_path / "bad.zip"], "cut short, damaged or of another kind"),
        ([one, tmp_path / "none"], "found nothing"),
    ):
        with pytest.raises(ValueError, match=said):
            load_families(sources, size=8)
    assert not cache.exists()


# --- the cache


def test_decoded_once_whatever_the_name(tmp_path, monkeypatch):
    seen: list[tuple[str, int, int]] = []
    path = pack(tmp_path / "a.zip", members())
    first = load_families([path], size=8, progress=lambda *at: seen.append(at))[0]
    assert seen == [("a", 12, 12)]
    monkeypatch.setattr("arml.datasets.folders.decoded", None)
    again = load(path.rename(tmp_path / "b.zip"))
    assert (again.name, again.digest, again.classes) == ("b", first.digest, first.classes)
    np.testing.assert_array_equal(again.images, first.images)


def test_the_default_cache(monkeypatch):
    monkeypatch.delenv("ARML_CACHE")
    assert default_folder() == Path.home() / ".cache" / "arml"


def test_other_content_or_size_is_decoded_anew(tmp_path):
    source = unpack(tmp_path / "a", members())
    before = load(source)
    (source / "c0" / "0.png").write_bytes(png(99))  # the same number of bytes
    after = load(source)
    assert (values(before)[0], values(after)[0]) == (0, 99)
    assert before.digest != after.digest
    smaller = load(source, 4)
    assert smaller.images.shape[1:] == (4, 4, 3)
    assert smaller.digest == after.digest
    (source / "c0" / "0.png").rename(source / "c0" / "9.png")
    assert values(load(source))[:3] == [1, 2, 99]


def test_a_damaged_cache_is_rebuilt(tmp_path, cache):
    path = pack(tmp_path / "a.zip", members())
    expected = np.array(load(path).images)
    (file,) = (cache / "images").iterdir()
    for content in (file.read_bytes()[:-20], b""):
        file.write_bytes(content)
        np.testing.assert_array_equal(load(path).images, expected)


@pytest.mark.parametrize("call", ["replace", "fsync"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_an_interrupted_write_leaves_nothing_behind(tmp_path, monkeypatch, cache, call, error):
    def interrupted(*_: object) -> None:
        raise error

    path = pack(tmp_path / "a.zip", members())
    with monkeypatch.context() as patch:
        patch.setattr(files.os, call, interrupted)
        with pytest.raises((KeyboardInterrupt, ValueError), match=r"^$|left.*free some space"):
            load(path)
    assert not list((cache / "images").iterdir())
    assert load(path).counts.tolist() == [3, 3, 3, 3]


# --- folders and zips as people have them


def test_annotations_are_left_out_of_every_kind_of_folder(tmp_path):
    source = unpack(tmp_path / "a", members() | {"c0/0.xml": b"<a/>", "annotations/0.txt": b"0"})
    assert load(source).classes == ("c0", "c1", "c2", "c3")
    with open_source(source) as found:
        pass
    assert found.labels == [f"c{c}" for c in range(4) for _ in range(3)]
    pictures, others = files_of([source], ExitStack())
    assert [p.where for p in pictures] == found.files
    assert [p.name for p in others] == [p.name for p in found.left_out] == ["0.txt", "0.xml"]


def test_a_table_names_the_labels(tmp_path):
    table = "file,label\nimages/0.png, caf\u00e9 \n1,tea\n\n2.png,cafe\u0301\n"
    contents = {f"images/{i}.png": png(i) for i in range(4)}
    for name, text in (("a", table), ("b", table.replace(",", ";"))):
        source = unpack(tmp_path / name, contents | {"labels.csv": text.encode()})
        with open_source(source) as found:
            pixels = np.stack(list(decoded(found.pictures, size=8)))[:, 0, 0, 0].tolist()
        pairs = [*zip(found.labels, pixels, strict=True)]
        assert pairs == [("caf\u00e9", 0), ("caf\u00e9", 2), ("tea", 1)]
    for row, said in (("7.png,tea", "there are 0 pictures"), ("1.png", "there are 1 pictures")):
        (source / "labels.csv").write_text(f"{table}{row}\n")
        with pytest.raises(ValueError, match=rf"labels\.csv: .* line 6, .*{said}"):
            load(source)


def test_the_sets_of_meta_album_are_read_as_they_are(tmp_path):
    rows = [f"{c}{i}.png,class {c},top" for c in range(4) for i in range(3)]
    table = "\n".join(["FILE_NAME,CATEGORY,SUPER_CATEGORY", *rows])
    contents = {f"SET_Mini/images/{c}{i}.png": png(c) for c in range(4) for i in range(3)}
    contents |= {"SET_Mini/labels.csv": table.encode(), "SET_Mini/info.json": b"{}"}
    family = load(pack(tmp_path / "SET_Mini.zip", contents))
    assert family.classes == ("class 0", "class 1", "class 2", "class 3")
    assert values(family) == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3


def test_folders_may_state_the_split(tmp_path):
    parts = {"Train": (0, 1), "valid": (2,), "test": (3,)}
    contents = {f"{p}/c{c}/{i}.png": png(c) for p, cs in parts.items() for c in cs for i in (0, 1)}
    family = load(unpack(tmp_path / "a", contents))
    assert family.split == {"train": ["c0", "c1"], "validation": ["c2"], "test": ["c3"]}
    assert load(unpack(tmp_path / "b", members())).split is None


def test_a_class_may_have_folders_and_the_part_of_a_data_set_is_no_class(tmp_path, caplog):
    more = {"c0/old/9.png": png(9), "c0/old/x/8.png": png(8), "Test/7.png": png(7)}
    family = load(unpack(tmp_path / "a", members() | more))
    assert family.sizes == {"c0": 5, "c1": 3, "c2": 3, "c3": 3}
    assert [one.message.partition(",")[0] for one in caplog.records] == [
        "a: the folder Test is left out",
        "a: the images in c0/old count as c0",
        "a: the images in c0/old/x count as c0",
    ]
    names = ("valid", "invalid")  # two classes, and no part of a data set
    assert load(unpack(tmp_path / "b", {f"{n}/0.png": png() for n in names})).classes == names[::-1]


def test_odd_names_and_links_to_a_folder_above_cost_no_picture_its_one_answer(tmp_path):
    odd = os.fsdecode(b"caf\xe9.png")
    unpack(tmp_path / "a", {name: png() for name in ("b/0.png", "b/x\ny.png", f"b/{odd}")})
    for name, target in (("a/b/up", "a"), ("a/c", "a/b"), ("a/d", ".")):
        (tmp_path / name).symlink_to(tmp_path / target)
    found, _ = files_of([tmp_path / "a", tmp_path / "a/b" / odd], ExitStack())
    each = [one.where.removeprefix(f"{tmp_path}/a/") for one in found]
    names = ["0.png", "caf\ufffd.png", "x\ufffdy.png"]
    assert each == [*(f"{b}/{name}" for b in "bc" for name in names), f"b/{names[1]}"]
    assert {one.read() for one in found} == {png()}
