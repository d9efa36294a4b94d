"""Small archives in exactly the layouts of the published ones, for the tests of `arml data`."""

import io
import json
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain
from pathlib import Path

import cv2
import numpy as np

from arml.datasets.published import published

HEIGHT, WIDTH = 24, 32


def picture(left: int, right: int | None = None, height: int = HEIGHT) -> bytes:
    """A grey picture, 32 wide and 24 high; its right half may be of another grey."""
    image = np.full((height, WIDTH, 3), left, np.uint8)
    image[:, WIDTH // 2 :] = left if right is None else right
    return cv2.imencode(".jpg", image)[1].tobytes()


def shade(number: int) -> int:
    """A grey for a class."""
    return 20 + number % 200


def tar(path: Path, files: Mapping[str, bytes], mode: str = "w:gz") -> Path:
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, mode) as archive:
        folders: set[str] = set()
        for name, data in files.items():
            # Published archives list their folders, too.
            for parent in list(Path(name).parents)[-2::-1]:
                if str(parent) not in folders:
                    folders.add(str(parent))
                    info = tarfile.TarInfo(str(parent))
                    info.type = tarfile.DIRTYPE
                    archive.addfile(info)
            add(archive, name, data)
    return path


def add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


def pack(path: Path, files: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def unpack(path: Path, files: Mapping[str, bytes]) -> Path:
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def lines(rows: Sequence[object]) -> bytes:
    return "".join(f"{row}\n" for row in rows).encode()


def cub(classes: int = 11, images: int = 6) -> dict[str, bytes]:
    """The first class has one picture less, the second one more. What is outside of a picture's box
    is black."""
    files: dict[str, bytes] = {"attributes.txt": b"1 has_bill_shape::curved_(up_or_down)\n"}
    top = "CUB_200_2011/"
    names, labels, boxes, known = [], [], [], []
    for c in range(classes):
        label = f"{c + 1:03}.Bird_{c}"
        known.append(f"{c + 1} {label}")
        data = picture(0, shade(c))
        for i in range(images + (c == 1) - (c == 0)):
            number = len(names) + 1
            name = f"{label}/Bird_{c}_{i:04}_{number}.jpg"
            files[f"{top}images/{name}"] = data
            names.append(f"{number} {name}")
            labels.append(f"{number} {c + 1}")
            # x, y, width, height, counted from 1: a part of the right half.
            boxes.append(f"{number} {WIDTH / 2 + 3} 1.0 {WIDTH / 2 - 2} {HEIGHT}.0")
    return files | {
        f"{top}images.txt": lines(names),
        f"{top}image_class_labels.txt": lines(labels),
        f"{top}bounding_boxes.txt": lines(boxes),
        f"{top}classes.txt": lines(known),
        f"{top}README": b"Caltech-UCSD Birds-200-2011\n",
        f"{top}._images.txt": b"left by a file manager",
    }


def dtd(images: int = 3) -> dict[str, bytes]:
    files = {"dtd/labels/train1.txt": b"banded/banded_0002.jpg\n", "dtd/imdb/imdb.mat": b"MATLAB"}
    for c, name in enumerate(sorted(published("dtd").wanted())):
        for i in range(images):
            files[f"dtd/images/{name}/{name}_{i + 1:04}.jpg"] = picture(shade(c))
    # The published archive has it, too.
    files["dtd/images/waffled/.directory"] = b"[Dolphin]\n"
    return files


def aircraft(images: int = 3) -> dict[str, bytes]:
    top = "fgvc-aircraft-2013b/data/"
    files: dict[str, bytes] = {"fgvc-aircraft-2013b/README.md": b"FGVC-Aircraft\n"}
    names = sorted(published("aircraft").wanted())
    parts: dict[str, list[str]] = {"train": [], "val": [], "trainval": [], "test": []}
    boxes = []
    for c, name in enumerate(names):
        for i in range(images):
            number = f"{c * images + i:07}"
            files[f"{top}images/{number}.jpg"] = picture(0, shade(c))
            boxes.append(f"{number} {WIDTH // 2 + 3} 1 {WIDTH} {HEIGHT}")
            part = ("train", "val", "test")[i % 3]
            parts[part].append(f"{number} {name}")
            if part != "test":
                parts["trainval"].append(f"{number} {name}")
    files |= {f"{top}images_variant_{part}.txt": lines(rows) for part, rows in parts.items()}
    return files | {f"{top}variants.txt": lines(names), f"{top}images_box.txt": lines(boxes)}


def fungi(species: int = 10, images: int = 9) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Pictures and annotations. The first species has one picture too few, the last has more; a
    third of each is in the validation set."""
    files: dict[str, bytes] = {}
    categories = [{"id": s, "name": f"Fungus é {s}"} for s in range(species)]
    tables: dict[str, dict[str, list[dict[str, object]]]] = {
        part: {"images": [], "annotations": [], "categories": categories}
        for part in ("train", "val")
    }
    for s in range(species):
        for i in range(images + 5 * (s == species - 1) - (s == 0)):
            number, table = len(files), tables["train" if i % 3 else "val"]
            file = f"images/{s}_Fungus é {s}/{number}.JPG"
            files[file] = picture(shade(s))
            table["images"].append({"id": number, "file_name": file})
            table["annotations"].append({"id": number, "image_id": number, "category_id": s})
    return files, {f"{part}.json": json.dumps(table).encode() for part, table in tables.items()}


@cache
def wnids() -> dict[str, list[str]]:
    """Some classes of ImageNet for a small split."""
    names = sorted(published("mini-imagenet").wanted())[:9]
    return {"train": names[:4], "validation": names[4:6], "test": names[6:]}


def imagenet(images: int = 5) -> dict[str, bytes]:
    """A tar of a tar a class; the numbers of a class's pictures have gaps."""
    files = {}
    for c, name in enumerate([*chain(*wnids().values()), "n02119789"]):  # the last is no class
        inner = io.BytesIO()
        with tarfile.open(fileobj=inner, mode="w") as archive:
            # Not in order of number, as there.
            for i in reversed(range(images)):
                add(archive, f"{name}_{7 * i + 3}.JPEG", picture(shade(10 * c + i)))
        files[f"{name}.tar"] = inner.getvalue()
    return files


def ravi(folder: Path, places: Sequence[int]) -> list[Path]:
    """Ravi and Larochelle's lists for the small split: the pictures at these places, from 1."""
    paths = []
    for part, names in wnids().items():
        rows = [f"{name}{place:08}.jpg,{name}" for name in names for place in places]
        path = folder / f"{'val' if part == 'validation' else part}.csv"
        path.write_bytes(lines(["filename,label", *rows]))
        paths.append(path)
    return paths


RULES = {"cub": (6, True), "fungi": (9, False)}
"""Pictures of a class in small archives, and whether these are all."""
SIZES = [4, 2, 3]


def write_published(folder: Path, content: Mapping[str, object]) -> None:
    """Write a split as the package has them: `content` has origin, method, and parts or a rule."""
    folder.mkdir(exist_ok=True)
    (folder / f"{content['origin']}.json").write_text(json.dumps(content), "utf-8")


def small_rules(folder: Path) -> Path:
    """Splits for small archives of CUB and Fungi; and for the rest the package's own."""
    for origin, (images, exactly) in RULES.items():
        rule = {"images": images, "exactly": exactly, "sizes": SIZES}
        content = {"origin": origin, "method": "for a test", "seed": 0, "rule": rule}
        keep = {} if exactly else {"keep": images}
        write_published(folder, {**content, **keep})
    for origin in ("dtd", "aircraft"):
        parts = published(origin).parts
        write_published(folder, {"origin": origin, "method": "as published", "parts": parts})
    return folder


def small_split(folder: Path, *, keep: int | None = None, origin: str = "mini-imagenet") -> Path:
    """A folder with a small split."""
    content = {"origin": origin, "method": "for a test", "parts": wnids()}
    write_published(folder, content if keep is None else {**content, "keep": keep})
    return folder


def omniglot(images: int = 3) -> tuple[dict[str, bytes], dict[str, bytes]]:
    def of(top: str, names: list[str]) -> dict[str, bytes]:
        return {
            f"{top}/{name}/character{c + 1:02}/{a:04}_{i + 1:02}.png": picture(shade(a))
            for a, name in enumerate(sorted(names))
            for c in range(2)
            for i in range(images)
        }

    split = published("omniglot").parts
    background = of("images_background", split["train"] + split["validation"])
    return background, of("images_evaluation", split["test"])


def cifar_fs() -> dict[str, bytes]:
    top, parts = "cifar100", {"train": "apple bear crab", "val": "dog", "test": "elm"}
    names = " ".join(parts.values()).split()
    return {
        f"{top}/splits/bertinetto/{part}.txt": "\n".join(some.split()).encode()
        for part, some in parts.items()
    } | {
        f"{top}/data/{name}/{name}_s_{i:06}.png": picture(shade(10 * c))
        for c, name in enumerate(names)
        for i in range(3)
    }
