"""Pictures of all kinds as pixels: files, bytes, Pillow's pictures, and arrays of any size."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from arml.datasets.archives import Member
from arml.datasets.decode import Crop, cropped, decode, resize, rgb
from arml.predict.inputs import checked_array
from arml.results.files import cores

SMALL = 32
"""Pixels a side of the pictures that `starter` reads."""
FILES = (str, bytes, os.PathLike, Image.Image, Member)
"""The types of pictures that are no arrays."""

Progress = Callable[[int, int], object]
"""Called with how many of how many pictures have been read."""


class PictureReader(NamedTuple):
    """How pictures become the inputs of a learner: its pixels, or the vectors of its frozen
    model."""

    size: int
    """Pixels a side."""
    convert: Callable[[np.ndarray], np.ndarray]
    """Converts pixels `[n, size, size, 3]` to inputs."""
    crop: Crop = False
    """What is cut off: see `arml.datasets.decode.cropped`."""

    def read(self, pictures: Any, progress: Progress | None = None) -> np.ndarray:
        """The inputs of a list of pictures. **Raises** `ValueError` for one that cannot be read."""
        return self.convert(pixels_of(pictures, self.size, crop=self.crop, progress=progress))


def are_files(x: Any) -> bool:
    """Whether `x` is a list of pictures that are no arrays."""
    return isinstance(x, list | tuple) and len(x) > 0 and isinstance(x[0], FILES)


def pixels_of(
    x: Any, size: int = SMALL, *, crop: Crop = False, progress: Progress | None = None
) -> UInt8[np.ndarray, "n size size 3"]:
    """Pictures of any size as pixels, decoded on all cores; stretched, unless `crop` first cuts off
    a part."""
    pictures = listed(x)
    parts = each(
        lambda picture, place: sized(*content_of(picture, place), size, crop=crop),
        pictures,
        progress,
    )
    return np.stack(parts) if parts else np.zeros((0, size, size, 3), np.uint8)


def each(
    work: Callable[[Any, int], np.ndarray], pictures: list[Any], progress: Progress | None
) -> list[np.ndarray]:
    """`work(picture, place)` of all pictures, on all cores."""
    parts = []
    with ThreadPoolExecutor(cores()) as pool:
        for part in pool.map(work, pictures, range(len(pictures))):
            parts.append(part)
            if progress is not None:
                progress(len(parts), len(pictures))
    return parts


def listed(x: Any) -> list[Any]:
    """Single pictures."""
    if isinstance(x, str | os.PathLike | bytes):
        raise ValueError("expected a list of pictures, got one: put it in a list")
    try:
        return list(x)
    except TypeError:
        raise ValueError(
            f"expected a list of pictures (files or arrays), got {type(x).__name__}"
        ) from None


def content_of(picture: Any, place: int) -> tuple[str, bytes | np.ndarray]:
    """The name of a picture in messages, and the bytes of its file or its pixels `[h, w, 3]`."""
    where = f"picture {place + 1}"
    if isinstance(picture, bytes):
        return where, picture
    if isinstance(picture, str | os.PathLike):
        picture = Member(str(picture), Path(picture).read_bytes)
    if isinstance(picture, Member):
        try:
            return picture.where, picture.read()
        except OSError as error:
            raise ValueError(
                f"{picture.where}: expected a picture, got: {error.strerror}; check the path"
            ) from error
    if isinstance(picture, Image.Image):
        return where, rgb(picture, where)
    pixels = np.asarray(picture)
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    if pixels.ndim != 3 or pixels.shape[-1] not in (1, 3) or 0 in pixels.shape:
        raise ValueError(
            f"{where}: expected pixels [h, w, 3] or the path of a file, got "
            f"{type(picture).__name__} of shape {list(pixels.shape)}"
        )
    (pixels,) = checked_array(pixels[None], pixels.shape, where, pixels=True)
    if pixels.dtype != np.uint8:
        pixels = np.rint(pixels * 255).astype(np.uint8)
    return where, np.ascontiguousarray(np.broadcast_to(pixels, (*pixels.shape[:2], 3)))


def sized(
    where: str, content: bytes | np.ndarray, size: int, crop: Crop = False
) -> UInt8[np.ndarray, "size size 3"]:
    """The pixels of a file's bytes, or of a picture of another size."""
    if isinstance(content, bytes):
        return decode(content, size=size, where=where, crop=crop)
    return resize(cropped(content, crop), size)
