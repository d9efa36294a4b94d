"""How far a predictor can be trusted, measured on its own labelled examples.

A check takes a function that learns from some of the examples and predicts the others. Each fold
fits everything that uses labels again, so no estimate has seen its own answers. Folds are balanced,
and repeated if there are few examples. Copies and the examples of a group are left out together,
and count once (`arml.predict.folds`). A class with one distinct example cannot be checked. The
interval of an accuracy is Wilson's, with `OVERLAP_FACTOR`. Mistakes are ranked by the probability
of the given label [1]. The interval of a number is its prediction plus or minus a quantile of the
residuals of left-out examples (the jackknife of [2], with folds). The check learns from fewer
examples than the predictor, so it is slightly pessimistic.

[1] Northcutt, Jiang and Chuang, Confident Learning: Estimating Uncertainty in Dataset Labels,
    JAIR 2021. Difference: examples are ranked by the probability of their own label alone.
[2] Barber, Candes, Ramdas and Tibshirani, Predictive Inference with the Jackknife+, Annals of
    Statistics 2021. Difference: the plain jackknife, whose share is "about" for stable learners.
[3] Bengio and Grandvalet, No Unbiased Estimator of the Variance of K-Fold Cross-Validation, JMLR
    2004.
[4] Nadeau and Bengio, Inference for the Generalization Error, Machine Learning 2003.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from arml.predict.folds import MAX_FOLDS, Numbers, Places, folds, units_of
from arml.results.files import Json

MAX_REPEATED_EXAMPLES = 60
"""Up to this number of labelled examples, each is left out `FOLD_REPEATS` times."""
FOLD_REPEATS = 3
OVERLAP_FACTOR = 1.7
"""The variance of a cross-validated accuracy around the accuracy on new inputs, divided by that of
as many independent tests: folds learn from nearly the same examples [3], and from fewer than the
predictor. It suits simulated tables (`benchmarks/results/intervals.json`), where 95% intervals with
a factor of 1 hold in 87 to 96% of cases. The correction of [4] is 2.1 for ten folds."""
_OUTLIER_DISTANCE = 6.0
"""A number is far off if its residual is more than this multiple of the median residual."""
Z_95 = 1.959964
"""The 97.5% quantile of the normal distribution."""
_MAX_SHOWN = 5
"""The largest number of examples that a summary in words names."""
ALWAYS_THE_MEAN = "always the mean"
"""The name of the simplest regression, which every model should beat."""
MODELS_IN_WORDS = {
    "learner": "the learner",
    "logistic": "logistic regression",
    "edges": "logistic regression on edges",
    "process": "a Gaussian process",
    "ensemble": "a weighted mean of all models",
}
"""The models that a predictor can use, in words."""

Copies = tuple[tuple[int, ...], ...]
Refit = Callable[[Places, Places], Mapping[str, np.ndarray]]
"""From the indices of the examples to learn from and of those to predict, to the predictions of one
or more models by name: probabilities `[predicted, classes]` or numbers `[predicted, targets]`."""


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """Predictions of examples whose labels are known."""

    classes: np.ndarray
    """The labels in order."""
    labels: Int[np.ndarray, " n"]
    """The index among `classes` of each example's label."""
    probabilities: Float[np.ndarray, "n classes"]
    """The prediction for each example."""
    overlap = 1.0
    """The variance of the accuracy, divided by that of `independent` tests."""

    @property
    def guesses(self) -> Int[np.ndarray, " n"]:
        """The index among `classes` of each example's prediction."""
        return self.probabilities.argmax(axis=1)

    @property
    def right(self) -> np.ndarray:
        """Whether each example was predicted as it is labelled `[n]`."""
        return self.guesses == self.labels

    @property
    def accuracy(self) -> float:
        """The share of examples that were predicted as they are labelled; NaN without examples."""
        return float(np.mean(self.right)) if len(self.labels) else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95% interval of the accuracy, from the `independent` examples."""
        if not len(self.labels):
            return 0.0, 1.0
        n, share = self.independent / self.overlap / Z_95**2, self.accuracy
        middle, half = share + 1 / (2 * n), math.sqrt(share * (1 - share) / n + 1 / (4 * n**2))
        return max((middle - half) / (1 + 1 / n), 0.0), min((middle + half) / (1 + 1 / n), 1.0)

    @property
    def independent(self) -> int:
        """The number of examples that the interval counts."""
        return len(self.labels)

    @property
    def by_class(self) -> dict[Any, float]:
        """The accuracy of each class that has examples."""
        return {
            label: float(np.mean(self.right[self.labels == k]))
            for k, label in enumerate(self.classes.tolist())
            if np.any(self.labels == k)
        }

    @property
    def balanced(self) -> float:
        """The mean of the accuracies of the classes; NaN without examples."""
        return float(np.mean([*self.by_class.values()])) if len(self.labels) else math.nan

    @property
    def largest(self) -> tuple[Any, float]:
        """The class with most examples, and its share: the accuracy of always answering it."""
        counts = np.bincount(self.labels, minlength=len(self.classes))
        return self.classes[counts.argmax()], float(counts.max() / max(len(self.labels), 1))

    @property
    def confusion(self) -> Int[np.ndarray, "classes classes"]:
        """How many examples of each class (row) were predicted as each class (column)."""
        n = len(self.classes)
        return np.bincount(self.labels * n + self.guesses, minlength=n * n).reshape(n, n)

    @property
    def mistakes(self) -> Int[np.ndarray, " wrong"]:
        """The indices of the wrong predictions, the least likely label first [1]."""
        wrong = np.flatnonzero(self.guesses != self.labels)
        own = self.probabilities[wrong, self.labels[wrong]]
        return wrong[np.argsort(own, kind="stable")]

    def as_json(self) -> Json:
        """All results as plain values, without the probabilities."""
        (low, high), (label, share) = self.interval, self.largest
        return {
            "n": len(self.labels),
            "accuracy": self.accuracy,
            "low": low,
            "high": high,
            "balanced": self.balanced,
            "largest": {"label": str(label), "share": share},
            "classes": [str(label) for label in self.classes],
            "by_class": {str(label): share for label, share in self.by_class.items()},
            "confusion": self.confusion.tolist(),
        }

    def lines(self, names: Sequence[str]) -> list[str]:
        """A summary in words. `names` are the names of the examples."""
        wrong = [f"{names[i]}: {self.mistake(i)}" for i in self.mistakes]
        return [str(self), *filter(None, [self.warning]), *_first(wrong, "more mistakes")]

    @property
    def warning(self) -> str:
        """A warning if always answering the `largest` class is as good; otherwise empty."""
        (label, share), ways = self.largest, len(self.by_class)
        if ways > 1 and share >= self.accuracy and self.balanced <= 1.2 / ways:
            return f"no better than always answering {label}: do not trust it"
        if ways < 2 or share <= self.accuracy:
            return ""
        return (
            f"worse than always answering {label}: do not trust it where {label} is so frequent "
            f"({share:.0%}); where all classes are equally frequent, {self.balanced:.0%} are right"
        )

    def mistake(self, index: Any) -> str:
        """The label of an example and the predicted label, in words."""
        own, guess = self.classes[[self.labels[index], self.guesses[index]]]
        return f"labelled {own}, predicted as {guess} ({self.probabilities[index].max():.0%})"

    @property
    def _counted(self) -> str:
        return f"{round(float(np.sum(self.right)))} of {len(self.labels)}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"

    def __str__(self) -> str:
        if not len(self.labels):
            return "no labelled examples"
        (low, high), (label, share) = self.interval, self.largest
        return (
            f"accuracy {self.accuracy:.0%} ({self._counted}; 95% interval {low:.0%} to "
            f"{high:.0%}); mean over the classes {self.balanced:.0%}; always answering {label}: "
            f"{share:.0%}"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Reliability(Evaluation):
    """The quality of a classifier, measured by leaving examples out. `labels` and `probabilities`
    belong to the examples that were left out. Probabilities are means over the repeats."""

    checked: Places
    """The indices of the left-out examples in the support set."""
    model: str
    """The model that was checked."""
    others: Mapping[str, float]
    """The accuracies of the other models, for comparison."""
    shares: Float[np.ndarray, " n"]
    """How often each example was predicted as it is labelled, as a share of its repeats."""
    repeats: int = 1
    """How often each example was left out."""
    copies: Copies = ()
    """The indices of equal examples with one label, which were left out together."""
    conflicts: Copies = ()
    """The indices of equal examples with several labels."""
    independent: int = 0
    """How many examples, copies or groups were left out."""
    grouped: bool = False
    """Whether groups were given."""
    notes: tuple[str, ...] = ()
    """More lines for the user."""
    overlap = OVERLAP_FACTOR

    @property
    def right(self) -> np.ndarray:
        """The share of the repeats in which each example was predicted as it is labelled `[n]`."""
        return self.shares

    @property
    def doubtful(self) -> Int[np.ndarray, " doubtful"]:
        """The indices of the `mistakes` in the support set: mislabelled examples, or examples
        that are unlike the others of their class."""
        return self.checked[self.mistakes]

    def threshold(self, level: float = 0.95) -> float:
        """The probability that the predicted classes of `level` of the left-out examples reach. If
        the predicted class of a query has less, the query may lie outside of all classes."""
        top = self.probabilities.max(axis=1)
        return float(np.quantile(top, 1 - level)) if len(top) else 0.0

    def lines(self, names: Sequence[str]) -> list[str]:
        """The result in words. `names` are the names of the examples in the support set."""
        odd = [f"check {names[self.checked[i]]}: {self.mistake(i)}" for i in self.mistakes]
        more = _first(odd, "more examples that were predicted as another class")
        return [*self.overview(names), *more]

    def overview(self, names: Sequence[str]) -> list[str]:
        """The same without the mistakes."""
        lines, present, limits = [self._said, *self.notes], np.unique(self.labels), self._limits
        if len(present) > 1:
            if warning := self.warning:
                lines.append(warning)
            elif np.bincount(self.labels).max() == 2:
                lines.append(
                    "with two examples of each class, each is predicted from half of the "
                    "examples: new inputs are predicted from all, which is likely better"
                )
        return [*lines, *limits, *_equal(self.copies, self.conflicts, names, "labels")]

    @property
    def _counted(self) -> str:
        n, few, counted = len(self.labels), self.independent, super()._counted
        if self.repeats > 1:
            counted = f"mean of {self.repeats} repeats over {n} examples"
        more = f" in {few} groups" if self.grouped else f", {few} of them distinct"
        return counted + more * (few < n)

    @property
    def _limits(self) -> list[str]:
        """Which classes could not be checked."""
        if not len(self.labels):
            return []
        checked = self.by_class
        missed = [str(label) for label in self.classes.tolist() if label not in checked]
        one = "group" if self.grouped else "distinct example"
        alone = "only one class could be checked, so this result says little"
        return [alone] * (len(self.classes) - len(missed) == 1) + [
            f"not checked, because each has one {one}: {_some(missed)}"
        ] * bool(missed)

    def __str__(self) -> str:
        return "; ".join([self._said, *self._limits])

    @property
    def _said(self) -> str:
        if not len(self.labels):
            return (
                "the predictor and its probabilities cannot be checked, because no class has two "
                f"{'groups' if self.grouped else 'different examples'}: give two or more of a "
                "class"
            )
        said = f"cross-validated {super().__str__()}"
        if not self.others:
            return said
        others = ", ".join(f"{_word(name)} {share:.0%}" for name, share in self.others.items())
        return f"{said}; predicted by {_word(self.model)}; accuracy of other models: {others}"


@dataclass(frozen=True, eq=False, repr=False)
class NumberEvaluation:
    """Predictions of examples whose numbers are known."""

    targets: Float[np.ndarray, "n targets"]
    """The targets of the examples, in order."""
    predictions: Float[np.ndarray, "n targets"]
    """The prediction of each example; infinite if the model could not predict."""

    @property
    def residuals(self) -> Float[np.ndarray, "n targets"]:
        """How far each target is from its prediction."""
        return np.abs(self.predictions - self.targets)

    @property
    def median(self) -> Float[np.ndarray, " targets"]:
        """The median of the residuals. A few targets that are far off determine the `error`, but
        hardly change the median."""
        return np.median(self.residuals, axis=0)

    @property
    def error(self) -> Float[np.ndarray, " targets"]:
        """The root mean squared error, in units of each target."""
        return np.sqrt(np.mean(self.residuals**2, axis=0))

    def as_json(self) -> Json:
        """The number of examples, the mean squared error, and the variance of the targets; None
        without examples."""
        if not len(self.targets):
            return {"n": 0, "mse": None, "variance": None}
        return {
            "n": len(self.targets),
            "mse": float(np.mean(self.residuals**2)),
            "variance": float(np.mean(np.var(self.targets, axis=0))),
        }

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"

    def __str__(self) -> str:
        if not len(self.targets):
            return "no examples with a known number"
        spread = np.std(self.targets, axis=0)
        return (
            f"root mean squared error {_numbers(self.error, 4)}, in the unit of the target, on "
            f"{len(self.targets)} rows; if every answer were the mean of the targets, it would be "
            f"{_numbers(spread, 4)}"
        )


@dataclass(frozen=True, eq=False, repr=False)
class NumberReliability(NumberEvaluation):
    """The quality of a regression, measured by leaving examples out. `targets` are empty if nothing
    could be left out."""

    model: str
    """The model that was checked."""
    errors: Mapping[str, Float[np.ndarray, " targets"]]
    """The root mean squared error of each model, and of always answering the mean of the examples
    that were not left out, in units of each target."""
    copies: Copies = ()
    """The indices of equal examples, which were left out together."""
    conflicts: Copies = ()
    """The indices of equal inputs with several targets."""
    independent: int | None = None
    """How many examples, copies or groups were left out; None for as many as there are targets."""
    notes: tuple[str, ...] = ()
    """More lines for the user."""

    @property
    def error(self) -> Float[np.ndarray, " targets"]:
        """The error of the model that was checked."""
        return self.errors[self.model]

    @property
    def doubtful(self) -> Int[np.ndarray, " doubtful"]:
        """The indices of examples whose residual is more than `_OUTLIER_DISTANCE` times the median,
        the largest first: mistyped, or unlike the others."""
        if not len(self.targets):
            return np.zeros(0, int)
        ratio = (self.residuals / np.where(self.median > 0, self.median, np.inf)).max(axis=1)
        order = np.argsort(-ratio, kind="stable")
        return order[ratio[order] > _OUTLIER_DISTANCE]

    def half_width(self, level: float) -> Float[np.ndarray, " targets"]:
        """Half the width of an interval that contains about `level` of new targets [2]: the
        residual with the rank of conformal prediction.

        **Raises** `ValueError` if there are too few examples for the level."""
        rank = conformal_rank(level, len(self.targets), self.independent)
        if rank is None:
            raise ValueError(
                f"{self.independent or len(self.targets)} examples are too few for a level of "
                f"{level:g}: give {math.ceil(level / (1 - level) - 1e-9)} or more, or a lower level"
            )
        return np.sort(self.residuals, axis=0)[rank - 1]

    def lines(self, names: Sequence[str]) -> list[str]:
        """The result in words. `names` are the names of the examples."""
        lines = [str(self), *self.notes]
        if len(self.targets) and not np.any(self.errors[ALWAYS_THE_MEAN]):
            lines.append("all targets are equal")
        elif np.all(self.error >= self.errors[ALWAYS_THE_MEAN]):
            lines.append("no better than always answering the mean of the targets: do not trust it")
        lines += _equal(self.copies, self.conflicts, names, "targets")
        digits = digits_of(self.targets, 4)
        odd = [
            f"check {names[i]}: its target is {_numbers(self.targets[i], digits)}, but "
            f"{_numbers(self.predictions[i], digits)} is predicted from the other examples"
            for i in self.doubtful
        ]
        return lines + _first(odd, "more examples that are as far off")

    def __str__(self) -> str:
        if not len(self.targets):
            return "the predictor cannot be checked with one distinct example: give two or more"
        others = [f"{_word(k)} {_numbers(e, 3)}" for k, e in self.errors.items() if k != self.model]
        return (
            f"cross-validated error {_numbers(self.error, 3)} (root mean square of "
            f"{len(self.targets)} examples; median error {_numbers(self.median, 3)}), predicted by "
            f"{_word(self.model)}; for comparison: " + ", ".join(others)
        )


def _word(model: str) -> str:
    return MODELS_IN_WORDS.get(model, model)


def curve_in_words(curve: Mapping[int, float]) -> str:
    """How the accuracy grows with the number of examples: see `Predictor.learning_curve`."""
    each = ", ".join(f"{accuracy:.0%} with {n}" for n, accuracy in curve.items())
    return f"accuracy by the number of examples of each class: {each}"


def classification_reliability(
    refit: Refit,
    y: Int[np.ndarray, " n"],
    classes: np.ndarray,
    same: Numbers | None = None,
    groups: Numbers | None = None,
    model: str | None = None,
    *,
    repeats: int | None = None,
    most: int = MAX_FOLDS,
) -> Reliability:
    """Leave examples out, and predict them with models that learned from the others.

    **Arguments**

    - `refit`: learns from the first indices, and predicts the second: see `Refit`.
    - `y`: the index of each label among the `classes`.
    - `same`: equal inputs have the same number: see `equal_inputs`. None if all differ.
    - `groups`: examples that belong together have the same number. None without groups.
    - `model`: the name of the model that is checked; the first if not given.
    - `repeats`: how often each example is left out; chosen by their number if not given.
    - `most`: the largest number of folds.
    """
    repeats = repeats or (FOLD_REPEATS if len(y) <= MAX_REPEATED_EXAMPLES else 1)

    def marked(train: Places, test: Places) -> dict[str, np.ndarray]:
        """The probabilities, and whether the likeliest class is right."""
        each = refit(train, test).items()
        return {name: np.c_[found, found.argmax(axis=1) == y[test]] for name, found in each}

    checked, found = left_out(marked, folds(y, same, groups, repeats=repeats, most=most), len(y))
    model = model or next(iter(found), "model")
    mean = found.get(model, np.zeros((0, len(classes) + 1)))
    return Reliability(
        classes,
        y[checked],
        mean[:, :-1],
        checked,
        model,
        {name: float(one[:, -1].mean()) for name, one in found.items() if name != model},
        mean[:, -1],
        repeats,
        *_copies(same, y),
        len(np.unique(units_of(y, same, groups)[checked])),
        groups is not None,
    )


def regression_reliability(
    refit: Refit,
    y: Float[np.ndarray, "n *targets"],
    same: Numbers | None = None,
    groups: Numbers | None = None,
    model: str | None = None,
    *,
    most: int = MAX_FOLDS,
) -> NumberReliability:
    """As `classification_reliability`, for targets `y`."""
    y = y.astype(np.float64).reshape(len(y), -1)

    def compared(train: Places, test: Places) -> dict[str, np.ndarray]:
        mean = np.broadcast_to(y[train].mean(axis=0), y[test].shape)
        return {**refit(train, test), ALWAYS_THE_MEAN: mean}

    parts = folds(y, same, groups, classes=False, most=most)
    checked, found = left_out(compared, parts, len(y))
    several = *_copies(same, y), len(np.unique(units_of(y, same, groups)[checked]))
    model, y = model or next(iter(found), "model"), y[checked]
    if not len(checked):
        return NumberReliability(
            y, y, model, dict.fromkeys((model, ALWAYS_THE_MEAN), y.sum(axis=0) + np.nan)
        )
    errors = {name: np.sqrt(np.mean((one - y) ** 2, axis=0)) for name, one in found.items()}
    return NumberReliability(y, found[model], model, errors, *several)


def left_out(
    refit: Refit, folds: Iterable[tuple[Places, Places]], n: int
) -> tuple[Places, dict[str, np.ndarray]]:
    """The indices of the left-out examples among `n`, and the mean prediction of each example by
    each model."""
    sums, times = dict[str, np.ndarray](), np.zeros(n, int)
    for train, test in folds:
        times[test] += 1
        for name, found in refit(train, test).items():
            sums.setdefault(name, np.zeros((n, found.shape[1])))[test] += found
    checked = np.flatnonzero(times)
    return checked, {name: one[checked] / times[checked, None] for name, one in sums.items()}


def conformal_rank(level: float, n: int, independent: int | None = None) -> int | None:
    """The rank (from 1) of `n` sorted residuals that conformal prediction [2] takes for `level`;
    None if there are too few. If examples belong together, the rank is computed for the number of
    `independent` ones, and scaled to `n`.

    **Raises** `ValueError` for a level outside of 0 to 1."""
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, such as 0.9, got {level:g}")
    few = independent or n
    rank = math.ceil(level * (few + 1) - 1e-9)
    return None if rank > few else math.ceil(rank / few * n - 1e-9)


def _copies(same: Numbers | None, y: np.ndarray) -> tuple[Copies, Copies]:
    """The indices of equal inputs with one label or target, and of those with several."""
    if same is None:
        return (), ()

    def several(numbers: Numbers) -> set[tuple[int, ...]]:
        found = np.flatnonzero(np.bincount(numbers) > 1)
        return {tuple(np.flatnonzero(numbers == one).tolist()) for one in found}

    equal, alone = several(same), several(units_of(y, same))
    return tuple(sorted(alone)), tuple(sorted(equal - alone))


def _equal(copies: Copies, conflicts: Copies, names: Sequence[str], what: str) -> list[str]:
    every = {
        "equal or nearly equal examples, which were left out together": copies,
        f"equal examples with different {what}": conflicts,
    }
    return [
        f"{note}: {_some([' = '.join(names[i] for i in group[:3]) for group in groups])}"
        for note, groups in every.items()
        if groups
    ]


def _first(texts: Sequence[str], rest: str) -> list[str]:
    more = len(texts) - _MAX_SHOWN
    return [*texts[:_MAX_SHOWN], *([f"and {more} {rest}"] if more > 0 else [])]


def _some(texts: Sequence[str]) -> str:
    more = len(texts) - _MAX_SHOWN
    return ", ".join(texts[:_MAX_SHOWN]) + (f" and {more} more" if more > 0 else "")


def digits_of(targets: np.ndarray, digits: int = 6) -> int:
    """Significant digits for numbers like these: more than `digits` if their spread is small beside
    their size, so that 10,000,002 and 10,000,015 do not both become 1e+07."""
    size = float(np.abs(targets).max(initial=0))
    spread = float(np.std(targets)) if len(targets) else 0.0
    lost = math.floor(math.log10(size / spread)) if 0 < spread < size < math.inf else 0
    return min(digits + lost, 15)


def _numbers(values: np.ndarray, digits: int) -> str:
    return " and ".join(f"{value:.{digits}g}" for value in values)
