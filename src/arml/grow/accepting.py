"""The rule that accepts a learner after it was taught new families, and the shares of the change of
its weights that are tried."""

from collections.abc import Mapping, Sequence

import equinox as eqx
import jax

from arml.core.learner import MetaLearner
from arml.results.intervals import Score, paired
from arml.results.scores import Scores

MATTERS = {"accuracy": 0.02, "mse": 0.10}
"""The largest loss of a known family that the end of its interval may show: accuracy, or a share of
its error."""
WAYS = (1.0, 0.75, 0.5, 0.25)
"""Shares of the way from the old to the new weights, tried in this order."""


def gain_of(old: Scores, new: Scores) -> Score:
    """The paired gain on the same tasks: above zero is better."""
    a, b = (old, new) if old.metric == "mse" else (new, old)  # a lower error is better
    return paired(a.values, b.values)


def refusals(
    gains: Mapping[str, Score], new: Sequence[str], metric: str, old: Mapping[str, float]
) -> list[str]:
    """Why a learner is not accepted; empty if each new family gains, with an interval above zero,
    and the interval of no known family allows a loss that matters. `old` are the scores of the old
    learner."""
    found = []
    for name, score in gains.items():
        mean, half = score["mean"], score["ci95"]
        if mean is None or half is None:
            found.append(f"{name} has a score that is not finite")
            continue
        most = MATTERS[metric] * (abs(old[name]) if metric == "mse" else 1.0)
        if name in new and mean <= half:
            found.append(f"the new family {name} may gain nothing ({mean:+.3f} ± {half:.3f})")
        if name not in new and mean - half < -most:
            found.append(
                f"{name} may lose more than {most:.3f} ({mean:+.3f} ± {half:.3f}; more --tasks "
                "narrow the interval)"
            )
    return found


def between(old: MetaLearner, new: MetaLearner, way: float) -> MetaLearner:
    """The learner with the weights at the share `way` of the line from `old` to `new`."""
    if way == 1:
        return new
    return jax.tree.map(lambda a, b: a + way * (b - a) if eqx.is_inexact_array(a) else a, old, new)
