"""A run folder, opened: its learner, tasks, metrics and scores."""

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from arml.core.checks import MOST
from arml.core.episodes import Problem, TaskDistribution, in_words, protocol_of
from arml.core.learner import MetaLearner, parameters
from arml.core.novelty import Novelty
from arml.experiment.folder import differences
from arml.experiment.options import REMEDY, Experiment, from_json
from arml.experiment.running import Clocked, like
from arml.results.files import Json, JsonView, RunError, read_metrics
from arml.results.folder import Result, read_config, read_result
from arml.results.schema import read_as
from arml.results.scores import Scores, read_scores
from arml.tasks.options import Splits, splits_of
from arml.training import checkpoint
from arml.training.step import TrainState

CONFIG = "config.json"


class Run:
    """A run folder, opened at its newest checkpoint. Each part is read when it is asked for.

        run = arml.Run("runs/sines")
        run.learner; run.tasks("test"); run.metrics; run.scores

    **Raises** `RunError` in one line if the folder is no run, has no checkpoint, or is damaged.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.config: JsonView = read_config(self.folder)
        if "what" in self.config:
            kind, opens = "a shared learner", "arml.load"
            if self.config.get("task") is not None:
                kind, opens = "a predictor", "arml.load_predictor"
            raise RunError(f"expected a run folder, got {folder}, {kind}; {opens} opens it")
        where = str(self.folder / "config.json")
        self.experiment: Experiment = from_json(self.config.get("experiment"), where)
        saved = checkpoint.latest(self.folder / "checkpoints")
        if saved is None:
            raise RunError(
                f"expected a checkpoint in {folder}, found none: `arml train` with this folder "
                "makes one"
            )
        self.step: int = saved
        """The outer step of the checkpoint."""

    @cached_property
    def problem(self) -> Problem:
        """The problem of its tasks."""
        stated = self.config.get("problem")
        # The configuration of an older run does not state it: the data say it.
        if stated is None:
            return self.splits.train.problem
        return problem_of(stated, f"{self.folder / CONFIG}: problem")

    @property
    def families(self) -> tuple[str, ...]:
        """The families of its tasks."""
        stated = self.config.get("families")
        if stated is None:
            return self.splits.train.families
        where = f"{self.folder / CONFIG}: families"
        return read_as(tuple[str, ...], stated, where, REMEDY)

    @cached_property
    def _restored(self) -> Clocked:
        blank = like(self.experiment, self.problem)
        return checkpoint.restore(self.folder / "checkpoints", self.step, blank)

    @property
    def learner(self) -> MetaLearner:
        """The trained learner. Its data need not be there."""
        return self.state.learner

    @property
    def state(self) -> TrainState:
        """The learner, the state of the outer optimiser, and the step."""
        return self._restored.state

    @property
    def seconds(self) -> float:
        """The seconds that the training has taken."""
        return float(self._restored.seconds)

    @cached_property
    def splits(self) -> Splits:
        """The tasks of all splits; it reads the data.

        **Raises** `RunError` if the data has changed.
        """
        splits = splits_of(self.experiment.tasks.build(self.folder / "split.json"))
        changed = differences(self.config.get("sources"), splits.sources, "data")
        if changed:
            raise RunError(f"{self.folder}: the data has changed: {'; '.join(changed)}; restore it")
        return splits

    def tasks(self, split: str = "test") -> TaskDistribution:
        """The task distribution of a split: train, validation or test."""
        return getattr(self.splits, split)

    @property
    def made(self) -> Json | None:
        """Commit, versions and device of the training; None for an older run, which has none."""
        return self.config.get("made")

    @property
    def inputs(self) -> Json | None:
        """The frozen model that made its inputs from pictures, if there is one."""
        return self.config.get("inputs")

    @property
    def metrics(self) -> list[Json]:
        """The records of its training in order: `step` and `loss`, or `step` and `validation`."""
        return read_metrics(self.folder / "metrics.jsonl")

    @property
    def result(self) -> Result | None:
        """The scores that `arml evaluate` wrote; None before it."""
        path = self.folder / "result.json"
        return read_result(path) if path.exists() else None

    @property
    def scores(self) -> Scores | None:
        """The score of each task, which `arml evaluate` wrote; None before it."""
        path, result = self.folder / "scores.npz", self.result
        if result is None or not path.exists():
            return None
        found = read_scores(path)
        # Older files lack some facts, which the result has.
        return dataclasses.replace(
            found,
            names=found.names or tuple(result["families"]),
            metric=found.metric or result["metric"],
            split=found.split or result["split"],
            inner_steps=result["inner_steps"] if found.inner_steps is None else found.inner_steps,
            step=result["steps"] if found.step is None else found.step,
        )

    def portable(self) -> "Portable":
        """The learner, ready to be used elsewhere."""
        return Portable(
            self.experiment,
            self.learner,
            self.problem,
            self.families,
            inputs=self.inputs,
            trained={"step": self.step, **(self.made or {})},
        )

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}: {self.experiment.recipe}, step {self.step:,})"


@dataclass(frozen=True, repr=False)
class Portable:
    """A meta-trained learner that can be used without the data that it was trained on."""

    experiment: Experiment
    learner: MetaLearner
    problem: Problem
    families: tuple[str, ...]
    temperature: float = 1.0
    """Divides the logits, so that probabilities are calibrated on validation tasks."""
    trained: Json | None = None
    """Step, commit, versions and device of the training, where they were noted."""
    inputs: Json | None = None
    """The frozen model that made its inputs from pictures, if there is one."""
    novelty: Novelty | None = None
    """How far a task may be from those of meta-training; None where it has not been measured."""

    def __repr__(self) -> str:
        return f"Portable({self.about})"

    @property
    def about(self) -> str:
        """Method, parameters and tasks in one line."""
        tasks = in_words(protocol_of(self.problem))
        return f"{self.experiment.recipe}, {parameters(self.learner):,} parameters, {tasks}"


def problem_of(value: object, where: str = "problem") -> Problem:
    """The problem that JSON holds.

    **Raises** `RunError` for JSON that is no problem, or one that no task can have.
    """
    problem = read_as(Problem, value, where, REMEDY)
    several = (*problem.features, problem.outputs)
    if not several or min(several) < 1 or max(several) > MOST or len(several) > 4:
        raise RunError(
            f"{where}: expected 1 to 3 sizes of the inputs and a number of outputs, each from 1 to "
            f"{MOST:,}, got {list(problem.features)} and {problem.outputs}; {REMEDY}"
        )
    return problem
