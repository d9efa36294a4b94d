"""Decoded images on disk: `<key>.npy`, and `<key>.json` that describes them.

The pixels are written first, then the index with a checksum of the pixels and one of itself. Each
file is written under another name and then renamed, so an interrupted write is never mistaken for a
complete one.
"""

import hashlib
import itertools
import os
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import numpy as np

from arml.results.files import Json, RunError, atomically, digest_of
from arml.results.schema import read_stated, write_stated


def default_folder() -> Path:
    """`$ARML_CACHE`, or `~/.cache/arml`."""
    return Path(os.environ.get("ARML_CACHE") or Path.home() / ".cache" / "arml")


def npy_header(kind: str, shape: tuple[int, ...]) -> bytes:
    """The header of a `.npy` file of numbers of this kind, such as `|u1` or `<f4`."""
    header = BytesIO()
    about = {"descr": kind, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, about)
    return header.getvalue()


def load(folder: Path, key: str) -> tuple[Json, np.ndarray] | None:
    """The index and the memory-mapped pixels; None unless both are complete and unaltered."""
    try:
        index = read_stated(folder / f"{key}.json", Json, "", name="checksum")
        if index["key"] != key:
            return None
        if digest_of(folder / f"{key}.npy").hexdigest() != index["pixels"]:
            return None
        images = np.load(folder / f"{key}.npy", mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, KeyError):
        return None
    return (index, images) if images.dtype == np.uint8 else None


def store(
    folder: Path,
    key: str,
    index: Json,
    shape: tuple[int, ...],
    chunks: Iterable[np.ndarray],
) -> None:
    """Write uint8 `chunks`, which together have `shape`, and their index.

    **Raises** `ValueError` if the folder cannot be written or the disk is full.
    """
    digest = hashlib.sha256()

    def pixels(file: BinaryIO) -> None:
        # Plain writes, not a memory map: on a full disk a map kills the process.
        for part in itertools.chain([npy_header("|u1", shape)], map(np.ndarray.tobytes, chunks)):
            file.write(part)
            digest.update(part)

    try:
        folder.mkdir(parents=True, exist_ok=True)
        atomically(folder / f"{key}.npy", pixels)
        index = {**index, "key": key, "pixels": digest.hexdigest()}
        write_stated(folder / f"{key}.json", index, name="checksum")
    except (OSError, RunError) as error:
        raise ValueError(
            f"{folder}: the cache of decoded images cannot be written ({error}); free some space, "
            "or set ARML_CACHE to another folder"
        ) from error
