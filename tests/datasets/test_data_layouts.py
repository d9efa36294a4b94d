"""The whole of `arml data prepare` on small archives in the layouts of the published ones."""

import json
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

import archives
from archives import pack, picture, shade, tar, unpack
from arml.cli import main
from arml.datasets.decode import FILTERS
from arml.datasets.folders import SPLIT_PARTS
from arml.datasets.prepare import Store, open_store, place, verify
from arml.datasets.published import PLAIN_MULTI, coco_labels, published
from arml.datasets.splits import drawn


@pytest.fixture
def splits(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Take the splits of a folder in place of the package's."""
    return lambda folder: monkeypatch.setattr("arml.datasets.published.SPLITS_FOLDER", folder)


def prepare(name: str, *given: Path, **options: object) -> Store:
    """`arml data prepare` with archives of our own, which have no published checksum."""
    words = ["data", "prepare", name, "--unverified", "--size", "16", "--from", *map(str, given)]
    for option, value in options.items():
        words += [f"--{option}", str(value)]
    assert main(words) == 0
    store = open_store(Path(str(options.get("out") or "")) if "out" in options else place(name))
    verify(store)
    return store


@pytest.fixture
def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., None]:
    """Prepare a data set that is refused with these words, before anything is written."""

    def refuse(said: str, name: str, *given: Path) -> None:
        out = tmp_path / "refused"
        words = ["data", "prepare", name, "--unverified", "--out", str(out), "--from"]
        assert main([*words, *map(str, given)]) == 2
        assert said in capsys.readouterr().err
        assert not out.exists()

    return refuse


def pixels(store: Store, family: str) -> dict[str, set[int]]:
    """Each class's greys, from all parts."""
    found = {}
    for part in SPLIT_PARTS:
        (one,) = [f for f in store.part(part) if f.name == family]
        for first, count, name in zip(one.first, one.counts, one.classes, strict=True):
            found[name] = {int(p.max()) for p in one.images[first : first + count]}
    return found


def classes(store: Store, family: str) -> dict[str, list[str]]:
    parts = store.index["families"][family]["parts"]
    return {part: parts[part]["classes"] for part in SPLIT_PARTS}


def near(greys: set[int], wanted: int) -> bool:
    return all(abs(grey - wanted) <= 3 for grey in greys)


def shaded(store: Store, family: str, names: Sequence[str]) -> bool:
    """Each class has the grey of its place among the names."""
    found = pixels(store, family)
    return all(near(greys, shade(names.index(name))) for name, greys in found.items())


def test_cub(tmp_path, splits, capsys, refused):
    splits(archives.small_rules(tmp_path / "splits"))
    store = prepare("bird", tar(tmp_path / "CUB_200_2011.tgz", archives.cub()))
    said = capsys.readouterr().out
    assert "bird, train: 4 classes, 24 pictures" in said
    assert "cite: Wah, Branson" in said
    assert "Licence: non-commercial" in said
    split = classes(store, "bird")
    assert [len(split[part]) for part in SPLIT_PARTS] == archives.SIZES
    chosen = {name for names in split.values() for name in names}
    # They have 5 and 7 pictures.
    assert not chosen & {"001.Bird_0", "002.Bird_1"}
    order = drawn([f"{c + 1:03}.Bird_{c}" for c in range(2, 11)], 0)
    assert split["train"] == sorted(order[:4])
    for name, greys in pixels(store, "bird").items():
        assert near(greys, shade(int(name[:3]) - 1))
    # The box cuts off the left half, which is black.
    (train,) = store.part("train")
    assert train.images.min() > 10
    assert store.index["families"]["bird"]["source"] == [
        {"archive": "CUB_200_2011.tgz", "md5": None}
    ]
    few = tar(tmp_path / "few" / "CUB_200_2011.tgz", archives.cub(classes=10))
    refused("expected 9 classes of 6 pictures, got 8 of 10", "bird", few)


def test_dtd_from_the_archive_and_from_what_it_unpacks_to(tmp_path):
    files = archives.dtd()
    store = prepare("texture", tar(tmp_path / "dtd-r1.0.1.tar.gz", files))
    assert classes(store, "texture") == published("dtd").parts
    assert shaded(store, "texture", sorted(published("dtd").wanted()))
    top = unpack(tmp_path / "unpacked", files)
    for number, folder in enumerate((top, top / "dtd")):
        again = prepare("texture", folder, out=tmp_path / f"again{number}")
        assert again.digests() == store.digests()


def test_aircraft(tmp_path):
    store = prepare("aircraft", tar(tmp_path / "fgvc-aircraft-2013b.tar.gz", archives.aircraft()))
    assert classes(store, "aircraft") == published("aircraft").parts
    assert shaded(store, "aircraft", sorted(published("aircraft").wanted()))
    assert all(part[0].images.min() > 10 for part in map(store.part, SPLIT_PARTS))


def test_fungi(tmp_path, splits):
    pictures, tables = archives.fungi()
    images = tar(tmp_path / "fungi_train_val.tgz", pictures)
    splits(archives.small_rules(tmp_path / "splits"))
    annotations = tar(tmp_path / "train_val_annotations.tgz", tables)
    store = prepare("fungi", images, annotations)
    split = classes(store, "fungi")
    assert [len(split[part]) for part in SPLIT_PARTS] == archives.SIZES
    names = [f"Fungus é {s}" for s in range(10)]
    assert sorted(chain(*split.values())) == sorted(names[1:])
    for part in SPLIT_PARTS:
        assert set(store.part(part)[0].counts.tolist()) == {9}
    assert shaded(store, "fungi", names)
    assert [source["archive"] for source in store.index["families"]["fungi"]["source"]] == [
        "fungi_train_val.tgz",
        "train_val_annotations.tgz",
    ]


def test_mini_imagenet_takes_the_pictures_of_the_lists(tmp_path, splits):
    splits(archives.small_split(tmp_path / "splits", keep=2))
    lists = archives.ravi(tmp_path, places=(2, 5))
    ilsvrc = tar(tmp_path / "ILSVRC2012_img_train.tar", archives.imagenet(), "w")
    store = prepare("mini-imagenet", ilsvrc, *lists)
    assert classes(store, "mini-imagenet") == {p: sorted(n) for p, n in archives.wnids().items()}
    names = [*chain(*archives.wnids().values())]
    for name, greys in pixels(store, "mini-imagenet").items():
        # In order of number the second and the fifth.
        wanted = {shade(10 * names.index(name) + i) for i in (1, 4)}
        assert len(greys) == 2
        assert all(any(near({grey}, want) for want in wanted) for grey in greys)


def test_mini_imagenet_refuses_lists_that_do_not_fit(tmp_path, splits, refused):
    splits(archives.small_split(tmp_path / "splits", keep=2))
    ilsvrc = tar(tmp_path / "ILSVRC2012_img_train.tar", archives.imagenet(), "w")
    for places, said in (
        ((2,), "at least 2 pictures"),
        ((1, 9), "they lack 'picture 9 of n01532829'"),
    ):
        lists = archives.ravi(tmp_path, places=places)
        refused(said, "mini-imagenet", ilsvrc, *lists)
    lists[0].write_text("filename,label\n<html>,x\n")
    refused("expected rows like n0153282900000005.jpg", "mini-imagenet", ilsvrc, *lists)


@pytest.mark.parametrize("form", ["tar of tars", "folder of tars", "folders"])
def test_tiered_imagenet_takes_all_pictures(tmp_path, splits, form):
    splits(archives.small_split(tmp_path / "splits", origin="tiered-imagenet"))
    files = archives.imagenet()
    if form == "tar of tars":
        given = tar(tmp_path / "ILSVRC2012_img_train.tar", files, "w")
    elif form == "folder of tars":
        given = unpack(tmp_path / "ilsvrc", files)
    else:
        given = tmp_path / "ilsvrc"
        names = [*chain(*archives.wnids().values())]
        for c, name in enumerate(names):
            pictures = {f"{name}/{name}_{7 * i + 3}.JPEG": picture(10 * c + i) for i in range(5)}
            unpack(given / "train", pictures)
    store = prepare("tiered-imagenet", given)
    assert all(set(store.part(part)[0].counts.tolist()) == {5} for part in SPLIT_PARTS)
    (train,) = store.part("train")
    # In order of number, whatever the order in the archive.
    shades = [int(p.max()) for p in train.images[:5]]
    assert shades == sorted(shades)


def test_omniglot(tmp_path):
    background, evaluation = archives.omniglot()
    store = prepare(
        "omniglot",
        pack(tmp_path / "images_background.zip", background),
        pack(tmp_path / "images_evaluation.zip", evaluation),
    )
    split = classes(store, "omniglot")
    assert [len(split[part]) for part in SPLIT_PARTS] == [50, 10, 40]
    assert "Greek/character01" in chain(*split.values())
    assert {name.split("/")[0] for name in split["test"]} == set(
        published("omniglot").parts["test"]
    )


@pytest.mark.parametrize("form", ["flat with lists", "parts", "class folders"])
def test_mini_imagenet_from_copies_of_its_600_pictures(
    tmp_path, splits, monkeypatch, form, refused
):
    """No list is fetched; a class that lacks pictures is named; results say that it is a copy."""
    splits(archives.small_split(tmp_path / "splits", keep=2))
    monkeypatch.setattr("arml.datasets.prepare.download", None)
    folder, numbers = tmp_path / "copy", {}
    for part, names in archives.wnids().items():
        for name in names:
            for at in (5, 12):
                file = f"{name}{at:08}.jpg"
                above = {"flat with lists": "images", "parts": f"{part}/{name}"}.get(form, name)
                numbers[name, at] = shade(len(numbers))
                unpack(folder / above, {file: picture(numbers[name, at], height=32)})
    if form == "flat with lists":
        archives.ravi(folder, places=(5, 12))
    store = prepare("mini-imagenet", folder)
    assert classes(store, "mini-imagenet") == {p: sorted(n) for p, n in archives.wnids().items()}
    (train,) = store.part("train")
    wanted = [numbers[name, at] for name in train.classes for at in (5, 12)]
    for image, grey in zip(train.images, wanted, strict=True):
        assert near({int(image.max())}, grey)
    assert store.copies == ("32 px copy of mini-imagenet",)
    name = train.classes[0]
    next(folder.rglob(f"{name}*5.jpg")).unlink()
    refused(f"2 pictures of each class, got 1 of {name!r};", "mini-imagenet", folder)


def test_omniglot_from_numbered_characters(tmp_path, refused):
    """The original numbers of the characters tell their alphabets."""
    first = published("omniglot").first
    ends = sorted([*first.values(), 1624])
    sizes = {name: ends[ends.index(at) + 1] - at for name, at in first.items()}
    assert (sizes["Greek"], sizes["Latin"], sizes["Braille"], sizes["Tifinagh"]) == (24, 26, 26, 55)
    files = {
        f"{'background' if at < 965 else 'evaluation'}-{at:04}/{at:04}_0{i}.png": picture(i + 1)
        for at in first.values()
        for i in (1, 2)
    }
    store = prepare("omniglot", unpack(tmp_path / "copy", files))
    split = classes(store, "omniglot")
    assert [len(split[part]) for part in SPLIT_PARTS] == [25, 5, 20]
    assert "Greek/character01" in split["train"]
    for file in ("0000_01.png", "1624_01.png", "x.png"):
        odd = unpack(tmp_path / file, {f"a/{file}": picture(1)})
        refused(f"'{file}' does not begin with a number of 1 to 1623", "omniglot", odd)


def test_class_folders_are_read_wherever_they_are(tmp_path):
    names = chain(*published("flower").parts.values())
    files = {f"{p}/{n}/{p}{n}.jpg": picture(9) for n in names for p in ("train", "valid")}
    store = prepare("flower", unpack(tmp_path / "copy", {**files, "train/103/x.jpg": picture(9)}))
    assert [sum(store.part(part)[0].counts) for part in SPLIT_PARTS] == [114, 28, 36]
    assert store.copies == ()


@pytest.mark.parametrize("form", ["zip", "folder"])
def test_cifar_fs_brings_its_own_split(tmp_path, form, refused):
    files = archives.cifar_fs()
    make = pack if form == "zip" else unpack
    store = prepare("cifar-fs", make(tmp_path / "cifar-fs.zip", files))
    split = classes(store, "cifar-fs")
    assert split == {"train": ["apple", "bear", "crab"], "validation": ["dog"], "test": ["elm"]}
    assert pixels(store, "cifar-fs").keys() == {"apple", "bear", "crab", "dog", "elm"}
    files.pop("cifar100/splits/bertinetto/val.txt")
    less = make(tmp_path / "less.zip", files)
    refused("without 'cifar100/splits/bertinetto/val.txt'", "cifar-fs", less)


@pytest.mark.slow
def test_art_multi_is_plain_multi_through_the_filters(tmp_path, splits):
    pictures, tables = archives.fungi()
    folder = tmp_path / "archives"
    tar(folder / "CUB_200_2011.tgz", archives.cub())
    tar(folder / "dtd-r1.0.1.tar.gz", archives.dtd())
    tar(folder / "fgvc-aircraft-2013b.tar.gz", archives.aircraft())
    tar(folder / "fungi_train_val.tgz", pictures)
    tar(folder / "train_val_annotations.tgz", tables)
    splits(archives.small_rules(tmp_path / "splits"))
    store = prepare("art-multi", folder)
    plain = prepare("plain-multi", folder)
    assert [*plain.index["families"]] == [*PLAIN_MULTI]
    assert [*store.index["families"]] == [
        f"{family}{through}" for through in ("", "-blur", "-pencil") for family in PLAIN_MULTI
    ]
    for part in SPLIT_PARTS:
        by_name = {family.name: family for family in store.part(part)}
        for family in plain.part(part):
            np.testing.assert_array_equal(by_name[family.name].images, family.images)
            for through in ("blur", "pencil"):
                seen = by_name[f"{family.name}-{through}"]
                assert seen.classes == family.classes
                for image, shown in zip(family.images[:5], seen.images[:5], strict=True):
                    np.testing.assert_array_equal(shown, FILTERS[through](np.array(image)))


def test_the_splits_of_the_package_are_what_they_say():
    sizes = {
        "dtd": (30, 7, 10),
        "aircraft": (64, 16, 20),
        "mini-imagenet": (64, 16, 20),
        "tiered-imagenet": (351, 97, 160),
        "omniglot": (25, 5, 20),
    }
    for origin, wanted in sizes.items():
        split = published(origin)
        assert tuple(len(split.parts[part]) for part in SPLIT_PARTS) == wanted
        assert len(set(split.wanted())) == sum(wanted)
    for origin, numbers in (("dtd", (30, 37)), ("aircraft", (64, 80))):
        split = published(origin)
        order = drawn(split.wanted(), 0)
        assert split.parts["train"] == sorted(order[: numbers[0]])
        assert split.parts["validation"] == sorted(order[numbers[0] : numbers[1]])
    omniglot = published("omniglot").parts
    order = drawn(omniglot["train"] + omniglot["validation"], 0)
    assert omniglot["validation"] == sorted(order[25:])
    for origin in ("cub", "fungi"):
        assert published(origin).rule.sizes == (64, 16, 20)


def test_species_of_one_name_stay_apart():
    entries = [{"id": 3, "name": "a b"}, {"id": 1, "name": "a b "}, {"id": 2, "name": "c d"}]
    content = {
        "images": [{"id": 0, "file_name": "0.jpg"}],
        "categories": entries,
        "annotations": [{"image_id": 0, "category_id": i} for i in (1, 2, 3)],
    }
    assert [name for _, name in coco_labels(json.dumps(content))] == ["a b", "c d", "a b (3)"]
