"""How far a predictor can be trusted, found from its own examples.

Each example is predicted by the same learner after it adapted to the other examples
(leave-one-out; with more than `SINGLES` examples to check, ten folds). Classification gives an
accuracy with its interval, a confusion matrix, and the examples whose label the others
contradict most, which are the likeliest to be mislabelled or odd [1]. Classifiers that learn from
these examples alone (`arml.predict.simple`) are checked in the same way, and so is the weighted
mean of all (`arml.predict.together`): the shares that predict an example were found without it.
Regression is checked in `arml.predict.errors`.

A class with one example cannot be checked: without it the class is unknown. The check uses one
example (or a tenth of them) less than the predictor has, so it is slightly pessimistic.

[1] Northcutt, Jiang and Chuang, Confident Learning: Estimating Uncertainty in Dataset Labels,
    JAIR 2021. Difference: examples are ranked by the probability of their own label alone.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Int

from arml.predict.marks import SHOWN, Marks
from arml.predict.simple import TOGETHER, WORDS, Uses
from arml.predict.together import left_out
from arml.results.files import Json

SINGLES = 30
"""Up to so many examples are left out one by one."""
FOLDS = 10
"""Parts of which each is left out, where there are more examples."""
UNEVEN = 1.2
"""The largest class must have so many times an equal share of the examples before the accuracy is
compared with its share."""


@dataclass(frozen=True, eq=False, repr=False)
class Trust(Marks):
    """The quality of a classifier, measured by leaving examples out: the marks of these."""

    checked: Int[np.ndarray, " m"]
    """Places of the examples that were left out, in the support set."""
    uses: Uses = "learner"
    """The kind of predictor that was checked."""
    others: Mapping[Uses, float] = field(default_factory=dict)
    """The accuracy of the other means that could be used."""
    shares: Mapping[Uses, float] = field(default_factory=dict)
    """The share of each in their weighted mean, `together`; empty if there is only one."""

    @property
    def best(self) -> Uses:
        """The means to predict with: the one that was checked, unless another is more accurate."""
        most = max(self.others, key=lambda name: self.others[name], default=self.uses)
        return most if self.others.get(most, 0) > self.accuracy else self.uses

    @property
    def odd(self) -> Int[np.ndarray, " wrong"]:
        """Places in the support set of the examples that were predicted as another class, the
        least likely label first: mislabelled, or unlike the others of their class."""
        own = self.probabilities[np.arange(len(self.labels)), self.labels]
        wrong = np.flatnonzero(~self.right)
        return self.checked[wrong[np.argsort(own[wrong])]]

    def as_json(self) -> Json:
        """All of it as plain values; `odd` holds places in the support set."""
        return {
            **super().as_json(),
            "uses": self.uses,
            "others": {k: None if math.isnan(v) else v for k, v in self.others.items()},
            "best": self.best,
            "shares": dict(self.shares),
            "odd": self.odd.tolist(),
        }

    def lines(self, names: Sequence[str]) -> list[str]:
        """The result in words; `names` are those of the support set's examples."""
        said, shown = [str(self)], self.odd[:SHOWN]
        counts = np.bincount(self.labels, minlength=len(self.classes))
        most = counts.max() / max(len(self.labels), 1)
        several = np.count_nonzero(counts) > 1
        if len(self.labels) and not several:
            said.append("one class alone could be checked, so this says little")
        if several and most >= self.accuracy and most > UNEVEN / len(self.classes):
            said.append(
                f"no better than always answering {self.classes[counts.argmax()]}, which is right "
                f"for {most:.0%} of the examples: do not trust it"
            )
        alone = [str(label) for label, n in zip(self.classes, counts, strict=True) if not n]
        if len(self.labels) and alone:
            said.append(
                f"not checked, with one example each: {', '.join(alone[:SHOWN])}"
                f"{' and others' if len(alone) > SHOWN else ''}"
            )
        for place in shown:
            chances = self.probabilities[np.flatnonzero(self.checked == place)[0]]
            own = self.labels[self.checked == place][0]
            said.append(
                f"check {names[place]}: labelled {self.classes[own]}, but predicted as "
                f"{self.classes[chances.argmax()]} from the other examples ({chances.max():.0%})"
            )
        if len(self.odd) > len(shown):
            said.append(f"predicted as another class, too: {len(self.odd) - len(shown)} more")
        return said

    def __str__(self) -> str:
        n = len(self.labels)
        if not n:
            return (
                "the predictor cannot be checked, because each class has only one example: give "
                "two or more examples of a class"
            )
        (low, high), right = self.interval, int(np.sum(self.right))
        said = (
            f"leave-one-out accuracy {self.accuracy:.0%} ({right} of {n}; 95% interval {low:.0%} "
            f"to {high:.0%})"
        )
        each = ", ".join(f"{WORDS[name]} {share:.0%}" for name, share in self.others.items())
        return said + (f"; for comparison: {each}" if each else "")


def checked(
    predict: Callable[[np.ndarray, np.ndarray, Uses], np.ndarray],
    y: Int[np.ndarray, " n"],
    classes: np.ndarray,
    uses: Uses = "learner",
    choices: Sequence[Uses] = ("learner",),
) -> Trust:
    """`Trust` of examples with places `y` among the `classes`.

    **Arguments**

    - `predict`: from the places of the examples that are kept, of those that are left out, and the
      name of the means, to the probabilities of those that are left out `[left out, classes]`.
    - `uses`: the means to check; of the other `choices` only the accuracies are found. `together`
      is made of the others, and not asked for.
    """
    counts = np.bincount(y, minlength=len(classes))
    places = np.flatnonzero(counts[y] > 1)
    parts = folds(y[places])

    chances: dict[Uses, np.ndarray] = {}
    for of in choices:
        if of != TOGETHER:
            chances[of] = np.zeros((len(places), len(classes)))
            for fold in parts:
                out = places[fold]
                chances[of][fold] = predict(np.setdiff1d(np.arange(len(y)), out), out, of)
    parted: dict[Uses, float] = {}
    if TOGETHER in choices:
        found, chances[TOGETHER] = left_out([*chances.values()], y[places], parts)
        parted = dict(zip(chances, found.tolist(), strict=False))

    def trust(of: Uses, others: Mapping[Uses, float]) -> Trust:
        return Trust(classes, y[places], chances[of], places, of, others, parted)

    return trust(uses, {name: trust(name, {}).accuracy for name in choices if name != uses})


def folds(y: Int[np.ndarray, " m"]) -> list[Int[np.ndarray, " fold"]]:
    """Places that are left out together: one by one, or tenths in which each class has its share.

    A class that has two members is never left out as a whole.
    """
    if len(y) <= SINGLES:
        return list(np.arange(len(y))[:, None])
    order = np.argsort(y, kind="stable")
    return [np.sort(order[k::FOLDS]) for k in range(FOLDS)]
