"""The floor of the 2-D regression as a learner, and the command that measures it.

`python -m arml.experiment.floor --out FILE.json` scores the Bayes-optimal predictor on the test
tasks, which are the same for every method, and writes the mean squared error against noisy query
targets, by family. The noise alone contributes `noise**2` = 0.09 of it.
"""

import time
from dataclasses import dataclass
from pathlib import Path

import equinox as eqx
import numpy as np
import tyro
from jaxtyping import Array, Float, PRNGKeyArray

from arml.core.episodes import Examples, Task
from arml.core.learner import Adapted, Loss, MetaLearner
from arml.core.losses import mse
from arml.results.files import Json, write_json
from arml.results.folder import FORMAT
from arml.tasks.bayes import posterior
from arml.tasks.functions import Functions
from arml.tasks.options import FunctionsOptions, splits_of
from arml.training.evaluate import SEEDS, evaluate, looks
from arml.training.provenance import provenance

CHUNK = 50
"""Tasks that are computed at once, which bounds the memory."""


class BayesOptimal(MetaLearner):
    """Predicts the posterior mean; it knows the families, the priors and the noise of `tasks`. It
    has no meta-parameters: no training improves it, and no learner has a smaller expected error.

    **Arguments**

    - `tasks`: the distribution that the tasks come from; its noise must be above 0.
    - `draws`: draws of each family's posterior. With the default, the error from the finite number
      of draws is below a hundredth of the score's interval.
    """

    tasks: Functions
    draws: int = eqx.field(static=True)
    loss: Loss = eqx.field(static=True)

    def __init__(self, tasks: Functions, draws: int = 4096, loss: Loss = mse) -> None:
        self.tasks, self.draws, self.loss = tasks, draws, loss

    def adapt(self, support: Examples, *, key: PRNGKeyArray) -> Adapted:
        return Adapted(posterior(self.tasks, support, key=key, draws=self.draws).mean)


def effective_draws(learner: BayesOptimal, task: Task, key: PRNGKeyArray) -> Float[Array, ""]:
    """The effective sample size of the draws of ONE task's own family: it says how exact the
    posterior is."""
    drawn = posterior(learner.tasks, task.support, key=key, draws=learner.draws)
    return drawn.effective_draws()[task.family]


@dataclass(frozen=True, kw_only=True)
class Options(FunctionsOptions):
    """Measure the Bayes-optimal predictor's error on the 2-D regression tasks."""

    out: Path
    """The JSON file to write."""
    tasks: int = 4000
    """Test tasks to score."""
    draws: int = 8192
    """Draws of each family's posterior."""


def measure(options: Options) -> Json:
    """Score the test tasks and write `options.out`; returns the content.

    **Raises** `ValueError` for invalid options.
    """
    if options.tasks < 1:
        raise ValueError(f"tasks must be 1 or more, got {options.tasks}: ask for some thousands")
    tasks = splits_of(options).test
    assert isinstance(tasks, Functions)
    begin = time.perf_counter()
    learner = BayesOptimal(tasks, options.draws)
    chunk = min(CHUNK, options.tasks)
    scores = evaluate(learner, tasks, options.tasks, chunk=chunk, progress=False)
    seconds = time.perf_counter() - begin
    found = looks(effective_draws, learner, tasks, split="test", n=options.tasks, chunk=chunk)
    effective = np.concatenate(list(found))
    own_draws = ((n, effective[scores.families == i]) for i, n in enumerate(tasks.families))
    result = {
        "format": FORMAT,
        "recipe": "regression2d/bayes-optimal",
        "seed": SEEDS["test"],
        "split": "test",
        "metric": "mse",
        **scores.summary(),
        "inner_steps": 0,
        "protocol": (
            f"{options.shots}-shot, inputs U[{options.low:g}, {options.high:g}], "
            f"noise {options.noise:g} on support and query"
        ),
        **provenance(),
        "seconds": round(seconds, 2),
        "parameters": 0,
        "steps": 0,
        "floor": None,
        "draws": options.draws,
        "effective_draws": {
            name: {"median": np.median(own), "least": np.min(own)} if len(own) else None
            for name, own in own_draws
        },
        "flat": options.flat,
    }
    write_json(options.out, result)
    return result


if __name__ == "__main__":
    written = measure(tyro.cli(Options, prog="python -m arml.experiment.floor"))
    print(f"mse {written['score']['mean']:.4f} +- {written['score']['ci95']:.4f}")
