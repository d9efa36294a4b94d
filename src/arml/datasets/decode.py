"""From the bytes of one picture file to RGB pixels of a given size, by Pillow.

Pillow and not OpenCV, though OpenCV unpacks a whole JPEG in half the time. Pillow stops at the end
of a picture whatever follows it (phones append videos), reports a file that is cut short instead of
filling it up, states the size before it unpacks anything, and reads AVIF. A JPEG that is much
larger than the wanted size is unpacked at a half, a quarter or an eighth of its size; there both
take the same time. OpenCV resizes.
"""

import contextlib
import io
import math
import struct
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import cv2
import numpy as np
from jaxtyping import UInt8
from PIL import Image

from arml.results.machine import cores

with contextlib.suppress(ImportError):  # it is optional
    from pillow_heif import register_heif_opener

    register_heif_opener()

PIXEL_LIMIT = 2**27
"""The most pixels of one picture: a few kilobytes can unpack to gigabytes."""

FORMATS = ("PNG", "JPEG", "MPO", "WEBP", "BMP", "GIF", "TIFF", "PPM", "AVIF", "JPEG2000", "HEIF")
"""The formats that are read. Pillow knows others, some of which start other programs."""
SUFFIXES = {
    ".png", ".jpg", ".jpeg", ".jfif", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm", ".ppm",
    ".avif", ".jp2", ".heic", ".heif",
}  # fmt: skip
"""The endings of file names that mark a picture."""

PAPER = 224
"""Drawings whose mean brightness is above this would vanish on white paper."""
ORIENTATION = 0x0112
"""The number of this entry of EXIF data."""
UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""How a picture is turned upright, by its orientation."""
HEIC = tuple(b"ftyp" + brand for brand in (b"heic", b"heix", b"heim", b"heis", b"mif1"))
"""How the photographs of many phones begin, after the first four bytes."""

_FILTERS = threading.Lock()
"""The filters of warnings belong to the process, and pictures are decoded in threads."""


def decode(
    data: bytes,
    *,
    size: int,
    where: str,
    box: tuple[int, int, int, int] | None = None,
    crop: bool = False,
) -> UInt8[np.ndarray, "size size 3"]:
    """Decode a picture and resize it to `size x size` pixels.

    With a `box` (left, top, right, bottom; the last two outside) only its content is kept.

    A grey picture gets three equal channels and 16 bits become 8. Transparent pixels are laid on
    white, or on black if the rest is nearly white. A picture is turned as its camera's orientation
    says, but a box counts pixels before it is turned. Of an animation the first picture is read. A
    picture that is not square is stretched: no part of it is lost, unless `crop` first cuts off the
    ends of its longer side. Shrinking averages over areas; enlarging is bilinear.

    **Raises** `ValueError`, which names `where`, for data that are not a complete picture.
    """
    picture = _opened(data, where)
    if box is None:
        picture.draft(None, (2 * size, 2 * size))
    pixels = rgb(_loaded(picture, data, where, upright=box is None), where)
    if box is not None:
        left, top, right, bottom = box
        pixels = pixels[top:bottom, left:right]
        if not pixels.size:
            raise ValueError(
                f"{where}: expected a box within the image, got {box}; fetch the archive again"
            )
    return resize(cropped(pixels) if crop else pixels, size)


def cropped(pixels: UInt8[np.ndarray, "h w 3"]) -> UInt8[np.ndarray, "h2 w2 3"]:
    """A picture without both ends of its longer side, which becomes the geometric mean of both
    sides: half-way between stretching and cropping a square, which loses or distorts less than
    either."""
    height, width = pixels.shape[:2]
    kept = math.isqrt(height * width)
    top, left = max(height - kept, 0) // 2, max(width - kept, 0) // 2
    return pixels[top : top + min(height, kept), left : left + min(width, kept)]


class Encoded(NamedTuple):
    """A picture that is not yet decoded."""

    where: str
    """Its name in messages."""
    read: Callable[[], bytes]
    box: tuple[int, int, int, int] | None = None
    """The part to keep, as in `decode`; None for the whole."""


def decoded(
    pictures: Iterable[Encoded], *, size: int, crop: bool = False
) -> Iterator[UInt8[np.ndarray, "size size 3"]]:
    """The pictures in order. They are decoded on all cores, a few ahead of the one that is asked
    for, and read one after the other in the thread of the caller.

    **Raises** `ValueError` as `decode` does.
    """
    waiting: deque[Future[np.ndarray]] = deque()
    with ThreadPoolExecutor(cores()) as pool:
        try:
            for where, read, box in pictures:
                job = partial(decode, size=size, where=where, box=box, crop=crop)
                waiting.append(pool.submit(job, read()))
                if len(waiting) > 4 * cores():
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def shortest_side(data: bytes, *, where: str) -> int:
    """The shorter side of a picture in pixels, as its header states it.

    **Raises** `ValueError`, which names `where`, for data that are not a picture.
    """
    return min(_opened(data, where).size)


def resize(image: np.ndarray, size: int) -> np.ndarray:
    """Stretch pixels `[h, w, 3]` to `size x size`: areas are averaged, or enlarged bilinearly."""
    height, width = image.shape[:2]
    # In two passes, so that a long and narrow image is averaged along one side only.
    small = cv2.resize(image, (min(width, size), min(height, size)), interpolation=cv2.INTER_AREA)
    return cv2.resize(small, (size, size), interpolation=cv2.INTER_LINEAR)


def _opened(data: bytes, where: str) -> Image.Image:
    """A picture whose header is read, and nothing else."""
    if not data:
        raise _refused(where, "an empty file")
    if data[:256].lstrip().lower().startswith((b"<!doctype", b"<html")):
        raise _refused(where, "a web page")
    try:
        with _FILTERS, warnings.catch_warnings():
            # It warns of large pictures, which are refused here, and of odd tags.
            warnings.simplefilter("ignore")
            Image.init()
            known = [name for name in FORMATS if name in Image.OPEN]
            picture = Image.open(io.BytesIO(data), formats=known)
            pixels = picture.width * picture.height
    except Image.DecompressionBombError:
        pixels = PIXEL_LIMIT + 1
    except Exception as error:  # damaged data raise errors of many kinds
        if data[4:12] in HEIC:
            raise _refused(
                where, "a HEIC picture: install pillow-heif to read it, or save it as JPEG"
            ) from error
        raise _refused(where, "data that cannot be decoded") from error
    if pixels > PIXEL_LIMIT:
        raise _refused(where, f"more than {PIXEL_LIMIT} pixels")
    return picture


def _loaded(picture: Image.Image, data: bytes, where: str, *, upright: bool) -> Image.Image:
    """The picture with its pixels."""
    kind = picture.format or "picture"
    if kind == "PNG" and not _has_end(data):
        raise _refused(where, "a PNG that is cut short")
    try:
        picture.load()
        turn = UPRIGHT.get(_orientation(picture)) if upright else None
        return picture if turn is None else picture.transpose(turn)
    except Exception as error:
        cut = "truncated" in str(error)
        raise _refused(
            where, f"a {kind} that is cut short" if cut else "data that cannot be decoded"
        ) from error


def _orientation(picture: Image.Image) -> Any:
    try:
        with _FILTERS, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return picture.getexif().get(ORIENTATION)
    except Exception:  # damaged EXIF data are no reason to refuse a picture
        return None


def _has_end(data: bytes) -> bool:
    """Whether the chunks of a PNG lead to its end. Pillow reads no further than the last pixel, and
    a picture whose end is missing may lack others, too."""
    at = 8
    while at + 12 <= len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        if kind == b"IEND":
            return True
        at += 12 + length
    return False


def rgb(picture: Image.Image, where: str) -> UInt8[np.ndarray, "h w 3"]:
    """The pixels of a loaded picture of any mode as 8-bit RGB; transparent ones as in `decode`."""
    if picture.mode.startswith("I"):
        deep = np.asarray(picture).astype(np.int64)
        if deep.min() < 0 or deep.max() > 65535:
            raise _refused(where, "pixels of 32 bits, not 8 or 16")
        return np.repeat(((deep + 128) // 257).astype(np.uint8)[..., None], 3, axis=-1)
    if picture.mode == "F":
        raise _refused(where, "pixels of fractions, not of 8 or 16 bits")
    if not picture.has_transparency_data:
        return np.asarray(picture.convert("RGB"))
    rgba = np.asarray(picture.convert("RGBA"))
    colours, opacity = rgba[..., :3], rgba[..., 3:].astype(np.float32) / 255
    if opacity.min() == 1:
        return np.ascontiguousarray(colours)
    brightness = float(np.mean(colours * opacity)) / max(float(np.mean(opacity)), 1e-6)
    paper = 0 if brightness > PAPER else 255
    return np.rint(colours * opacity + paper * (1 - opacity)).astype(np.uint8)


def _refused(where: str, problem: str) -> ValueError:
    return ValueError(
        f"{where}: expected an image (PNG, JPEG, WebP, BMP, TIFF, ...), got {problem}; "
        "remove or replace the file"
    )
