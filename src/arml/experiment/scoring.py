"""What a run scored, with all that one must know to read the number: the content of `result.json`.

The tasks of a split are the same for every run, so two runs are compared task by task.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from arml.algorithms.reptile import SecondMoment
from arml.core.calibration import expected_error, temperature
from arml.core.inner import steps_of, with_steps
from arml.core.learner import MetaLearner
from arml.core.losses import score_of
from arml.experiment import Experiment, Trained, load
from arml.experiment.options import fingerprint
from arml.results.files import plain
from arml.results.folder import FORMAT, Calibration, Result, RunError, paired, read_json, summarise
from arml.tasks.options import FoldersOptions, FunctionsOptions, StarterOptions
from arml.tasks.vectors import VectorsOptions
from arml.training.devices import everywhere, mesh_of
from arml.training.evaluate import Predictions, Scores, Split, predictions
from arml.training.provenance import commit, device, versions

FLOORS: dict[tuple[float, float], float] = {(0.0, 5.0): 0.127, (-5.0, 5.0): 0.153}
"""Mean squared error of the Bayes-optimal predictor by range of the inputs, at the other defaults
of `FunctionsOptions`: `python -m arml.experiment.floor` measures it."""


CALIBRATION_TASKS = 200
"""Validation tasks on which the temperature is set."""


class Scored(NamedTuple):
    """A run and its scores: the summary that a file holds, and one score for each task."""

    folder: Path
    run: Trained
    result: Result
    scores: Scores


def score(
    folder: Path | str,
    *,
    tasks: int = 1000,
    split: Split = "test",
    steps: int | None = None,
    change: Callable[[MetaLearner], MetaLearner] = lambda learner: learner,
    devices: int = 1,
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> Scored:
    """Score the newest checkpoint of a run folder on the first `tasks` tasks of a split.

    **Arguments**

    - `steps`: inner steps at test; those of the training if None.
    - `change`: what is done to the learner first.
    - `devices`: of this process; they share the tasks, and the scores are the same to rounding.
    - `watch`: called with the tasks done and their total.

    **Raises** `RunError` for a folder that is no run or is damaged, `ValueError` for a number of
    tasks or steps that means nothing.
    """
    if tasks < 1:
        raise ValueError(f"tasks must be at least 1, got {tasks}: ask for some hundreds")
    if steps is not None and steps < 0:
        raise ValueError(f"steps must be 0 or more, got {steps}: raise it")
    folder = Path(folder)
    run = load(folder)
    learner = change(run.learner if steps is None else with_steps(run.learner, steps))
    distribution = run.tasks(split)
    mesh = mesh_of(devices)
    learner, distribution = everywhere(mesh, (learner, distribution))
    classifies = distribution.problem.kind == "classification"
    total = tasks + (CALIBRATION_TASKS if classifies and split == "test" else 0)
    predicted = predictions(
        learner,
        distribution,
        split=split,
        n=tasks,
        chunk=run.experiment.chunk,
        mesh=mesh,
        watch=lambda done, _: watch(done, total),
    )
    calibration = None
    if classifies:
        validated = None
        if split == "test":
            validated = predictions(
                learner,
                everywhere(mesh, run.tasks("validation")),
                split="validation",
                n=CALIBRATION_TASKS,
                chunk=run.experiment.chunk,
                mesh=mesh,
                watch=lambda done, _: watch(tasks + done, total),
            )
        calibration = calibrated(predicted, validated)
    scores = predicted.scores
    summary = summarise(*scores, distribution.families)
    inputs = run.splits.inputs
    result = Result(
        format=FORMAT,
        # Rows of different models are not seeds of one experiment.
        recipe=run.experiment.recipe + (f" ({inputs['model']})" if inputs else ""),
        seed=run.experiment.seed,
        split=split,
        metric=score_of(distribution.problem)[0],
        score=summary["score"],
        families=summary["families"],
        inner_steps=steps_of(learner),
        protocol=protocol(run.experiment, inputs),
        commit=commit(),
        versions=versions(),
        device=device(),
        seconds=round(run.seconds, 2),
        parameters=parameters(run.learner),
        steps=run.step,
        floor=floor(run.experiment),
        trained=run.made,
        options=fingerprint(run.experiment),
        inputs=inputs,
        calibration=calibration,
    )
    return Scored(folder, run, result, scores)


def calibrated(predicted: Predictions, validated: Predictions | None) -> Calibration:
    """How well the probabilities of `predicted` are calibrated, before and after the temperature
    that is best on `validated`; there is none without these."""
    logits, y = _flat(predicted)
    error = plain(expected_error(logits, y))
    if validated is None:
        return Calibration(error=error, temperature=None, error_calibrated=None, tasks=0)
    best = temperature(*_flat(validated))
    return Calibration(
        error=error,
        temperature=plain(best),
        error_calibrated=plain(expected_error(logits, y, best)),
        tasks=len(validated.outputs),
    )


def _flat(predicted: Predictions) -> tuple[np.ndarray, np.ndarray]:
    outputs = predicted.outputs
    return outputs.reshape(-1, outputs.shape[-1]), predicted.targets.reshape(-1)


def difference(a: Scored, b: Scored) -> dict[str, Any]:
    """The mean of `a - b` over the same tasks, and by family, each with its 95% interval.

    **Raises** `RunError` if the two runs were not scored on the same tasks.
    """
    for what, one, other in zip(
        ("tasks", "data", "split of the classes", "part and number of tasks"),
        _identity(a),
        _identity(b),
        strict=True,
    ):
        if one != other:
            raise RunError(
                f"{a.folder} and {b.folder} differ in their {what}: {_short(one)} and "
                f"{_short(other)}; only runs on the same test tasks can be compared"
            )
    names = a.run.splits.test.families
    pairs = ((name, a.scores.families == i) for i, name in enumerate(names))
    return {
        **paired(a.scores.values, b.scores.values),
        "families": {
            name: paired(a.scores.values[own], b.scores.values[own])
            for name, own in pairs
            if own.any()
        },
    }


def same_tasks(scored: Scored) -> str:
    """Twelve letters that are the same for runs which were scored on the same tasks."""
    *what, (split, _) = _identity(scored)
    text = json.dumps(plain([*what, split]), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _identity(scored: Scored) -> tuple[Any, ...]:
    """All that decides which tasks a run was scored on."""
    options, splits = scored.run.experiment.tasks, scored.run.splits
    path = scored.folder / "split.json"
    if isinstance(options, VectorsOptions) and not path.exists():
        # Pictures whose split is published are the package's own: the same tasks as on pixels.
        options = StarterOptions(shots=options.shots, ways=options.ways, queries=options.queries)
        splits = splits._replace(sources=splits.pictures or {})
    drawn: dict[str, Any] = {"kind": type(options).__name__, **vars(options)}
    # Test tasks have `ways` classes whatever those of training have.
    drawn.pop("train_ways", None)
    parts = None
    if isinstance(options, FoldersOptions | VectorsOptions):
        # The digests and the split's file say what these led to.
        drawn = {key: drawn[key] for key in drawn if key not in ("data", "split_seed")}
        parts = read_json(path)
    # Families are drawn by their place, so their order counts.
    data = list(splits.sources.items())
    return drawn, data, parts, (scored.result["split"], scored.result["score"]["n"])


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 160 else f"{text[:157]}..."


def protocol(experiment: Experiment, inputs: Mapping[str, Any] | None = None) -> str:
    """The conditions of a score in words; `inputs` is the model of frozen features."""
    tasks: Any = experiment.tasks
    if isinstance(tasks, FunctionsOptions):
        planes = "" if tasks.flat else ", all families over both inputs"
        return (
            f"{tasks.shots}-shot, {tasks.queries} queries, inputs U[{tasks.low:g}, "
            f"{tasks.high:g}], noise {tasks.noise:g}{planes}"
        )
    statistics = {"batch": "batch statistics (transductive)", "support": "support statistics"}
    # A network on vectors normalises nothing: no prediction depends on other queries.
    normalisation = getattr(experiment.network, "normalisation", "support")
    size = tasks.size if inputs is None else inputs["size"]
    return (
        f"{tasks.ways}-way {tasks.shots}-shot, {tasks.queries} queries, {size} px, "
        f"{statistics[normalisation]}"
    )


def floor(experiment: Experiment) -> float | None:
    """The least possible expected score, where it has been measured."""
    tasks = experiment.tasks
    if not isinstance(tasks, FunctionsOptions):
        return None
    usual = FunctionsOptions(low=tasks.low, high=tasks.high, queries=tasks.queries)
    return FLOORS.get((tasks.low, tasks.high)) if tasks == usual else None


def parameters(learner: Any) -> int:
    """How many numbers the outer loop learns; Reptile's Adam has moments that it only carries."""
    learned = eqx.filter(
        learner, eqx.is_inexact_array, is_leaf=lambda node: isinstance(node, SecondMoment)
    )
    return sum(leaf.size for leaf in jax.tree.leaves(learned))
