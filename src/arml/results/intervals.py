"""The mean of one score a task, with its interval over tasks."""

import math
from collections.abc import Sequence
from typing import Annotated, TypedDict

import numpy as np
from msgspec import Meta

from arml.results.files import plain


class Score(TypedDict):
    """A mean over `n` tasks and the half-width of its 95% interval, each null when not finite."""

    mean: Annotated[float, Meta(ge=-1e300, le=1e300)] | None
    ci95: Annotated[float, Meta(ge=0, le=1e300)] | None
    n: Annotated[int, Meta(ge=0, le=2**53)]


class Summary(TypedDict):
    """The scores of tasks, over all of them and by family."""

    score: Score
    families: dict[str, Score]


def score_of(values: np.ndarray) -> Score:
    """Mean, 1.96 s / sqrt(n) (s with n - 1 in its denominator) and n of one score per task."""
    n = len(values)
    with np.errstate(all="ignore"):
        mean = float(np.mean(values)) if n else math.nan
        half = 1.96 * float(np.std(values, ddof=1)) / math.sqrt(n) if n > 1 else math.nan
    return Score(mean=plain(mean), ci95=plain(half), n=n)


def summarise(
    scores: Sequence[float] | np.ndarray, families: Sequence[int] | np.ndarray, names: Sequence[str]
) -> Summary:
    """The scores of tasks, over all of them and by family.

    **Arguments:** `scores` `[tasks]`, one a task; `families` `[tasks]`, the index into `names` of
    each task's family.

    **Returns** a `Summary`. The interval is over tasks, at 95%;
    it is None for one task, and the mean None for a family without tasks.

    **Raises:** `ValueError` if the lengths differ, if there is no task, or for an unknown family.
    """
    values, index = np.asarray(scores, np.float64), np.asarray(families)
    if values.ndim != 1 or values.shape != index.shape or not len(values):
        raise ValueError(
            "expected one score and one family for each of one or more tasks, "
            f"got shapes {values.shape} and {index.shape}"
        )
    if index.min() < 0 or index.max() >= len(names):
        raise ValueError(
            f"expected families from 0 to {len(names) - 1}, got {index.min()} to {index.max()}; "
            "name each family"
        )
    by_family = {name: score_of(values[index == i]) for i, name in enumerate(names)}
    return Summary(score=score_of(values), families=by_family)


def paired(a: Sequence[float] | np.ndarray, b: Sequence[float] | np.ndarray) -> Score:
    """The mean of `a - b` over the same tasks, `[tasks]` each, with its 95% interval over tasks.

    **Raises:** `ValueError` unless both have one score for each of the same tasks.
    """
    first, second = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if first.ndim != 1 or first.shape != second.shape or not len(first):
        raise ValueError(
            "expected two scores for each of one or more tasks, "
            f"got shapes {first.shape} and {second.shape}; score both on the same tasks"
        )
    with np.errstate(all="ignore"):
        return score_of(first - second)


def number_of(value: float | None) -> float:
    """A number of JSON, which has null where one is not finite."""
    return math.nan if value is None else value


def normal_p(mean: float, error: float) -> float:
    """The two-sided p-value of a mean if the true mean is zero, by the normal distribution."""
    if error == 0:
        # Every difference is the same: the two are equal, or certainly different.
        return 1.0 if mean == 0 else 0.0
    return math.erfc(abs(mean) / error / math.sqrt(2))
