"""A meta-trained learner with the facts that its use needs, and its folder.

The folder is readable without running anybody's code, and without the data that the learner was
trained on. `config.json` holds the learner's experiment, the problem that it was built for, and
checksums of itself and of the weights. A predictor's folder holds the examples that it learned
from, too.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, TypeVar

import equinox as eqx
import jax
import msgspec
import numpy as np
from jaxtyping import PyTree

from arml.algorithms.arml import SoftClusters
from arml.core.episodes import Problem, in_words, protocol_of
from arml.core.learner import MetaLearner, parameters
from arml.datasets.features import Extractor, remade
from arml.experiment.options import Experiment, from_json, problem_of, to_json
from arml.experiment.recipes import initial, kind_of, widened
from arml.nn.networks import Body
from arml.predict.base import TaskLearner
from arml.predict.files import (
    AGAIN,
    LEARNED,
    SUPPORT,
    WEIGHTS,
    check_free,
    read_checked,
    write_checked,
)
from arml.predict.kinds import Inputs, named_kind
from arml.predict.reading import Bad, OnItem
from arml.results.files import Json, JsonView, RunError, read_arrays, read_as, write_arrays
from arml.results.folder import CONFIG
from arml.training.checkpoint import filled, named
from arml.training.provenance import provenance

Positive = Annotated[float, msgspec.Meta(gt=0, le=1e12)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
T = TypeVar("T", bound="TrainedLearner")


class LearnedTask(msgspec.Struct):
    """The facts about a predictor's task."""

    classes: list[str | int | float | bool] | None
    flat: bool
    sha256: str
    columns: list[str] | None = None
    target: str | None = None
    model: str = "learner"
    weights: dict[str, Share] | None = None
    reader: dict[str, object] | None = None
    estimator: dict[str, Any] | None = None


class Content(msgspec.Struct):
    """`config.json` of a learner, or of its predictor."""

    experiment: Json
    problem: Json
    families: tuple[str, ...]
    temperature: Positive
    weights_sha256: str
    trained: Json | None
    inputs: Json | None
    task: LearnedTask | None = None


@dataclass(frozen=True, eq=False, repr=False)
class TrainedLearner(TaskLearner):
    """A meta-trained learner that can be used without the data that it was trained on."""

    learner: MetaLearner
    problem: Problem
    """The kind of tasks that it was built for."""
    experiment: Experiment | None = None
    """How it was built; None for one that `arml.build` did not make, which cannot be saved."""
    families: tuple[str, ...] = ()
    """The families of its training tasks."""
    temperature: float = 1.0
    """Divides the logits, so that probabilities are calibrated on validation tasks."""
    trained: Json | None = None
    """Step, commit, versions and device of the training, where they were noted."""
    frozen: Json | None = None
    """The frozen model that made its inputs from pictures, if there is one."""
    model: Path | None = None
    """The file of that model, if it is not the one that ships."""
    estimator: Any = None

    @property
    def about(self) -> str:
        """Method, parameters and tasks in one line."""
        if self.estimator is not None:
            return type(self.estimator).__name__
        tasks = in_words(protocol_of(self.problem))
        name = type(self.learner).__name__ if self.experiment is None else self.experiment.recipe
        return f"{name}, {parameters(self.learner):,} parameters, {tasks}"

    @property
    def kind(self) -> Inputs:
        if self.frozen is not None:
            return named_kind(self.frozen.get("kind", "photographs"))
        function = kind_of(self.problem) == "regression"
        return named_kind("functions" if function else self.problem.inputs)

    @cached_property
    def extractor(self) -> Extractor | None:
        """Its frozen model, if there is one. **Raises** `ValueError` if the file is another."""
        return None if self.frozen is None else remade(self.frozen, self.model)

    def read(
        self,
        x: object,
        what: str = "queries",
        progress: OnItem | None = None,
        bad: Bad | None = None,
    ) -> np.ndarray:
        """The inputs `[n, *features]`, checked. A learner of pictures reads lists of files, too."""
        return self.kind.read(self, x, what, progress, bad)

    def with_model(self: T, model: Path | str | None) -> T:
        if model is None or self.frozen is None:
            return super().with_model(model)
        return dataclasses.replace(self, model=Path(model))

    def with_estimator(self: T, estimator: object, kind: str = "") -> T:
        return super().with_estimator(estimator, "" if self.kind.plain else self.problem.kind)

    def of_classes(self, ways: int) -> MetaLearner:
        """The learner as it adapts to tasks of `ways` classes, outside of training.

        **Raises** `ValueError` for more than in its meta-training if weights depend on their
        number."""
        learner = widened(self.learner, self.experiment, self.problem, ways)
        return inductive(learner, self.problem.support)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.about})"


def inductive(learner: MetaLearner, support: int | None = None) -> MetaLearner:
    """The same learner as it is used outside of training: normalisation takes the statistics of the
    support set alone, and nothing grows with more examples than the `support` of training."""

    def change(node: PyTree) -> PyTree:
        if isinstance(node, Body):
            return dataclasses.replace(node, normalisation="support")
        return dataclasses.replace(node, most=support) if isinstance(node, SoftClusters) else node

    return jax.tree.map(change, learner, is_leaf=lambda node: isinstance(node, Body | SoftClusters))


def write_learner(
    learner: TrainedLearner,
    folder: Path | str,
    *,
    support: Mapping[str, np.ndarray] | None = None,
    task: JsonView | None = None,
) -> None:
    """Write a learner; with `support` and `task`, a predictor: the examples that it adapted to.

    **Raises** `RunError` if it cannot be written, or if the folder holds something else;
    `ValueError` for a learner that could not be built again.
    """
    folder = Path(folder)
    check_free(folder, predictor=task is not None)
    if learner.experiment is None:
        raise ValueError(
            f"{learner!r} was not made by arml.build, so that it could not be read again: register "
            "its method, and build it by name"
        )
    experiment = to_json(learner.experiment)
    # Paths of the training data are removed: they mean nothing on another machine.
    experiment["tasks"].pop("data", None)
    arrays = {name: np.asarray(leaf) for name, leaf in named(learner.learner).items()}
    facts: Json = {
        "experiment": experiment,
        "problem": dataclasses.asdict(learner.problem),
        "families": learner.families,
        "temperature": learner.temperature,
        "inputs": learner.frozen,
        "trained": learner.trained,
        "made": provenance(),
        "weights_sha256": write_arrays(folder / WEIGHTS, arrays),
    }
    if support is not None:
        facts["task"] = {**(task or {}), "sha256": write_arrays(folder / SUPPORT, support)}
    write_checked(folder, LEARNED, facts)


def read_learner(kind: type[T], folder: Path) -> tuple[T, LearnedTask | None]:
    """A learner that `write_learner` wrote, and its task if it is that of a predictor.

    **Raises** `RunError` for a folder that is none, was altered or cut short.
    """
    where = str(folder / CONFIG)
    # The checksum says that it is as it was written, not that it means anything.
    known = read_as(Content, read_checked(folder, LEARNED), where, AGAIN)
    experiment = from_json(known.experiment, where)
    problem = problem_of(known.problem, f"{where}: problem")
    arrays = read_arrays(folder / WEIGHTS, known.weights_sha256)
    try:
        blank = eqx.filter_eval_shape(initial, experiment, problem)
    except Exception as error:
        first = " ".join(str(error).split())[:200]
        raise RunError(f"{where}: no learner can be built of its options: {first}") from error
    wanted = {name: array.shape for name, array in named(blank).items()}
    if wanted != {name: array.shape for name, array in arrays.items()}:
        raise RunError(
            f"{folder}: its weights are not those of the learner that this version builds: use the "
            "version of arml that wrote it"
        )
    learner = kind(
        filled(blank, arrays),
        problem,
        experiment,
        known.families,
        known.temperature,
        known.trained,
        known.inputs,
    )
    return learner, known.task
