"""Frozen features on disk: a folder a family, with `vectors.npy` and `features.json`.

The vectors are float32 `[n, d]`, in order of class and then of picture. The index is written last.
It has the classes, the counts, the source and the model of the vectors, and a SHA-256 of them.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, BinaryIO, NamedTuple, Protocol, TypedDict, runtime_checkable

import numpy as np
from jaxtyping import Float32, UInt8
from msgspec import Meta

from arml.datasets.decode import decoded, resize
from arml.datasets.folders import (
    ImageFamily,
    Parts,
    Progress,
    default_folder,
    family_name,
    npy_header,
    open_source,
)
from arml.datasets.starter import load_starter
from arml.results.files import (
    Count,
    Digest,
    Json,
    RunError,
    Text,
    atomically,
    checksum,
    digest_of,
    read_as,
    read_json,
    write_json,
)

FORMAT = 1
INDEX, VECTORS = "features.json", "vectors.npy"
CHUNK = 128
"""Pictures that the model sees at once."""
STARTER = "starter"


@runtime_checkable
class Extractor(Protocol):
    """A frozen model that makes vectors of pictures."""

    size: int
    dimension: int
    about: Json

    def __call__(
        self, pictures: UInt8[np.ndarray, "n size size 3"]
    ) -> Float32[np.ndarray, "n dimension"]: ...


class Maker(TypedDict):
    """The model that made features, and its options: `Extractor.about`."""

    model: Text
    sha256: Digest
    size: Annotated[int, Meta(ge=1, le=4096)]
    mean: tuple[float, float, float] | None
    std: tuple[float, float, float] | None
    output: Text
    unit: bool
    dimension: Annotated[int, Meta(ge=1, le=2**20)]
    saw: Text


class FeaturesIndex(TypedDict):
    """`features.json`."""

    family: Text
    place: Count
    classes: list[Text]
    counts: list[Count]
    source: Text
    split: dict[Text, list[Text]] | None
    extractor: Maker
    vectors: Digest


class Pictures(NamedTuple):
    """A family of pictures that are not yet decoded."""

    name: str
    classes: tuple[str, ...]
    counts: list[int]
    digest: str
    decoded: Callable[[int], Iterator[UInt8[np.ndarray, "size size 3"]]]
    """The pictures in order, of a given size."""
    split: Parts | None = None
    """The published or stated split of its classes, if there is one."""


@contextmanager
def opened(source: str) -> Iterator[list[Pictures]]:
    """The families of a source: a folder or zip with one folder for each class, or the word
    `starter` for the package's own pictures (`./starter` is a folder of that name).

    **Raises** `ValueError` in one line for any other folder.
    """
    if source == STARTER:
        yield [
            Pictures(
                f.name,
                f.classes,
                [int(count) for count in f.counts],
                f.digest,
                lambda size, f=f: (resize(picture, size) for picture in f.images),  # type: ignore[misc]
                f.split,
            )
            for f in load_starter()[0]
        ]
        return
    path = Path(source).expanduser().absolute()
    with open_source(path) as found:
        counts = [len(members) for members in found.classes.values()]
        yield [
            Pictures(
                family_name(path),
                tuple(found.classes),
                counts,
                found.digest(),
                lambda size: decoded(found.pictures, size=size),
                found.split,
            )
        ]


def write_features(
    extractor: Extractor,
    pictures: Pictures,
    folder: Path,
    *,
    place: int = 0,
    progress: Progress = lambda what, done, total: None,
) -> bool:
    """Write a family's features in `folder`, unless they are there.

    `place` is the place of the family among those that are used together: tasks draw families by
    place.

    **Returns** whether there was anything to do.

    **Raises** `ValueError` or `RunError` in one line: a folder with other features, a picture that
    cannot be read, a model that fails, or a full disk.
    """
    content: Json = {
        "format": FORMAT,
        "family": pictures.name,
        "place": place,
        "classes": list(pictures.classes),
        "counts": pictures.counts,
        "source": pictures.digest,
        "split": pictures.split,
        "extractor": extractor.about,
    }
    if (folder / INDEX).exists():
        if checksum({**_index(folder), "vectors": ""}) == checksum({**content, "vectors": ""}):
            return False
        raise ValueError(
            f"{folder}: expected a new folder, or the same pictures, model and options as before, "
            "got features of others: name another --out, or remove it"
        )
    total, digest = sum(pictures.counts), hashlib.sha256()

    def write(file: BinaryIO) -> None:
        left, done = pictures.decoded(extractor.size), 0
        parts = [npy_header("<f4", (total, extractor.dimension))]
        while some := list(islice(left, CHUNK)):
            parts.append(np.asarray(extractor(np.stack(some)), "<f4").tobytes())
            for part in parts:
                file.write(part)
                digest.update(part)
            parts.clear()
            done += len(some)
            progress(pictures.name, done, total)

    try:
        folder.mkdir(parents=True, exist_ok=True)
        atomically(folder / VECTORS, write)
    except OSError as error:
        raise RunError(
            f"could not write {folder}: {error.strerror or error}; free some space or check its "
            "permissions, and run the same command again"
        ) from error
    write_json(folder / INDEX, {**content, "vectors": digest.hexdigest()})
    return True


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
            raise ValueError(
                f"{path}: expected a folder that `arml features` made, found none: run it first"
            )
    families: list[ImageFamily] = []
    makers: dict[str, Json] = {}
    pictures: dict[str, str] = {}
    for folder in feature_folders(paths):
        index = _index(folder)
        path, name, split = folder / VECTORS, index["family"], index["split"]
        if not path.is_file() or digest_of(path).hexdigest() != index["vectors"]:
            raise _altered(path)
        vectors = np.load(path, mmap_mode="r", allow_pickle=False)
        if vectors.shape != (sum(index["counts"]), index["extractor"]["dimension"]):
            raise _altered(path)
        if name in pictures:
            raise ValueError(f"{folder}: expected one family {name!r}, got two: leave one out")
        made = checksum([index["vectors"], index["classes"], index["counts"], split])
        counts = np.asarray(index["counts"])
        families.append(ImageFamily(name, tuple(index["classes"]), vectors, counts, made, split))
        makers[checksum(index["extractor"])] = index["extractor"]
        pictures[name] = index["source"]
    if len(makers) > 1:
        raise ValueError(
            "expected features of one model with one set of options, got "
            f"{' and '.join(str(maker['model']) for maker in makers.values())}: make them alike"
        )
    (maker,) = makers.values()
    return Features(families, maker, pictures)


def _index(folder: Path) -> Json:
    path = folder / INDEX
    index = read_json(path)
    read_as(FeaturesIndex, index, str(path), "run `arml features` again in a new folder")
    if index.get("format") != FORMAT or len(index["classes"]) != len(index["counts"]):
        raise _altered(path)
    return index


def _altered(path: Path) -> ValueError:
    return ValueError(
        f"{path}: it was altered or cut short: remove the folder {path.parent}, and run `arml "
        "features` again"
    )


def starter_features(progress: Progress = lambda what, done, total: None) -> Path:
    """The features of the package's pictures by the package's model, made once:
    `$ARML_CACHE/features/starter-KEY`.

    The key is a digest of the model and of the pictures, so another version has another folder.
    Several processes may call it at once.

    **Raises** `ValueError` in one line if the folder cannot be written.
    """
    from arml.datasets.extractor import DEFAULT, Extractor

    with opened(STARTER) as families:
        model = hashlib.sha256(DEFAULT.read_bytes()).hexdigest()
        key = checksum([model, *(family.digest for family in families)])
        folder = default_folder() / "features" / f"{STARTER}-{key[:16]}"
        if folder.is_dir():
            return folder
        extractor: Any = Extractor(DEFAULT)
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".making-") as making:
                made = Path(making) / "made"
                for place, family in enumerate(families):
                    new = made / family.name
                    write_features(extractor, family, new, place=place, progress=progress)
                try:
                    os.replace(made, folder)
                except OSError:
                    if not folder.is_dir():  # no other process was faster
                        raise
        except (OSError, RunError) as error:
            raise ValueError(
                f"{folder}: expected a cache that can be written, got: {error}; free some space, "
                "or set ARML_CACHE to another folder"
            ) from error
    return folder
