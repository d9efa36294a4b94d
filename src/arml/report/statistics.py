"""Paired comparisons of runs that were scored on the same tasks.

Two sources of chance are kept apart. *Tasks*: the scores of a method, averaged over its seeds, give
one difference a task; its interval and its p-value say what other tasks would change. *Seeds*: the
mean difference of each seed by itself, whose spread says what another training run would change.

[1] S. Holm, A Simple Sequentially Rejective Multiple Test Procedure. Scandinavian Journal of
    Statistics 6, 1979.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from arml.results.folder import RunError, TaskScores

LEVEL = 0.05
"""Below this adjusted p-value a difference counts."""


@dataclass(frozen=True)
class Comparison:
    """The mean of `a - b` over tasks. A number is None where it does not exist."""

    mean: float | None
    ci95: float | None
    """Half-width over tasks, 1.96 s / sqrt(n)."""
    p: float | None
    """Two-sided, of no difference, by the normal approximation over tasks."""
    adjusted: float | None
    """The same after Holm's correction for all comparisons of its table."""
    tasks: int
    by_seed: tuple[float, ...]
    """The mean difference of each seed that both have; one of all where they share none."""

    @property
    def over_tasks(self) -> bool:
        """Whether it is more than chance over tasks."""
        return self.adjusted is not None and self.adjusted < LEVEL

    @property
    def counts(self) -> bool:
        """Whether it is more than chance over tasks, and every seed agrees on its sign."""
        if self.mean is None or not self.over_tasks:
            return False
        return all(one * self.mean > 0 for one in self.by_seed)


def compare(a: Mapping[int, TaskScores], b: Mapping[int, TaskScores]) -> Comparison:
    """Compare two methods by the scores of their seeds.

    Seeds that only one has are left out; where they share none, all are averaged.

    **Raises** `RunError` if they were not scored on the same tasks.
    """
    shared = sorted({*a} & {*b})
    first = [a[s] for s in shared or a]
    second = [b[s] for s in shared or b]
    names = {s.tasks for s in (*first, *second)}
    if len(names) != 1:
        raise RunError("expected scores on the same tasks, got others; score all runs again")
    n = min(len(s.values) for s in (*first, *second))
    ours, theirs = (
        np.stack([s.values[:n] for s in some]).astype(np.float64) for some in (first, second)
    )
    differences = ours.mean(0) - theirs.mean(0)
    each = (ours - theirs).mean(1) if shared else differences.mean(keepdims=True)
    return difference_of(differences, tuple(map(float, each)))


def difference_of(differences: np.ndarray, by_seed: tuple[float, ...] = ()) -> Comparison:
    """The comparison that the differences of single tasks come to; not adjusted yet."""
    n = len(differences)
    if not n:
        return Comparison(None, None, None, None, 0, by_seed)
    if not np.isfinite(differences).all():
        return Comparison(None, None, None, None, n, by_seed)
    mean = float(differences.mean())
    if n < 2:
        return Comparison(mean, None, None, None, n, by_seed)
    error = float(differences.std(ddof=1)) / math.sqrt(n)
    if error == 0.0:
        # The same score on every task: equal, or different for certain.
        p = 1.0 if mean == 0.0 else 0.0
    else:
        p = math.erfc(abs(mean) / error / math.sqrt(2))
    return Comparison(mean, 1.96 * error, p, p, n, by_seed)


def holm(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons with p-values adjusted for their number [1]; one without stays without."""
    known = sorted((c.p, i) for i, c in enumerate(comparisons) if c.p is not None)
    adjusted, highest = {}, 0.0
    for rank, (p, i) in enumerate(known):
        highest = max(highest, min(1.0, p * (len(known) - rank)))
        adjusted[i] = highest
    return [replace(c, adjusted=adjusted.get(i)) for i, c in enumerate(comparisons)]
