"""Every kind of image file becomes RGB bytes of one size."""

import io

import cv2
import numpy as np
import pytest

from arml.datasets.decode import decode


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


def test_what_has_no_size_that_can_be_read_is_refused():
    with pytest.raises(ValueError, match="not even its size can be read"):
        decode(b"#?RADIANCE\nFORMAT=32-bit_rle_rgbe\n\n-Y 90000 +X 90000\n", size=4, where="x")


def test_the_photographs_of_a_phone_are_refused_by_their_kind():
    with pytest.raises(ValueError, match=r"a\.heic: .* got a HEIC picture, .*: save it as JPEG"):
        decode(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", size=16, where="a.heic")
