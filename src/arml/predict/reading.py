"""People's own inputs, read one by one: the content of a file, an open file or an archive."""

import io
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np

from arml.datasets.archives import Member
from arml.datasets.decode import UnreadableError
from arml.results.machine import cores

Item = TypeVar("Item")
Bad = dict[int, str]
"""The problems of inputs that cannot be read, by their places."""
OnItem = Callable[[int, int], object]
"""Called with how many of how many inputs have been read."""


def each(
    work: Callable[[Item, int], np.ndarray],
    items: list[Item],
    blank: np.ndarray,
    progress: OnItem | None = None,
    bad: Bad | None = None,
    many: str = "pictures",
) -> np.ndarray:
    """`work(item, place)` of all items, on all cores.

    **Arguments**

    - `blank`: stands for an item that cannot be read.
    - `bad`: gets the problem of each such item by its place.
    - `many`: what messages call the items.

    **Raises** `ValueError` that names all of them, if there is no `bad`.
    """
    errors = dict[int, ValueError]()

    def one(item: Item, place: int) -> np.ndarray:
        try:
            return work(item, place)
        except ValueError as error:
            errors[place] = error
            return blank

    parts = []
    with ThreadPoolExecutor(cores()) as pool:
        for part in pool.map(one, items, range(len(items))):
            parts.append(part)
            if progress is not None:
                progress(len(parts), len(items))
    found = sorted(errors.items())
    if bad is not None:
        bad |= {k: e.problem if isinstance(e, UnreadableError) else str(e) for k, e in found}
    elif len(found) == 1:
        raise found[0][1]
    elif found:
        named = (
            f"{e.where} ({e.problem})" if isinstance(e, UnreadableError) else str(e)
            for _, e in found
        )
        raise ValueError(
            f"{len(found)} {many} cannot be read: {', '.join(named)}; remove or replace them"
        )
    return np.stack(parts) if parts else np.zeros((0, *blank.shape), blank.dtype)


def items_of(x: object, many: str) -> list[object]:
    """The items of a list or an array. **Raises** `ValueError` for anything else."""
    if isinstance(x, str | bytes | os.PathLike | io.IOBase | Member):
        raise ValueError(f"expected a list of {many}, got one: put it in a list")
    if not isinstance(x, Iterable):
        raise ValueError(f"expected a list of {many}, got {type(x).__name__}")
    return list(x)


def opened(item: object, where: str) -> tuple[str, object]:
    """The name of an item in messages, and its content: the bytes of a path, an open file or a
    `Member`; anything else as it is. **Raises** `UnreadableError` for a file that cannot be
    read."""
    if isinstance(item, io.IOBase):
        item.seek(0)
        return where, item.read()
    if isinstance(item, str | os.PathLike):
        item = Member(str(item), Path(item).read_bytes)
    if isinstance(item, Member):
        try:
            return item.where, item.read()
        except OSError as error:
            raise UnreadableError(item.where, str(error.strerror)) from error
    return where, item
