"""The package's starter set: small pictures of three kinds, with their split.

A family is one PNG of grey pictures: a row for each class, a column for each sample. `index.json`
has the classes, the split, the checksums and the source of every sample. `starter/build.py` in the
repository makes these files; `LICENCES.md` beside them names the authors.
"""

from importlib.resources import files
from pathlib import Path

import numpy as np
from PIL import Image

from arml.datasets.decode import FILTERS
from arml.datasets.folders import SPLIT_PARTS, ImageFamily, Parts
from arml.results.files import checksum, read_json

STARTER_SIZE = 32
"""Pixels a side of a picture."""
STARTER_FOLDER = Path(str(files("arml") / "data" / "starter"))


def load_starter(
    *, art: bool = False, folder: Path = STARTER_FOLDER
) -> tuple[list[ImageFamily], dict[str, Parts]]:
    """The families and the published split of their classes. With `art` each family also becomes
    two further ones, through the blur and the pencil filter, with the same split. Filtering takes
    about a second."""
    families: list[ImageFamily] = []
    for name, about in read_json(folder / "index.json")["families"].items():
        classes, each, split = tuple(about["samples"]), about["each"], about["split"]
        sheet = np.asarray(Image.open(folder / about["file"]).convert("L"))
        tiles = sheet.reshape(len(classes), STARTER_SIZE, each, STARTER_SIZE).swapaxes(1, 2)
        pictures = np.repeat(tiles.reshape(-1, STARTER_SIZE, STARTER_SIZE, 1), 3, axis=-1)
        for through in ("", *FILTERS) if art else ("",):
            images = np.stack([*map(FILTERS[through], pictures)]) if through else pictures
            images.flags.writeable = False
            counts = np.full(len(classes), each)
            # The digest of the pictures, classes and split, but not of the texts about them.
            digest = checksum([about["sha256"], classes, [split[p] for p in SPLIT_PARTS], through])
            shown = f"{name}-{through}" if through else name
            families.append(ImageFamily(shown, classes, images, counts, digest, split))
    return families, {family.name: family.split or {} for family in families}
