"""A prepared data set on disk: one array of pictures a family and part, and an index.

The arrays (`bird.train.npy`, uint8 `[n, size, size, 3]`) are memory-mapped and hold no pickle. The
index `index.json` is written last, in one piece: a folder without it is not yet a store. It has the
classes, the counts, the source of the pictures, a SHA-256 of each array, and one of itself.
"""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from jaxtyping import UInt8

from arml.datasets.folders import ImageFamily, Progress, default_folder, npy_header
from arml.datasets.forms import StoreIndex
from arml.datasets.splits import PARTS
from arml.results.files import Json, JsonView, checksum, digest_of
from arml.results.schema import read_stated, write_stated

FORMAT = 1
INDEX = "index.json"
SAMPLES = 64
SAMPLE_BYTES = 2**16


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
    """Open a store; check its index, the sizes of its files and samples of their content.

    **Raises** `ValueError` in one line for a store that is absent, unfinished, cut short, altered,
    or of another version.
    """
    if not (folder / INDEX).exists():
        began = folder.is_dir() and any(folder.iterdir())
        raise ValueError(
            f"{folder}: expected a prepared data set, found "
            f"{'one that is not finished' if began else 'nothing'}; run `arml data prepare`"
            f"{' again' if began else ''}, see `arml data list`"
        )
    store = Store(folder, _index(folder))
    for _, _, entry in store.entries():
        path = folder / entry["file"]
        size = path.stat().st_size if path.is_file() else -1
        wanted = entry["bytes"]
        if size != wanted:
            got = "none" if size < 0 else f"{size} bytes"
            raise _altered(path, f"expected {wanted} bytes, got {got}")
        shape = (sum(entry["counts"]), store.size, store.size, 3)
        header = npy_header("|u1", shape)
        with path.open("rb") as file:
            if file.read(len(header)) != header:
                raise _altered(path, f"expected an array of the shape {shape}, got another")
            if _sample(file, size) != entry["sample"]:
                raise _altered(path, "its content is not what was written")
    return store


def _altered(path: Path, what: str) -> ValueError:
    return ValueError(
        f"{path}: {what}; remove the folder {path.parent.name}, and prepare the data set again"
    )


def _index(folder: Path) -> Json:
    path = folder / INDEX
    advice = f"remove the folder {folder.name}, and prepare the data set again"
    index = read_stated(path, StoreIndex, advice, version=FORMAT, name="checksum")
    for about in index["families"].values():
        for part, entry in about["parts"].items():
            if len(entry["classes"]) != len(entry["counts"]):
                raise _altered(path, f"expected as many counts as classes in {part}")
    return index


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


def write_index(folder: Path, index: JsonView) -> None:
    """Write the index, which makes the folder a store."""
    write_stated(folder / INDEX, {"format": FORMAT, **index}, name="checksum")


def _sample(file: IO[bytes], size: int) -> str:
    """A SHA-256 of blocks spread evenly over the file, the first and the last among them."""
    digest = hashlib.sha256()
    last = max(size - SAMPLE_BYTES, 0)
    for i in range(SAMPLES):
        file.seek(last * i // (SAMPLES - 1))
        digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()


class Array:
    """A file `<name>.npy.part` of pictures that come in any order; `finish` makes it `<name>.npy`.

    If there is an unfinished file of the same shape, its pictures stay.
    """

    def __init__(self, folder: Path, name: str, shape: tuple[int, ...]) -> None:
        self.header = npy_header("|u1", shape)
        self.each = int(np.prod(shape[1:]))
        self.bytes = len(self.header) + shape[0] * self.each
        self.path, self.partial = folder / f"{name}.npy", folder / f"{name}.npy.part"
        kept = self.partial.is_file() and self.partial.stat().st_size == self.bytes
        # Plain writes, not a memory map: on a full disk a map kills the process.
        self.file = self.partial.open("r+b" if kept else "w+b", buffering=0)
        if not kept:
            self.file.truncate(self.bytes)
            self.file.write(self.header)

    def put(self, at: int, picture: UInt8[np.ndarray, "size size 3"]) -> None:
        """Write picture number `at`."""
        self.file.seek(len(self.header) + at * self.each)
        left = memoryview(picture.tobytes())
        while left:
            left = left[self.file.write(left) :]

    def flush(self) -> None:
        """Write all pictures to the disk."""
        os.fsync(self.file.fileno())

    def finish(self) -> Json:
        """Give the file its name; returns its entry of the index."""
        self.flush()
        self.file.seek(0)
        digest = hashlib.file_digest(self.file, "sha256").hexdigest()
        entry = {
            "file": self.path.name,
            "bytes": self.bytes,
            "sha256": digest,
            "sample": _sample(self.file, self.bytes),
        }
        self.close()
        os.replace(self.partial, self.path)
        return entry

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def discard(self) -> None:
        """Remove the file."""
        self.close()
        self.partial.unlink(missing_ok=True)


def counts(index: JsonView) -> dict[str, tuple[int, int]]:
    """The numbers of classes and pictures of each part, over all families."""
    totals = dict.fromkeys(PARTS, (0, 0))
    for about in index["families"].values():
        for part, entry in about["parts"].items():
            classes, pictures = totals[part]
            totals[part] = (classes + len(entry["classes"]), pictures + sum(entry["counts"]))
    return totals
