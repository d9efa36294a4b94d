"""Reads and checks a user's inputs, labels and targets.

NumPy, JAX and PyTorch arrays, lists, and pandas data frames and columns are accepted. Everything
else raises an error of one line, before any work starts.
"""

import datetime
import hashlib
import io
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from jaxtyping import Float, Int

from arml.datasets.archives import Member
from arml.datasets.decode import UnreadableError
from arml.results.machine import cores

if TYPE_CHECKING:
    from arml.core.episodes import Problem

PRIOR_EQUAL, PRIOR_OF_EXAMPLES = "equal", "examples"
"""Priors by name: all classes are equally frequent, or as frequent as among the examples."""
Prior = str | dict[str, float]
Item = TypeVar("Item")
Bad = dict[int, str]
"""The problems of inputs that cannot be read, by index."""
OnItem = Callable[[int, int], object]
"""Called with the number of inputs that have been read, and of all inputs."""
Numeric = Any
"""An array of NumPy, or of JAX where a function is traced for another program."""
MAX_FLOAT32 = float(np.finfo(np.float32).max)
MISSING_VALUE = re.compile(r"[?.]?|n/?a|-?nan|nat|null|<(na|null)>|#n/?a( n/a)?|-?1\.#(ind|qnan)")
"""Texts in small letters that mean a missing cell in every column: the list of pandas and a few
more. The text `None` counts only in this spelling, as in pandas: see `missing`."""

MISSING_CELL = re.compile(
    r"-+|\.\.|none|unk(nown)?|missing|undefined|n\.a\.?|na\.|n[./]?d\.?|k\.a\.|tb[ad]"
    r"|not (available|applicable|known)|#(div/0|value|ref|name|num|null|error)[!?]"
    r"|0+([-/.]0+)+([t ].*)?"
)
"""Texts that mean a missing cell among numbers or dates, in small letters. The last is 0000-00-00.
In other columns they are values."""
PLAIN_SIGNS = {
    **dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2212\ufe63\uff0d"), "-"),
    **dict.fromkeys(map(ord, "\u00a0\u2007\u2009\u200b\u202f\ufeff"), " "),
    **dict.fromkeys(map(ord, "\u2019\u02bc`"), "'"),
} | {0xBC: " 1/4", 0xBD: " 1/2", 0xBE: " 3/4", 0x066B: ".", 0x066C: ","}
"""Minus signs, blanks, apostrophes, fractions and Arabic points of many spellings, as one each."""
NO_GROUP = re.compile(rf"[\"'\u3003\u2033*.? ]*|ditto|idem|dito|same|{MISSING_CELL.pattern}")
"""Texts in small letters that name no group, some of them because it is that of the row above."""
FIRST_GROUP = 2**62
"""The number of a group is at least this: the numbers that people give to groups are smaller."""


def checked_array(
    x: object, features: tuple[int, ...], what: str, *, pixels: bool = False
) -> np.ndarray:
    """Inputs `[n, *features]`, bytes or float32. `what` is their name in an error.

    **Raises** `ValueError` for another shape, for texts, for numbers that are not finite, and for
    pixels that are neither bytes nor floats in [0, 1].
    """
    wanted = f"[n, {', '.join(map(str, features))}]"
    try:
        array = np.asarray(x)
        given = array.dtype
        if array.dtype != np.uint8:
            with np.errstate(over="ignore"):  # too large numbers become infinity
                array = array.astype(np.float32)
    except (TypeError, ValueError, RuntimeError) as error:  # PyTorch's is a RuntimeError
        raise ValueError(
            f"expected {what} as numbers {wanted}, got {error}: convert them"
        ) from None
    if array.ndim == 0 or array.shape[1:] != features:
        first = pixels and array.shape[1:] == (features[2], *features[:2])
        advice = (
            "move the channels last, as by np.moveaxis(x, 1, -1)"
            if first
            else "give the size or the columns on which the learner was trained"
        )
        raise ValueError(f"expected {what} of shape {wanted}, got {list(array.shape)}: {advice}")
    masked = isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x)
    if masked or not np.all(np.isfinite(array)):
        got = "masked numbers" if masked else "NaN or infinity (in 32 bits)"
        raise ValueError(f"expected finite {what}, got {got}: fill or drop these rows")
    floating = pixels and array.dtype != np.uint8 and array.size > 0
    if floating and (array.min() < 0 or array.max() > 1):
        low, high = array.min(), array.max()
        advice = "divide by 255, or pass bytes"
        if given.kind in "iu" and low >= 0:
            full = 2 ** int(high).bit_length() - 1
            advice = "pass bytes, by .astype(np.uint8)"
            if full > 255:
                advice = f"divide all by their largest possible value, such as {full}"
        raise ValueError(
            f"expected pixels as bytes, or floats from 0 to 1, got {given} from {low:g} to "
            f"{high:g}: {advice}"
        )
    return array


def checked_labels(y: object, n: int) -> tuple[np.ndarray, Int[np.ndarray, " n"]]:
    """The classes in order, and the index of each of `n` labels among them.

    **Raises** `ValueError` for fewer than two classes, and unless there are `n` labels.
    """
    labels = _labels(y)
    if labels.shape != (n,):
        raise ValueError(f"expected {n} labels, one for each input, got shape {list(labels.shape)}")
    gap = any(label is np.ma.masked or _missing(label) for label in labels)
    if gap or any(isinstance(label, str) and not label.strip() for label in labels):
        got = "NaN or None" if gap else "an empty text"
        raise ValueError(f"expected a label for every input, got {got}: drop these rows")
    if labels.dtype == object:
        if len({isinstance(label, str) for label in labels}) > 1:
            raise ValueError(
                "expected labels that are all texts or all numbers, got both, as in 1 and '1': "
                "make them alike"
            )
        labels = np.asarray(labels.tolist())  # with the type of its elements
    if labels.dtype.kind not in "biufU":
        labels = np.asarray([str(label) for label in labels])
    classes, places = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"expected 2 or more classes, got {len(classes)} class: add examples of another class"
        )
    return classes, places.astype(np.int32)


def _labels(y: object) -> np.ndarray:
    # A list is taken as it is: NumPy would make text of a NaN among texts.
    return np.asarray(y, object) if isinstance(y, list | tuple) else np.asarray(y)


def _missing(label: object) -> bool:
    return not isinstance(label, str) and missing(label)  # a class may be named NA


def checked_prior(prior: object, classes: np.ndarray) -> Prior:
    """`PRIOR_EQUAL`, `PRIOR_OF_EXAMPLES`, or the share of each class by label; they sum to one.

    **Arguments**

    - `prior`: one of these names; a number for each class, in their order or by label; or a text
      of such numbers, as in "good=95,bad=5". Only their ratios matter.

    **Raises** `ValueError` for anything else.
    """
    if isinstance(prior, str) and prior in (PRIOR_EQUAL, PRIOR_OF_EXAMPLES):
        return prior
    given: Any = prior
    labels = [str(label) for label in classes]
    if isinstance(given, str):
        names, _, shares = zip(*(part.rpartition("=") for part in given.split(",")), strict=True)
        given = dict(zip(names, shares, strict=True)) if any(names) else shares
    if isinstance(given, Mapping):
        by = {str(label).strip(): share for label, share in given.items()}
        given = [by[label] for label in labels] if {*by} == {*labels} else None
    try:
        found = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        found = np.zeros(0)
    if found.shape != (len(labels),) or not np.all((found > 0) & (found < np.inf)):
        example = ",".join(f"{label}={100 / len(labels):.3g}" for label in labels[:5])
        raise ValueError(
            f"expected the prior {PRIOR_EQUAL}, {PRIOR_OF_EXAMPLES}, or a share above 0 for each "
            f"of the {len(labels)} classes, such as {example}{',...' * (len(labels) > 5)}; "
            f"got {prior}"
        )
    return dict(zip(labels, (found / found.sum()).tolist(), strict=True))


def checked_groups(groups: object, n: int) -> Int[np.ndarray, " n"] | None:
    """A number for each example: examples of one group have the same number, also in later calls
    and programs, and numbers that this function gave stay as they are. None if `groups` is.

    **Raises** `ValueError` unless there are `n` groups, and for an example without a group.
    """
    if groups is None:
        return None
    values = _labels(groups)
    if values.shape != (n,):
        raise ValueError(f"expected {n} groups, one for each input, got shape {list(values.shape)}")
    if gaps := [str(i + 1) for i, value in enumerate(values) if no_group(value)]:
        raise ValueError(
            f"expected a group for every input, got empty cells at number {', '.join(gaps[:5])}"
            f"{', ...' * (len(gaps) > 5)}: fill them (a new group for an input that stands alone)"
        )
    return np.array([_group_number(value) for value in values], np.int64)


def _group_number(value: object) -> int:
    if isinstance(value, int | np.integer) and value >= FIRST_GROUP:
        return int(value)
    digest = hashlib.sha256(str(value).encode()).digest()
    return FIRST_GROUP + int.from_bytes(digest[:8]) % FIRST_GROUP


def weighted(
    x: np.ndarray, y: object, sample_weight: object, groups: object = None
) -> tuple[np.ndarray, Any, Float[np.ndarray, " n"] | None, Int[np.ndarray, " n"] | None]:
    """The examples with a weight above 0, their weights and their groups, which may be None.

    **Raises** `ValueError` for weights that are negative or not finite, and unless each example has
    one; and as `checked_groups`.
    """
    groups = checked_groups(groups, len(x))
    if sample_weight is None:
        return x, y, None, groups
    weight, labels = np.asarray(sample_weight, np.float64), _labels(y)
    if weight.shape != (len(x),) or len(labels) != len(x):
        raise ValueError(
            f"expected {len(x)} labels and sample weights, one for each input, got "
            f"{len(labels)} and {list(weight.shape)}"
        )
    if not np.all((weight >= 0) & (weight < np.inf)) or not weight.any():
        raise ValueError("sample weights must be finite and 0 or more, and not all zero")
    kept = weight > 0
    return x[kept], labels[kept], weight[kept], None if groups is None else groups[kept]


def floats(x: np.ndarray) -> np.ndarray:
    """Bytes of pixels as floats in [0, 1]; other arrays unchanged."""
    return (x / np.float32(255)).astype(np.float32) if x.dtype == np.uint8 else x


def checked_targets(y: object, problem: "Problem", n: int) -> tuple[np.ndarray, bool]:
    """The targets `[n, outputs]` in 64 bits, and whether they came as `[n]`. Durations are seconds.

    **Raises** `ValueError` for another shape, for texts and dates, and numbers that are not finite.
    """
    try:
        targets = np.asarray(y)
        if targets.dtype.kind == "O" and any(
            isinstance(one, datetime.timedelta) for one in targets
        ):
            targets = targets.astype("m8[us]")
        if targets.dtype.kind == "M":
            raise ValueError("dates: subtract one date from all to get durations")
        if targets.dtype.kind == "m":
            targets = targets / np.timedelta64(1, "s")
        targets = np.asarray(targets, np.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"expected numbers as targets, got {error}: convert them") from None
    flat = targets.ndim == 1
    targets = targets[:, None] if flat else targets
    if targets.shape != (n, problem.outputs):
        raise ValueError(
            f"expected targets of shape [{n}, {problem.outputs}], got {list(targets.shape)}; "
            "scikit-learn's MultiOutputRegressor fits one regressor for each of several targets"
        )
    odd = np.argwhere(~(np.abs(targets) <= MAX_FLOAT32))
    if len(odd):
        raise ValueError(
            f"expected finite targets, got {targets[tuple(odd[0])]:g} in example {odd[0, 0] + 1} "
            "(NaN, infinity, or too large for 32 bits): correct or drop it"
        )
    return targets, flat


def places_of(labels: Iterable[object], classes: np.ndarray) -> Int[np.ndarray, " n"]:
    """The index of each label among the `classes`. Numbers may come as texts ("1.0" is 1), and
    texts in any Unicode form.

    **Raises** `ValueError` for a label that is not a class.
    """
    numbers = classes.dtype.kind in "biuf"
    known = {_key(label, numbers): i for i, label in enumerate(classes.tolist())}
    odd = [label for label in labels if _key(label, numbers) not in known]
    if odd:
        raise ValueError(
            f"{str(odd[0])!r} is not one of the known classes ({', '.join(map(str, classes))}): "
            "leave these examples out, or adapt with examples of that class"
        )
    return np.array([known[_key(label, numbers)] for label in labels], int)


def _key(label: Any, number: bool) -> str | float:
    if number:
        try:
            return float({"True": 1, "False": 0}.get(str(label), label))
        except (TypeError, ValueError):
            pass
    return unicodedata.normalize("NFC", str(label))


def missing(cell: Any) -> bool:
    """Whether the cell is empty, None, NaN, or a text that means a missing cell."""
    if isinstance(cell, str):
        text = cell.strip()
        return text == "None" or bool(MISSING_VALUE.fullmatch(text.lower()))
    try:
        return cell is None or bool(cell != cell)  # NaN and NaT differ from themselves
    except TypeError:  # pandas' NA equals nothing, not even itself
        return True


def normal(text: str) -> str:
    """A stripped text with its letters in one Unicode form: file systems write different ones."""
    return unicodedata.normalize("NFC", text.strip())


def tidy(text: str) -> str:
    """As `normal`, with minus signs, blanks, apostrophes and digits of one spelling."""
    text = " ".join(normal(text).translate(PLAIN_SIGNS).split())
    return text if text.isascii() else "".join(str(unicodedata.decimal(c, c)) for c in text)


def no_group(cell: Any) -> bool:
    """Whether a cell names no group: it is missing, "unknown", or a sign for "as above"."""
    return missing(cell) or (isinstance(cell, str) and bool(NO_GROUP.fullmatch(tidy(cell).lower())))


def alike(texts: Iterable[str], what: str) -> list[str]:
    """A hint about values that differ only in capital letters, blanks, or as 1 and 1.0."""
    groups: dict[str, list[str]] = {}
    for text in sorted({*texts}):
        key = re.sub(r"\.0+$", "", " ".join(text.split()).casefold())
        groups.setdefault(key, []).append(repr(text))
    same = [" and ".join(group) for group in groups.values() if len(group) > 1]
    return [f"{what}: {', '.join(same)} count as different values"] if same else []


# Inputs that are read one by one: the content of a file, an open file or an archive.


def each(
    work: Callable[[Item, int], np.ndarray],
    items: list[Item],
    blank: np.ndarray,
    progress: OnItem | None = None,
    bad: Bad | None = None,
    many: str = "pictures",
) -> np.ndarray:
    """The results of `work(item, index)` for all items, on all cores.

    **Arguments**

    - `blank`: the result for an item that cannot be read.
    - `bad`: gets the problem of each item that cannot be read, by index.
    - `many`: the name of the items in messages.

    **Raises** `ValueError` with the names of all items that cannot be read, if `bad` is None.
    """

    def one(item: Item, index: int) -> np.ndarray | ValueError:
        try:
            return work(item, index)
        except ValueError as error:
            return error

    parts: list[np.ndarray | ValueError] = []
    with ThreadPoolExecutor(cores()) as pool:
        for part in pool.map(one, items, range(len(items))):
            parts.append(part)
            if progress is not None:
                progress(len(parts), len(items))
    errors = {i: part for i, part in enumerate(parts) if isinstance(part, ValueError)}
    if bad is not None:
        for i, error in errors.items():
            bad[i] = error.problem if isinstance(error, UnreadableError) else str(error)
    elif len(errors) == 1:
        raise next(iter(errors.values()))
    elif errors:
        named = (
            f"{error.where} ({error.problem})" if isinstance(error, UnreadableError) else str(error)
            for error in errors.values()
        )
        raise ValueError(
            f"{len(errors)} {many} cannot be read: {', '.join(named)}; remove or replace them"
        )
    read = [blank if isinstance(part, ValueError) else part for part in parts]
    return np.stack(read) if read else np.zeros((0, *blank.shape), blank.dtype)


def items_of(x: object, many: str) -> list[object]:
    """The items of a list or an array. **Raises** `ValueError` for anything else."""
    if isinstance(x, str | bytes | os.PathLike | io.IOBase | Member):
        raise ValueError(f"expected a list of {many}, got one: put it in a list")
    if isinstance(x, Mapping) or hasattr(x, "columns"):
        raise ValueError(f"expected a list of {many}, got a table: give one of its columns")
    if not isinstance(x, Iterable):
        raise ValueError(f"expected a list of {many}, got {type(x).__name__}")
    return list(x)


def opened(item: object, where: str) -> tuple[str, object]:
    """The name of an item in messages, and its content: the bytes of a path, an open file or a
    `Member`, or the item itself. **Raises** `UnreadableError` for a file that cannot be
    read."""
    if isinstance(item, io.IOBase):
        item.seek(0)
        return where, item.read()
    if isinstance(item, str | os.PathLike):
        item = Member(str(item), Path(item).read_bytes)
    if isinstance(item, Member):
        try:
            return item.where, item.read()
        except (OSError, ValueError) as error:
            cause = error if isinstance(error, OSError) else error.__cause__ or error
            got = str(cause.strerror if isinstance(cause, OSError) else cause)
            raise UnreadableError(item.where, got, "a file that can be read") from error
    return where, item
