"""From one image file to RGB bytes of a given size."""

import io
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import cv2
import numpy as np
from jaxtyping import UInt8

PIXEL_LIMIT = 2**27
"""The most pixels of one picture: a few kilobytes can unpack to gigabytes."""

ORIENTATION = 0x0112
"""The number of this entry of EXIF data."""
HEIC = tuple(b"ftyp" + brand for brand in (b"heic", b"heix", b"heim", b"heis", b"mif1"))
"""How the photographs of many phones begin, after the first four bytes."""


@contextmanager
def quiet() -> Iterator[None]:
    """Keep OpenCV's log off the terminal: our own error of one line reports an unreadable file."""
    logging = cv2.utils.logging
    before = logging.setLogLevel(logging.LOG_LEVEL_SILENT)
    try:
        yield
    finally:
        logging.setLogLevel(before)


def decode(
    data: bytes, *, size: int, where: str, box: tuple[int, int, int, int] | None = None
) -> UInt8[np.ndarray, "size size 3"]:
    """Decode an image of any kind that OpenCV reads, and resize it to `size x size` pixels.

    With a `box` (left, top, right, bottom; the last two outside) only its content is kept.

    A grey image gets three equal channels, transparent pixels are laid on white, 16 bits become 8,
    and a picture is turned as its camera's orientation says. An image that is not square is
    stretched, not cropped: no part of it is lost. Shrinking averages over areas; enlarging is
    bilinear.

    **Raises** `ValueError`, which names `where`, for data that are not a complete image.
    """
    # A box counts pixels before the image is turned.
    image = _rgb(_read(data, where, cv2.IMREAD_IGNORE_ORIENTATION if box is not None else 0))
    if box is not None:
        left, top, right, bottom = box
        image = image[top:bottom, left:right]
        if not image.size:
            raise ValueError(
                f"{where}: expected a box within the image, got {box}; fetch the archive again"
            )
    return resize(image, size)


def shortest_side(data: bytes, *, where: str) -> int:
    """The shorter side of an image in pixels.

    **Raises** `ValueError`, which names `where`, for data that are not a complete image.
    """
    return int(min(_read(data, where).shape[:2]))


def _read(data: bytes, where: str, flags: int = 0) -> Any:
    """The image as OpenCV returns it."""
    problem = _problem(data)
    image = None
    if problem is None:
        # A JPEG has no alpha and at most 8 bits. OpenCV resolves its orientation and CMYK.
        mode = cv2.IMREAD_COLOR if data.startswith(b"\xff\xd8") else cv2.IMREAD_UNCHANGED
        try:
            image = cv2.imdecode(np.frombuffer(data, np.uint8), mode | flags)
        except cv2.error:
            image = None
        if image is None:
            problem = "data that cannot be decoded"
        elif image.dtype not in (np.uint8, np.uint16):
            problem = f"pixels of type {image.dtype}, not 8 or 16 bit"
        elif not flags & cv2.IMREAD_IGNORE_ORIENTATION:
            image = _upright(image, data)
    if problem is not None:
        raise ValueError(
            f"{where}: expected an image (PNG, JPEG, WebP, BMP, TIFF, ...), got {problem}; "
            "remove or replace the file"
        )
    return image


def _upright(image: Any, data: bytes) -> Any:
    """A PNG or WebP turned as its EXIF data say; OpenCV does it for other formats."""
    chunk = {b"\x89PNG": b"eXIf", b"RIFF": b"EXIF"}.get(data[:4])
    if chunk is None or chunk not in data:
        return image
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as picture:
            orientation = picture.getexif().get(ORIENTATION, 1)
    except (OSError, SyntaxError, ValueError, struct.error):  # no EXIF data after all
        return image
    if orientation in (5, 6, 7, 8):
        image = image.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        image = image[::-1]
    if orientation in (2, 3, 6, 7):
        image = image[:, ::-1]
    return np.ascontiguousarray(image)


def _problem(data: bytes) -> str | None:
    """The reason to refuse the data; None if there is none. OpenCV itself accepts a truncated image
    and fills the missing part."""
    if not data:
        return "an empty file"
    if data[:256].lstrip().lower().startswith((b"<!doctype", b"<html")):
        return "a web page"
    if _jpeg_pixels(data) > PIXEL_LIMIT:
        return f"a JPEG of {_jpeg_pixels(data)} pixels, the limit is {PIXEL_LIMIT}"
    # A thumbnail is a complete JPEG inside: the last end must follow the start of the last scan.
    if data.startswith(b"\xff\xd8") and data.rfind(b"\xff\xd9") < data.rfind(b"\xff\xda"):
        return "a JPEG that is cut short"
    if data.startswith(b"\x89PNG"):
        if b"IEND\xaeB`\x82" not in data[-4096:] or len(data) < 24:
            return "a PNG that is cut short"
        width, height = struct.unpack(">II", data[16:24])
        if width * height > PIXEL_LIMIT:
            return f"a PNG of {width} x {height} pixels, the limit is {PIXEL_LIMIT} in all"
    elif not data.startswith(b"\xff\xd8"):
        return _problem_of_others(data)
    return None


def _problem_of_others(data: bytes) -> str | None:
    """The reason to refuse another format: Pillow reads the size in its header, and unpacks
    nothing."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of large pictures, which are refused here
            with Image.open(io.BytesIO(data)) as picture:
                pixels = picture.width * picture.height
    except Image.DecompressionBombError:
        pixels = PIXEL_LIMIT + 1
    except Exception:  # damaged data raise errors of many kinds
        if data[4:12] in HEIC:
            return "a HEIC picture, which cannot be read here: save it as JPEG"
        return "data that cannot be decoded: not even its size can be read"
    return f"more than {PIXEL_LIMIT} pixels" if pixels > PIXEL_LIMIT else None


def _jpeg_pixels(data: bytes) -> int:
    """The number of pixels that the header of a JPEG states; 0 if the data have no such header."""
    at = 2
    while data.startswith(b"\xff\xd8") and at + 9 <= len(data) and data[at] == 0xFF:
        kind = data[at + 1]
        if 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return int(height * width)
        # Fill bytes may stand before a marker.
        at += 1 if kind == 0xFF else 2 + struct.unpack(">H", data[at + 2 : at + 4])[0]
    return 0


def _rgb(image: np.ndarray) -> np.ndarray:
    """OpenCV's grey, grey and alpha, BGR or BGRA, 8 or 16 bit, to 8-bit RGB."""
    if image.dtype == np.uint16:
        image = ((image.astype(np.uint32) + 128) // 257).astype(np.uint8)
    image = image.reshape(*image.shape[:2], -1)
    alpha = image[..., -1:] if image.shape[-1] in (2, 4) else None
    colours = image[..., :1] if image.shape[-1] < 3 else image[..., 2::-1]
    if alpha is not None and alpha.min() < 255:
        opacity = alpha.astype(np.float32) / 255
        colours = np.rint(colours * opacity + 255 * (1 - opacity)).astype(np.uint8)
    return np.ascontiguousarray(np.broadcast_to(colours, (*image.shape[:2], 3)))


def resize(image: np.ndarray, size: int) -> np.ndarray:
    """Stretch pixels `[h, w, 3]` to `size x size`: areas are averaged, or enlarged bilinearly."""
    height, width = image.shape[:2]
    # In two passes, so that a long and narrow image is averaged along one side only.
    small = cv2.resize(image, (min(width, size), min(height, size)), interpolation=cv2.INTER_AREA)
    return cv2.resize(small, (size, size), interpolation=cv2.INTER_LINEAR)
