"""The starter set that the package carries: small pictures of three kinds, with their split.

A family is one PNG of grey pictures: a row for each class, a column for each sample. `index.json`
states the classes, the split, the checksums and the source of every sample. `starter/build.py` in
the repository makes these files; `LICENCES.md` beside them names the authors.
"""

import hashlib
import io
from importlib.resources import files
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from arml.datasets.filters import FILTERS
from arml.datasets.folders import ImageFamily
from arml.datasets.forms import StarterIndex
from arml.datasets.splits import PARTS, Split
from arml.results.files import Json, checksum
from arml.results.schema import read_stated

SIZE = 32
"""Pixels a side of a picture."""
FORMAT = 1
FOLDER = Path(str(files("arml") / "data" / "starter"))
ADVICE = "install arml again"


def load_starter(*, art: bool = False, folder: Path = FOLDER) -> tuple[list[ImageFamily], Split]:
    """The families and the published split of their classes.

    **Arguments**

    - `art`: each family also through the blur and the pencil filter, as further families. They
      are filtered here, which takes about a second, and have their family's split.

    **Raises** `ValueError` in one line if a file is missing or was altered.
    """
    families: list[ImageFamily] = []
    split: Split = {}
    for name, about in read_index(folder)["families"].items():
        pictures = _pictures(folder, about)
        for filtered in ("", *FILTERS) if art else ("",):
            shown = f"{name}-{filtered}" if filtered else name
            images = FILTERS[filtered](pictures) if filtered else pictures
            images.flags.writeable = False
            families.append(_family(shown, about, images, filtered))
            split[shown] = about["split"]
    return families, split


def read_index(folder: Path = FOLDER) -> Json:
    """The content of `index.json`, checked against its own checksum.

    **Raises** `ValueError` in one line if it is missing, altered or of another format.
    """
    return read_stated(folder / "index.json", StarterIndex, ADVICE, version=FORMAT)


def class_names(about: Json) -> tuple[str, ...]:
    """The classes of a family of the index, in the order of its rows."""
    return tuple(about["samples"])


def _family(
    name: str, about: Json, images: UInt8[np.ndarray, "n size size 3"], filtered: str
) -> ImageFamily:
    classes = class_names(about)
    counts = np.full(len(classes), about["each"])
    # The digest of the pictures, classes and split, but not of the texts about them.
    digest = checksum([about["sha256"], classes, [about["split"][p] for p in PARTS], filtered])
    return ImageFamily(name, classes, images, counts, digest)


def _pictures(folder: Path, about: Json) -> UInt8[np.ndarray, "n size size 3"]:
    path = folder / about["file"]
    content = path.read_bytes() if path.is_file() else b""
    if hashlib.sha256(content).hexdigest() != about["sha256"]:
        raise ValueError(f"{path}: it is gone, or was altered or cut short: {ADVICE}")
    sheet = np.asarray(Image.open(io.BytesIO(content)).convert("L"))
    rows, each = len(class_names(about)), about["each"]
    grey = sheet.reshape(rows, SIZE, each, SIZE).swapaxes(1, 2).reshape(-1, SIZE, SIZE)
    return np.repeat(grey[..., None], 3, axis=-1)
