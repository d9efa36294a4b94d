"""The floor of the 2-D regression: the Bayes-optimal predictor as a learner, scored like any other.

`python -m study.floor FILE.json [--low -5]` scores it on the test tasks, which are the same for
every method, and writes the mean squared error against noisy query targets, by family. The noise
alone contributes `noise**2` = 0.09 of it.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import tyro
from jaxtyping import PRNGKeyArray
from tyro.conf import Positional

import arml
from arml.core.losses import loss_of
from arml.tasks.functions import Functions
from arml.tasks.options import FunctionsOptions
from study.bayes import posterior


class BayesOptimal(arml.MetaLearner):
    """Predicts the posterior mean; it knows the families, the priors and the noise of `tasks`. It
    has no meta-parameters: no training improves it, and no learner has a smaller expected error.

    **Arguments**

    - `tasks`: the distribution that the tasks come from; its noise must be above 0.
    - `draws`: draws of each family's posterior. With 4,096 the error from the finite number of
      draws is below a hundredth of the score's interval.
    """

    tasks: Functions
    draws: int = eqx.field(static=True)
    loss: arml.Loss = eqx.field(static=True)

    def __init__(self, tasks: Functions, draws: int = 4096) -> None:
        self.tasks, self.draws, self.loss = tasks, draws, loss_of(tasks.problem)

    def adapt(self, support: arml.Examples, *, key: PRNGKeyArray) -> arml.Adapted:
        return arml.Adapted(posterior(self.tasks, support, key=key, draws=self.draws).mean)


@dataclass(frozen=True)
class Options:
    """Measure the Bayes-optimal predictor's error on the 2-D regression tasks."""

    out: Positional[Path]
    """The JSON file to write."""
    low: float = 0.0
    """The least input."""
    tasks: int = 4000
    """Test tasks to score."""
    draws: int = 8192
    """Draws of each family's posterior."""


def measure(options: Options) -> dict[str, Any]:
    """Score the test tasks and write `options.out`; returns the content."""
    made = FunctionsOptions(low=options.low)
    tasks = made.build(options.out).test
    assert isinstance(tasks, Functions)
    scores = arml.evaluate(
        BayesOptimal(tasks, options.draws), tasks, n=options.tasks, chunk=50, progress=False
    )
    result = {
        "recipe": "bayes-optimal",
        "metric": scores.metric,
        "draws": options.draws,
        "inputs": [made.low, made.high],
        "score": scores.score,
        "families": scores.by_family(),
    }
    options.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return result


if __name__ == "__main__":
    score = measure(tyro.cli(Options, prog="python -m study.floor"))["score"]
    print(f"mse {score['mean']:.4f} +- {score['ci95']:.4f}")
