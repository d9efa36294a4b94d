"""Reads the pixels of pictures: from files, open files, bytes, Pillow images, and arrays of any
size."""

import base64
import io
import os
from contextlib import ExitStack
from pathlib import Path

import cv2
import numpy as np
from jaxtyping import UInt8
from PIL import Image

from arml.datasets.archives import Member
from arml.datasets.decode import LOG, Crop, Tell, cropped, decode, resize, rgb
from arml.datasets.folders import files_of
from arml.predict.inputs import Bad, OnItem, checked_array, each, items_of, opened

_SMALL_PICTURE_SIDE = 32
"""The side of the pictures that `starter` reads, in pixels."""
PICTURE_TYPES = (str, bytes, os.PathLike, io.IOBase, Image.Image, Member)
"""The types of pictures that are not arrays."""


def pixels_of(
    x: object,
    size: int = _SMALL_PICTURE_SIDE,
    *,
    crop: Crop = False,
    progress: OnItem | None = None,
    bad: Bad | None = None,
) -> UInt8[np.ndarray, "n size size 3"]:
    """The pixels of pictures of any size. They are stretched to squares, unless `crop` first cuts
    off a part. The other arguments are as in `each`."""

    def one(picture: object, place: int) -> np.ndarray:
        return sized(*content_of(picture, place), size, crop=crop)

    return each(one, single_pictures(x), np.zeros((size, size, 3), np.uint8), progress, bad)


def single_pictures(x: object) -> list[object]:
    """The pictures of a list, an array or a folder (in order of name), or of one file. **Raises**
    `ValueError` for anything else."""
    if isinstance(x, str | os.PathLike) and Path(x).is_dir():
        return [*files_of([Path(x)], ExitStack())[0]]
    if isinstance(x, str | os.PathLike) and str(x).lower().endswith(".zip"):
        raise ValueError(f"expected pictures, got a zip, {x}: unpack it, or use `arml predict`")
    if isinstance(x, PICTURE_TYPES):
        return [x]
    shape: tuple[int, ...] = getattr(x, "shape", ())
    one = len(shape) == 3 and shape[-1] in (1, 3, 4)
    if one or isinstance(x, Image.Image):
        raise ValueError("expected a list of pictures, got one: put it in a list")
    return items_of(x, "pictures")


def content_of(picture: object, place: int) -> tuple[str, bytes | np.ndarray]:
    """The name of a picture in messages, and the bytes of its file or its pixels `[h, w, 3]`."""
    where, picture = opened(picture, f"picture {place + 1}")
    if isinstance(picture, bytes):
        return where, picture
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
    """The pixels of a file's bytes, or of a picture of another size. `tell` gets remarks."""
    if isinstance(content, bytes):
        return decode(content, size=size, where=where, crop=crop, tell=tell)
    return resize(cropped(content, crop), size)


def as_image(pixels: UInt8[np.ndarray, "side side 3"]) -> str:
    """Pixels as the data address of an image, for a page."""
    data = cv2.imencode(".jpg", pixels[..., ::-1])[1].tobytes()
    return f"data:image/jpeg;base64,{base64.b64encode(data).decode()}"
