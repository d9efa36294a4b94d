"""The means by which a predictor predicts: its learner, a simple one, or all of them together."""

import abc
import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType, ModuleType
from typing import Any, TypeVar

import numpy as np

from arml.core.problem import Problem
from arml.predict.errors import Errors, Part, checked_errors
from arml.predict.simple import TOGETHER, Uses, check_uses, choices, fitted, simple_function
from arml.predict.together import mixed, weighted
from arml.predict.trust import Trust, checked, folds
from arml.results.files import Json

M = TypeVar("M", bound="Means")


class Means(abc.ABC):
    """A learned task. A subclass has its examples, and predicts by the learner alone."""

    x: np.ndarray
    y: np.ndarray
    classes: np.ndarray | None
    uses: Uses = "learner"
    shares: Mapping[Uses, float] | None = None
    """How much each counts where all predict together; found when they are needed."""
    fits: Mapping[Uses, np.ndarray] = MappingProxyType({})
    """The fits of simple models, once they were needed."""
    _function: Callable[[Any], Any] | None = None
    """Of the means that it uses, once it was needed."""
    _parts: list[Part]
    """Of numbers: predictors without some examples, once they were needed; `using` shares them."""

    @property
    @abc.abstractmethod
    def problem(self) -> Problem:
        """The kind of tasks that the learner was built for."""

    def using(self: M, uses: Uses) -> M:
        """The same, predicting with the `learner`, by logistic regression on the `inputs` or on the
        `edges` of pictures, by a Gaussian `process` for numbers, or with all `together`. **Raises**
        `ValueError` for another word."""
        check_uses(uses, choices(self.problem))
        other = object.__new__(type(self))
        vars(other).update(vars(self), uses=uses, _function=None)
        return other

    def restored(
        self: M, uses: Uses, shares: Mapping[Uses, float] | None, fits: Mapping[Uses, np.ndarray]
    ) -> M:
        """The same with the means of another predictor of the task, or of its file: shares of other
        means are left out."""
        other = self.using(uses)
        other.fits = fits
        if shares is not None and {*shares} == {*choices(self.problem)[:-1]}:
            other.shares = shares
        return other

    def trust(self) -> Trust:
        """How well each example is predicted from the others, and which look mislabelled. It adapts
        once for each example, or ten times where there are many. All means are checked.
        **Raises** `ValueError` for regression: use `errors`.
        """
        if self.classes is None:
            raise ValueError("expected a classification task, got regression: use errors")
        trust = checked(
            lambda kept, out, uses: self._without(kept).using(uses).predict_proba(self.x[out]),
            *(self.y, self.classes, self.uses, choices(self.problem)),
        )
        if self.shares is None:
            self.shares = trust.shares
        return trust

    def errors(self) -> Errors:
        """How well the number of each example is predicted from the others, and which look
        mistyped. It adapts as often as `trust`, once for all calls. **Raises** `ValueError` for
        classes: use `trust`."""
        if self.classes is not None:
            raise ValueError("expected a regression task, got classes: use trust")
        found = self._errors(choices(self.problem))
        if self.shares is None:
            self.shares = found.shares
        return found

    def _errors(self, means: Sequence[Uses]) -> Errors:
        n = len(self.x)
        if not self._parts and n > 1:
            for out in folds(np.zeros(n, int)):
                part = self._without(np.setdiff1d(np.arange(n), out))
                self._parts.append((out, functools.cache(part._by)))
        return checked_errors(self._parts, self.x, self.y, self.uses, means)

    def found_shares(self) -> Mapping[Uses, float]:
        """How much each counts where all predict together. The first call checks all means."""
        if self.shares is None:
            return (self.errors() if self.classes is None else self.trust()).shares
        return self.shares

    def _answers(self, inputs: np.ndarray) -> np.ndarray:
        """The log-odds `[n, classes]` or the targets `[n, targets]` of inputs, by the means that it
        uses."""
        if self._function is None:
            self._function = self._by(self.uses)
        return self._function(inputs)

    def _by(self, uses: Uses, xp: ModuleType = np) -> Callable[[Any], Any]:
        """The function from inputs `[n, *features]` to the log-odds of the classes or to targets;
        with `jax.numpy` as `xp` it can be traced."""
        if uses == "learner":
            return self._by_learner(xp)
        if uses != TOGETHER:
            return simple_function(self.x, self.y, uses, self._fit(uses), xp)
        parts = [(share, self._by(one, xp)) for one, share in self.found_shares().items()]
        return weighted(parts) if self.classes is None else mixed(parts, xp)

    def _fit(self, uses: Uses) -> np.ndarray:
        if uses not in self.fits:
            self.fits = {**self.fits, uses: fitted(self.x, self.y, uses)}
        return self.fits[uses]

    def _saved(self) -> tuple[dict[str, np.ndarray], Json]:
        """The arrays and the facts of a saved predictor, with the fits, so that it predicts without
        SciPy."""
        shares = dict(self.found_shares()) if self.uses == TOGETHER else None
        simple = [one for one in shares or [self.uses] if one != "learner"]
        arrays = {"x": self.x, "y": self.y}
        for one in simple:
            arrays[one] = self._fit(one)
        return arrays, {"uses": self.uses, "shares": shares}

    @abc.abstractmethod
    def _by_learner(self, xp: ModuleType) -> Callable[[Any], Any]:
        """The log-odds or the targets by the learner."""

    @abc.abstractmethod
    def _without(self, kept: np.ndarray) -> "Means":
        """The task of the examples in these places alone, by the learner."""

    @abc.abstractmethod
    def predict_proba(self, x: object) -> np.ndarray:
        """The probability of each class, columns in the order of `classes`."""
