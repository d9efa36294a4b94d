"""Textures: a class is a wall or floor of Freedoom, a sample a window of it.

A WAD file is a list of lumps: `PLAYPAL` is the palette, a flat is 64 x 64 bytes of it, a wall is
put together from patches (pictures stored by column) as `TEXTURE1` and `PNAMES` say.
"""

import hashlib
import struct
from pathlib import Path

import cv2
import numpy as np

from vary import cropped, generator

FAMILY = "textures"
PACKAGE = "freedoom"
WAD = "usr/share/games/doom/freedoom2.wad"
CLASSES = 100
SAMPLES = 20
PLAIN = 9.0
"""The least standard deviation of grey in a texture, so that there is something to see."""
EVEN = 0.6
"""The least spread in a block of 32 pixels, as a part of the whole's, ..."""
LEVEL = 0.75
"""... and the greatest difference of its mean from the whole's: no pictures on plain walls."""
ALIKE = 0.4
"""Textures of a greater correlation, at any shift and quarter turn, are one class."""
PICTURES = Path(__file__).with_name("pictures.txt").read_text("utf-8").split()
"""Parts of the names of what shows a thing, lettering or a lamp, not a surface."""


def samples(packages: dict[str, Path]) -> dict[str, list[tuple[str, np.ndarray]]]:
    """`{class: [(source, uint8 [32, 32]), ...]}`."""
    chosen = distinct(textures(packages[PACKAGE] / WAD))
    return {
        name: [
            (name, cropped(grey, rng=generator(FAMILY, name, number))) for number in range(SAMPLES)
        ]
        for name, grey in sorted(chosen.items())
    }


def textures(path: Path) -> dict[str, np.ndarray]:
    """Every opaque wall and floor of 64 pixels a side or more, in grey."""
    lumps = read_wad(path)
    palette = np.frombuffer(lumps["PLAYPAL"][:768], np.uint8).reshape(1, 256, 3)
    grey = cv2.cvtColor(palette, cv2.COLOR_RGB2GRAY)[0]
    names = list(lumps)
    flats = {
        f"floor-{name.lower()}": np.frombuffer(lumps[name], np.uint8).reshape(64, 64)
        for name in names[names.index("F_START") : names.index("F_END")]
        if len(lumps[name]) == 4096
    }
    found = {**flats, **walls(lumps)}
    return {
        name: grey[picture]
        for name, picture in sorted(found.items())
        if picture.min() >= 0 and min(picture.shape) >= 64
    }


def read_wad(path: Path) -> dict[str, bytes]:
    """The lumps of a WAD file by name, in its order; of two of one name the first."""
    data = path.read_bytes()
    if data[:4] != b"IWAD":
        raise ValueError(f"{path}: expected an IWAD file, got {data[:4]!r}")
    count, start = struct.unpack("<ii", data[4:12])
    lumps: dict[str, bytes] = {}
    for place, size, name in struct.iter_unpack("<ii8s", data[start : start + 16 * count]):
        lumps.setdefault(text(name), data[place : place + size])
    return lumps


def text(name: bytes) -> str:
    return name.split(b"\0")[0].decode("ascii", "replace").upper()


def walls(lumps: dict[str, bytes]) -> dict[str, np.ndarray]:
    """Walls as palette indices, -1 where nothing covers them."""
    names = lumps["PNAMES"]
    patches = [text(names[at : at + 8]) for at in range(4, len(names), 8)]
    data = lumps["TEXTURE1"]
    (count,) = struct.unpack("<i", data[:4])
    made = {}
    for at in struct.unpack(f"<{count}i", data[4 : 4 + 4 * count]):
        width, height = struct.unpack("<hh", data[at + 12 : at + 16])
        (parts,) = struct.unpack("<h", data[at + 20 : at + 22])
        wall = np.full((height, width), -1)
        for left, top, patch, _, _ in struct.iter_unpack(
            "<hhhhh", data[at + 22 : at + 22 + 10 * parts]
        ):
            paste(wall, column_picture(lumps[patches[patch]]), top, left)
        made[f"wall-{text(data[at : at + 8]).lower()}"] = wall
    return made


def column_picture(data: bytes) -> np.ndarray:
    """A picture that is stored by column, each in runs from the top; -1 where there is no run."""
    width, height = struct.unpack("<hh", data[:4])
    picture = np.full((height, width), -1)
    for column, place in enumerate(struct.unpack(f"<{width}i", data[8 : 8 + 4 * width])):
        while data[place] != 255:
            top, length = data[place], data[place + 1]
            run = np.frombuffer(data, np.uint8, length, place + 3)[: max(0, height - top)]
            picture[top : top + length, column] = run
            place += length + 4
    return picture


def paste(wall: np.ndarray, patch: np.ndarray, top: int, left: int) -> None:
    """Lay a patch on a wall, whatever of it is inside."""
    rows = slice(max(top, 0), min(wall.shape[0], top + patch.shape[0]))
    columns = slice(max(left, 0), min(wall.shape[1], left + patch.shape[1]))
    if rows.start >= rows.stop or columns.start >= columns.stop:
        return
    part = patch[rows.start - top : rows.stop - top, columns.start - left : columns.stop - left]
    under = wall[rows, columns]
    under[part >= 0] = part[part >= 0]


def distinct(found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`CLASSES` textures, each much the same all over and unlike the others.

    They are tried in an order that means nothing.
    """
    kept: dict[str, np.ndarray] = {}
    spectra: list[np.ndarray] = []
    for name in sorted(found, key=lambda name: hashlib.sha256(name.encode()).digest()):
        grey = found[name]
        if len(kept) == CLASSES:
            break
        if any(part in name for part in PICTURES) or not even(grey):
            continue
        square = grey[:64, :64].astype(np.float64)
        normal = (square - square.mean()) / square.std() / 64
        turned = [np.fft.rfft2(np.rot90(normal, quarters)) for quarters in range(4)]
        likeness = [
            np.fft.irfft2(one * other.conj(), (64, 64)).max() for other in spectra for one in turned
        ]
        if max(likeness, default=0.0) < ALIKE:
            kept[name] = grey
            spectra.append(turned[0])
    return kept


def even(grey: np.ndarray) -> bool:
    """Whether every block of a texture has about the whole's mean and spread."""
    height, width = (side // 32 for side in grey.shape)
    blocks = grey[: height * 32, : width * 32].reshape(height, 32, width, 32).swapaxes(1, 2)
    spread, mean = blocks.std((2, 3)), blocks.mean((2, 3))
    whole = float(grey.std())
    return bool(
        whole >= PLAIN
        and spread.min() >= EVEN * whole
        and np.abs(mean - grey.mean()).max() <= LEVEL * whole
    )
