"""Comparisons of methods over two sources of chance: the test tasks and the training runs (seeds).

All methods are scored on the same tasks, and each has its own independent training runs, so tasks
and methods are crossed and runs are nested in methods. The score of run s of method m on task t is

    y_mst = mu_m + task_t + (method x task)_mt + run_ms + (run x task)_mst.

The difference of two methods' means has three sources of variance, each estimated
from the data: the runs of a, the runs of b, and the differences of single tasks (the runs of a
method averaged first, so that the tasks' common difficulty cancels),

    V = s_a^2 / S_a + s_b^2 / S_b + s_d^2 / n,                                            (1)

and (mean difference) / sqrt(V) has a t distribution with Satterthwaite's degrees of freedom [2]:
Welch's test over the means of the runs, with the sampling of tasks as a third component. It counts
(run x task) twice, so V is a little too large, never too small. Two other ways were simulated
(`study/results/false-positives.json`): Welch's test alone ignores that other tasks would give
another difference, and a hierarchical bootstrap is far too certain with three runs, because the
variance of its draws is (S - 1) / S of the runs' variance.

The variance of runs cannot be estimated from one run. A comparison with one run of a method has an
interval only over tasks, which is about these trained learners [1]. A p-value is a statement about
methods, and needs `MIN_SEEDS` runs of each. A comparison of fewer is called an indication.

[1] X. Bouthillier et al., Accounting for Variance in Machine Learning Benchmarks. MLSys 2021.
[2] F. E. Satterthwaite, An Approximate Distribution of Estimates of Variance Components.
    Biometrics Bulletin 2, 1946.
[3] S. Holm, A Simple Sequentially Rejective Multiple Test Procedure. Scandinavian Journal of
    Statistics 6, 1979.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from arml.results.files import Json, RunError
from arml.results.scores import Scores, check_paired, format_score, summary_of

SIGNIFICANCE_LEVEL = 0.05
"""A difference counts if its adjusted p-value is below this."""
MIN_SEEDS = 5
"""A p-value needs this many training runs of each method. Fewer give only an indication."""
CANNOT_TELL = "cannot tell"
MAY_BE_CHANCE, TOO_FEW, RUN_FAILED = "may be chance", "too few trainings", "a training failed"
"""Why the data cannot show which is better."""


@dataclass(frozen=True, repr=False)
class Comparison:
    """The mean of `a - b` over training runs and tasks.

    A number is None where it does not exist.

        comparison.mean, comparison.ci95, comparison.p
    """

    mean: float | None = None
    ci95: float | None = None
    """Half-width of the 95% interval: over runs and tasks, or only over tasks, see `over_runs`."""
    p: float | None = None
    """The two-sided p-value of no difference."""
    adjusted: float | None = None
    """The p-value after Holm's correction for all comparisons of its family."""
    tasks: int = 0
    runs: tuple[int, int] = (1, 1)
    """The numbers of finished runs of a and of b."""
    failed: tuple[int, int] = (0, 0)
    """The numbers of their runs that failed or have a score that is not finite."""
    error: float | None = None
    """The standard error of the mean."""
    degrees: float = math.inf
    """Its degrees of freedom."""
    metric: str = ""
    """accuracy or mse."""
    value: float = 0.0
    """The difference that is tested: whether the mean is another one."""
    families: Mapping[str, "Comparison"] = field(default_factory=dict)
    """The comparison on the tasks of each family that has some, not corrected for their number."""

    def by_family(self) -> Mapping[str, "Comparison"]:
        """`families`."""
        return self.families

    @property
    def over_runs(self) -> bool:
        """Whether the interval is over training runs and tasks, and not only over tasks: if both
        have two runs or more, and none failed."""
        return min(self.runs) > 1 and not any(self.failed)

    @property
    def counts(self) -> bool:
        """Whether the difference is significant."""
        return (
            self.mean is not None
            and self.adjusted is not None
            and self.adjusted < SIGNIFICANCE_LEVEL
        )

    @property
    def ahead(self) -> float | None:
        """How much better than b, by more than `value`, a is: positive for a better score of
        either metric."""
        gap = None if self.mean is None else self.mean - self.value
        return -gap if gap and self.metric == "mse" else gap

    @property
    def verdict(self) -> str:
        """`better` or `worse`, of a, if the difference is significant; or `cannot tell`."""
        if self.why or self.ahead is None:
            return CANNOT_TELL
        return "better" if self.ahead > 0 else "worse"

    @property
    def why(self) -> str:
        """Why the data cannot show which is better; empty if they can."""
        if any(self.failed):
            return RUN_FAILED
        if self.mean is not None and min(self.runs) < MIN_SEEDS:
            return TOO_FEW
        return "" if self.counts else MAY_BE_CHANCE

    @property
    def indicates(self) -> str:
        """`better` or `worse`, of a, if there are too few trainings for a verdict, and the interval
        excludes no difference; empty otherwise."""
        ahead, half = self.ahead, self.ci95
        if self.why != TOO_FEW or ahead is None or half is None or abs(ahead) <= half:
            return ""
        return "better" if ahead > 0 else "worse"

    @property
    def about(self) -> str:
        """The sources of chance in the interval, with the p-value or why there is none,
        in words."""
        both = " and" if self.over_runs else ", of"
        over = f"over {self.tasks:,} tasks{both} {self.runs[0]} and {self.runs[1]} training runs"
        if self.p is not None:
            return f"{over}, p {probability(self.p)}"
        if any(self.failed):
            return f"{over}; no p-value, because runs that failed are left out"
        return f"{over}; an indication: a p-value needs {MIN_SEEDS} training runs of each"

    def to_dict(self) -> Json:
        """The comparison as JSON: `mean`, `ci95`, `p`, `n` (tasks), `runs`, `failed`, and the same
        of each of the `families`."""
        own: Json = {"mean": self.mean, "ci95": self.ci95, "p": self.p, "n": self.tasks}
        own |= {"runs": [*self.runs], "failed": [*self.failed]}
        families = {name: one.to_dict() for name, one in self.families.items()}
        return {**own, "families": families} if families else own

    def __repr__(self) -> str:
        shown = format_score(self.metric, self.to_dict(), sign="+")
        return f"Comparison({self.metric or 'score'} {shown}, {self.about})"

    def tested(self, value: float) -> "Comparison":
        """The same comparison, with the p-value of the difference being `value`."""
        if self.p is None or self.mean is None or self.error is None:
            return replace(self, value=value)
        return replace(self, p=_p(self.mean - value, self.error, self.degrees), value=value)


def check_distinct(name: str, trainings: Sequence[Scores]) -> None:
    """Raise `ValueError` if a method has scores of no task, or those of one training twice, which
    would look like evidence over trainings."""
    for i, one in enumerate(trainings):
        if not len(one):
            raise ValueError(f"{name}: expected scores of one task or more, got none")
        for k, other in enumerate(trainings[:i]):
            if one is other:
                raise ValueError(
                    f"{name}: trainings {k + 1} and {i + 1} are the same: leave one of them out"
                )


def compare_two(a: Scores | Sequence[Scores], b: Scores | Sequence[Scores]) -> Comparison:
    """Compare two methods on the same tasks, in all and by family: see `arml.compare`. **Raises**
    `ValueError` in one line if one has no scores, or not all were scored on the same tasks."""
    first, second = ([some] if isinstance(some, Scores) else [*some] for some in (a, b))
    if not (first and second):
        raise ValueError(
            f"expected scores of each method, got {len(first)} and {len(second)} training runs"
        )
    for other in (*first, *second):
        check_paired(first[0], other)
    check_distinct("the first method", first)
    check_distinct("the second method", second)

    def on(own: np.ndarray) -> Comparison:
        sides = (
            {i: replace(s, values=s.values[own], families=s.families[own]) for i, s in side}
            for side in map(enumerate, (first, second))
        )
        return holm([compare_seeds(*sides)])[0]

    masks = {name: first[0].families == i for i, name in enumerate(first[0].names)}
    families = {name: on(own) for name, own in masks.items() if own.any()}
    return replace(on(np.ones(len(first[0]), bool)), families=families)


def compare_seeds(
    a: Mapping[int, Scores],
    b: Mapping[int, Scores],
    *,
    failed: tuple[int, int] = (0, 0),
    same_runs: bool = False,
) -> Comparison:
    """Compare two methods by the scores of their runs, by seed, Eq. (1). The p-value is not
    adjusted yet. `failed` is how many runs of each have no scores; runs with a score that is not
    finite are added to them. With a failed run there is no p-value, because the others were
    selected by their success. `same_runs`: both are scores of the same learners, to be compared run
    by run. **Raises** `RunError` if they were not scored on the same tasks."""
    if same_runs:
        a, b = ({s: side[s] for s in sorted({*a} & {*b})} for side in (a, b))
    if len({scores.tasks for side in (a, b) for scores in side.values()}) > 1:
        raise RunError(
            "expected scores on the same tasks, got different ones; score all runs again"
        )
    kept = [[s.values for s in side.values() if np.isfinite(s.values).all()] for side in (a, b)]
    runs = (len(kept[0]), len(kept[1]))
    lost = (failed[0] + len(a) - runs[0], failed[1] + len(b) - runs[1])
    metric = next((scores.metric for side in (a, b) for scores in side.values()), "")
    if not all(runs):
        return Comparison(runs=runs, failed=lost, metric=metric)
    n = min(len(values) for side in kept for values in side)
    ours, theirs = (np.stack([values[:n] for values in side]) for side in kept)
    differences = ours.mean(0) - theirs.mean(0)
    found = difference_of(differences)
    found = replace(found, p=None, runs=runs, failed=lost, metric=metric)
    if not found.over_runs or found.mean is None or found.error is None:
        return found
    means = [(ours - theirs).mean(1)] if same_runs else [ours.mean(1), theirs.mean(1)]
    error, degrees = error_of(differences, means)
    p = _p(found.mean, error, degrees) if min(runs) >= MIN_SEEDS else None
    return replace(found, ci95=error * _t(degrees), p=p, error=error, degrees=degrees)


def over_trainings(means: Sequence[float]) -> float | None:
    """The half-width of the 95% interval over trainings, from the mean score of each, by Student's
    t; None for a single training, or if a mean is not finite."""
    n = len(means)
    if n < 2 or not np.isfinite(means).all():
        return None
    return float(_t(float(n - 1)) * np.std(means, ddof=1) / math.sqrt(n))


def over_tasks(trainings: Sequence[Scores]) -> float | None:
    """The half-width of the 95% interval over tasks of the scores averaged over trainings."""
    values = [scores.values for scores in trainings]
    n = min(map(len, values), default=0)
    return summary_of(np.mean([one[:n] for one in values], axis=0))["ci95"] if n else None


def error_of(differences: np.ndarray, means: Sequence[np.ndarray]) -> tuple[float, float]:
    """The standard error of the mean of the tasks' `differences` `[tasks]` and its degrees of
    freedom; `means` are those of each run of each method `[runs]`. Eq. (1)."""
    parts = [(float(m.var(ddof=1)) / len(m), len(m) - 1) for m in (*means, differences)]
    variance = sum(part for part, _ in parts)  # Eq. (1)
    spread = sum(part**2 / degrees for part, degrees in parts)  # Satterthwaite's [2]
    return math.sqrt(variance), variance**2 / spread if spread else math.inf


def _p(mean: float, error: float, degrees: float) -> float:
    """The two-sided p-value of a mean if the true mean is zero."""
    if error == 0:  # all differences are the same: equal, or certainly different
        return 1.0 if mean == 0 else 0.0
    from scipy.special import stdtr  # here, because SciPy is slow to load

    return float(2 * stdtr(degrees, -abs(mean) / error))


def _t(degrees: float) -> float:
    """The 97.5% quantile of Student's t."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 0.975))


def probability(p: float) -> str:
    """A p-value as text: `= 0.03`, `< 0.001`."""
    return "< 0.001" if p < 0.001 else f"= {p:.2g}"


def difference_of(differences: np.ndarray) -> Comparison:
    """The comparison only over tasks, from the differences of single tasks. It is about two
    trained learners, and its p-value is not adjusted yet."""
    n = len(differences)
    if not n or not np.isfinite(differences).all():
        return Comparison(tasks=n)
    mean = float(differences.mean())
    if n < 2:
        return Comparison(mean, tasks=n)
    error = float(differences.std(ddof=1)) / math.sqrt(n)
    return Comparison(mean, 1.96 * error, _p(mean, error, math.inf), tasks=n, error=error)


def holm(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons with p-values adjusted for their number [3]; those without p do not count."""
    known = sorted((c.p, i) for i, c in enumerate(comparisons) if c.p is not None)
    adjusted, highest = {}, 0.0
    for rank, (p, i) in enumerate(known):
        highest = max(highest, min(1.0, p * (len(known) - rank)))
        adjusted[i] = highest
    return [replace(c, adjusted=adjusted.get(i)) for i, c in enumerate(comparisons)]
