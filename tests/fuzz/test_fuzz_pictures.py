"""Pictures whose bytes were altered: each is refused in one line, or is pixels of the right shape.

A flip in the pixels of a BMP or a JPEG cannot be seen: these formats have no checksum.
"""

from collections import Counter

import cv2
import numpy as np
import pytest

from arml.datasets import decode as decoding
from arml.datasets.decode import decode
from hostile import CASES, flipped, tried

KINDS = (".png", ".jpg", ".bmp", ".webp", ".tiff", ".ppm")


def damaged(data, rng):
    """Bytes with flips, a cut, a gap, a repetition, or a header of large numbers."""
    kind, at = rng.integers(5), int(rng.integers(len(data)))
    if kind == 0:
        for _ in range(int(rng.integers(1, 6))):
            data = flipped(data, rng)
        return data
    if kind == 1:
        return data[:at]
    if kind == 2:
        return data[:at] + data[at + int(rng.integers(1, 40)) :]
    if kind == 3:
        return data[:at] + data[at // 2 : at] + data[at:]
    place = int(rng.integers(min(60, len(data))))
    return data[:place] + b"\xff\x7f\xff\xff"[: int(rng.integers(1, 5))] + data[place + 4 :]


@pytest.mark.parametrize("cases", CASES)
def test_pictures_of_damaged_bytes(record_property, monkeypatch, cases):
    rng, counts = np.random.default_rng(cases), Counter()
    monkeypatch.setattr(decoding, "PIXEL_LIMIT", 2**22)
    wholes = [
        cv2.imencode(suffix, rng.integers(0, 256, (20, 30, channels), dtype=np.uint8))[1].tobytes()
        for suffix in KINDS
        for channels in ((3,) if suffix == ".ppm" else (1, 3))
    ]
    for whole in wholes:
        assert decode(whole, size=8, where="whole").shape == (8, 8, 3)
    for _ in range(cases):
        data = damaged(wholes[rng.integers(len(wholes))], rng)
        pixels = tried(lambda data=data: decode(data, size=8, where="a picture"), counts)
        if pixels is not None:
            assert pixels.shape == (8, 8, 3)
            assert pixels.dtype == np.uint8
    record_property("counts", f"{cases} damaged pictures: {dict(counts)}")
    assert counts["refused"] > counts.total() / 3
