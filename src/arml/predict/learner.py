"""A meta-trained learner, the task that it learns from a few labelled examples, and its folder.

A prediction depends on the support set and on its own input, not on the other queries: networks
with batch normalisation use the statistics of the support set instead. A task may have more classes
than the meta-training had, if no weight depends on their number, as with class prototypes.

The folder needs no other code and no training data. `config.json` holds the learner's experiment,
the problem that it was built for, and checksums of itself and of the weights. The folder of a
predictor also holds its examples.

[1] Guo, Pleiss, Sun and Weinberger, On Calibration of Modern Neural Networks, ICML 2017.
[2] Platt, Probabilistic Outputs for Support Vector Machines, 1999.
"""

import copy
import dataclasses
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from types import ModuleType
from typing import Annotated

import equinox as eqx
import jax
import jax.numpy as jnp
import msgspec
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from arml.algorithms.arml import SoftClusters
from arml.core.compilation import short
from arml.core.episodes import Examples, Problem, Task, in_words, protocol_of
from arml.core.learner import MetaLearner, parameters
from arml.datasets.features import Extractor
from arml.datasets.features import remade as extractor_again
from arml.experiment.options import Experiment, from_json, problem_of, to_json
from arml.experiment.recipes import initial, kind_of, widened
from arml.experiment.running import Run
from arml.nn.networks import Body
from arml.predict import models
from arml.predict.base import BY_LEARNER, Predictor, TaskLearner, softmax
from arml.predict.files import (
    GET_LEARNER_AGAIN,
    LEARNER_FORMAT,
    SUPPORT_FILE,
    WEIGHTS_FILE,
    check_free,
    packed,
    read_checked,
    unpacked,
    write_checked,
)
from arml.predict.folds import Places
from arml.predict.inputs import Bad, OnItem, checked_labels, checked_targets, floats, weighted
from arml.predict.kinds import Inputs, named_kind
from arml.predict.models import Choice, Function, Numeric
from arml.predict.onnx import ANY_QUERIES
from arml.predict.reliability import MODELS_IN_WORDS, NumberReliability
from arml.predict.scikit import facts_of, remade
from arml.results.files import Json, JsonView, RunError, brief, read_arrays, read_as, write_arrays
from arml.results.folder import CONFIG_FILE
from arml.training.checkpoint import filled, named
from arml.training.evaluate import concatenated, looks
from arml.training.fit import Fitted, Given
from arml.training.provenance import provenance

_QUERIES_AT_ONCE = 64
"""The number of queries that the learner predicts at once."""
MISSING_CLASS_GAP = 1e6
"""If a logit is further below the largest, the task does not have its class."""
Positive = Annotated[float, msgspec.Meta(gt=0, le=1e12)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class LearnedTask(msgspec.Struct):
    """The part of `config.json` about the task of a predictor."""

    classes: list[str | int | float | bool] | None
    flat: bool
    sha256: str
    columns: list[str] | None = None
    target: str | None = None
    model: str = BY_LEARNER
    weights: dict[str, Share] | None = None
    reader: dict[str, object] | None = None
    estimator: Json | None = None


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
    estimator: Json | None = None


@dataclass(frozen=True, eq=False, repr=False)
class FewShotLearner(TaskLearner):
    """A meta-trained learner, ready for your own tasks; `arml.load` opens one.

        learner = arml.load("regression2d")
        learner.problem, learner.families

    Inputs are vectors `[n, d]`, pictures `[n, size, size, 3]` in bytes, or the columns of a table.
    """

    learner: MetaLearner
    problem: Problem
    """The kind of tasks that it was built for."""
    experiment: Experiment | None = None
    """How `arml.build` made it. A learner with None was made otherwise, and cannot be saved."""
    families: tuple[str, ...] = ()
    """The families of its training tasks."""
    temperature: float = 1.0
    """Divides the logits, so that probabilities are calibrated on validation tasks."""
    trained: Json | None = None
    """Step, commit, versions and device of the training, as far as they were recorded."""
    frozen: Json | None = None
    """The frozen model that made its inputs from pictures, if there is one."""
    model: Path | None = None
    """The file of that model, if it is not the one that ships."""
    estimator: object = None

    @classmethod
    def of(cls, what: object) -> "FewShotLearner":
        """The learner of a run folder, a shared folder, a `Run` or a `Fitted`, or a learner that
        `arml.build` made. **Raises** `ValueError` for anything else, `RunError` for a damaged
        folder."""
        match what:
            case FewShotLearner():
                return what
            case Path() if (what / WEIGHTS_FILE).exists():
                return read_learner(what)[0]
            case Path():
                return cls.of(Run(what))
            case Run():
                trained = {"step": what.step, **(what.made or {})}
                own = what.learner, what.problem, what.experiment, what.families
                return cls(*own, trained=trained, frozen=what.inputs)
            case Fitted(learner=learner, problem=problem):
                known: Json = {**vars(what.options), "seed": what.seed, "steps": what.step}
                if isinstance(what.options.outer, Given):
                    del known["outer"]
                origin = learner.origin
                made = dataclasses.replace(origin.experiment, **known) if origin else None
                return cls(learner, problem, made, trained={"step": what.step})
            case MetaLearner() if what.origin is not None:
                return cls(what, what.origin.problem, what.origin.experiment)
        raise ValueError(
            "expected a learner that arml.build, arml.fit or arml.load made, an arml.Run, a name, "
            f"or an estimator of scikit-learn, got {type(what).__name__}: make one of these"
        )

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
        """Its frozen model, or None. **Raises** `ValueError` if the file holds another model."""
        return None if self.frozen is None else extractor_again(self.frozen, self.model)

    def read(
        self,
        x: object,
        what: str = "queries",
        progress: OnItem | None = None,
        bad: Bad | None = None,
    ) -> np.ndarray:
        """The inputs `[n, *features]`, checked. A learner of pictures also reads lists of files."""
        return self.kind.read(self, x, what, progress, bad)

    def with_model(self, model: Path | str | None) -> "FewShotLearner":
        if model is None or self.frozen is None:
            return super().with_model(model)
        return dataclasses.replace(self, model=Path(model))

    def with_estimator(self, estimator: object, kind: str = "") -> "FewShotLearner":
        return super().with_estimator(estimator, "" if self.kind.plain else self.problem.kind)

    def of_classes(self, ways: int) -> MetaLearner:
        """The learner that adapts to tasks of `ways` classes, outside of training.

        **Raises** `ValueError` for more classes than in its meta-training, if weights depend on
        their number."""
        learner = widened(self.learner, self.experiment, self.problem, ways)
        return inductive(learner, self.problem.support)

    def adapt(
        self, x: object, y: object, sample_weight: object = None, **options: object
    ) -> Predictor:
        """Learn a task from its support set.

        **Arguments**

        - `x`: inputs `[n, *features]`: NumPy, JAX or PyTorch arrays, or a data frame. Pixels are
          bytes, or floats in [0, 1]. Pictures may also be a list of files. A learner of tables
          takes any columns: see `arml.tables.predictor`.
        - `y`: `n` labels of any kind that can be sorted, of any number of classes; or `n` numbers
          or rows of numbers (regression).
        - `sample_weight`: how much each example counts `[n]`. Only the models `logistic` and
          `edges` can use it; learners of tables use whole numbers.
        - `options`: `groups`, a value for each example, such as a person's name (for tables also
          the name of a column): examples with the same value are always left out together. For
          tables also `keep`, `without` and `dates`: see `arml.tables.predictor.learned`.

        Returns a `Predictor`.

        **Raises** `ValueError` for examples that cannot be learned."""
        known = self.kind.predictor or TrainedPredictor
        return known.learned(self, x, y, sample_weight, **options)

    def save(self, folder: Path | str) -> None:
        """Write it as a folder of `config.json` and `weights.safetensors`, to share. **Raises**
        `ValueError` for an estimator that cannot be written without pickle."""
        write_learner(self, folder)

    def __reduce__(self) -> tuple[object, ...]:
        # An estimator is pickled separately: see `TaskLearner.__reduce_ex__`.
        plain = dataclasses.replace(self, estimator=None)
        return _unpacked, (packed(plain.save), self.model)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.about})"


def _unpacked(files: dict[str, bytes], model: Path | None) -> FewShotLearner:
    return unpacked(FewShotLearner.of, files).with_model(model)


def inductive(learner: MetaLearner, support: int | None = None) -> MetaLearner:
    """The learner as it is used outside of training: normalisation uses only the statistics of the
    support set, and sums do not grow beyond the `support` examples of training."""

    def change(node: PyTree) -> PyTree:
        if isinstance(node, Body):
            return dataclasses.replace(node, normalisation="support")
        return dataclasses.replace(node, most=support) if isinstance(node, SoftClusters) else node

    return jax.tree.map(change, learner, is_leaf=lambda node: isinstance(node, Body | SoftClusters))


# The folder.


def write_learner(
    learner: FewShotLearner,
    folder: Path | str,
    *,
    support: Mapping[str, np.ndarray] | None = None,
    task: JsonView | None = None,
) -> None:
    """Write a learner; with `support` (the examples that it adapted to) and `task`, a predictor.

    **Raises** `RunError` if it cannot be written, or if the folder holds something else;
    `ValueError` for a learner that could not be read again.
    """
    folder = Path(folder)
    check_free(folder, predictor=task is not None, task=task or {})
    if learner.experiment is None:
        raise ValueError(
            f"{learner!r} was not made by arml.build, so it could not be read again: register "
            "its method, and build it by name"
        )
    experiment = to_json(learner.experiment)
    # Paths of the training data are removed: they mean nothing on another machine.
    experiment["tasks"].pop("data", None)
    own = learner.estimator if task is None else None  # a task has its own
    facts: Json = {
        "experiment": experiment,
        "problem": dataclasses.asdict(learner.problem),
        "families": learner.families,
        "temperature": learner.temperature,
        "inputs": learner.frozen,
        "trained": learner.trained,
        "made": provenance(),
        **({} if own is None else {"estimator": facts_of(own, "learner")}),
    }
    arrays = {name: np.asarray(leaf) for name, leaf in named(learner.learner).items()}
    facts["weights_sha256"] = write_arrays(folder / WEIGHTS_FILE, arrays)
    if support is not None:
        facts["task"] = {**(task or {}), "sha256": write_arrays(folder / SUPPORT_FILE, support)}
    write_checked(folder, LEARNER_FORMAT, facts)


def read_learner(folder: Path) -> tuple[FewShotLearner, LearnedTask | None]:
    """The learner that `write_learner` wrote, and the task if the folder is a predictor.

    **Raises** `RunError` if the folder is not a learner, was altered or was cut short.
    """
    where = str(folder / CONFIG_FILE)
    # The checksum shows that the file was not altered, not that its content is valid.
    known = read_as(Content, read_checked(folder, LEARNER_FORMAT), where, GET_LEARNER_AGAIN)
    experiment = from_json(known.experiment, where)
    problem = problem_of(known.problem, f"{where}: problem")
    arrays = read_arrays(folder / WEIGHTS_FILE, known.weights_sha256)
    try:
        blank = eqx.filter_eval_shape(initial, experiment, problem)
    except Exception as error:
        first = brief(error, 200)
        raise RunError(f"{where}: its options do not build a learner: {first}") from error
    wanted = {name: array.shape for name, array in named(blank).items()}
    if wanted != {name: array.shape for name, array in arrays.items()}:
        raise RunError(
            f"{folder}: its weights are not those of the learner that this version builds: use the "
            "version of arml that wrote it"
        )
    facts = known.families, known.temperature, known.trained, known.inputs
    learner = FewShotLearner(filled(blank, arrays), problem, experiment, *facts)
    if known.estimator is not None:
        learner = learner.with_estimator(remade(known.estimator))
    return learner, known.task


def read_predictor(folder: Path, model: Path | str | None = None) -> Predictor:
    """Read a saved predictor. **Raises** `RunError` if it was altered or cut short."""
    learner, task = read_learner(folder)
    if task is None:
        raise RunError(f"{folder}: its {SUPPORT_FILE} belongs to another predictor: save it again")
    arrays = read_arrays(folder / SUPPORT_FILE, task.sha256)
    try:
        known = learner.kind.predictor or TrainedPredictor
        return known.restored(learner.with_model(model), arrays, task)
    except ValueError as error:
        raise RunError(f"{folder}: {error}; save it again") from error


# The temperature, which is chosen when a run is exported.


def exported(run: Path | str, folder: Path | str, *, tasks: int = 200) -> FewShotLearner:
    """Write a run's learner as a folder to share. Its temperature is chosen on `tasks` validation
    tasks, which need the run's data; with 0 tasks it is 1.

    **Raises** `RunError` for a folder that is not a run, or if it cannot be written.
    """
    check_free(Path(folder), predictor=False)  # before the work
    opened = Run(run)
    learner = FewShotLearner.of(opened)
    if tasks and learner.problem.kind == "classification":
        adapting, chunk = inductive(opened.learner), opened.experiment.chunk
        parts = looks(
            _outputs, adapting, opened.splits.validation, split="validation", n=tasks, chunk=chunk
        )
        outputs, targets = concatenated(parts)
        found = calibrated(outputs.reshape(-1, outputs.shape[-1]), targets.reshape(-1))
        learner = dataclasses.replace(learner, temperature=found)
    learner.save(folder)
    return learner


def _outputs(learner: MetaLearner, task: Task, key: Array) -> tuple[Array, Array]:
    """The predictions on ONE task, and the targets."""
    return learner.adapt(task.support, key=key).predict(task.query.x), task.query.y


def temperature(logits: Float[np.ndarray, "n ways"], y: Int[np.ndarray, " n"]) -> float:
    """The T for which softmax(logits / T) has the least mean cross-entropy [1], from 0.05 to 20.

    The targets are smoothed [2]: that of the right class is (n + 1) / (n + ways), that of each
    other 1 / (n + ways), for n predictions. If all are right, the next is still not certain.
    The cross-entropy is convex in 1/T, so a bounded search over log T finds it.
    """
    from scipy.optimize import minimize_scalar  # here, because SciPy is slow to load
    from scipy.special import log_softmax

    n = len(y)
    # If a task does not have a class, its logit is about -1e9, and it does not count here.
    there = ~(logits < logits.max(axis=1, keepdims=True) - MISSING_CLASS_GAP)
    sure = n / (n + there.sum(axis=1))

    def smoothed(log_t: float) -> float:
        logs = log_softmax(logits.astype(np.float64) / np.exp(log_t), axis=1)
        others = logs.mean(axis=1, where=there)
        return float(-np.mean(sure * logs[np.arange(n), y] + (1 - sure) * others))

    bounds = (np.log(0.05), np.log(20.0))
    return float(np.exp(minimize_scalar(smoothed, bounds=bounds, options={"xatol": 1e-5}).x))


def calibrated(logits: Float[np.ndarray, "n ways"], y: Int[np.ndarray, " n"]) -> float:
    """The temperature, or 1 if it does not help. It helps if the temperature of the first half of
    the predictions lowers the mean cross-entropy of the second half."""
    half = len(y) // 2
    held = logits[half:], y[half:]
    found = temperature(logits[:half], y[:half]) if half else 1.0
    helps = mean_cross_entropy(*held, found) < mean_cross_entropy(*held)
    return temperature(logits, y) if helps else 1.0


def mean_cross_entropy(
    logits: Float[np.ndarray, "n ways"], y: Int[np.ndarray, " n"], temperature: float = 1.0
) -> float:
    """The mean cross-entropy of softmax(logits / temperature)."""
    from scipy.special import log_softmax

    logs = log_softmax(logits.astype(np.float64) / temperature, axis=1)
    return float(-np.mean(logs[np.arange(len(y)), y]))


# The learned task.


class TrainedPredictor(Predictor):
    """A learned task. `classes` are its labels in order; None for regression.

        predictor = learner.adapt([[0, 1], [1, 1], [2, 1], [3, 1], [4, 1]], [0, 1, 2, 3, 4])
        predictor.predict([[1.5, 1]])

    Its methods raise `ValueError` in one line for inputs of another shape.
    """

    learner: FewShotLearner

    @property
    def models(self) -> tuple[str, ...]:  # type: ignore[override]
        """The models that can predict."""
        return models.models_of(self.problem, len(self.x))

    @classmethod
    def learned(
        cls,
        learner: FewShotLearner,
        x: object,
        y: object,
        sample_weight: object = None,
        groups: object = None,
        **options: object,
    ) -> "TrainedPredictor":
        """Learn the task of a support set. **Raises** `ValueError` for invalid examples."""
        if options:
            raise ValueError(f"{', '.join(options)}: only learners of tables have these options")
        inputs = learner.read(x, "support inputs")
        if not len(inputs):
            raise ValueError("no examples were given")
        inputs, y, *more = weighted(inputs, y, sample_weight, groups)
        if learner.problem.kind == "regression":
            targets, flat = checked_targets(y, learner.problem, len(inputs))
            _check_range(learner, inputs, targets)
            return cls(learner, inputs, targets.astype(np.float32), None, *more, flat=flat)
        classes, places = checked_labels(y, len(inputs))
        learner.of_classes(len(classes))  # raises for too many classes
        return cls(learner, inputs, places, classes, *more)

    @classmethod
    def restored(
        cls, learner: FewShotLearner, arrays: Mapping[str, np.ndarray], task: LearnedTask
    ) -> "TrainedPredictor":
        """A predictor from the arrays and the facts that `save` wrote. **Raises** `ValueError` for
        models of another version."""
        classes = None if task.classes is None else np.asarray(task.classes)
        predictor = cls(learner, classes=classes, flat=task.flat, **arrays)
        if task.weights and {*task.weights} != {*predictor.models[:-1]}:
            raise ValueError("its models are not those of this version")
        predictor.columns = tuple(task.columns) if task.columns else None
        predictor.target = task.target
        if task.weights:
            vars(predictor)["weights"] = task.weights
        return predictor.using(task.model)

    @cached_property
    def _learner(self) -> MetaLearner:
        return self.learner.of_classes(0 if self.classes is None else len(self.classes))

    def using(self, model: str) -> "TrainedPredictor":
        """The same predictor with another of its `models`: the `learner`, `logistic` regression
        on the inputs or on the `edges` of pictures, a Gaussian `process` of a function, or the
        `ensemble` of all, with weights from left-out examples. **Raises** `ValueError` for
        an unknown model."""
        super().using(model)
        self._check_weights(model)
        other = copy.copy(self)
        other.model = model
        return other

    def can(self, what: str) -> bool:
        return super().can(what) and what != "novelty"

    def interval(self, x: object, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        self.need("interval")
        outputs, found = self._outputs(self.read(x)), self.reliability()
        assert isinstance(found, NumberReliability)
        half = found.half_width(level)
        low, high = outputs - half, outputs + half
        return (low[:, 0], high[:, 0]) if self.flat else (low, high)

    def embedding(self, x: object) -> Float[np.ndarray, "n d"] | None:
        inputs = self.read(x)
        if self._learner.embedding() is None or self.classes is None:
            return None
        return by_chunks(
            partial(_embedded, self._learner, self._support()), inputs, _QUERIES_AT_ONCE
        )

    def reading(self) -> Float[np.ndarray, "prototypes vertices"] | None:
        links = _links(self._learner, self._support())
        if links is None:
            return None
        return np.asarray(links)[: None if self.classes is None else len(self.classes)]

    def _traced(self) -> Function:
        return self._by(self.model, jnp)

    def save(self, folder: Path | str) -> None:
        """Write it as a folder: the learner's, and `support.safetensors`. **Raises** `RunError` if
        it cannot be written."""
        task = {
            "classes": None if self.classes is None else self.classes.tolist(),
            "flat": self.flat,
            "columns": self.columns,
            "target": self.target,
            "model": self.model,
            "weights": self.weights if self.model == models.MEAN_OF_MODELS else None,
        }
        write_learner(self.learner, folder, support=self.support, task=task)

    def __repr__(self) -> str:
        kinds = "" if self.classes is None else f"{len(self.classes)} classes, "
        return f"{type(self).__name__}({kinds}{len(self.x)} examples; {self.learner.about})"

    def _outputs(self, inputs: Numeric) -> Float[np.ndarray, "n outputs"]:
        _check_process()
        return np.asarray(self._function(inputs))

    # The models.

    @cached_property
    def choice(self) -> Choice:
        """All models except the ensemble, and their weights."""
        every, y = self.sample_weight is None, self.y
        names = [
            k
            for k in self.models
            if k != models.MEAN_OF_MODELS and (every or k in models.WEIGHTED_MODELS)
        ]
        y = y if self.classes is not None else y[:, 0].astype(np.float64)
        return Choice(names, self._fit, self.x, y, [test for _, test in self._parts])

    @cached_property
    def weights(self) -> dict[str, float]:
        """The weight of each model in the ensemble, from left-out examples."""
        some = self.choice.weights(np.arange(len(self.y)))
        return {name: some.get(name, 0.0) for name in self.models[:-1]}

    def _refit(self, train: Places, test: Places) -> dict[str, np.ndarray]:
        found = {name: outputs[test] for name, outputs in self.choice.others(train).items()}
        if models.MEAN_OF_MODELS in self.models and self.sample_weight is None:
            found[models.MEAN_OF_MODELS] = self.choice.mean(train)[test]
        return found if self.classes is None else {k: softmax(odds) for k, odds in found.items()}

    def _fit(self, kept: Places, model: str) -> Function:
        """The function that a model learns from some of the examples."""
        more = [a if a is None else a[kept] for a in (self.sample_weight, self.groups)]
        given = self.x[kept], self.y[kept], self.classes, *more
        return TrainedPredictor(self.learner, *given, flat=self.flat)._by(model)

    @cached_property
    def _function(self) -> Function:
        return self._by(self.model)

    def _by(self, model: str, xp: ModuleType = np) -> Function:
        """The function from inputs `[n, *features]` to log-odds or targets; with `jax.numpy` as
        `xp` JAX can trace it."""
        self._check_weights(model)
        if model == models.MEAN_OF_MODELS:
            weights = {name: w for name, w in self.weights.items() if w}
            parts = {name: self._by(name, xp) for name in weights}

            def mean(inputs: Numeric) -> Numeric:
                each = {name: part(inputs) for name, part in parts.items()}
                return models.mean_of(each, weights, self.classes is not None, xp)

            return mean
        if model == models.GAUSSIAN_PROCESS:
            return models.process(self.x, self.y, xp)
        if model != BY_LEARNER:
            assert self.classes is not None
            ways = len(self.classes)
            function = models.fitted(model, self.x, self.y, ways, xp, self.sample_weight)
            if xp is not np:
                return function
            return partial(by_chunks, function, size=256, fill=False)  # edges need much memory
        like = (_QUERIES_AT_ONCE if xp is np else ANY_QUERIES, *self.problem.features)
        shape = jax.ShapeDtypeStruct(like, jnp.float32)
        function = adapted = _adapted(self._learner, self._support(), shape)
        if xp is np:
            function = partial(by_chunks, partial(called, adapted), size=_QUERIES_AT_ONCE)
        if self.classes is None:
            return function
        ways = len(self.classes)
        return lambda inputs: function(inputs)[:, :ways] / self.learner.temperature

    def _check_weights(self, model: str) -> None:
        if self.sample_weight is not None and model not in models.WEIGHTED_MODELS:
            raise ValueError(
                f"{MODELS_IN_WORDS[model]} cannot use sample weights: leave them out, or predict "
                f"with the model {' or '.join(models.WEIGHTED_MODELS)}"
            )

    def _support(self) -> Examples:
        y = self.y.astype(np.float32 if self.classes is None else np.int32)
        return Examples(
            *jax.device_put((floats(self.x), y))
        )  # `asarray` would compile for each shape


def _check_range(learner: FewShotLearner, inputs: np.ndarray, targets: np.ndarray) -> None:
    """Raise `ValueError` for targets that are larger than all those of the training, and warn of
    inputs outside of its range: gradient descent from learned weights cannot reach them."""
    if learner.experiment is None:
        return
    tasks, said = learner.experiment.tasks, learner.experiment.recipe
    reach, (low, high) = getattr(tasks, "reach", None), getattr(tasks, "span", (-np.inf, np.inf))
    largest = float(np.abs(targets).max())
    if reach is not None and largest > reach:
        raise ValueError(
            f"expected targets of at most {reach:.3g} in size, as in the training of {said}, "
            f"got {largest:.6g}: divide them by a number, or use the learner tables-regression"
        )
    if not low <= np.min(inputs) <= np.max(inputs) <= high:
        warnings.warn(
            f"{said} was trained on inputs from {low:g} to {high:g}, got {np.min(inputs):.6g} to "
            f"{np.max(inputs):.6g}: predictions outside are guesses",
            stacklevel=4,
        )


_process: list[int] = []
"""The number of the process that first used JAX for a prediction; empty before."""


def _check_process() -> None:
    """Raise `RuntimeError` in a process that was forked after JAX had started. Threads that do not
    exist in the fork hold the locks of JAX, so the fork would wait for ever."""
    if not _process:
        _process.append(os.getpid())
    if _process[0] != os.getpid():
        raise RuntimeError(
            "this process was forked after arml had started JAX, which cannot work in a fork: "
            'start processes by multiprocessing.get_context("spawn"), and load the predictor there'
        )


@short
def _adapted(learner: MetaLearner, support: Examples, like: jax.ShapeDtypeStruct) -> Function:
    """The prediction function. It is compiled once for all support sets of one size."""
    adapted = learner.adapt(support, key=jax.random.key(0))
    return eqx.filter_closure_convert(adapted.predict, like)


@short
def called(function: Callable[[Array], Array], x: Array) -> Array:
    """`function(x)`, compiled."""
    return function(x)


@short
def _links(learner: MetaLearner, support: Examples) -> Array | None:
    read = learner.reading()
    reading = None if read is None else read(support).reading
    return None if reading is None else reading.links


@short
def _embedded(learner: MetaLearner, support: Examples, x: Array) -> Array:
    embed = learner.embedding()
    assert embed is not None
    return embed(support.x)(x)


def by_chunks(
    function: Function, x: np.ndarray, size: int, fill: bool = True
) -> Float[np.ndarray, "n width"]:
    """`[n, *features] -> [n, width]` by a function of `size` inputs. A smaller chunk is padded, so
    one compiled program serves all chunks, unless `fill` is false.

    **Raises** `ValueError` for outputs that are not finite."""
    _check_process()
    outputs = []
    for first in range(0, max(len(x), 1), size):
        some = floats(x[first : first + size])
        more = size - len(some) if fill else 0
        full = np.pad(some, [(0, more)] + [(0, 0)] * (x.ndim - 1))
        outputs.append(np.asarray(function(full))[: len(some)])
    predicted = np.concatenate(outputs)
    if not np.all(np.isfinite(predicted)):
        raise ValueError(
            "predictions are NaN or infinite: the examples are far from those that the learner was "
            "trained on; scale them to its range"
        )
    return predicted
