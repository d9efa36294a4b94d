"""A prepared data set on disk: one array of pictures a family and part, and an index.

The arrays (`bird.train.npy`, uint8 `[n, size, size, 3]`) are memory-mapped and hold no pickle. The
index `index.json` has the classes, the counts, the source of the pictures and a SHA-256 of each
array. A store appears as a whole: it is made in another folder, which is then renamed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypedDict

import numpy as np
from msgspec import Meta

from arml.datasets.folders import PARTS, ImageFamily, Progress, default_folder, npy_header
from arml.results.files import Json, JsonView, checksum, digest_of, read_json
from arml.results.schema import Count, Digest, FileName, Text, read_as

FORMAT = 2
INDEX = "index.json"


class Entry(TypedDict):
    """One array in the index."""

    file: FileName
    bytes: Count
    sha256: Digest
    classes: list[Text]
    counts: list[Count]


class About(TypedDict):
    """One family in the index."""

    parts: dict[Text, Entry]


class StoreIndex(TypedDict):
    """`index.json`; it has more, which is for people."""

    format: int
    size: Annotated[int, Meta(ge=1, le=4096)]
    families: dict[Text, About]


@dataclass(frozen=True)
class Store:
    """A store that has passed the quick checks of `open_store`."""

    folder: Path
    index: JsonView

    @property
    def families(self) -> tuple[str, ...]:
        """Names of the families, in order."""
        return tuple(self.index["families"])

    @property
    def size(self) -> int:
        """Pixels a side."""
        return int(self.index["size"])

    @property
    def bytes(self) -> int:
        """Bytes of all pictures."""
        return sum(entry["bytes"] for _, _, entry in self.entries())

    def entries(self) -> Iterator[tuple[str, str, JsonView]]:
        """Family, part and entry of each array."""
        for family, about in self.index["families"].items():
            for part, entry in about["parts"].items():
                yield family, part, entry

    def counts(self) -> dict[str, tuple[int, int]]:
        """The numbers of classes and pictures of each part, over all families."""
        totals = dict.fromkeys(PARTS, (0, 0))
        for _, part, entry in self.entries():
            classes, pictures = totals[part]
            totals[part] = classes + len(entry["classes"]), pictures + sum(entry["counts"])
        return totals

    def part(self, part: str) -> list[ImageFamily]:
        """The families of one part; their pixels are memory-mapped."""
        return [
            ImageFamily(
                family,
                tuple(entry["classes"]),
                np.load(self.folder / entry["file"], mmap_mode="r", allow_pickle=False),
                np.asarray(entry["counts"]),
                entry["sha256"],
            )
            for family, at, entry in self.entries()
            if at == part
        ]

    def digests(self) -> dict[str, str]:
        """A SHA-256 of each family's pictures, classes and split."""
        return {
            family: checksum(
                [
                    [part, entry["sha256"], entry["classes"], entry["counts"]]
                    for part, entry in about["parts"].items()
                ]
            )
            for family, about in self.index["families"].items()
        }


def place(store: str) -> Path:
    """The folder of a store: a path, or the name of a data set in `$ARML_CACHE/data`."""
    path = Path(store).expanduser()
    return path if len(path.parts) > 1 or path.is_dir() else default_folder() / "data" / store


def open_store(folder: Path) -> Store:
    """Open a store; check its index, and the sizes and shapes of its files.

    **Raises** `ValueError` in one line for a store that is absent, cut short or of another version.
    """
    path = folder / INDEX
    if not path.exists():
        raise ValueError(
            f"{folder}: expected a prepared data set, found nothing; run `arml data prepare`, see "
            "`arml data list`"
        )
    index = read_json(path)
    if index.get("format") != FORMAT:
        raise _altered(path, f"expected format {FORMAT}, got {index.get('format')!r}")
    read_as(StoreIndex, index, str(path), "prepare the data set again")
    store = Store(folder, index)
    for _, part, entry in store.entries():
        if part not in PARTS or len(entry["classes"]) != len(entry["counts"]):
            raise _altered(path, f"expected as many counts as classes in {part}")
        file = folder / entry["file"]
        size = file.stat().st_size if file.is_file() else 0
        if size != entry["bytes"]:
            raise _altered(file, f"expected {entry['bytes']} bytes, got {size}")
        header = npy_header("|u1", (sum(entry["counts"]), store.size, store.size, 3))
        with file.open("rb") as opened:
            if opened.read(len(header)) != header:
                raise _altered(file, "expected an array of the shape in the index, got another")
    return store


def _altered(path: Path, what: str) -> ValueError:
    return ValueError(
        f"{path}: {what}; remove the folder {path.parent.name}, and prepare the data set again"
    )


def verify(store: Store, progress: Progress | None = None) -> None:
    """Read all arrays and compare their checksums.

    **Raises** `ValueError` in one line that names the first array that has changed.
    """
    total, done = store.bytes, 0

    def told(read: int) -> None:
        if progress is not None:
            progress("checking", done + read, total)

    for _, _, entry in store.entries():
        path = store.folder / entry["file"]
        found, wanted = digest_of(path, told=told).hexdigest(), entry["sha256"]
        done += entry["bytes"]
        if found != wanted:
            raise _altered(path, f"expected the SHA-256 {wanted[:12]}..., got {found[:12]}...")


def described(path: Path, classes: dict[str, int]) -> Json:
    """The index's entry of an array of so many pictures of each class."""
    return {
        "file": path.name,
        "bytes": path.stat().st_size,
        "sha256": digest_of(path).hexdigest(),
        "classes": list(classes),
        "counts": list(classes.values()),
    }
