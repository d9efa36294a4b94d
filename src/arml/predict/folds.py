"""Folds: which examples to learn from, and which to predict, wherever examples are left out.

Copies (equal inputs with one label) and the examples of a group are left out together. The folds
are balanced over the classes. They depend on the examples but not on their order, unlike the folds
of scikit-learn, which also takes a second to load.
"""

import math
from collections.abc import Iterator
from functools import reduce

import numpy as np
from jaxtyping import Bool, Float, Int

MAX_FOLDS = 10
"""The largest number of folds. There are no more folds than units in the largest class."""
NEAR_DUPLICATE_DISTANCE = 0.05
"""Pictures are copies if their distance is below this share of the median distance."""
MAX_COMPARED_IN_PAIRS = 2_000
"""Up to this number of examples, all pairs are compared. Above it, only equal ones are found."""
MAX_CHANCE_OF_NEIGHBOURS = 0.05
"""The expected number of pairs of unrelated rows of a table that count as copies by chance."""
DISTINCT_BY_CHANCE = 0.9
"""The share of the different rows that independent columns would give, from which on equal rows of
a table count as different."""

Places = Int[np.ndarray, " _"]
Numbers = Int[np.ndarray, " n"]
"""A number for each example: examples with the same number belong together."""


def folds(
    y: np.ndarray,
    same: Numbers | None = None,
    groups: Numbers | None = None,
    *,
    classes: bool = True,
    repeats: int = 1,
    most: int = MAX_FOLDS,
) -> Iterator[tuple[Places, Places]]:
    """The indices of the examples to learn from and to predict, for each fold of each repeat.

    A class with only one unit (see `units_of`) is never predicted. Each fold learns from every
    class. If a class has two examples, they are in different folds.

    **Arguments**

    - `y`: the indices of the labels among the classes `[n]`, or targets `[n]` or `[n, targets]`.
    - `same`: equal inputs have the same number: see `equal_inputs`. If it is given, the folds do
      not depend on the order of the examples.
    - `groups`: examples of one group have the same number.
    - `classes`: whether `y` are labels, over which the folds are balanced.
    - `most`: the largest number of folds.
    """
    n, unit = len(y), units_of(y, same, groups)
    labels = y.astype(int) if classes else np.zeros(n, int)
    several = np.bincount(np.unique(np.stack([labels, unit]), axis=1)[0]) if n else np.zeros(1, int)
    (checked,) = np.nonzero(several[labels] > 1)
    if not len(checked):
        return
    content = np.arange(n) if same is None else _pairs(same, y)
    checked = checked[np.argsort(unit[checked], kind="stable")]
    units = np.split(checked, np.flatnonzero(np.diff(unit[checked])) + 1)
    units.sort(key=lambda places: sorted(content[places].tolist()))
    counts = [np.bincount(labels[places], minlength=len(several)) for places in units]
    totals = np.maximum(np.bincount(labels[checked], minlength=len(several)), 1)
    for seed in range(repeats):
        order = np.random.default_rng(seed).permutation(len(units))
        there = np.zeros((min(most, int(several.max())), len(several)))
        fold = np.full(n, -1)
        for i in sorted(order, key=lambda i: -len(units[i])):
            # The fold in which its classes are rarest; if several are, the smallest of them.
            f = int(np.argmin(there @ (counts[i] / totals) + 1e-6 * there.sum(axis=1) / n))
            there[f] += counts[i]
            fold[units[i]] = f
        for f in range(len(there)):
            (test,) = np.nonzero(fold == f)
            test = test[np.isin(labels[test], labels[fold != f])]
            if len(test):
                yield np.setdiff1d(np.arange(n), test), test


def units_of(y: np.ndarray, same: Numbers | None = None, groups: Numbers | None = None) -> Numbers:
    """The unit of each example. The examples of a unit are left out together: copies (equal inputs
    with equal labels or targets) and the examples of a group. Equal inputs with different labels
    are not copies, because the input does not determine the label."""
    unit, parts = np.arange(len(y)), []
    if same is not None and len(y):
        several = np.bincount(np.unique(np.stack([same, _pairs(same, y)]), axis=1)[0]) > 1
        parts.append(np.where(several[same], same.max() + 1 + unit, same))
    if groups is not None:
        parts.append(np.unique(groups, return_inverse=True)[1])
    while True:  # until copies and examples of one group have the same number
        before = unit
        for part in parts:
            least = np.full(part.max(initial=0) + 1, len(y))
            np.minimum.at(least, part, unit)
            unit = least[part]
        if np.array_equal(before, unit):
            return unit


def equal_inputs(x: np.ndarray, near: float = 0.0) -> Numbers:
    """A number for each example `[n, *features]`: equal inputs have the same number. The numbers
    depend only on the inputs, not on their order.

    **Arguments**

    - `near`: inputs also count as equal if their distance is below this share of the median
      distance between examples. It is for pictures: different pictures are never so near.
    """
    rows = np.ascontiguousarray(x).reshape(len(x), -1)
    _, first, same = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    if not near or not 2 < len(first) <= len(x) <= MAX_COMPARED_IN_PAIRS:
        return same
    return _joined(rows[first].astype(np.float32), near)[same]


def equal_rows(
    values: Float[np.ndarray, "n columns"], numbers: Bool[np.ndarray, " columns"], y: np.ndarray
) -> Numbers:
    """`equal_inputs` of the rows of a table; NaN is a missing cell. Rows also count as equal if
    only their `numbers` differ, and by less than those of unrelated rows would by chance. Equal
    rows count as different where independent columns of so few values give as many different rows;
    their numbers then also depend on the answers `y`, but not on the order of the rows.

    In d independent directions about n^2 r^d / 2 of the pairs of n rows are nearer than a share r
    of the median distance; d is the effective number of directions of the `numbers`."""
    rows = np.nan_to_num(values, nan=-1e300)
    _, first, same = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    n = len(rows)
    shares = [np.unique(column, return_counts=True)[1] / n for column in rows.T]
    if len(first) < n and math.prod(map(len, shares)) <= n:
        chances = reduce(np.multiply.outer, shares).ravel()
        if len(first) > DISTINCT_BY_CHANCE * np.sum(1 - (1 - chances) ** n):
            return np.argsort(np.lexsort((y, *rows.T)))
    known = values[np.ix_(first, numbers)]
    z = np.nan_to_num(known - np.mean(known, axis=0, where=~np.isnan(known)))
    spread = z.std(axis=0)
    z = z[:, spread > 0] / spread[spread > 0]
    if not 2 < len(first) <= len(values) <= MAX_COMPARED_IN_PAIRS or not z.size:
        return same
    covariance = np.atleast_2d(np.cov(z.T))
    directions = np.trace(covariance) ** 2 / np.sum(covariance**2)
    by_chance = (2 * MAX_CHANCE_OF_NEIGHBOURS / len(first) ** 2) ** (1 / directions)
    near = min(NEAR_DUPLICATE_DISTANCE, float(by_chance))
    return _joined(z, near, np.where(numbers, np.isnan(values), rows)[first])[same]


def _joined(
    rows: Float[np.ndarray, "n d"], near: float, rest: Float[np.ndarray, "n k"] | None = None
) -> Numbers:
    """A number for each row. Rows nearer than this share of the median distance have the same
    number, if their `rest` is equal."""
    from scipy.spatial.distance import pdist

    away = pdist(rows)
    limit = near * float(np.median(away))
    if rest is not None:
        away += np.where(pdist(rest, "chebyshev") > 0, 1e9, 0)
    if np.min(away) > limit:
        return np.arange(len(rows))
    from scipy.cluster.hierarchy import fcluster, linkage  # a tenth of a second, rarely needed

    return np.asarray(fcluster(linkage(away, "complete"), limit, "distance"))


def _pairs(same: Numbers, y: np.ndarray) -> Numbers:
    """A number for each example: equal inputs with equal answers have the same number."""
    columns = np.column_stack([same, y.reshape(len(y), -1)])
    return np.asarray(np.unique(columns, axis=0, return_inverse=True)[1])
