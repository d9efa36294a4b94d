"""A run or a learner that is read from its folder."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arml.core.episodes import Problem
from arml.core.learner import MetaLearner
from arml.core.novelty import Novelty
from arml.experiment.folder import differences
from arml.experiment.options import Experiment, from_json
from arml.experiment.running import like_of
from arml.results.folder import RunError, read_config
from arml.tasks.options import Splits
from arml.training import checkpoint
from arml.training.evaluate import Split


@dataclass(frozen=True)
class Trained:
    """A run, loaded for use."""

    experiment: Experiment
    learner: MetaLearner
    splits: Splits
    step: int
    seconds: float
    made: dict[str, Any] | None = None
    """Commit, versions and device of the training; None for a run of before they were noted."""

    def tasks(self, split: Split) -> Any:
        """The task distribution of a split."""
        return getattr(self.splits, split)


@dataclass(frozen=True)
class Portable:
    """A meta-trained learner and what it needs to be used: not the data that it was trained on."""

    experiment: Experiment
    learner: MetaLearner
    problem: Problem
    families: tuple[str, ...]
    temperature: float = 1.0
    """Divides the logits, so that probabilities are calibrated on validation tasks."""
    trained: dict[str, Any] | None = None
    """Step, commit, versions and device of the training, where they were noted."""
    inputs: dict[str, Any] | None = None
    """The frozen model that made its inputs of pictures, if one did."""
    novelty: Novelty | None = None
    """How far a task may be from what meta-training saw; None where it has not been measured."""


def load_learner(folder: Path | str) -> Portable:
    """The learner of a run folder at its newest checkpoint; the data may be gone.

    **Raises** `RunError` as `load` does.
    """
    folder = Path(folder)
    config, experiment, saved = _opened(folder)
    if not isinstance(config.get("problem"), dict):  # an older run, which needs its data for it
        run = load(folder)
        tasks = run.splits.train
        return Portable(run.experiment, run.learner, tasks.problem, tasks.families)
    problem = problem_of(config["problem"])
    now = checkpoint.restore(folder / "checkpoints", saved, like_of(experiment, problem))
    made = config.get("made")
    return Portable(
        experiment,
        now.state.learner,
        problem,
        tuple(config["families"]),
        inputs=config.get("inputs"),
        trained={"step": saved, **(made if isinstance(made, dict) else {})},
    )


def problem_of(value: Mapping[str, Any]) -> Problem:
    """The problem that JSON holds."""
    return Problem(**{**value, "features": tuple(value["features"])})


def _opened(folder: Path) -> tuple[Mapping[str, Any], Experiment, int]:
    """The configuration of a run, its experiment, and the step of its newest checkpoint."""
    config = read_config(folder)
    experiment = from_json(config.get("experiment"), str(folder / "config.json"))
    saved = checkpoint.latest(folder / "checkpoints")
    if saved is None:
        raise RunError(
            f"expected a checkpoint in {folder}, found none: `arml train` with this folder makes "
            "one"
        )
    return config, experiment, saved


def load(folder: Path | str) -> Trained:
    """The learner of a run folder at its newest checkpoint.

    **Raises** `RunError` if the folder is no run, has no checkpoint, is damaged, or its data has
    changed.
    """
    folder = Path(folder)
    config, experiment, saved = _opened(folder)
    splits: Splits = experiment.tasks.build(folder / "split.json")
    changed = differences(config.get("sources"), splits.sources, "data")
    if changed:
        raise RunError(f"{folder}: the data has changed: {'; '.join(changed)}; restore it")
    blank = like_of(experiment, splits.train.problem)
    now = checkpoint.restore(folder / "checkpoints", saved, blank)
    made = config.get("made") if isinstance(config.get("made"), dict) else None
    return Trained(experiment, now.state.learner, splits, saved, float(now.seconds), made)
