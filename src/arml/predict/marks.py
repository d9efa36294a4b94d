"""How labelled examples were predicted: the accuracy of each class, the confusion matrix, and the
worst mistakes.

Mistakes are ordered by how sure the prediction was. The interval of an accuracy is Wilson's [1],
which holds for few examples and for accuracies near 0 and 1.

[1] Wilson, Probable Inference, the Law of Succession, and Statistical Inference, JASA 1927.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from arml.predict.notebook import confusion_html
from arml.results.files import Json

Z = 1.959964
"""Standard deviations that 95% of a normal distribution lie within."""

SHOWN = 5
"""Mistakes that are told in words."""


def wilson(right: int, n: int) -> tuple[float, float]:
    """The 95% interval of a share of which `right` of `n` were counted [1]."""
    share, spread = right / n, Z**2 / n
    middle = (share + spread / 2) / (1 + spread)
    half = Z / (1 + spread) * math.sqrt(share * (1 - share) / n + spread / (4 * n))
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True, eq=False)
class Marks:
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
        return wilson(int(np.sum(self.right)), n) if n else (0.0, 1.0)

    @property
    def confusion(self) -> Int[np.ndarray, "classes classes"]:
        """How many examples of each class (row) were predicted as each class (column)."""
        counts = np.zeros((len(self.classes), len(self.classes)), int)
        np.add.at(counts, (self.labels, self.probabilities.argmax(axis=1)), 1)
        return counts

    @property
    def by_class(self) -> dict[Any, float]:
        """The accuracy of each class that has examples."""
        counts = self.confusion
        totals = counts.sum(axis=1)
        return {
            label: float(counts[k, k] / totals[k])
            for k, label in enumerate(self.classes.tolist())
            if totals[k]
        }

    @property
    def mistakes(self) -> Int[np.ndarray, " wrong"]:
        """The places of the wrong predictions, the surest first."""
        wrong = np.flatnonzero(~self.right)
        return wrong[np.argsort(-self.probabilities[wrong].max(axis=1), kind="stable")]

    def as_json(self) -> Json:
        """All of it as plain values, without the probabilities."""
        low, high = self.interval
        return {
            "n": len(self.labels),
            "accuracy": None if math.isnan(self.accuracy) else self.accuracy,
            "low": low,
            "high": high,
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

    def _repr_html_(self) -> str:
        return confusion_html(str(self), self.classes, self.by_class, self.confusion)

    def __str__(self) -> str:
        (low, high), right, n = self.interval, int(np.sum(self.right)), len(self.labels)
        if not n:
            return "no labelled examples"
        return f"accuracy {right / n:.0%} ({right} of {n}; 95% interval {low:.0%} to {high:.0%})"


def places_of(labels: Any, classes: np.ndarray) -> Int[np.ndarray, " n"]:
    """The place of each label among the `classes`; labels may be texts of classes that are numbers.

    **Raises** `ValueError` for a label that is no class.
    """
    known = {str(label): place for place, label in enumerate(classes)}
    texts = [str(label) for label in labels]
    for label in texts:
        if label not in known:
            raise ValueError(
                f"expected labels among the predictor's classes ({', '.join(known)}), got "
                f"{label!r}: leave these examples out, or adapt with examples of that class"
            )
    return np.array([known[label] for label in texts], int)
