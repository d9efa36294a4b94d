"""A meta-trained learner learns one's own task from a few labelled examples.

[1] Guo, Pleiss, Sun and Weinberger, On Calibration of Modern Neural Networks, ICML 2017.
[2] Platt, Probabilistic Outputs for Support Vector Machines, 1999.
"""

import dataclasses
from pathlib import Path

import numpy as np
from jaxtyping import Array, Float, Int

from arml.core.episodes import Task
from arml.core.learner import MetaLearner
from arml.experiment.running import Run
from arml.predict.base import Predictor
from arml.predict.files import SUPPORT, WEIGHTS, check_free, packed, unpacked
from arml.predict.predictor import TrainedPredictor
from arml.predict.trained import TrainedLearner, inductive, read_learner, write_learner
from arml.results.files import RunError, read_arrays
from arml.training.evaluate import concatenated, looks
from arml.training.fit import Fitted


class FewShotLearner(TrainedLearner):
    """A meta-trained learner, ready for tasks of one's own; `arml.load` opens one.

        learner = arml.load("regression2d")
        learner.problem, learner.families

    Inputs are vectors `[n, d]`, pictures `[n, size, size, 3]` in bytes, or the columns of a table.
    """

    @classmethod
    def of(cls, what: object) -> "FewShotLearner":
        """The learner of a run folder or of a shared one, of a `Run`, of a `Fitted`, or one that
        `arml.build` made. **Raises** `ValueError` for anything else, `RunError` for a damaged
        folder."""
        match what:
            case FewShotLearner():
                return what
            case Path() if (what / WEIGHTS).exists():
                return read_learner(cls, what)[0]
            case Path():
                return cls.of(Run(what))
            case Run():
                learner = cls(what.learner, what.problem, what.experiment, what.families)
                trained = {"step": what.step, **(what.made or {})}
                return dataclasses.replace(learner, trained=trained, frozen=what.inputs)
            case Fitted(learner=learner, problem=problem):
                origin, known = learner.origin, {"seed": what.seed, "steps": what.step}
                made = dataclasses.replace(origin.experiment, **known) if origin else None
                return cls(learner, problem, made, trained={"step": what.step})
            case MetaLearner() if what.origin is not None:
                return cls(what, what.origin.problem, what.origin.experiment)
        raise ValueError(
            "expected a learner that arml.build, arml.fit or arml.load made, an arml.Run, a name, "
            f"or an estimator of scikit-learn, got {type(what).__name__}: make one of these"
        )

    def adapt(
        self, x: object, y: object, sample_weight: object = None, **options: object
    ) -> Predictor:
        """Learn a task from its support set.

        **Arguments**

        - `x`: inputs `[n, *features]`: NumPy, JAX or PyTorch arrays, or a data frame. Pixels are
          bytes, or floats in [0, 1]; pictures may be a list of files, too. A learner of tables
          takes any columns: see `arml.tables.predictor`.
        - `y`: `n` labels of any kind that can be sorted, of any number of classes; or `n` numbers
          or rows of numbers (regression).
        - `sample_weight`: how much each example counts `[n]`, for predictors that then use the
          model `logistic` or `edges`; no other model can use it, and no learner of tables.
        - `options`: `groups`, a value for each example, such as a person's name: those with the
          same are left out together wherever examples are (for tables it may be the name of a
          column); for tables `keep`, `without` and `dates`: see `arml.tables.predictor.learned`.

        Returns a `Predictor`.

        **Raises** `ValueError` for examples that cannot be learned."""
        return (self.kind.predictor or TrainedPredictor).learned(
            self, x, y, sample_weight, **options
        )

    def save(self, folder: Path | str) -> None:
        """Write it as a folder of `config.json` and `weights.safetensors`, to share."""
        write_learner(self, folder)

    def __reduce__(self) -> tuple[object, ...]:
        return _unpacked, (packed(self.save), self.model)


def _unpacked(files: dict[str, bytes], model: Path | None) -> FewShotLearner:
    return unpacked(FewShotLearner.of, files).with_model(model)


def read_predictor(folder: Path, model: Path | str | None = None) -> Predictor:
    """A predictor that was saved. **Raises** `RunError` if it is altered or cut short."""
    learner, task = read_learner(FewShotLearner, folder)
    if task is None:
        raise RunError(f"{folder}: its {SUPPORT} is of another predictor: save it again")
    arrays = read_arrays(folder / SUPPORT, task.sha256)
    try:
        known = learner.kind.predictor or TrainedPredictor
        return known.restored(learner.with_model(model), arrays, task)
    except ValueError as error:
        raise RunError(f"{folder}: {error}; save it again") from error


def exported(run: Path | str, folder: Path | str, *, tasks: int = 200) -> FewShotLearner:
    """Write a run's learner as a folder to share, its temperature chosen on `tasks` validation
    tasks (0 for none; they need the run's data).

    **Raises** `RunError` for a folder that is no run, or if it cannot be written.
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


LACKING = 1e6
"""A logit that lies further below the largest belongs to a class that the task lacks."""


def temperature(logits: Float[np.ndarray, "n ways"], y: Int[np.ndarray, " n"]) -> float:
    """The T for which softmax(logits / T) has the least mean cross-entropy [1], from 0.05 to 20.

    The targets are smoothed [2]: that of the right class is (n + 1) / (n + ways), that of each
    other 1 / (n + ways), for n predictions. If all are right, the next one is still not certain.
    The cross-entropy is convex in 1/T, so a bounded search over log T finds it.
    """
    from scipy.optimize import minimize_scalar  # here, because SciPy is slow to load
    from scipy.special import log_softmax

    n = len(y)
    # A class that a task lacks has a logit of about -1e9, and is no class of this task.
    there = ~(logits < logits.max(axis=1, keepdims=True) - LACKING)
    sure = n / (n + there.sum(axis=1))

    def smoothed(log_t: float) -> float:
        logs = log_softmax(logits.astype(np.float64) / np.exp(log_t), axis=1)
        others = logs.mean(axis=1, where=there)
        return float(-np.mean(sure * logs[np.arange(n), y] + (1 - sure) * others))

    bounds = (np.log(0.05), np.log(20.0))
    return float(np.exp(minimize_scalar(smoothed, bounds=bounds, options={"xatol": 1e-5}).x))


def calibrated(logits: Float[np.ndarray, "n ways"], y: Int[np.ndarray, " n"]) -> float:
    """The temperature, or 1 if it does not help: the one of the first half of the predictions must
    lower the mean cross-entropy of the second half."""
    half = len(y) // 2
    held = logits[half:], y[half:]
    if half and mean_cross_entropy(
        *held, temperature(logits[:half], y[:half])
    ) < mean_cross_entropy(*held):
        return temperature(logits, y)
    return 1.0


def mean_cross_entropy(
    logits: Float[np.ndarray, "n ways"], y: Int[np.ndarray, " n"], temperature: float = 1.0
) -> float:
    """The mean cross-entropy of softmax(logits / temperature)."""
    from scipy.special import log_softmax

    logs = log_softmax(logits.astype(np.float64) / temperature, axis=1)
    return float(-np.mean(logs[np.arange(len(y)), y]))
