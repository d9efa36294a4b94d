"""A family of classes from Python: arrays with labels, or a data set whose items are pairs of an
input and a label, as in torchvision and in Hugging Face's `datasets`."""

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from arml.datasets.decode import resize, rgb
from arml.datasets.folders import ImageFamily, load_families


def family_of(name: str, data: object, *, size: int | None = None) -> ImageFamily:
    """The family of that name.

    **Arguments**

    - `data`: the path of a folder or zip of pictures (`load_families`); a pair `(x, y)` of arrays
      `[n, *features]` and `[n]`; or an object with `__len__` and `__getitem__`, whose items begin
      with an input and a label. An input is a picture of Pillow, an array `[h, w]`, `[h, w, 1 or
      3]` or `[1 or 3, h, w]`, or a vector. Pixels of 8 bits are divided by 255, floats are kept.
    - `size`: pictures become `size x size` pixels; if None, they must be of one size.

    **Raises** `ValueError` in one line for other data.
    """
    if isinstance(data, str | Path):
        if not Path(data).exists():
            raise ValueError(f"nothing at {data}: check the path")
        if size is None:
            raise ValueError(f"expected a size for the pictures of {data}, got none: give size=84")
        return replace(load_families([data], size=size)[0], name=name)
    if isinstance(data, tuple) and len(data) == 2:
        inputs, labels = data
    else:
        pairs = _pairs(name, data)
        inputs, labels = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    if not len(inputs) == len(labels) > 0:
        raise ValueError(
            f"{name}: expected a label for each input, got {len(inputs)} inputs and {len(labels)} "
            "labels"
        )
    arrays = [_input(name, item, size) for item in inputs]
    if len(shapes := {array.shape for array in arrays}) > 1:
        raise ValueError(
            f"{name}: expected inputs of one shape, got {' and '.join(map(str, [*shapes][:2]))}: "
            "give size=84 for pictures"
        )
    if len(types := sorted({str(array.dtype) for array in arrays})) > 1:
        raise ValueError(
            f"{name}: expected pixels of one type, got {' and '.join(types)}: divide those of 8 "
            "bits by 255"
        )
    names = [class_name(label, name) for label in labels]
    order = sorted(range(len(names)), key=names.__getitem__)
    images = np.stack([arrays[i] for i in order])
    if images.dtype.kind == "f" and not np.all(np.isfinite(images)):
        raise ValueError(f"{name}: expected finite inputs, got NaN or infinity: fill or drop them")
    sizes = Counter(names[i] for i in order)
    said = f"{images.dtype} {images.shape} {[*sizes]} {[*sizes.values()]}"
    digest = hashlib.sha256(said.encode() + images.tobytes()).hexdigest()
    return ImageFamily(name, tuple(sizes), images, np.array([*sizes.values()]), digest)


def class_name(label: object, where: str) -> str:
    """The name of a class, from its label; 1 and 1.0 are one. **Raises** `ValueError` for a label
    that is missing, or no single value."""
    array = np.asarray(label)
    value = array.item() if array.size == 1 else None
    if value is None or value != value or not str(value).strip():
        got = f"an array of shape {array.shape}" if array.size != 1 else repr(value)
        raise ValueError(
            f"{where}: expected a text or a number as the label of each input, got {got}: drop "
            "inputs without a label, or turn a vector of zeros and a one into its place (argmax)"
        )
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def _pairs(name: str, data: Any) -> list[list[Any]]:
    try:
        items: Iterable[Any] = (data[i] for i in range(len(data)))
        # The items of Hugging Face are dictionaries.
        pairs = [[*item.values()] if isinstance(item, dict) else [*item] for item in items]
    except (TypeError, KeyError) as error:
        raise ValueError(
            f"{name}: expected a folder, a pair of arrays (x, y), or a data set of pairs (input, "
            f"label), got {type(data).__name__}"
        ) from error
    if any(len(pair) < 2 for pair in pairs):
        raise ValueError(f"{name}: expected items (input, label), got items without a label")
    return pairs


def _input(name: str, item: object, size: int | None) -> np.ndarray:
    array = rgb(item, name) if isinstance(item, Image.Image) else np.asarray(item)
    if array.ndim == 3 and array.shape[0] in (1, 3) and array.shape[2] not in (1, 3):
        array = np.moveaxis(array, 0, -1)  # as PyTorch has it
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim not in (1, 3) or array.dtype.kind not in "uifb":
        raise ValueError(
            f"{name}: expected pictures or vectors of numbers, got an array of {array.dtype} and "
            f"shape {array.shape}"
        )
    if array.ndim == 3 and array.dtype.kind in "ui" and array.dtype != np.uint8:
        raise ValueError(
            f"{name}: expected pixels of 8 bits (uint8, 0 to 255) or floats (0 to 1), got "
            f"{array.dtype}: convert them"
        )
    if array.dtype != np.uint8 or array.ndim == 1:
        array = array.astype(np.float32)
    if array.ndim == 3:
        array = np.repeat(array, 3, axis=-1) if array.shape[-1] == 1 else array
        array = array if size is None else resize(array, size)
    return np.ascontiguousarray(array)
