"""How far a regression can be trusted, found from its own examples.

Each example is predicted by the same means after they learned from the other examples
(`arml.predict.trust` has the parts that are left out). This gives the error of the learner and of a
Gaussian process (`arml.predict.process`), of their weighted mean (`arml.predict.together`), and of
the simplest answer: the mean of the other targets. It names the examples that are far off, and
makes intervals by jackknife+ [1].

[1] Barber, Candes, Ramdas and Tibshirani, Predictive Inference with the Jackknife+, Annals of
    Statistics 2021. Difference: the shares of a weighted mean that predicts an example are found
    without it, but from means that learned from it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from arml.predict.marks import SHOWN
from arml.predict.simple import TOGETHER, WORDS, Uses
from arml.predict.together import error_shares, weighted
from arml.results.files import Json

FAR = 6.0
"""An example is far off if its residual is so many times the median residual."""

WORSE = 2.0
"""Where the weighted mean has so many times the error of one of its parts, this predicts alone."""

Part = tuple[Int[np.ndarray, " _"], Callable[[Uses], Callable[[Any], np.ndarray]]]
"""Places of examples, and the function `[n, *features] -> [n, targets]` of each of the means, which
have not learned from these examples."""


class NotFinite(ValueError):
    """A prediction is not finite."""


@dataclass(frozen=True, eq=False)
class Errors:
    """The quality of a regression, measured by leaving examples out."""

    targets: Float[np.ndarray, "n targets"]
    """Of the examples, in order; none if there are fewer than two examples."""
    predictions: Mapping[Uses, Float[np.ndarray, "n targets"]]
    """Of each example from the others, by each of the means; infinite where one could not."""
    average: Float[np.ndarray, "n targets"]
    """The mean target of the others."""
    uses: Uses
    """The means that were checked."""
    shares: Mapping[Uses, float]
    """The share of each in their weighted mean, `together`; empty if there is only one."""
    without: Sequence[Mapping[Uses, float]]
    """The shares of the means that were checked, for each part that was left out."""

    @property
    def residuals(self) -> Float[np.ndarray, "n targets"]:
        """How far each target is from its prediction."""
        return np.abs(self.predictions[self.uses] - self.targets)

    @property
    def error(self) -> Float[np.ndarray, " targets"]:
        """The root of the mean squared error, in units of each target; NaN without examples."""
        return self.errors[self.uses]

    @property
    def errors(self) -> dict[Uses, Float[np.ndarray, " targets"]]:
        """The error of each of the means."""
        return {uses: _root(each - self.targets) for uses, each in self.predictions.items()}

    @property
    def floor(self) -> Float[np.ndarray, " targets"]:
        """The error of always answering the mean."""
        return _root(self.average - self.targets)

    @property
    def relative(self) -> dict[Uses, float]:
        """The error of each of the means as a share of the floor; of several targets, the root of
        its mean square."""
        unit = np.where(self.floor > 0, self.floor, 1)
        return {
            uses: float(np.sqrt(np.mean(np.square(each / unit))))
            for uses, each in self.errors.items()
        }

    @property
    def best(self) -> Uses:
        """The means with the smallest error; those that were checked, if others are not better."""
        relative = self.relative
        least = min(relative, key=lambda name: relative[name])
        return least if relative[least] < relative[self.uses] else self.uses

    @property
    def far(self) -> Int[np.ndarray, " far"]:
        """Places of the examples whose residual is more than `FAR` times the median, the largest
        first: mistyped, or unlike the others."""
        if not len(self.targets):
            return np.zeros(0, int)
        median = np.median(self.residuals, axis=0)
        ratio = (self.residuals / np.where(median > 0, median, np.inf)).max(axis=1)
        order = np.argsort(-ratio)
        return order[ratio[order] > FAR]

    def as_json(self) -> Json:
        """All of it as plain values, without the predictions; `far` holds places of examples."""
        return {
            "n": len(self.targets),
            "errors": {name: _plain(error) for name, error in self.errors.items()},
            "floor": _plain(self.floor),
            "uses": self.uses,
            "best": self.best,
            "shares": dict(self.shares),
            "far": self.far.tolist(),
        }

    def lines(self, names: Sequence[str]) -> list[str]:
        """The result in words; `names` are those of the examples."""
        said, shown = [str(self)], self.far[:SHOWN]
        if not np.any(self.floor):
            said.append("all targets are alike")
        elif self.relative[self.uses] >= 1:
            said.append("no better than always answering the mean of the targets: do not trust it")
        for place in shown:
            own, guess = self.targets[place], self.predictions[self.uses][place]
            said.append(
                f"check {names[place]}: its target is {_numbers(own)}, but {_numbers(guess)} is "
                "predicted from the other examples"
            )
        if len(self.far) > len(shown):
            said.append(f"as far off, too: {len(self.far) - len(shown)} more")
        return said

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"

    def __str__(self) -> str:
        if not len(self.targets):
            return "the predictor cannot be checked with one example: give two or more"
        rest = {WORDS[name]: error for name, error in self.errors.items() if name != self.uses}
        each = [
            f"{name} {_numbers(e, 3)}"
            for name, e in (rest | {"always the mean": self.floor}).items()
        ]
        return (
            f"leave-one-out error {_numbers(self.error, 3)} (root mean square of "
            f"{len(self.targets)} examples); for comparison: {', '.join(each)}"
        )


def _root(errors: np.ndarray) -> np.ndarray:
    """Of the mean square over the first axis."""
    return np.sqrt(np.mean(np.square(errors), axis=0)) if len(errors) else errors.sum(0) + np.nan


def _plain(errors: np.ndarray) -> list[float | None]:
    return [float(error) if np.isfinite(error) else None for error in errors]


def _numbers(values: np.ndarray, digits: int = 4) -> str:
    return " and ".join(f"{value:.{digits}g}" for value in values)


def checked_errors(
    parts: Sequence[Part],
    x: np.ndarray,
    y: Float[np.ndarray, "n targets"],
    uses: Uses = "learner",
    choices: Sequence[Uses] = ("learner",),
) -> Errors:
    """`Errors` of the examples `x`, `y`. The `parts` hold each example once, or there are none.

    **Arguments**

    - `uses`: the means to check; of the other `choices` only the errors are found.
    """
    x, y = (x, y.astype(np.float64)) if parts else (x[:0], y[:0])
    means = [one for one in choices if one != TOGETHER]
    predictions: dict[Uses, np.ndarray] = {one: np.zeros(y.shape) for one in choices}
    average, kept = np.zeros(y.shape), np.ones((len(parts), len(y)), bool)
    for row, (out, by) in zip(kept, parts, strict=True):
        row[out] = False
        average[out] = y[row].mean(axis=0)
        for one in means:
            try:
                predictions[one][out] = by(one)(x[out])
            except NotFinite:
                predictions[one][out] = np.inf
    if len(means) == 1:
        return Errors(y, predictions, average, uses, {}, [{uses: 1.0}] * len(parts))
    # Each target counts alike, whatever its unit.
    unit = np.var(y, axis=0) if len(y) else np.zeros(y.shape[1])
    unit = np.where(unit > 0, unit, 1)
    squared = np.stack([(predictions[one] - y) ** 2 / unit for one in means], axis=1).mean(axis=2)
    shares, by_part = error_shares(squared), error_shares(squared, kept)
    mean = np.zeros(y.shape)
    for (out, _), row in zip(parts, by_part, strict=True):
        known = [(share, one) for share, one in zip(row, means, strict=True) if share]
        mean[out] = sum(share * predictions[one][out] for share, one in known)
    best = int(np.argmin(squared.sum(axis=0)))
    if squared[:, best].sum() < WORSE**-2 * np.sum((mean - y) ** 2 / unit) / y.shape[1]:
        # One example that is left out can hide how bad another model is.
        mean, shares = predictions[means[best]], np.eye(len(means))[best]
        by_part = np.tile(shares, (len(parts), 1))
    predictions[TOGETHER] = mean
    found, *each = [dict(zip(means, row.tolist(), strict=True)) for row in (shares, *by_part)]
    without = each if uses == TOGETHER else [{uses: 1.0}] * len(parts)
    return Errors(y, predictions, average, uses, found, without)


def intervals(
    errors: Errors, parts: Sequence[Part], queries: np.ndarray, level: float
) -> tuple[Float[np.ndarray, "m targets"], Float[np.ndarray, "m targets"]]:
    """The ends of the queries' intervals for each target, as `jackknife_plus`, by the means and for
    the parts that `errors` were found with. **Raises** `ValueError` as `rank_of`."""
    n, targets = errors.targets.shape
    outputs = np.zeros((n, len(queries), targets))
    for (out, by), shares in zip(parts, errors.without, strict=True):
        outputs[out] = weighted([(share, by(one)) for one, share in shares.items()])(queries)
    ends = [jackknife_plus(outputs[:, :, k], errors.residuals[:, k], level) for k in range(targets)]
    return np.stack([low for low, _ in ends], axis=1), np.stack([high for _, high in ends], axis=1)


def rank_of(level: float, n: int) -> int:
    """The rank among `n` residuals that gives an interval this level [1].

    **Raises** `ValueError` for a level that so few examples cannot give.
    """
    rank = math.ceil(level * (n + 1) - 1e-9)
    if not 0 < level < 1 or rank > n:
        least = math.ceil(level / (1 - level) - 1e-9) if 0 < level < 1 else None
        advice = f"give {least} examples or more, or a lower level" if least else "such as 0.9"
        raise ValueError(
            f"expected a level between 0 and 1 that {n} examples can give, got {level:g}: {advice}"
        )
    return rank


def jackknife_plus(
    left_out: Float[np.ndarray, "n queries"], residuals: Float[np.ndarray, " n"], level: float
) -> tuple[Float[np.ndarray, " queries"], Float[np.ndarray, " queries"]]:
    """The ends of each query's interval [1].

    About `level` of new targets lie within, if examples and queries are drawn alike; at least
    2 `level` - 1 of them, if examples are left out one by one and no shares are learned.

    **Arguments**

    - `left_out`: the prediction for each query by the predictor without example i.
    - `residuals`: how far the predictor without example i is from example i's target.

    **Raises** `ValueError` as `rank_of`.
    """
    n, rank = len(residuals), rank_of(level, len(residuals))
    low = np.sort(left_out - residuals[:, None], axis=0)[n - rank]
    high = np.sort(left_out + residuals[:, None], axis=0)[rank - 1]
    return low, high
