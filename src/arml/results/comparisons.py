"""Comparisons of methods over two sources of chance: the test tasks and the training runs (seeds).

All methods are scored on the same tasks, and each has its own independent training runs, so tasks
and methods are crossed and runs are nested in methods. The score of run s of method m on task t is

    y_mst = mu_m + task_t + (method x task)_mt + run_ms + (run x task)_mst,

a mixed model. The difference of two methods' means has three sources of variance, each estimated
from the data: the runs of a, the runs of b, and the differences of single tasks (the runs of a
method averaged first, so that the tasks' common difficulty cancels),

    V = s_a^2 / S_a + s_b^2 / S_b + s_d^2 / n,                                            (1)

and (mean difference) / sqrt(V) has a t distribution with Satterthwaite's degrees of freedom [2]:
Welch's test over the means of the runs, with the sampling of tasks as a third component. It counts
(run x task) twice, so V is a little too large, never too small. Two other ways were simulated
(`study/results/false-positives.json`): Welch's test alone ignores that other tasks would give
another difference, and a hierarchical bootstrap is far too certain with three runs, because the
variance of its draws is (S - 1) / S of the runs' variance.

The variance of runs cannot be estimated from one run. A comparison with fewer than `SEEDS` runs of
a method has an interval over tasks, which is about these trained learners, and no p-value [1].

[1] X. Bouthillier et al., Accounting for Variance in Machine Learning Benchmarks. MLSys 2021.
[2] F. E. Satterthwaite, An Approximate Distribution of Estimates of Variance Components.
    Biometrics Bulletin 2, 1946.
[3] S. Holm, A Simple Sequentially Rejective Multiple Test Procedure. Scandinavian Journal of
    Statistics 6, 1979.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtr, stdtrit

from arml.results.files import RunError
from arml.results.scores import Scores, check_paired, normal_p, number_of

LEVEL = 0.05
"""Below this adjusted p-value a difference counts."""
SEEDS = 3
"""A verdict on two methods needs as many training runs of each; fewer give an indication."""


@dataclass(frozen=True, repr=False)
class Comparison:
    """The mean of `a - b` over training runs and tasks.

    A number is None where it does not exist.

        comparison.mean, comparison.ci95, comparison.p
    """

    mean: float | None
    ci95: float | None
    """Half-width of the 95% interval: over runs and tasks, or over tasks if there is no p."""
    p: float | None
    """The two-sided p-value of no difference."""
    adjusted: float | None
    """The p-value after Holm's correction for all comparisons of its family."""
    tasks: int
    runs: tuple[int, int] = (1, 1)
    """The numbers of finished runs of a and of b."""
    failed: tuple[int, int] = (0, 0)
    """The numbers of their runs that failed or have a score that is not finite."""
    error: float | None = None
    """The standard error of the mean."""
    degrees: float = math.inf
    """Its degrees of freedom."""

    def __repr__(self) -> str:
        mean, half = number_of(self.mean), number_of(self.ci95)
        p = f"p = {self.p:.2g}" if self.p is not None else "no p-value"
        a, b = self.runs
        told = f"{mean:+.4f} ± {half:.4f}, {p}, over {a} and {b} runs and {self.tasks:,} tasks"
        return f"Comparison({told})"

    @property
    def counts(self) -> bool:
        """Whether the difference is significant."""
        return self.mean is not None and self.adjusted is not None and self.adjusted < LEVEL

    def tested(self, value: float) -> "Comparison":
        """The same comparison, with the p-value of the difference being `value`."""
        if self.p is None or self.mean is None or self.error is None:
            return self
        return replace(self, p=_p(self.mean - value, self.error, self.degrees))


def compare(
    a: Mapping[int, Scores],
    b: Mapping[int, Scores],
    *,
    failed: tuple[int, int] = (0, 0),
    same_runs: bool = False,
) -> Comparison:
    """Compare two methods by the scores of their runs, Eq. (1).

    `failed` is how many runs of each have no scores; runs with a score that is not finite are added
    to them. If any run failed there is no p-value, because the remaining runs were selected by
    their success. `same_runs` means that both are scores of the same trained learners, whose
    differences are then taken run by run.

    **Raises** `RunError` if they were not scored on the same tasks.
    """
    first, second = [dict(some) for some in (a, b)]
    if same_runs:
        shared = {*first} & {*second}
        first, second = [{s: some[s] for s in shared} for some in (first, second)]
    names = {scores.tasks for some in (first, second) for scores in some.values()}
    if len(names) > 1:
        raise RunError("expected scores on the same tasks, got others; score all runs again")
    kept = [
        {s: scores for s, scores in some.items() if np.isfinite(scores.values).all()}
        for some in (first, second)
    ]
    lost = tuple(
        known + len(some) - len(own)
        for known, some, own in zip(failed, (first, second), kept, strict=True)
    )
    counts = (len(kept[0]), len(kept[1]))
    if not all(counts):
        return Comparison(None, None, None, None, 0, counts, (lost[0], lost[1]))
    n = min(len(scores.values) for own in kept for scores in own.values())
    ours, theirs = [
        np.stack([own[s].values[:n] for s in sorted(own)]).astype(np.float64) for own in kept
    ]
    if same_runs and not any(lost):
        means = [(ours - theirs).mean(1)]
    else:
        means = [ours.mean(1), theirs.mean(1)]
    over_tasks = difference_of(ours.mean(0) - theirs.mean(0))
    found = replace(over_tasks, p=None, runs=counts, failed=(lost[0], lost[1]))
    if min(counts) < SEEDS or any(lost) or found.error is None:
        return found
    return _over_runs(found, means)


def compare_runs(a: Sequence[Scores], b: Sequence[Scores]) -> Comparison:
    """Compare two methods by the scores of several training runs of each: the mean of `a - b`, with
    its interval and p-value over runs and tasks.

        comparison = arml.compare_runs([scores] * 3, [scores] * 3)

    With fewer than three runs of one there is no p-value, and the interval is over tasks alone.

    **Raises** `ValueError` in one line if one has no scores, or not all were scored on the same
    tasks.
    """
    if not (a and b):
        raise ValueError(f"expected scores of each method, got {len(a)} and {len(b)}")
    for other in (*a, *b):
        check_paired(a[0], other)
    return holm([compare(dict(enumerate(a)), dict(enumerate(b)))])[0]


def _over_runs(found: Comparison, means: Sequence[np.ndarray]) -> Comparison:
    """The comparison with its interval and p over tasks and over runs, whose means are given."""
    assert found.mean is not None
    assert found.error is not None
    parts = [(float(m.var(ddof=1)) / len(m), len(m) - 1) for m in means]
    parts.append((found.error**2, found.tasks - 1))
    variance = sum(part for part, _ in parts)  # Eq. (1)
    error = math.sqrt(variance)
    # Satterthwaite's [2].
    spread = sum(part**2 / degrees for part, degrees in parts)
    degrees = variance**2 / spread if spread > 0 else math.inf
    half = error * float(stdtrit(degrees, 0.975)) if math.isfinite(degrees) else 1.96 * error
    p = _p(found.mean, error, degrees)
    return replace(found, ci95=half, p=p, error=error, degrees=degrees)


def _p(mean: float, error: float, degrees: float) -> float:
    """The two-sided p-value of a mean if the true mean is zero."""
    if error == 0 or math.isinf(degrees):
        return normal_p(mean, error)
    ratio = abs(mean) / error
    return float(2 * stdtr(degrees, -ratio))


def probability(p: float) -> str:
    """A p-value as text: `= 0.03`, `< 0.001`."""
    return "< 0.001" if p < 0.001 else f"= {p:.2g}"


def difference_of(differences: np.ndarray) -> Comparison:
    """The comparison over tasks alone, from the differences of single tasks. It is about two
    trained learners, and its p-value is not adjusted yet."""
    n = len(differences)
    if not n or not np.isfinite(differences).all():
        return Comparison(None, None, None, None, n)
    mean = float(differences.mean())
    if n < 2:
        return Comparison(mean, None, None, None, n)
    error = float(differences.std(ddof=1)) / math.sqrt(n)
    return Comparison(mean, 1.96 * error, _p(mean, error, math.inf), None, n, error=error)


def holm(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons with p-values adjusted for their number [3]; those without p do not count."""
    known = sorted((c.p, i) for i, c in enumerate(comparisons) if c.p is not None)
    adjusted, highest = {}, 0.0
    for rank, (p, i) in enumerate(known):
        highest = max(highest, min(1.0, p * (len(known) - rank)))
        adjusted[i] = highest
    return [replace(c, adjusted=adjusted.get(i)) for i, c in enumerate(comparisons)]
