"""Every kind of image file becomes RGB bytes of one size; the blur and the pencil filter."""

import hashlib
import io
import zlib

import cv2
import numpy as np
import pytest
from PIL import Image, ImageOps

from arml.datasets.decode import BLUR_DEVIATION, FILTERS, blur, decode, resize

RED = (200, 40, 10)
NOISE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (60, 80, 3), np.uint8))


def saved(picture: Image.Image | np.ndarray, kind: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    picture = Image.fromarray(picture) if isinstance(picture, np.ndarray) else picture
    picture.save(file, kind, **options)
    return file.getvalue()


def pixel(data: bytes) -> list[int]:
    image = decode(data, size=4, where="x")
    assert image.shape == (4, 4, 3)
    assert image.dtype == np.uint8
    return image[0, 0].tolist()


def test_every_kind_of_pixel_becomes_rgb():
    size = (6, 6)
    grey, red = np.full(size, 77, np.uint8), np.full((*size, 3), RED, np.uint8)
    palette = Image.new("P", size, 1)
    palette.putpalette([0, 0, 0, *RED])
    deep = np.dstack([red[..., ::-1].astype(np.uint16) * 257, np.full(size, 65535, np.uint16)])
    for data, expected in (
        (saved(grey), [77] * 3),
        (saved(grey.astype(np.uint16) * 257), [77] * 3),
        (saved(red), RED),
        (cv2.imencode(".png", deep)[1].tobytes(), RED),
        (saved(Image.new("RGBA", size, (*RED, 0))), [255] * 3),
        (saved(Image.new("RGBA", size, (*RED, 51))), [244, 212, 206]),  # a fifth
        (saved(Image.new("LA", size, (77, 255))), [77] * 3),
        (saved(Image.new("LA", size, (77, 0))), [255] * 3),
        (saved(palette), RED),
        (saved(palette, transparency=1), [255] * 3),
    ):
        assert pixel(data) == list(expected)
    for kind in ("JPEG", "BMP", "TIFF", "WEBP", "AVIF", "JPEG2000"):
        np.testing.assert_allclose(pixel(saved(red, kind)), RED, atol=6, err_msg=kind)
    cmyk = Image.new("RGB", size, RED).convert("CMYK")  # as some files of ImageNet
    np.testing.assert_allclose(pixel(saved(cmyk, "JPEG")), RED, atol=3)


@pytest.mark.parametrize("kind", ["GIF", "WEBP"])
def test_the_first_picture_of_an_animation(kind):
    frames = [Image.new("RGB", (32, 32), colour) for colour in ("red", "blue")]
    got = pixel(saved(frames[0], kind, save_all=True, append_images=frames[1:]))
    np.testing.assert_allclose(got, [255, 0, 0], atol=6)


@pytest.mark.parametrize("kind", ["png", "webp", "jpeg", "tiff"])
def test_a_picture_is_turned_as_its_exif_data_say(kind):
    image = np.kron(np.arange(0, 240, 40).reshape(2, 3), np.ones((16, 16))).astype(np.uint8)
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        data = saved(Image.fromarray(image).convert("RGB"), kind, exif=exif)
        with Image.open(io.BytesIO(data)) as picture:
            expected = ImageOps.exif_transpose(picture).convert("RGB").resize((16, 16))
        got = decode(data, size=16, where="x")
        np.testing.assert_allclose(got[::8, ::8], np.asarray(expected)[::8, ::8], atol=12)


def test_shrinking_averages_and_a_long_image_is_stretched():
    stripes = np.tile(np.array([0, 200], np.uint8), (8, 40))  # 8 high, 80 wide
    image = decode(saved(stripes), size=10, where="x")
    assert image.shape == (10, 10, 3)
    assert np.all(image == 100)


@pytest.mark.parametrize("kind", ["BMP", "PNG", "JPEG"])
def test_a_small_file_of_many_pixels_is_refused_by_its_header(kind):
    """Run-length encoded, a kilobyte could unpack to gigabytes."""
    data, side = bytearray(saved(NOISE, kind)), 30_000
    if kind == "BMP":
        data[18:26] = side.to_bytes(4, "little") * 2
    elif kind == "PNG":
        data[16:24] = side.to_bytes(4, "big") * 2
        data[29:33] = zlib.crc32(data[12:29]).to_bytes(4, "big")
    else:
        at = data.index(b"\xff\xc0") + 5
        data[at : at + 4] = side.to_bytes(2, "big") * 2
    with pytest.raises(ValueError, match="more than 134217728 pixels"):
        decode(bytes(data), size=4, where="x")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "an empty file"),
        (b"just words", "data that cannot be decoded"),
        (b"#?RADIANCE\nFORMAT=32-bit_rle_rgbe\n\n-Y 90000 +X 90000\n", "cannot be decoded"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "got a HEIC picture: .* or save it as JPEG"),
    ],
)
def test_other_files_are_refused_by_their_kind(data, said):
    with pytest.raises(ValueError, match=rf"x: expected an image .*{said}"):
        decode(data, size=4, where="x")


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_what_follows_the_end_of_a_picture_is_no_part_of_it(kind):
    """Phones append a video to a photograph, whose bytes may look like markers of a JPEG."""
    whole = saved(NOISE, kind)
    video = b"\0\0\0\x18ftypmp42" + bytes(5_000) + b"\xff\xda" + bytes(100)
    expected = decode(whole, size=16, where="x")
    np.testing.assert_array_equal(decode(whole + video, size=16, where="x"), expected)
    with pytest.raises(ValueError, match=f"a {kind} that is cut short"):
        decode(whole[: len(whole) * 2 // 3], size=16, where="x")


@pytest.mark.parametrize(("ink", "paper"), [(255, 0), (60, 255)])
def test_a_drawing_on_a_transparent_ground_is_seen(ink, paper):
    drawing = np.zeros((16, 16, 4), np.uint8)
    drawing[4:12, 4:12] = ink, ink, ink, 255
    image = decode(saved(drawing), size=16, where="x")
    assert (image[0, 0, 0], image[8, 8, 0]) == (paper, ink)


def test_dark_pictures_of_16_bits_are_stretched_and_tiny_ones_are_doubted():
    """A microscope writes 12 bits into 16."""
    deep, said = np.linspace(0, 4000, 400).astype(np.uint16).reshape(20, 20), []
    got = decode(saved(deep), size=20, where="x.png", tell=said.append)
    assert (got.min(), got.max()) == (0, 255)
    assert said == ["x.png: 4000 of 65535 values are used: stretched to the whole range"]
    decode(saved(deep * 16), size=20, where="y.png", tell=said.append)
    decode(saved(deep[:9] * 16), size=20, where="z.png", tell=said.append)
    assert said[1:] == ["z.png: a picture of 20 x 9 px shows very little"]
    decode(saved(np.full((20, 20, 3), 15, np.uint8)), size=20, where="n.png", tell=said.append)
    assert said[2:] == ["n.png: a picture that is nearly black (its largest value is 15 of 255)"]


def test_a_large_photograph_is_unpacked_small_and_looks_the_same():
    y, x = np.mgrid[:1600, :2000]
    smooth = np.stack([x * 255 // 2000, y * 255 // 1600, (x + y) * 255 // 3600], -1)
    picture = smooth.astype(np.uint8)
    small = decode(saved(picture, "JPEG", quality=95), size=32, where="x").astype(int)
    np.testing.assert_allclose(small, resize(picture, 32).astype(int), atol=4)


# --- filters


def pictures(size: int = 32) -> np.ndarray:
    """A bright disc on a dark ground, a dark line on paper, and noise."""
    across = np.arange(size)
    disc = np.hypot(*np.meshgrid(across - size / 2, across - size / 2)) < size / 4
    line = np.abs(across[:, None] - across[None]) < size / 16
    noise = np.random.default_rng(0).integers(0, 256, (size, size, 3))
    flat = [np.where(disc, 220, 40), np.where(line, 60, 230)]
    return np.stack([*(np.repeat(f[..., None], 3, -1) for f in flat), noise]).astype(np.uint8)


def test_blur_is_a_gaussian_of_its_width():
    point = np.zeros((64, 64, 3), np.uint8)
    point[32, 32] = 255
    row = blur(point)[..., 0].astype(float).sum(0)
    width = np.sqrt((row * (np.arange(64) - 32) ** 2).sum() / row.sum())
    assert width == pytest.approx(64 * BLUR_DEVIATION, rel=0.15)  # its tails are cut off
    np.testing.assert_array_equal(blur(np.full((32, 32, 3), 77, np.uint8)), 77)


def test_the_filters_are_what_they_were():
    """Whole numbers all the way: the same on every machine and version, or data sets differ."""
    given, digests = pictures(), {}
    for name, change in FILTERS.items():
        drawn = b"".join(change(one).tobytes() for one in given)
        digests[name] = hashlib.sha256(drawn).hexdigest()[:16]
    assert digests == {"blur": "f9185165787f757b", "pencil": "9da50106988b3fd6"}
    np.testing.assert_array_equal(given, pictures())  # they are not changed


@pytest.mark.parametrize("crop", [False, True, 0.875, (0.5, 0.7)])
def test_a_large_jpeg_is_unpacked_smaller_and_looks_the_same(crop, monkeypatch):
    noise = np.random.default_rng(0).normal(128, 20, (15, 20, 3)).clip(0, 255).astype(np.uint8)
    picture = Image.fromarray(cv2.resize(noise, (400, 300), interpolation=cv2.INTER_CUBIC))
    unpacked = []

    def spied(loaded):
        unpacked.append(min(loaded.size))
        return load(loaded)

    def pixels(size, kind):
        file = io.BytesIO()
        picture.save(file, kind, quality=95)
        return decode(file.getvalue(), size=size, where="a", crop=crop).astype(int)

    load = ImageOps.exif_transpose
    monkeypatch.setattr(ImageOps, "exif_transpose", spied)
    for size in (20, 48, 90):
        assert np.abs(pixels(size, "JPEG") - pixels(size, "PNG")).mean() < 5
        # Nothing that was cut out is enlarged.
        part = min(crop) if isinstance(crop, tuple) else crop or 1
        assert size <= part * unpacked[-2] < 3.5 * size or unpacked[-2] == 300
    assert min(unpacked) < 300
