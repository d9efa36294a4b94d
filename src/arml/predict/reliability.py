"""How far can a predictor be trusted? Answered from its own labelled examples.

A check takes a function that learns from some of the examples and predicts the others. The function
refits everything that reads labels (the choice of columns, encodings, scales, temperature, weights
of models) from the examples that it may see, so no estimate has seen its own answers.

- Classes are left out in balanced folds (stratified), repeatedly if the examples are few. Leaving
  one example out would make its class the rarest, which decides ties.
- Copies, equal examples with one label, are left out together and named. Equal examples with
  several labels are no copies: they show that the input does not decide the label.
- A class without a second example that differs cannot be checked: without the first it is unknown.
- The interval of an accuracy is Wilson's [1]. An example that was left out several times counts
  once.
- Doubtful labels are ranked by the probability of the given label [2].
- Intervals of numbers are a prediction plus or minus a quantile of the residuals of examples that
  were left out (the jackknife of [3], with folds).

The check learns from a fold less than the predictor does, so it is slightly pessimistic.

[1] Wilson, Probable Inference, the Law of Succession, and Statistical Inference, JASA 1927.
[2] Northcutt, Jiang and Chuang, Confident Learning: Estimating Uncertainty in Dataset Labels,
    JAIR 2021. Difference: examples are ranked by the probability of their own label alone.
[3] Barber, Candes, Ramdas and Tibshirani, Predictive Inference with the Jackknife+, Annals of
    Statistics 2021. Difference: the plain jackknife, whose share is "about" for stable learners.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from arml.results.files import Json

Z = 1.959964
"""Standard deviations that 95% of a normal distribution lie within."""
FOLDS = 10
"""Folds at most; of classes no more than the largest has distinct examples."""
FEW = 60
"""Up to so many examples of classes are left out `REPEATS` times in different folds."""
REPEATS = 3
FAR = 6.0
"""A number is far off if its residual is so many times the median residual."""
NEAR_MOST = 2_000
"""Up to so many examples are compared in pairs; of more, only equal ones are found."""
SHOWN = 5
"""Examples that are named in words."""

Places = Int[np.ndarray, " _"]
Refit = Callable[[Places, Places], Mapping[str, np.ndarray]]
"""From the places of the examples to learn from, and of those to predict, to the predictions of one
or more models by name: probabilities `[predicted, classes]` or numbers `[predicted, targets]`."""


def wilson(right: float | int, n: int) -> tuple[float, float]:
    """The 95% interval of a share of which `right` of `n` were counted [1]."""
    share, spread = right / n, Z**2 / n
    middle = (share + spread / 2) / (1 + spread)
    half = Z / (1 + spread) * math.sqrt(share * (1 - share) / n + spread / (4 * n))
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """Predictions of examples whose labels are known."""

    classes: np.ndarray
    """The labels in order."""
    labels: Int[np.ndarray, " n"]
    """The place among `classes` of each example's own label."""
    probabilities: Float[np.ndarray, "n classes"]
    """The prediction for each example."""

    @property
    def right(self) -> np.ndarray:
        """Whether each example was predicted as it is labelled `[n]`."""
        return self.probabilities.argmax(axis=1) == self.labels

    @property
    def accuracy(self) -> float:
        """The share of examples that were predicted as they are labelled; NaN without examples."""
        return float(np.mean(self.right)) if len(self.labels) else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval of the accuracy."""
        n = len(self.labels)
        return wilson(float(np.sum(self.right)), n) if n else (0.0, 1.0)

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
        found = np.zeros((len(self.classes), len(self.classes)), int)
        if len(self.labels):
            np.add.at(found, (self.labels, self.probabilities.argmax(axis=1)), 1)
        return found

    @property
    def mistakes(self) -> Int[np.ndarray, " wrong"]:
        """The places of the wrong predictions, the surest first."""
        wrong = np.flatnonzero(self.probabilities.argmax(axis=1) != self.labels)
        return wrong[np.argsort(-self.probabilities[wrong].max(axis=1), kind="stable")]

    def as_json(self) -> Json:
        """All of it as plain values, without the probabilities."""
        (low, high), (label, share) = self.interval, self.largest
        return {
            "n": len(self.labels),
            "accuracy": _finite(self.accuracy),
            "low": low,
            "high": high,
            "balanced": _finite(self.balanced),
            "largest": {"label": str(label), "share": share},
            "classes": [str(label) for label in self.classes],
            "by_class": {str(label): share for label, share in self.by_class.items()},
            "confusion": self.confusion.tolist(),
        }

    def lines(self, names: Sequence[str]) -> list[str]:
        """A summary in words; `names` are those of the examples."""
        said, wrong = [str(self)], self.mistakes
        for place in wrong[:SHOWN]:
            guess = self.probabilities[place].argmax()
            said.append(
                f"{names[place]}: labelled {self.classes[self.labels[place]]}, predicted as "
                f"{self.classes[guess]} ({self.probabilities[place, guess]:.0%})"
            )
        if len(wrong) > SHOWN:
            said.append(f"and {len(wrong) - SHOWN} more mistakes")
        return said

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"

    def __str__(self) -> str:
        n = len(self.labels)
        if not n:
            return "no labelled examples"
        low, high = self.interval
        right = f"{float(np.sum(self.right)):.1f}".removesuffix(".0")
        label, share = self.largest
        return (
            f"accuracy {self.accuracy:.0%} ({right} of {n}; 95% interval {low:.0%} to {high:.0%}); "
            f"mean over the classes {self.balanced:.0%}; always answering {label}: {share:.0%}"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Reliability(Evaluation):
    """The quality of a classifier, measured by leaving examples out. `labels` and `probabilities`
    are those of the examples that were left out; probabilities are means over the repeats."""

    checked: Int[np.ndarray, " n"]
    """Places of the examples that were left out, in the support set."""
    model: str
    """The model that was checked."""
    others: Mapping[str, "Reliability"]
    """The same for the other models, for comparison."""
    shares: Float[np.ndarray, " n"]
    """How often each example was predicted as it is labelled, as a share of its repeats."""
    copies: tuple[tuple[int, ...], ...] = ()
    """Places of equal examples with one label, which were left out together."""

    @property
    def right(self) -> np.ndarray:
        """The share of the repeats in which each example was predicted as it is labelled `[n]`."""
        return self.shares

    @property
    def accuracies(self) -> dict[str, float]:
        """The accuracy of each model."""
        return {self.model: self.accuracy} | {k: one.accuracy for k, one in self.others.items()}

    @property
    def best(self) -> str:
        """The model with the highest accuracy; the one that was checked, if others are as good."""
        all_ = self.accuracies
        return (
            max(all_, key=lambda name: (all_[name], name == self.model))
            if len(self.labels)
            else self.model
        )

    @property
    def doubtful(self) -> Int[np.ndarray, " doubtful"]:
        """Places in the support set of the examples that were predicted as another class, the least
        likely label first: mislabelled, or unlike the others of their class [2]."""
        own = self.probabilities[np.arange(len(self.labels)), self.labels]
        wrong = self.mistakes
        return self.checked[wrong[np.argsort(own[wrong], kind="stable")]]

    def threshold(self, level: float = 0.95) -> float:
        """The probability that the predicted class of `level` of the examples has when they are
        left out: a query whose predicted class has less may belong to none of the classes."""
        top = self.probabilities.max(axis=1)
        return float(np.quantile(top, 1 - level)) if len(top) else 0.0

    def as_json(self) -> Json:
        """All of it as plain values; `doubtful` and `copies` hold places in the support set."""
        return {
            **super().as_json(),
            "model": self.model,
            "accuracies": {name: _finite(value) for name, value in self.accuracies.items()},
            "best": self.best,
            "doubtful": self.doubtful.tolist(),
            "copies": [list(group) for group in self.copies],
        }

    def lines(self, names: Sequence[str]) -> list[str]:
        """The result in words; `names` are those of the support set's examples."""
        said, doubtful = [str(self)], self.doubtful
        there = np.unique(self.labels)
        label, share = self.largest
        if len(there) == 1:
            said.append("only one class could be checked, so this says little")
        elif len(there) and share >= self.accuracy and self.balanced <= 1.2 / len(there):
            said.append(f"no better than always answering {label}: do not trust it")
        missed = [str(one) for k, one in enumerate(self.classes) if k not in there]
        if len(there) and missed:
            said.append(f"not checked, with one distinct example each: {_some(missed)}")
        said += _copies_said(self.copies, names)
        for place in doubtful[:SHOWN]:
            chances = self.probabilities[np.flatnonzero(self.checked == place)[0]]
            own = self.labels[self.checked == place][0]
            said.append(
                f"check {names[place]}: labelled {self.classes[own]}, but predicted as "
                f"{self.classes[chances.argmax()]} from the other examples ({chances.max():.0%})"
            )
        if len(doubtful) > SHOWN:
            said.append(f"predicted as another class, too: {len(doubtful) - SHOWN} more")
        return said

    def __str__(self) -> str:
        if not len(self.labels):
            return (
                "the predictor cannot be checked, because no class has two examples that differ: "
                "give two or more examples of a class"
            )
        others = ", ".join(f"{name} {one.accuracy:.0%}" for name, one in self.others.items())
        said = f"cross-validated {super().__str__()}"
        return said + (f"; other models: {others}" if others else "")


@dataclass(frozen=True, eq=False, repr=False)
class NumberReliability:
    """The quality of a regression, measured by leaving examples out."""

    targets: Float[np.ndarray, "n targets"]
    """Of the examples, in order; none if nothing could be left out."""
    predictions: Float[np.ndarray, "n targets"]
    """Of each example from the others; infinite where the model could not predict."""
    average: Float[np.ndarray, "n targets"]
    """The mean target of the examples that each was predicted from."""
    model: str
    """The model that was checked."""
    others: Mapping[str, "NumberReliability"]
    """The same for the other models, for comparison."""
    copies: tuple[tuple[int, ...], ...] = ()
    """Places of equal examples, which were left out together."""

    @property
    def residuals(self) -> Float[np.ndarray, "n targets"]:
        """How far each target is from its prediction."""
        return np.abs(self.predictions - self.targets)

    @property
    def error(self) -> Float[np.ndarray, " targets"]:
        """The root of the mean squared error, in units of each target; NaN without examples."""
        return _root(self.predictions - self.targets)

    @property
    def floor(self) -> Float[np.ndarray, " targets"]:
        """The error of always answering the mean."""
        return _root(self.average - self.targets)

    @property
    def relative(self) -> float:
        """The error as a share of the floor; of several targets, the root of its mean square."""
        unit = np.where(self.floor > 0, self.floor, 1)
        return float(np.sqrt(np.mean(np.square(self.error / unit))))

    @property
    def best(self) -> str:
        """The model with the smallest error; the one that was checked, if others are as good."""
        every = {self.model: self.relative} | {k: one.relative for k, one in self.others.items()}
        return min(every, key=lambda name: (every[name], name != self.model))

    @property
    def doubtful(self) -> Int[np.ndarray, " doubtful"]:
        """Places of the examples whose residual is more than `FAR` times the median, the largest
        first: mistyped, or unlike the others."""
        if not len(self.targets):
            return np.zeros(0, int)
        median = np.median(self.residuals, axis=0)
        ratio = (self.residuals / np.where(median > 0, median, np.inf)).max(axis=1)
        order = np.argsort(-ratio, kind="stable")
        return order[ratio[order] > FAR]

    def half_width(self, level: float) -> Float[np.ndarray, " targets"]:
        """Half the width of an interval that holds about `level` of new targets [3].

        **Raises** `ValueError` for a level that so few examples cannot give."""
        return quantile_of(self.residuals, level)

    def as_json(self) -> Json:
        """All of it as plain values; `doubtful` and `copies` hold places of examples."""
        errors = {self.model: self.error} | {k: one.error for k, one in self.others.items()}
        return {
            "n": len(self.targets),
            "model": self.model,
            "errors": {name: [_finite(e) for e in each] for name, each in errors.items()},
            "floor": [_finite(e) for e in self.floor],
            "best": self.best,
            "doubtful": self.doubtful.tolist(),
            "copies": [list(group) for group in self.copies],
        }

    def lines(self, names: Sequence[str]) -> list[str]:
        """The result in words; `names` are those of the examples."""
        said, doubtful = [str(self)], self.doubtful
        if len(self.targets) and not np.any(self.floor):
            said.append("all targets are equal")
        elif self.relative >= 1:
            said.append("no better than always answering the mean of the targets: do not trust it")
        said += _copies_said(self.copies, names)
        digits = digits_of(self.targets, 4)
        for place in doubtful[:SHOWN]:
            said.append(
                f"check {names[place]}: its target is {_numbers(self.targets[place], digits)}, but "
                f"{_numbers(self.predictions[place], digits)} is predicted from the other examples"
            )
        if len(doubtful) > SHOWN:
            said.append(f"as far off, too: {len(doubtful) - SHOWN} more")
        return said

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"

    def __str__(self) -> str:
        if not len(self.targets):
            return "the predictor cannot be checked with one distinct example: give two or more"
        others = {name: one.error for name, one in self.others.items()}
        rest = {**others, "always the mean": self.floor}
        each = ", ".join(f"{name} {_numbers(error, 3)}" for name, error in rest.items())
        return (
            f"cross-validated error {_numbers(self.error, 3)} (root mean square of "
            f"{len(self.targets)} examples); for comparison: {each}"
        )


def classification_reliability(
    refit: Refit,
    y: Int[np.ndarray, " n"],
    classes: np.ndarray,
    groups: Int[np.ndarray, " n"] | None = None,
    *,
    model: str | None = None,
    repeats: int | None = None,
) -> Reliability:
    """Leave examples out, and predict them by what learned from the others.

    **Arguments**

    - `refit`: learns everything from the first places, and predicts the second: see `Refit`.
    - `y`: the place of each label among the `classes`.
    - `groups`: examples of one group are left out together; see `copies_of`. None: all differ.
    - `model`: the name of the model that is checked; the first if not given.
    - `repeats`: how often each example is left out; chosen by their number if not given.
    """
    groups = np.arange(len(y)) if groups is None else groups
    repeats = repeats or (REPEATS if len(y) <= FEW else 1)
    sums: dict[str, np.ndarray] = {}
    right: dict[str, np.ndarray] = {}
    times = np.zeros(len(y), int)
    for train, test in class_folds(y, groups, repeats=repeats):
        times[test] += 1
        for name, chances in refit(train, test).items():
            sums.setdefault(name, np.zeros((len(y), len(classes))))[test] += chances
            hit = chances.argmax(axis=1) == y[test]
            right.setdefault(name, np.zeros(len(y)))[test] += hit
    checked = np.flatnonzero(times)
    names = [*sums] or [model or "model"]
    copies = copies_in(groups)

    def of(name: str, others: Mapping[str, Reliability]) -> Reliability:
        n = times[checked]
        mean = sums.get(name, np.zeros((len(y), len(classes))))[checked] / n[:, None]
        share = right.get(name, np.zeros(len(y)))[checked] / n
        return Reliability(classes, y[checked], mean, checked, name, others, share, copies)

    model = model or names[0]
    return of(model, {name: of(name, {}) for name in names if name != model})


def regression_reliability(
    refit: Refit,
    y: Float[np.ndarray, "n targets"],
    groups: Int[np.ndarray, " n"] | None = None,
    *,
    model: str | None = None,
    folds: int = FOLDS,
) -> NumberReliability:
    """As `classification_reliability`, for targets `y`: one by one, or in `folds` if there are more
    examples."""
    y = y.astype(np.float64)
    groups = np.arange(len(y)) if groups is None else groups
    predictions: dict[str, np.ndarray] = {}
    average, some = np.zeros(y.shape), slice(0, 0)
    for train, test in number_folds(groups, folds):
        some = slice(None)
        average[test] = y[train].mean(axis=0)
        for name, numbers in refit(train, test).items():
            predictions.setdefault(name, np.zeros(y.shape))[test] = numbers
    names, copies = [*predictions] or [model or "model"], copies_in(groups)

    def of(name: str, others: Mapping[str, NumberReliability]) -> NumberReliability:
        found = predictions.get(name, average)[some]
        return NumberReliability(y[some], found, average[some], name, others, copies)

    model = model or names[0]
    return of(model, {name: of(name, {}) for name in names if name != model})


def class_folds(
    y: Int[np.ndarray, " n"],
    groups: Int[np.ndarray, " n"] | None = None,
    *,
    repeats: int = 1,
) -> Iterator[tuple[Places, Places]]:
    """The places to learn from and to predict, for each fold of each repeat. Every class that has
    two groups is predicted, and is among the examples to learn from whenever it is."""
    groups = np.arange(len(y)) if groups is None else groups
    several = [len(np.unique(groups[y == k])) for k in range(y.max() + 1)]
    places = np.flatnonzero(np.array(several)[y] > 1)
    if not len(places):
        return
    labels, own = y[places], groups[places]
    # Here, because scikit-learn takes most of a second to load.
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    kind: Any = StratifiedGroupKFold if len(np.unique(own)) < len(own) else StratifiedKFold
    for seed in range(repeats):
        splitter = kind(min(FOLDS, max(several)), shuffle=True, random_state=seed)
        with warnings.catch_warnings():  # a class may have fewer examples than there are folds
            warnings.simplefilter("ignore", UserWarning)
            parts = [places[out] for _, out in splitter.split(places[:, None], labels, own)]
        for test in parts:
            # Of a class whose groups all fell into one fold, nothing can be predicted here.
            left = np.setdiff1d(np.arange(len(y)), test)
            test = test[np.isin(y[test], y[left])]
            if len(test):
                yield np.setdiff1d(np.arange(len(y)), test), test


def number_folds(
    groups: Int[np.ndarray, " n"], folds: int = FOLDS
) -> Iterator[tuple[Places, Places]]:
    """The same for numbers: one group after another, or `folds` parts of them."""
    from sklearn.model_selection import KFold

    own = np.unique(groups)
    if len(own) < 2:
        return
    for _, out in KFold(min(len(own), folds), shuffle=True, random_state=0).split(own):
        test = np.flatnonzero(np.isin(groups, own[out]))
        yield np.setdiff1d(np.arange(len(groups)), test), test


def copies_of(x: np.ndarray, y: np.ndarray, near: float = 0.0) -> Int[np.ndarray, " n"]:
    """The group of each example: equal inputs with equal labels have one.

    **Arguments**

    - `x`: inputs `[n, *features]`.
    - `y`: labels or targets `[n]` or `[n, targets]`. Equal inputs with several labels are not
      grouped.
    - `near`: inputs are equal, too, if their distance is below this share of the median distance
      between examples. For pictures, of which two that differ are never so near.
    """
    rows = np.ascontiguousarray(x).reshape(len(x), -1)
    _, same = np.unique(rows, axis=0, return_inverse=True)
    if near and len(x) <= NEAR_MOST:
        same = _joined(rows.astype(np.float32), same, near)
    answers = np.unique(np.asarray(y).reshape(len(y), -1), axis=0, return_inverse=True)[1]
    groups, several = same.copy(), len(x)
    for group in np.flatnonzero(np.bincount(same) > 1):
        members = np.flatnonzero(same == group)
        if len(np.unique(answers[members])) > 1:
            groups[members] = several + np.arange(len(members))
            several += len(members)
    return np.unique(groups, return_inverse=True)[1]


def _joined(rows: np.ndarray, same: np.ndarray, near: float) -> np.ndarray:
    """The groups `same`, of which near ones are joined."""
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import pdist

    first = np.unique(same, return_index=True)[1]
    if len(first) < 3:
        return same
    away = pdist(rows[first])
    joined = fcluster(linkage(away, "complete"), near * float(np.median(away)), "distance")
    return joined[same]


def copies_in(groups: Int[np.ndarray, " n"]) -> tuple[tuple[int, ...], ...]:
    """The places of the examples of each group that has more than one."""
    several = np.flatnonzero(np.bincount(groups) > 1)
    return tuple(sorted(tuple(np.flatnonzero(groups == group).tolist()) for group in several))


def quantile_of(residuals: Float[np.ndarray, "n k"], level: float) -> Float[np.ndarray, " k"]:
    """The residual, in each column, of the rank that conformal prediction takes for this level.

    **Raises** `ValueError` for a level that so few residuals cannot give.
    """
    n = len(residuals)
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, such as 0.9, got {level:g}")
    rank = math.ceil(level * (n + 1) - 1e-9)
    if rank > n:
        raise ValueError(
            f"{n} examples are too few for a level of {level:g}: give "
            f"{math.ceil(level / (1 - level) - 1e-9)} or more, or a lower level"
        )
    return np.sort(residuals, axis=0)[rank - 1]


def _copies_said(copies: Sequence[Sequence[int]], names: Sequence[str]) -> list[str]:
    if not copies:
        return []
    said = _some([" = ".join(names[i] for i in group[:3]) for group in copies])
    return [f"equal examples, which were left out together: {said}"]


def _some(texts: Sequence[str]) -> str:
    return ", ".join(texts[:SHOWN]) + (
        f" and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    )


def _root(errors: np.ndarray) -> np.ndarray:
    """Of the mean square over the first axis."""
    return np.sqrt(np.mean(np.square(errors), axis=0)) if len(errors) else errors.sum(0) + np.nan


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def digits_of(targets: np.ndarray, digits: int = 6) -> int:
    """Significant digits for numbers like these: more than `digits` if their spread is small beside
    their size, so that 10,000,002 and 10,000,015 do not both become 1e+07."""
    size = float(np.abs(targets).max(initial=0))
    spread = float(np.std(targets)) if len(targets) else 0.0
    lost = math.floor(math.log10(size / spread)) if 0 < spread < size < math.inf else 0
    return min(digits + lost, 15)


def _numbers(values: np.ndarray, digits: int) -> str:
    return " and ".join(f"{value:.{digits}g}" for value in values)
