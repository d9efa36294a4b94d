"""Pictures of all kinds as pixels: files, open files, bytes, Pillow's pictures, and arrays of any
size."""

import base64
import io
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
from jaxtyping import UInt8
from PIL import Image

from arml.datasets.archives import Member
from arml.datasets.decode import LOG, Crop, Tell, UnreadableError, cropped, decode, resize, rgb
from arml.predict.inputs import checked_array
from arml.results.machine import cores

_SMALL = 32
"""Pixels a side of the pictures that `starter` reads."""
FILES = (str, bytes, os.PathLike, io.IOBase, Image.Image, Member)
"""The types of pictures that are no arrays."""

Bad = dict[int, str]
"""The problems of pictures that cannot be read, by their places."""
OnPicture = Callable[[int, int], object]
"""Called with how many of how many pictures have been read."""


class PictureReader(NamedTuple):
    """How pictures become the inputs of a learner: its pixels, or the vectors of its frozen
    model."""

    size: int
    """Pixels a side."""
    convert: Callable[[np.ndarray], np.ndarray]
    """Converts pixels `[n, size, size, 3]` to inputs."""
    crop: Crop = False
    """The part that is cut off: see `arml.datasets.decode.cropped`."""

    def read(
        self, pictures: Any, progress: OnPicture | None = None, bad: Bad | None = None
    ) -> np.ndarray:
        """The inputs of a list of pictures: see `each`."""
        pixels = pixels_of(pictures, self.size, crop=self.crop, progress=progress, bad=bad)
        return self.convert(pixels)


def pixels_of(
    x: Any,
    size: int = _SMALL,
    *,
    crop: Crop = False,
    progress: OnPicture | None = None,
    bad: Bad | None = None,
) -> UInt8[np.ndarray, "n size size 3"]:
    """Pictures of any size as pixels; stretched, unless `crop` first cuts off a part: see
    `each`."""

    def one(picture: Any, place: int) -> np.ndarray:
        return sized(*content_of(picture, place), size, crop=crop)

    return each(one, single_pictures(x), np.zeros((size, size, 3), np.uint8), progress, bad)


def each(
    work: Callable[[Any, int], np.ndarray],
    pictures: list[Any],
    blank: np.ndarray,
    progress: OnPicture | None = None,
    bad: Bad | None = None,
) -> np.ndarray:
    """`work(picture, place)` of all pictures, on all cores.

    **Arguments**

    - `blank`: stands for a picture that cannot be read.
    - `bad`: gets the problem of each such picture by its place.

    **Raises** `ValueError` that names all of them, if there is no `bad`.
    """
    errors = dict[int, ValueError]()

    def one(picture: Any, place: int) -> np.ndarray:
        try:
            return work(picture, place)
        except ValueError as error:
            errors[place] = error
            return blank

    parts = []
    with ThreadPoolExecutor(cores()) as pool:
        for part in pool.map(one, pictures, range(len(pictures))):
            parts.append(part)
            if progress is not None:
                progress(len(parts), len(pictures))
    found = sorted(errors.items())
    if bad is not None:
        bad |= {k: e.problem if isinstance(e, UnreadableError) else str(e) for k, e in found}
    elif len(found) == 1:
        raise found[0][1]
    elif found:
        named = (
            f"{e.where} ({e.problem})" if isinstance(e, UnreadableError) else str(e)
            for _, e in found
        )
        raise ValueError(
            f"{len(found)} pictures cannot be read: {', '.join(named)}; remove or replace them"
        )
    return np.stack(parts) if parts else np.zeros((0, *blank.shape), blank.dtype)


def single_pictures(x: Any) -> list[Any]:
    """The pictures of a list or an array. **Raises** `ValueError` for anything else."""
    shape: Any = getattr(x, "shape", ())
    one = len(shape) == 3 and shape[-1] in (1, 3, 4)
    if one or isinstance(x, FILES):
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
    if isinstance(picture, io.IOBase):
        picture.seek(0)
        picture = picture.read()
    if isinstance(picture, bytes):
        return where, picture
    if isinstance(picture, str | os.PathLike):
        picture = Member(str(picture), Path(picture).read_bytes)
    if isinstance(picture, Member):
        try:
            return picture.where, picture.read()
        except OSError as error:
            raise UnreadableError(picture.where, str(error.strerror)) from error
    if isinstance(picture, Image.Image):
        return where, rgb(picture, where, LOG.warning)
    pixels = np.asarray(picture)
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    if pixels.ndim != 3 or pixels.shape[-1] not in (1, 3, 4) or 0 in pixels.shape:
        raise ValueError(
            f"{where}: expected pixels [h, w, 3] or the path of a file, got "
            f"{type(picture).__name__} of shape {list(pixels.shape)}"
        )
    (pixels,) = checked_array(pixels[None], pixels.shape, where, pixels=True)
    if pixels.dtype != np.uint8:
        pixels = np.rint(pixels * 255).astype(np.uint8)
    if pixels.shape[-1] == 4:
        return where, rgb(Image.fromarray(pixels), where)
    return where, np.ascontiguousarray(np.broadcast_to(pixels, (*pixels.shape[:2], 3)))


def sized(
    where: str, content: bytes | np.ndarray, size: int, crop: Crop = False, tell: Tell = LOG.warning
) -> UInt8[np.ndarray, "size size 3"]:
    """The pixels of a file's bytes, or of a picture of another size; `tell` gets doubts."""
    if isinstance(content, bytes):
        return decode(content, size=size, where=where, crop=crop, tell=tell)
    return resize(cropped(content, crop), size)


def as_image(pixels: UInt8[np.ndarray, "side side 3"]) -> str:
    """Pixels as the address of an image within a page."""
    data = cv2.imencode(".jpg", pixels[..., ::-1])[1].tobytes()
    return f"data:image/jpeg;base64,{base64.b64encode(data).decode()}"
