"""Decodes the bytes of one picture file to RGB pixels of a given size, and applies two filters.

Pillow decodes, although OpenCV unpacks a whole JPEG in half the time. Pillow stops at the end of a
picture if other data follow (phones append videos), reports an incomplete file instead of filling
it up, gives the size before it unpacks pixels, and reads AVIF. A JPEG that is much larger than the
wanted size is unpacked at a half, a quarter or an eighth of its size. For these, both libraries
take the same time. OpenCV resizes and filters.
"""

import contextlib
import io
import logging
import math
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import cv2
import numpy as np
from jaxtyping import UInt8
from PIL import ExifTags, Image, ImageOps

from arml.datasets.archives import Box, Member
from arml.results.machine import cores

with contextlib.suppress(ImportError):  # it is optional
    from pillow_heif import register_heif_opener

    register_heif_opener()

LOG = logging.getLogger("arml")
"""Says which pictures and folders are doubtful."""
PIXEL_LIMIT = 2**27
"""The most pixels of one picture: a few kilobytes can unpack to gigabytes."""
FORMATS = ("PNG", "JPEG", "MPO", "WEBP", "BMP", "GIF", "TIFF", "PPM", "AVIF", "JPEG2000", "HEIF")
"""The formats that are read. Pillow knows others, some of which start other programs."""
SUFFIXES = {
    *(".png", ".jpg", ".jpeg", ".jfif", ".bmp", ".gif", ".webp", ".tif"),
    *(".tiff", ".pgm", ".ppm", ".avif", ".jp2", ".heic", ".heif"),
}
"""The endings of file names that mark a picture."""
_WHITE_PAPER_BRIGHTNESS = 224
"""Drawings whose mean brightness is above this would vanish on white paper."""
HEIC = tuple(b"ftyp" + brand for brand in (b"heic", b"heix", b"heim", b"heis", b"mif1"))
"""How the photographs of many phones begin, after the first four bytes."""

MIN_TRUSTED_SIDE = 16
"""Pixels of a picture's shorter side below which it is doubted."""
SPARE_RESOLUTION = 1.5
"""A JPEG is unpacked at the smallest size that has this many pixels along each side for one that is
wanted, and then averaged; `benchmarks/README.md` says what that gains and changes."""
MIN_LIGHT = 16
"""A picture whose largest value is below this is doubted."""
MIN_16_BIT_VALUE = 2**12
"""Values of a camera of 12 bits."""
Tell = Callable[[str], object]
Crop = bool | float | Sequence[float]
"""Whether and how the ends of a picture are cut off: see `cropped`."""
_WARNING_FILTERS_LOCK = threading.Lock()
"""The filters of warnings belong to the process, and pictures are decoded in threads."""


def decode(
    data: bytes,
    *,
    size: int,
    where: str,
    box: Box | None = None,
    crop: Crop = False,
    tell: Tell = len,
) -> UInt8[np.ndarray, "size size 3"]:
    """Decode a picture and resize it to `size x size` pixels.

    With a `box` only its content is kept. `tell` is called with a line about a doubtful picture.

    A grey picture gets three equal channels and 16 bits become 8; a picture of 16 bits that uses 12
    of them at most, as cameras of microscopes do, is stretched to the whole range. Transparent
    pixels are laid on white, or on black if the rest is nearly white. A picture is turned as its
    camera's orientation says, but a box counts pixels before it is turned. Of an animation the
    first picture is read. A picture that is not square is stretched: no part of it is lost, unless
    `crop` first cuts off a part. Shrinking averages over areas; enlarging is bilinear.

    **Raises** `ValueError`, which names `where`, for data that are not a complete picture.
    """
    picture = _opened(data, where)
    try:
        if box is None:
            parts = crop if isinstance(crop, Sequence) else [crop or 1.0]
            picture.draft(
                None, (max(math.ceil(SPARE_RESOLUTION * size / min(parts)), MIN_TRUSTED_SIDE),) * 2
            )
        picture.load()
        with contextlib.suppress(Exception):  # a picture with damaged EXIF data is readable
            picture = picture if box else _quietly(lambda: ImageOps.exif_transpose(picture))
    except Exception as error:  # damaged data raise errors of many kinds
        cut = "truncated" in str(error)
        kind = f"a {picture.format} that is cut short" if cut else "data that cannot be decoded"
        raise UnreadableError(where, kind) from error
    pixels = rgb(picture, where, tell)
    if box is not None:
        left, top, right, bottom = box
        pixels = pixels[top:bottom, left:right]
        if not pixels.size:
            raise UnreadableError(where, f"one without the box {box}")
    if min(pixels.shape[:2]) < MIN_TRUSTED_SIDE:
        tell(f"{where}: a picture of {pixels.shape[1]} x {pixels.shape[0]} px shows very little")
    elif (highest := int(pixels.max())) < MIN_LIGHT:  # as of 16-bit colours that use 12 bits
        tell(f"{where}: a picture that is nearly black (its largest value is {highest} of 255)")
    return resize(cropped(pixels, crop), size)


def cropped(pixels: UInt8[np.ndarray, "h w 3"], crop: Crop) -> UInt8[np.ndarray, "h2 w2 3"]:
    """A part of a picture.

    **Arguments**

    - `crop`: True cuts off both ends of the longer side, which becomes the geometric mean of both
      sides: half-way between stretching and cropping a square, which loses or distorts less than
      either. A share up to 1 keeps the square in the middle whose side is this share of the shorter
      side, as ImageNet's test pictures are cropped (224 / 256). Two shares keep these parts of
      the height and of the width. False keeps all.
    """
    if crop is False:
        return pixels
    height, width = pixels.shape[:2]
    if crop is True:
        kept = (math.isqrt(height * width),) * 2
    elif isinstance(crop, Sequence):
        kept = (round(crop[0] * height), round(crop[1] * width))
    else:
        kept = (round(crop * min(height, width)),) * 2
    down, right = (min(max(k, 1), side) for k, side in zip(kept, (height, width), strict=True))
    top, left = (height - down) // 2, (width - right) // 2
    return pixels[top : top + down, left : left + right]


def decoded(
    pictures: Iterable[Member], *, size: int, crop: Crop = False
) -> Iterator[UInt8[np.ndarray, "size size 3"]]:
    """The pictures in order. They are decoded on all cores, a few ahead of the one that is asked
    for, and read one after the other in the thread of the caller.

    **Raises** `ValueError` as `decode` does.
    """
    waiting: deque[Future[np.ndarray]] = deque()
    with ThreadPoolExecutor(cores()) as pool:
        try:
            for one in pictures:
                job = partial(decode, size=size, where=one.where, box=one.box, crop=crop)
                waiting.append(pool.submit(job, one.read()))
                if len(waiting) > 4 * cores():
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def size_of(data: bytes, *, where: str) -> tuple[int, int]:
    """The width and the height of a picture in pixels, as its header states them.

    **Raises** `ValueError`, which names `where`, for data that are not a picture.
    """
    return _opened(data, where).size


def resize(image: np.ndarray, size: int) -> np.ndarray:
    """Stretch pixels `[h, w, 3]` to `size x size`: areas are averaged, or enlarged bilinearly."""
    height, width = image.shape[:2]
    # In two passes, so that a long and narrow image is averaged along one side only.
    small = cv2.resize(image, (min(width, size), min(height, size)), interpolation=cv2.INTER_AREA)
    return cv2.resize(small, (size, size), interpolation=cv2.INTER_LINEAR)


def captured(file: Member) -> str:
    """The second in which a photograph was taken, from its EXIF data; empty if they lack it, or if
    the file cannot be read."""
    with contextlib.suppress(Exception):
        facts = _opened(file.read(), "").getexif().get_ifd(ExifTags.IFD.Exif)
        return str(facts.get(ExifTags.Base.DateTimeOriginal, ""))
    return ""


def _opened(data: bytes, where: str) -> Image.Image:
    """A picture of which only the header has been read."""
    Image.init()
    known = [name for name in FORMATS if name in Image.OPEN]
    try:
        picture = _quietly(lambda: Image.open(io.BytesIO(data), formats=known))
        pixels = picture.width * picture.height
    except Image.DecompressionBombError:
        pixels = PIXEL_LIMIT + 1
    except Exception as error:  # damaged data raise errors of many kinds
        got = "data that cannot be decoded" if data else "an empty file"
        if data[4:12] in HEIC:
            got = "a HEIC picture: install pillow-heif to read it, or save it as JPEG"
        raise UnreadableError(where, got) from error
    if pixels > PIXEL_LIMIT:
        raise UnreadableError(where, f"more than {PIXEL_LIMIT} pixels")
    return picture


def _quietly(work: Callable[[], Image.Image]) -> Image.Image:
    """Without Pillow's warnings of large pictures, which are refused here, and of odd tags."""
    with _WARNING_FILTERS_LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return work()


def rgb(picture: Image.Image, where: str, tell: Tell = len) -> UInt8[np.ndarray, "h w 3"]:
    """The pixels of a loaded picture of any mode as 8-bit RGB, as in `decode`."""
    if picture.mode.startswith("I"):
        deep = np.asarray(picture).astype(np.int64)
        if deep.min() < 0 or deep.max() > 65535:
            raise UnreadableError(where, "pixels of 32 bits, not 8 or 16")
        highest = 65535
        if deep.max() < MIN_16_BIT_VALUE:
            highest = max(int(deep.max()), 255)
            tell(f"{where}: {highest} of 65535 values are used: stretched to the whole range")
        grey = (deep * 255 + highest // 2) // highest
        return np.repeat(grey.astype(np.uint8)[..., None], 3, axis=-1)
    if picture.mode == "F":
        raise UnreadableError(where, "pixels of fractions, not of 8 or 16 bits")
    if not picture.has_transparency_data:
        return np.asarray(picture.convert("RGB"))
    rgba = np.asarray(picture.convert("RGBA"))
    colours, opacity = rgba[..., :3], rgba[..., 3:].astype(np.float32) / 255
    if opacity.min() == 1:
        return np.ascontiguousarray(colours)
    brightness = float(np.mean(colours * opacity)) / max(float(np.mean(opacity)), 1e-6)
    paper = 0 if brightness > _WHITE_PAPER_BRIGHTNESS else 255
    return np.rint(colours * opacity + paper * (1 - opacity)).astype(np.uint8)


@contextlib.contextmanager
def logged() -> Iterator[list[str]]:
    """The different lines that the package logs meanwhile; the list is filled at the end."""
    found, lines, handler = list[str](), dict[str, None](), logging.Handler()
    handler.emit = lambda record: lines.setdefault(record.getMessage())  # type: ignore[method-assign]
    LOG.addHandler(handler)
    try:
        yield found
    finally:
        LOG.removeHandler(handler)
        found += lines


class UnreadableError(ValueError):
    """A file that is not a picture, or not what else was `wanted`: `where` it is, and the `problem`
    in words."""

    def __init__(
        self, where: str, problem: str, wanted: str = "an image (PNG, JPEG, WebP, BMP, TIFF, ...)"
    ) -> None:
        self.where, self.problem = where, problem
        super().__init__(f"{where}: expected {wanted}, got {problem}; remove or replace the file")


# --- the blur and the pencil filter of Art-Multi
#
# Art-Multi has each family of Plain-Multi also through these two filters (Yao et al., ARML, ICLR
# 2020, section 5.2 and appendix B.2). The paper says that OpenCV provides them, and shows one
# picture of each. Their kernels are not published, so the numbers here are our own. They are
# fractions of the picture's side: a picture of 32 px changes as much as one of 84 px.

BLUR_DEVIATION = 1 / 32
"""Standard deviation of the Gaussian, as a fraction of the shorter side: 1 px of 32, 2.6 of 84."""
PENCIL_DEVIATION = 1 / 20
"""The same for the surroundings with which the pencil filter compares: 1.6 px of 32, 4.2 of 84."""
MIN_PENCIL_GREY = np.uint8(16)
"""The pencil filter raises darker values to this one: black divided by black would stay black."""


def blur(image: UInt8[np.ndarray, "h w 3"]) -> UInt8[np.ndarray, "h w 3"]:
    """A picture through a Gaussian of `BLUR_DEVIATION`; the border is reflected."""
    return _gaussian(image, BLUR_DEVIATION)


def pencil(image: UInt8[np.ndarray, "h w 3"]) -> UInt8[np.ndarray, "h w 3"]:
    """A picture as a pencil drawing: grey lines on white paper.

    The usual recipe with OpenCV, `grey / (255 - blurred(255 - grey))` ("colour dodge"): a pixel
    that is as light as its surroundings becomes paper, and a darker one becomes a line.
    (`cv2.pencilSketch` smooths over 60 px, and leaves little of a picture of 32.)
    """
    grey = np.maximum(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), MIN_PENCIL_GREY)
    lines = cv2.divide(grey, 255 - _gaussian(255 - grey, PENCIL_DEVIATION), scale=255)
    return cv2.cvtColor(lines, cv2.COLOR_GRAY2RGB)


FILTERS = {"blur": blur, "pencil": pencil}
"""Every filter by name."""


def _gaussian(image: np.ndarray, part: float) -> np.ndarray:
    # OpenCV filters bytes in whole numbers: the result is the same on every machine.
    return cv2.GaussianBlur(image, (0, 0), part * min(image.shape[:2]))
