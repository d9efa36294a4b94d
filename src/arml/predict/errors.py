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
from arml.predict.together import error_shares
from arml.results.files import Json

FAR = 6.0
"""An example is far off if its residual is so many times the median residual: four standard
deviations of a normal distribution."""

Part = tuple[Int[np.ndarray, " out"], Callable[[Uses], Callable[[Any], np.ndarray]]]
"""Places of examples, and the function `[n, *features] -> [n, targets]` of each of the means, which
have not learned from these examples."""


@dataclass(frozen=True, eq=False)
class Errors:
    """The quality of a regression, measured by leaving examples out."""

    targets: Float[np.ndarray, "n targets"]
    """Of the examples, in order; none if there are fewer than two examples."""
    predictions: Mapping[Uses, Float[np.ndarray, "n targets"]]
    """Of each example from the others, by each of the means."""
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
    def error(self) -> float:
        """The root of the mean squared error, in units of the target; NaN without examples."""
        return _root(self.predictions[self.uses] - self.targets)

    @property
    def others(self) -> dict[Uses, float]:
        """The error of the other means."""
        rest = {uses: each for uses, each in self.predictions.items() if uses != self.uses}
        return {uses: _root(each - self.targets) for uses, each in rest.items()}

    @property
    def floor(self) -> float:
        """The error of always answering the mean."""
        return _root(self.average - self.targets)

    @property
    def best(self) -> Uses:
        """The means with the smallest error; those that were checked, if others are not better."""
        least = min(self.others, key=lambda name: self.others[name], default=self.uses)
        return least if self.others.get(least, math.inf) < self.error else self.uses

    @property
    def far(self) -> Int[np.ndarray, " far"]:
        """Places of the examples whose residual is more than `FAR` times the median, the largest
        first: mistyped, or unlike the others."""
        if not len(self.targets):
            return np.zeros(0, int)
        ratio = (self.residuals / (np.median(self.residuals, axis=0) + 1e-12)).max(axis=1)
        order = np.argsort(-ratio)
        return order[ratio[order] > FAR]

    def as_json(self) -> Json:
        """All of it as plain values, without the predictions; `far` holds places of examples."""
        return {
            "n": len(self.targets),
            "error": _plain(self.error),
            "floor": _plain(self.floor),
            "uses": self.uses,
            "others": {name: _plain(error) for name, error in self.others.items()},
            "best": self.best,
            "shares": dict(self.shares),
            "far": self.far.tolist(),
        }

    def lines(self, names: Sequence[str]) -> list[str]:
        """The result in words; `names` are those of the examples."""
        said, shown = [str(self)], self.far[:SHOWN]
        if self.error >= self.floor:
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
        each = [f"{WORDS[name]} {error:.3g}" for name, error in self.others.items()]
        each.append(f"always the mean {self.floor:.3g}")
        return (
            f"leave-one-out error {self.error:.3g} (root mean square of {len(self.targets)} "
            f"examples); for comparison: {', '.join(each)}"
        )


def _root(errors: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(errors)))) if errors.size else math.nan


def _plain(error: float) -> float | None:
    return None if math.isnan(error) else error


def _numbers(values: np.ndarray) -> str:
    return ", ".join(f"{value:.4g}" for value in values)


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
    if not parts:
        x, y = x[:0], y[:0]
    means = [one for one in choices if one != TOGETHER]
    predictions: dict[Uses, np.ndarray] = {one: np.zeros(y.shape) for one in choices}
    average, kept = np.zeros(y.shape), np.ones((len(parts), len(y)), bool)
    for row, (out, by) in zip(kept, parts, strict=True):
        row[out] = False
        average[out] = y[row].mean(axis=0)
        for one in means:
            predictions[one][out] = by(one)(x[out])
    if len(means) == 1:
        return Errors(y, predictions, average, uses, {}, [{uses: 1.0}] * len(parts))
    # Each target counts alike, whatever its unit.
    unit = y.var(axis=0) + 1e-12 if len(y) else 1.0
    squared = np.stack([(predictions[one] - y) ** 2 / unit for one in means], axis=1).mean(axis=2)
    shares = [dict(zip(means, row.tolist(), strict=True)) for row in error_shares(squared, kept)]
    for (out, _), part in zip(parts, shares, strict=True):
        predictions[TOGETHER][out] = sum(part[one] * predictions[one][out] for one in means)
    found = dict(zip(means, error_shares(squared).tolist(), strict=True))
    without = shares if uses == TOGETHER else [{uses: 1.0}] * len(parts)
    return Errors(y, predictions, average, uses, found, without)


def intervals(
    errors: Errors, parts: Sequence[Part], queries: np.ndarray, level: float
) -> tuple[Float[np.ndarray, "m targets"], Float[np.ndarray, "m targets"]]:
    """The ends of the queries' intervals for each target, as `jackknife_plus`, by the means and for
    the parts that `errors` were found with. **Raises** `ValueError` as `rank_of`."""
    n, targets = errors.targets.shape
    outputs = np.zeros((n, len(queries), targets))
    for (out, by), shares in zip(parts, errors.without, strict=True):
        outputs[out] = sum(share * by(one)(queries) for one, share in shares.items())
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

    At least 2 `level` - 1 of new targets lie within, and about `level` of them, if examples and
    queries are drawn alike.

    **Arguments**

    - `left_out`: the prediction for each query by the predictor without example i.
    - `residuals`: how far the predictor without example i is from example i's target.

    **Raises** `ValueError` as `rank_of`.
    """
    n, rank = len(residuals), rank_of(level, len(residuals))
    low = np.sort(left_out - residuals[:, None], axis=0)[n - rank]
    high = np.sort(left_out + residuals[:, None], axis=0)[rank - 1]
    return low, high
