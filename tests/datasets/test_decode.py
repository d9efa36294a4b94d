"""Every kind of image file becomes RGB bytes of one size; the blur and the pencil filter."""

import hashlib
import io

import cv2
import numpy as np
import pytest
from PIL import Image

from arml.datasets.decode import BLUR, FILTERS, blur, decode, pencil, resize


def png(value: int | np.ndarray = 0, size: int = 8) -> bytes:
    image = np.full((size, size), value, np.uint8) if isinstance(value, int) else value
    return cv2.imencode(".png", image)[1].tobytes()


def pixel(data: bytes) -> list[int]:
    image = decode(data, size=4, where="x")
    assert image.shape == (4, 4, 3)
    assert image.dtype == np.uint8
    return image[0, 0].tolist()


def test_every_kind_of_pixel_becomes_rgb():
    grey = np.full((6, 6), 77, np.uint8)
    bgr = np.full((6, 6, 3), (10, 40, 200), np.uint8)
    assert pixel(png(grey)) == [77, 77, 77]
    assert pixel(png(bgr)) == [200, 40, 10]
    assert pixel(png(grey.astype(np.uint16) * 257)) == [77, 77, 77]
    clear = np.dstack([bgr, np.zeros((6, 6), np.uint8)])
    assert pixel(png(clear)) == [255, 255, 255]
    half = np.dstack([bgr, np.full((6, 6), 51, np.uint8)])  # a fifth
    assert pixel(png(half)) == [244, 212, 206]
    deep = np.dstack([bgr.astype(np.uint16) * 257, np.full((6, 6), 65535, np.uint16)])
    assert pixel(png(deep)) == [200, 40, 10]
    for suffix in (".jpg", ".bmp", ".tiff", ".webp"):
        got = pixel(cv2.imencode(suffix, bgr)[1].tobytes())
        np.testing.assert_allclose(got, [200, 40, 10], atol=3, err_msg=suffix)


@pytest.mark.parametrize("kind", ["png", "webp", "jpeg", "tiff"])
def test_a_picture_is_turned_as_its_exif_data_say(kind):
    pil, ops = pytest.importorskip("PIL.Image"), pytest.importorskip("PIL.ImageOps")
    image = np.kron(np.arange(0, 240, 40).reshape(2, 3), np.ones((16, 16))).astype(np.uint8)
    for orientation in range(1, 9):
        exif = pil.Exif()
        exif[0x0112] = orientation
        file = io.BytesIO()
        pil.fromarray(image).convert("RGB").save(file, kind, exif=exif)
        with pil.open(file) as picture:
            expected = np.asarray(ops.exif_transpose(picture).convert("RGB").resize((16, 16)))
        got = decode(file.getvalue(), size=16, where="x")
        np.testing.assert_allclose(got[::8, ::8], expected[::8, ::8], atol=12)


def test_palette_grey_alpha_and_cmyk_become_rgb():
    pil = pytest.importorskip("PIL.Image")

    def encoded(image: object, kind: str, **options: object) -> bytes:
        file = io.BytesIO()
        image.save(file, kind, **options)
        return file.getvalue()

    palette = pil.new("P", (6, 6), 1)
    palette.putpalette([0, 0, 0, 200, 40, 10])
    assert pixel(encoded(palette, "PNG")) == [200, 40, 10]
    assert pixel(encoded(palette, "PNG", transparency=1)) == [255, 255, 255]
    assert pixel(encoded(pil.new("LA", (6, 6), (77, 255)), "PNG")) == [77, 77, 77]
    assert pixel(encoded(pil.new("LA", (6, 6), (77, 0)), "PNG")) == [255, 255, 255]
    cmyk = pil.new("RGB", (6, 6), (200, 40, 10)).convert("CMYK")
    np.testing.assert_allclose(pixel(encoded(cmyk, "JPEG")), [200, 40, 10], atol=3)


def test_shrinking_averages_and_a_long_image_is_stretched():
    stripes = np.tile(np.array([0, 200], np.uint8), (8, 40))  # 8 high, 80 wide
    image = decode(png(stripes), size=10, where="x")
    assert image.shape == (10, 10, 3)
    assert np.all(image == 100)


@pytest.mark.parametrize(("side", "said"), [(30_000, "more than 134217728 pixels"), (8, None)])
def test_a_small_file_of_many_pixels_is_refused_by_its_header(side, said):
    """One bit a pixel, run-length encoded: a kilobyte could unpack to gigabytes."""
    whole = cv2.imencode(".bmp", np.zeros((8, 8, 3), np.uint8))[1].tobytes()
    data = whole[:18] + side.to_bytes(4, "little") * 2 + whole[26:]
    if said is None:
        assert decode(data, size=4, where="x").shape == (4, 4, 3)
    else:
        with pytest.raises(ValueError, match=said):
            decode(data, size=4, where="x")


def test_another_format_is_refused():
    with pytest.raises(ValueError, match="data that cannot be decoded"):
        decode(b"#?RADIANCE\nFORMAT=32-bit_rle_rgbe\n\n-Y 90000 +X 90000\n", size=4, where="x")


def test_the_photographs_of_a_phone_are_refused_by_their_kind():
    with pytest.raises(ValueError, match=r"a\.heic: .* got a HEIC picture: .* or save it as JPEG"):
        decode(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", size=16, where="a.heic")


def saved(picture: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


NOISE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (60, 80, 3), np.uint8))


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_what_follows_the_end_of_a_picture_is_no_part_of_it(kind):
    """Phones append a video to a photograph, whose bytes may look like markers of a JPEG."""
    whole = saved(NOISE, kind)
    video = b"\0\0\0\x18ftypmp42" + bytes(5_000) + b"\xff\xda" + bytes(100)
    expected = decode(whole, size=16, where="x")
    np.testing.assert_array_equal(decode(whole + video, size=16, where="x"), expected)
    with pytest.raises(ValueError, match=f"a {kind} that is cut short"):
        decode(whole[: len(whole) * 2 // 3], size=16, where="x")


def test_a_white_drawing_on_a_transparent_ground_is_seen():
    drawing = np.zeros((16, 16, 4), np.uint8)
    drawing[4:12, 4:12] = 255
    white = decode(saved(Image.fromarray(drawing), "PNG"), size=16, where="x")
    assert (white[0, 0, 0], white[8, 8, 0]) == (0, 255)
    drawing[4:12, 4:12, :3] = 60
    dark = decode(saved(Image.fromarray(drawing), "PNG"), size=16, where="x")
    assert (dark[0, 0, 0], dark[8, 8, 0]) == (255, 60)


@pytest.mark.parametrize("kind", ["AVIF", "JPEG2000", "GIF", "WEBP"])
def test_other_formats_and_the_first_picture_of_an_animation(kind):
    frames = [Image.new("RGB", (32, 32), colour) for colour in ("red", "blue")]
    options = {"save_all": True, "append_images": frames[1:]} if kind in ("GIF", "WEBP") else {}
    got = decode(saved(frames[0], kind, **options), size=4, where="x")[0, 0].astype(int)
    np.testing.assert_allclose(got, [255, 0, 0], atol=6)


def test_dark_pictures_of_16_bits_are_stretched_and_tiny_ones_are_doubted():
    """A microscope writes 12 bits into 16."""
    deep, said = np.linspace(0, 4000, 400).astype(np.uint16).reshape(20, 20), []
    got = decode(saved(Image.fromarray(deep), "PNG"), size=20, where="x.png", tell=said.append)
    assert (got.min(), got.max()) == (0, 255)
    assert said == ["x.png: 4000 of 65535 values are used: stretched to the whole range"]
    decode(saved(Image.fromarray(deep * 16), "PNG"), size=20, where="y.png", tell=said.append)
    assert len(said) == 1
    decode(saved(Image.fromarray(deep[:9] * 16), "PNG"), size=20, where="z.png", tell=said.append)
    assert said[1:] == ["z.png: a picture of 20 x 9 px shows very little"]


def test_a_large_photograph_is_unpacked_small_and_looks_the_same():
    y, x = np.mgrid[:1600, :2000]
    smooth = np.stack([x * 255 // 2000, y * 255 // 1600, (x + y) * 255 // 3600], -1)
    picture = Image.fromarray(smooth.astype(np.uint8))
    small = decode(saved(picture, "JPEG", quality=95), size=32, where="x").astype(int)
    np.testing.assert_allclose(small, resize(np.asarray(picture), 32).astype(int), atol=4)


# --- filters


def pictures(size: int = 32) -> np.ndarray:
    """A bright disc on a dark ground, a dark line on paper, and noise."""
    across = np.arange(size)
    disc = np.hypot(*np.meshgrid(across - size / 2, across - size / 2)) < size / 4
    line = np.abs(across[:, None] - across[None]) < size / 16
    noise = np.random.default_rng(0).integers(0, 256, (size, size, 3))
    flat = [np.where(disc, 220, 40), np.where(line, 60, 230)]
    return np.stack([*(np.repeat(f[..., None], 3, -1) for f in flat), noise]).astype(np.uint8)


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("size", [28, 32, 84])
def test_a_filter_keeps_shape_and_input(name, size):
    for image in pictures(size):
        before = image.copy()
        out = FILTERS[name](image)
        assert out.shape == image.shape
        assert out.dtype == np.uint8
        np.testing.assert_array_equal(image, before)
        assert not np.array_equal(out, image)


def test_blur_is_a_gaussian_of_its_width():
    point = np.zeros((64, 64, 3), np.uint8)
    point[32, 32] = 255
    out = blur(point)[..., 0].astype(float)
    row = out.sum(0)
    width = np.sqrt((row * (np.arange(64) - 32) ** 2).sum() / row.sum())
    assert width == pytest.approx(64 * BLUR, rel=0.15)  # its tails are cut off
    np.testing.assert_array_equal(blur(np.full((32, 32, 3), 77, np.uint8)), 77)


def test_a_picture_of_another_size_is_blurred_as_much():
    small = blur(pictures(32)[0]).astype(float)
    large = blur(pictures(96)[0]).astype(float)
    mean = large.reshape(32, 3, 32, 3, 3).mean((1, 3))
    assert np.abs(mean - small).mean() < 4
    assert np.abs(mean - pictures(32)[0]).mean() > 6


def test_pencil_draws_grey_lines_on_paper():
    disc, line, noise = map(pencil, pictures())
    for drawn in (disc, line, noise):
        np.testing.assert_array_equal(drawn[..., 0], drawn[..., 1])
        np.testing.assert_array_equal(drawn[..., 0], drawn[..., 2])
    # Even parts are paper, whatever their grey; a dark line stays dark.
    assert disc[16, 16, 0] > 245
    assert disc[1, 1, 0] > 245
    assert line[16, 16, 0] < 160
    assert line[1, 30, 0] > 245
    # The darker side of an edge is what is drawn.
    assert disc[16, 24:28, 0].min() < 120


def test_black_and_white_are_no_trouble():
    ends = np.stack([np.zeros((32, 32, 3)), np.full((32, 32, 3), 255)]).astype(np.uint8)
    for end in ends:
        np.testing.assert_array_equal(blur(end), end)
        np.testing.assert_array_equal(pencil(end), 255)


def test_the_filters_are_what_they_were():
    """Whole numbers all the way: the same on every machine and version, or data sets differ."""
    digests = {
        name: hashlib.sha256(b"".join(change(one).tobytes() for one in pictures())).hexdigest()[:16]
        for name, change in FILTERS.items()
    }
    assert digests == {"blur": "f9185165787f757b", "pencil": "9da50106988b3fd6"}
