"""A learner that has grown, as a run folder: configuration, checkpoint, metrics and decisions."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from arml.core.learner import MetaLearner
from arml.experiment.folder import claim
from arml.experiment.options import Experiment
from arml.experiment.running import Clocked, like
from arml.grow.vertices import grown_vertices
from arml.report.growth import write_growth
from arml.results.files import Json, RunError, append_metric, write_json
from arml.results.growth import write_lines
from arml.results.intervals import Score
from arml.tasks.options import Splits
from arml.training import checkpoint
from arml.training.step import start


@dataclass(frozen=True)
class Outcome:
    """The result of `arml grow`."""

    before: dict[str, float]
    """The old learner's score on test tasks of each family."""
    after: dict[str, float]
    """The same for the learner that was written."""
    accepted: bool
    """Whether the new learner was written; otherwise the old one was."""
    gains: dict[str, Score]
    """The paired gain of each family on validation tasks; the decision is based on it."""
    metric: str
    records: tuple[Json, ...]
    steps: int
    """Outer steps of the training."""
    seconds: float
    """Time of training and scoring. If the run was stopped, only the time since it went on."""
    way: float = 1.0
    """The share of the way from the old to the trained weights."""


def write_run(
    folder: Path,
    experiment: Experiment,
    splits: Splits,
    learner: MetaLearner,
    outcome: Outcome,
    vertices: int,
) -> None:
    """Write a learner that has grown, or was kept, as a run folder."""
    algorithm: Any = experiment.algorithm
    if outcome.accepted and vertices:
        algorithm = replace(algorithm, vertices=vertices, grown=grown_vertices(learner))
    every = max(1, outcome.steps)
    whole = replace(
        experiment,
        algorithm=algorithm,
        steps=outcome.steps,
        interval=every,
        checkpoint_every=every,
        validate_every=every,
    )
    blank = like(whole, splits.train.problem)
    wanted = {name: leaf.shape for name, leaf in checkpoint.named(blank.state.learner).items()}
    got = {name: leaf.shape for name, leaf in checkpoint.named(learner).items()}
    if wanted != got:
        raise RunError(
            f"{experiment.recipe} has weights for each class of its training data, and these "
            "cannot grow: choose a learner without an auxiliary classifier"
        )
    claim(whole, splits, folder)
    for record in outcome.records:
        if record["decision"] == "trained":
            for step, loss in record["losses"]:
                append_metric(folder / "metrics.jsonl", {"step": step, "loss": loss})
    write_lines(folder / "growth.jsonl", outcome.records)
    found = {
        "before": outcome.before,
        "after": outcome.after,
        "accepted": outcome.accepted,
        "gains": outcome.gains,
        "metric": outcome.metric,
        "steps": outcome.steps,
        "way": outcome.way,
    }
    write_json(folder / "growth.json", found)
    known = "accepted" if outcome.accepted else "not accepted: the old learner was kept"
    write_growth(
        outcome.records,
        folder / "growth.html",
        title=f"{experiment.recipe}, grown",
        lead=f"A learner was taught new families. The result was {known}.",
        outcome=found,
    )
    state = start(learner, whole.outer.build(whole.steps))
    checkpoint.save(
        folder / "checkpoints", whole.steps, Clocked(state, np.asarray(outcome.seconds))
    )
