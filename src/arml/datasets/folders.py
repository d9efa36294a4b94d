"""Image families from the user's own folders and zip files, decoded once.

A source is a folder or a zip file with one folder for each class, and becomes one family of tasks.
Its images are decoded to uint8 RGB of one size, and cached under a key that is made of their
content. The cache is memory-mapped.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int, UInt8

from arml.datasets import cache as caching
from arml.datasets.archive import Source, check_exists, open_source
from arml.datasets.decode import decode
from arml.results.machine import cores

FORMAT = 2
"""Raise it whenever the same files would give other pixels than before."""
CHUNK = 256
SIZES = range(4, 1025)

Progress = Callable[[str, int, int], None]
"""Called with the name of the work, such as a family, how much is done, and how much there is."""


@dataclass(frozen=True, eq=False)
class ImageFamily:
    """All images of one source, in order of class and then of file name.

    `images` is a read-only memory map of pixels, or of vectors that stand for images. Class `i` has
    `counts[i]` of them, from `first[i]` on. `digest` is a SHA-256 of the source's content, the same
    at every size.
    """

    name: str
    classes: tuple[str, ...]
    images: UInt8[np.ndarray, "n size size 3"] | Float32[np.ndarray, "n features"]
    counts: Int[np.ndarray, " classes"]
    digest: str

    @property
    def first(self) -> Int[np.ndarray, " classes"]:
        """The index of each class's first image."""
        return np.cumsum(self.counts) - self.counts


def load_families(
    sources: Sequence[str | Path],
    *,
    size: int,
    least: int = 1,
    cache: Path | None = None,
    check: Callable[[str, int], None] = lambda name, classes: None,
    progress: Progress | None = None,
) -> list[ImageFamily]:
    """Load folders or zip files of images, one family each, named after the source.

    **Arguments**

    - `sources`: folders or zip files with one folder for each class, perhaps below a common top
      folder. Hidden files, `__MACOSX` and `Thumbs.db` are ignored.
    - `size`: images become `size x size` pixels (stretched when they are not square).
    - `least`: the fewest images that a class may have.
    - `cache`: where decoded images are kept; `$ARML_CACHE` or `~/.cache/arml` by default.
    - `check`: called with the name and the number of classes of each family; it may raise an error.
    - `progress`: called with `(family, done, total)` while images are decoded.

    **Raises** `ValueError` in one line for a source that is missing, empty, unsafe or damaged, or
    that has fewer than three classes, a class of fewer than `least` images or a file that is not an
    image; and for two sources of one name. All sources are listed and checked before any image is
    decoded.
    """
    if isinstance(sources, str | Path) or not sources:
        raise ValueError(
            f"expected a list of one or more folders or zip files, got {sources!r}; name them"
        )
    if size not in SIZES:
        raise ValueError(
            f"expected a size of {SIZES[0]} to {SIZES[-1]} pixels a side, got {size}; change it"
        )
    paths = [Path(source).expanduser().absolute() for source in sources]
    names = [family_name(path) for path in paths]
    for name in names:
        if names.count(name) > 1:
            same = ", ".join(str(p) for p, n in zip(paths, names, strict=True) if n == name)
            raise ValueError(
                f"expected a different name for each family, got {name!r} from {same}; rename one"
            )
    for path in paths:
        check_exists(path)
    folder = (Path(cache) if cache else caching.default_folder()).expanduser() / "images"
    with ExitStack() as stack:
        opened = []
        for path in paths:
            opened.append(stack.enter_context(open_source(path)))
            _check_counts(opened[-1], least)
        for name, source in zip(names, opened, strict=True):
            check(name, len(source.classes))
        return [
            _load(name, source, size, folder, progress)
            for name, source in zip(names, opened, strict=True)
        ]


class TooFewError(ValueError):
    """A family has too few classes, or a class too few images, for the tasks."""


def family_name(path: Path) -> str:
    """The name of a source's family."""
    path = path.resolve() if path.name in ("", "..") else path
    return path.stem if path.suffix.lower() == ".zip" else path.name


def _check_counts(source: Source, least: int) -> None:
    if len(source.classes) < 3:
        raise ValueError(
            f"{source.path}: expected at least 3 class folders (one each for training, validation "
            f"and test), got {len(source.classes)} ({', '.join(source.classes)}); add classes"
        )
    for name, images in source.classes.items():
        if len(images) < least:
            raise TooFewError(
                f"{source.path}: expected at least {least} images of each class (shots and "
                f"queries), got {len(images)} in {name!r}; lower the shots or queries, or add "
                "images"
            )


def _load(
    name: str, source: Source, size: int, folder: Path, progress: Progress | None
) -> ImageFamily:
    key = hashlib.sha256(f"{FORMAT} {size} {source.digest}".encode()).hexdigest()[:32]
    counts = [len(images) for images in source.classes.values()]
    classes = tuple(source.classes)
    shape = (sum(counts), size, size, 3)

    def cached() -> ImageFamily | None:
        found = caching.load(folder, key)
        if found is None:
            return None
        index, images = found
        known = index.get("classes"), index.get("counts"), images.shape
        if known != (list(classes), counts, shape):
            return None
        return ImageFamily(name, classes, images, np.asarray(counts), source.digest)

    if (family := cached()) is not None:
        return family
    chunks = _decoded(source, name, size, progress)
    caching.store(folder, key, {"classes": classes, "counts": counts}, shape, chunks)
    if (family := cached()) is None:
        raise ValueError(
            f"{folder}: the cache of decoded images does not read back as it was written; "
            "check the disk, or set ARML_CACHE to another folder"
        )
    return family


def _decoded(
    source: Source, name: str, size: int, progress: Progress | None
) -> Iterator[np.ndarray]:
    """The images in order, a chunk at a time: memory does not grow with the source."""
    members = [m for images in source.classes.values() for m in images.values()]
    with ThreadPoolExecutor(cores()) as pool:
        for start in range(0, len(members), CHUNK):
            some = members[start : start + CHUNK]
            data, where = map(source.read, some), map(source.where, some)
            images = pool.map(lambda d, w: partial(decode, size=size)(d, where=w), data, where)
            yield np.stack(list(images))
            if progress is not None:
                progress(name, start + len(some), len(members))
