"""Frozen features on disk: a folder a family, with `vectors.npy` and `features.json`.

The vectors are float32 `[n, d]`, in order of class and then of picture. The index is written last.
It has the classes, the counts, the source and the model of the vectors, a SHA-256 of the vectors
and one of itself. Unfinished vectors are in `vectors.npy.part`, and the next call continues there.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8

from arml.datasets.decode import decoded, resize
from arml.datasets.extractor import Extractor
from arml.datasets.folders import (
    ImageFamily,
    Progress,
    encoded,
    family_name,
    npy_header,
    open_source,
)
from arml.datasets.forms import FeaturesIndex, Note
from arml.datasets.splits import Split
from arml.datasets.starter import load_starter
from arml.results.files import Json, RunError, checksum, digest_of, write_json
from arml.results.lock import alone
from arml.results.schema import read_noted, read_stated, write_stated

FORMAT = 1
INDEX, VECTORS, NOTE = "features.json", "vectors.npy", "part.json"
CHUNK = 128
"""Pictures between two notes of how many are done."""
STARTER = "starter"


class Pictures(NamedTuple):
    """A family of pictures, and a function that reads some of them."""

    name: str
    classes: tuple[str, ...]
    counts: list[int]
    digest: str
    read: Callable[[int, int, int], UInt8[np.ndarray, "n size size 3"]]
    """`read(first, last, size)`: the pictures from `first` to before `last`, of `size` pixels."""
    parts: dict[str, list[str]] | None = None
    """The published split of its classes, if there is one."""


@contextmanager
def opened(source: str) -> Iterator[list[Pictures]]:
    """The families of a source: a folder or zip with one folder for each class, or the word
    `starter` for the package's own pictures (`./starter` is a folder of that name).

    **Raises** `ValueError` in one line for any other folder.
    """
    if source == STARTER:
        families, split = load_starter()
        yield [_of_family(family, split) for family in families]
        return
    path = Path(source).expanduser().absolute()
    with open_source(path) as listed:
        members = listed.pictures

        def read(first: int, last: int, size: int) -> np.ndarray:
            return np.stack(list(decoded(map(encoded, members[first:last]), size=size)))

        counts = [len(images) for images in listed.classes.values()]
        yield [Pictures(family_name(path), tuple(listed.classes), counts, listed.digest(), read)]


def _of_family(family: ImageFamily, split: Split) -> Pictures:
    def read(first: int, last: int, size: int) -> np.ndarray:
        return np.stack([resize(picture, size) for picture in family.images[first:last]])

    counts = [int(count) for count in family.counts]
    return Pictures(family.name, family.classes, counts, family.digest, read, split[family.name])


def write_features(
    extractor: Extractor,
    pictures: Pictures,
    folder: Path,
    *,
    place: int = 0,
    progress: Progress = lambda what, done, total: None,
) -> bool:
    """Write a family's features in `folder`, or continue what an earlier call left unfinished.

    `place` is the place of the family among those that are used together: tasks draw families by
    place.

    **Returns** whether there was anything to do.

    **Raises** `ValueError` or `RunError` in one line: a folder with other features, a picture that
    cannot be read, a model that fails, or a full disk.
    """
    content: Json = {
        "format": FORMAT,
        "what": "arml features",
        "family": pictures.name,
        "place": place,
        "classes": list(pictures.classes),
        "counts": pictures.counts,
        "source": pictures.digest,
        "split": pictures.parts,
        "extractor": extractor.about,
    }
    key = checksum(content)
    if (folder / INDEX).exists():
        index = _index(folder)
        if index["key"] == key:
            return False
        raise ValueError(
            f"{folder}: expected a new folder, or the same pictures, model and options as before, "
            "got features of others: name another --out, or remove it"
        )
    with alone(folder):
        _write(extractor, pictures, folder, content | {"key": key}, progress)
    return True


def _write(
    extractor: Extractor,
    pictures: Pictures,
    folder: Path,
    content: Json,
    progress: Progress,
) -> None:
    key, total = content["key"], sum(pictures.counts)
    partial = folder / f"{VECTORS}.part"
    header = npy_header("<f4", (total, extractor.dimension))
    done, digest = _kept(folder, key, header, 4 * extractor.dimension)
    try:
        with partial.open("r+b" if done else "wb") as file:
            file.write(header)
            file.seek(len(header) + done * 4 * extractor.dimension)
            file.truncate()
            while done < total:
                last = min(done + CHUNK, total)
                some = extractor(pictures.read(done, last, extractor.size)).tobytes()
                file.write(some)
                digest.update(some)
                file.flush()
                os.fsync(file.fileno())
                done = last
                # Only once the vectors are on the disk, so that the note is true.
                note = {"key": key, "rows": done, "sha256": digest.hexdigest()}
                write_json(folder / NOTE, note)
                progress(pictures.name, done, total)
        os.replace(partial, folder / VECTORS)
    except OSError as error:
        raise RunError(
            f"could not write {folder}: {error.strerror or error}; free some space or check its "
            "permissions, and run the same command again to go on"
        ) from error
    write_stated(folder / INDEX, {**content, "vectors": digest.hexdigest()})
    (folder / NOTE).unlink(missing_ok=True)


def _kept(folder: Path, key: str, header: bytes, each: int) -> tuple[int, "hashlib._Hash"]:
    """How many vectors of `each` bytes an unfinished family has on the disk, and the SHA-256 of the
    file up to there. Zero if they were altered: then all are made again."""
    partial, none = folder / f"{VECTORS}.part", (0, hashlib.sha256(header))
    if not partial.is_file():
        return none
    note = read_noted(folder / NOTE, Note, key=key)
    if note is None:
        return none
    digest = digest_of(partial, len(header) + note["rows"] * each)
    return (note["rows"], digest) if digest.hexdigest() == note["sha256"] else none


def feature_folders(paths: Sequence[str | Path]) -> list[Path]:
    """The folders of families at or directly below `paths`, in order of place; empty if there are
    none."""
    found: list[Path] = []
    for path in map(Path, paths):
        here = [path] if (path / INDEX).is_file() else [p.parent for p in path.glob(f"*/{INDEX}")]
        found += sorted(here, key=lambda folder: (_index(folder)["place"], folder.name))
    return found


class Features(NamedTuple):
    """Families of vectors."""

    families: list[ImageFamily]
    split: Split
    """The published split of those that have one."""
    maker: Json
    """The model that made them."""
    pictures: dict[str, str]
    """The digest of the pictures of each."""


def load_features(paths: Sequence[str | Path]) -> Features:
    """The folders that `arml features` made, in order of place.

    **Raises** `ValueError` in one line: no features, an altered file, two models or two families of
    one name.
    """
    for path in paths:
        if not feature_folders([path]):
            began = any(Path(path).glob(f"**/{VECTORS}.part"))
            raise ValueError(
                f"{path}: expected a folder that `arml features` made, found "
                f"{'one that is not finished: run it again' if began else 'none: run it first'}"
            )
    families: list[ImageFamily] = []
    split: Split = {}
    makers: dict[str, Json] = {}
    pictures: dict[str, str] = {}
    for folder in feature_folders(paths):
        index = _index(folder)
        path = folder / VECTORS
        if not path.is_file() or digest_of(path).hexdigest() != index["vectors"]:
            raise _altered(path)
        vectors = np.load(path, mmap_mode="r", allow_pickle=False)
        if vectors.shape != (sum(index["counts"]), index["extractor"]["dimension"]):
            raise _altered(path)
        made = checksum([index["vectors"], index["classes"], index["counts"], index["split"]])
        name = index["family"]
        if name in {family.name for family in families}:
            raise ValueError(f"{folder}: expected one family {name!r}, got two: leave one out")
        counts = np.asarray(index["counts"])
        families.append(ImageFamily(name, tuple(index["classes"]), vectors, counts, made))
        makers[checksum(index["extractor"])] = index["extractor"]
        pictures[name] = index["source"]
        if index["split"] is not None:
            split[name] = index["split"]
    if len(makers) > 1:
        raise ValueError(
            "expected features of one model with one set of options, got "
            f"{' and '.join(str(maker['model']) for maker in makers.values())}: make them alike"
        )
    (maker,) = makers.values()
    return Features(families, split, maker, pictures)


def _index(folder: Path) -> Json:
    path = folder / INDEX
    advice = "run `arml features` again in a new folder"
    index = read_stated(path, FeaturesIndex, advice, version=FORMAT)
    if len(index["classes"]) != len(index["counts"]):
        raise _altered(path)
    return index


def _altered(path: Path) -> ValueError:
    return ValueError(
        f"{path}: it was altered or cut short: remove the folder {path.parent}, and run `arml "
        "features` again"
    )
