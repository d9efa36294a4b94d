"""The score of a run, with all facts that a reader needs: the content of `result.json`.

The tasks of a split are the same for every run, so two runs are compared task by task.

Beside it are the scores of classifiers that need no meta-training: they learn each task from its
support set alone, on the raw inputs. A learner that is not above them has learned nothing useful.

The hard classes of a split come from the same predictions: the accuracy of each class over all
tasks that have it, the pairs of classes that are confused most often, and the worst mistakes. Their
tasks are drawn again, to show the pictures.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from arml.core.calibration import expected_error, temperature
from arml.core.compilation import short
from arml.core.episodes import Examples, Problem, TaskDistribution, in_words
from arml.core.inner import steps_of, with_steps
from arml.core.learner import Adapted, Loss, MetaLearner, adapted_to, parameters
from arml.core.losses import cross_entropy
from arml.datasets.splits import read_split
from arml.experiment.loaded import Run
from arml.experiment.options import Experiment, fingerprint
from arml.nn.prototypes import among, class_means, squared_distances
from arml.results.files import plain
from arml.results.folder import (
    CLASSES,
    FORMAT,
    ByClass,
    Calibration,
    Mistake,
    OneClass,
    Pair,
    Result,
    thumbnail,
    write_by_class,
    write_result,
)
from arml.results.scores import Score, Scores, pairing, write_scores
from arml.training.devices import everywhere, mesh_of
from arml.training.evaluate import Predictions, Split, evaluate, predictions, split_keys
from arml.training.provenance import commit, device, versions

PAIRS = 50
"""Confused pairs that are kept."""
PICTURES = 24
"""Mistakes that are kept with their pictures."""


def class_names(folder: Path, tasks: TaskDistribution, split: Split) -> list[str] | None:
    """The names of all classes of a split; None if they have none, because the tasks are not of
    pictures or do not ask for the class of a picture."""
    path = folder / "split.json"
    if not tasks.problem.classes or not path.is_file():
        return None
    parts = read_split(path)
    if {*tasks.families} - {*parts}:
        return None
    several = len(tasks.families) > 1
    names = [
        f"{family}/{name}" if several else name
        for family in tasks.families
        for name in sorted(parts[family][split])
    ]
    return names if len(names) == tasks.problem.classes else None


def by_class(
    predicted: Predictions,
    names: Sequence[str],
    tasks: TaskDistribution,
    *,
    step: int,
    temperature: float = 1.0,
) -> ByClass | None:
    """The accuracy of each class in the predictions of tasks; None if the tasks do not say which
    classes they have."""
    if predicted.classes is None or np.any(predicted.classes < 0):
        return None
    outputs, targets = predicted.outputs[..., : predicted.classes.shape[1]], predicted.targets
    chances = _softmax(outputs / temperature)
    rows = np.arange(len(targets))[:, None]
    labels, guesses = (predicted.classes[rows, y] for y in (targets, outputs.argmax(axis=-1)))
    right = labels == guesses
    counts = np.bincount(labels.ravel(), minlength=len(names))
    hits = np.bincount(labels[right], minlength=len(names))
    shown = [
        OneClass(names[k], float(hits[k] / counts[k]), int(counts[k]))
        for k in np.argsort(hits / np.maximum(counts, 1), kind="stable")
        if counts[k]
    ]
    each = targets.shape[1] // predicted.classes.shape[1]
    together = Counter(
        (int(a), int(b)) for own in predicted.classes for a in own for b in own if a != b
    )
    confused = Counter(zip(labels[~right].tolist(), guesses[~right].tolist(), strict=True))
    pairs = [
        Pair(names[a], names[b], count, each * together[a, b])
        for (a, b), count in confused.most_common(PAIRS)
    ]
    wrong = np.argwhere(~right)
    worst = wrong[np.argsort(-chances.max(axis=-1)[~right], kind="stable")][:PICTURES]
    split = predicted.scores.split
    mistakes = [
        Mistake(
            name=f"task {i}, query {j}",
            label=names[labels[i, j]],
            predicted=names[guesses[i, j]],
            probability=float(chances[i, j].max()),
            own=float(chances[i, j, targets[i, j]]),
            picture=_picture(tasks, split, int(i), int(j)),
        )
        for i, j in worst
    ]
    return ByClass(split, step, len(targets), shown, pairs, mistakes)


def _softmax(logits: Float[np.ndarray, "tasks queries ways"]) -> np.ndarray:
    # The logit of a class that a task lacks is minus infinity.
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True))


def _picture(tasks: TaskDistribution, split: str, i: int, j: int) -> str | None:
    """Query `j` of task `i` as a small PNG; None if it is not a picture."""
    if len(tasks.problem.features) != 3:
        return None
    pixels: Int[np.ndarray, "h w 3"] = np.asarray(_query(tasks, split_keys(split, i, 1)[0])[j])
    return thumbnail(np.rint(255 * pixels).astype(np.uint8))


@short
def _query(tasks: TaskDistribution, key: Array) -> Array:
    """The queries of the task that `training.evaluate` draws from this key."""
    return tasks.sample(jax.random.split(key)[0]).query.x


FLOOR = "logistic regression on the inputs"
PENALTY, STEPS = 0.01, 300
"""The penalty and the steps of logistic regression."""


class Logistic(MetaLearner):
    """Logistic regression on flattened inputs: it minimises the mean loss plus `PENALTY` times half
    the squared weights. Inputs are centred, then divided by their standard deviation and by the
    root of their number."""

    ways: int = eqx.field(static=True)
    loss: Loss = eqx.field(static=True)

    def adapt(self, support: Examples, *, key: PRNGKeyArray) -> Adapted:
        flat = support.x.reshape(len(support.x), -1)
        middle = jnp.mean(flat, axis=0)
        scale = jnp.std(flat - middle) * flat.shape[1] ** 0.5 + 1e-6

        def prepared(x: Float[Array, "m *features"]) -> Float[Array, "m inputs"]:
            return (x.reshape(len(x), -1) - middle) / scale

        inputs, n = prepared(support.x), len(flat)
        target = jax.nn.one_hot(support.y, self.ways, dtype=flat.dtype)
        # The best weights are X^T A with PENALTY * n * A = Y - P. Descent searches for A, which has
        # one row for each example; a bound of the curvature sets the rate.
        products = inputs @ inputs.T + 1.0  # the bias is a weight of an input of 1
        rate = 1 / (PENALTY + 0.5 * jnp.max(jnp.sum(jnp.abs(products), axis=1)) / n)

        def step(_: Array, a: Float[Array, "n ways"]) -> Float[Array, "n ways"]:
            wanted = (target - jax.nn.softmax(products @ a)) / n
            return a + rate * (wanted - PENALTY * a)

        a = jax.lax.fori_loop(0, STEPS, step, jnp.zeros_like(target))
        return Adapted(lambda x: (prepared(x) @ inputs.T + 1.0) @ a)


class NearestMean(MetaLearner):
    """The class whose mean input is nearest by Euclidean distance."""

    ways: int = eqx.field(static=True)
    loss: Loss = eqx.field(static=True)

    def adapt(self, support: Examples, *, key: PRNGKeyArray) -> Adapted:
        flat = support.x.reshape(len(support.x), -1)
        means, present = class_means(flat, support.y, self.ways)
        return Adapted(lambda x: among(present, -squared_distances(x.reshape(len(x), -1), means)))


SIMPLE: dict[str, Callable[[int], MetaLearner]] = {
    FLOOR: lambda ways: Logistic(ways=ways, loss=cross_entropy),
    "nearest class mean of the inputs": lambda ways: NearestMean(ways=ways, loss=cross_entropy),
}
"""Each classifier by its name in tables; it is made for a number of classes."""


def simple_classifiers(problem: Problem) -> dict[str, MetaLearner]:
    """Those of `SIMPLE` for a problem, by name. None for regression, and none for tables, whose
    cells are no plain numbers."""
    if problem.kind == "regression" or len(problem.features) == 2:
        return {}
    return {name: make(problem.outputs) for name, make in SIMPLE.items()}


def simple_scores(
    tasks: TaskDistribution,
    n: int,
    *,
    split: Split,
    chunk: int,
    watch: Callable[[int], None] = lambda done: None,
) -> dict[str, Score]:
    """The mean accuracy of each simple classifier on the first `n` tasks of a split, with its
    interval over tasks. `watch` is called with the tasks done, those of all classifiers together.
    """
    found = {}
    for i, (name, classifier) in enumerate(simple_classifiers(tasks.problem).items()):
        told = partial(_told, watch, i * n)
        scores = evaluate(
            classifier, tasks, n, split=split, chunk=chunk, progress=False, watch=told
        )
        found[name] = scores.score
    return found


def _told(watch: Callable[[int], None], before: int, done: int, total: int) -> None:
    watch(before + done)


CALIBRATION_TASKS = 200
"""Validation tasks on which the temperature is set."""


class Scored(NamedTuple):
    """A run and its scores: the summary for `result.json`, and one score for each task."""

    folder: Path
    run: Run
    result: Result
    scores: Scores
    classes: ByClass | None = None
    """Which classes are hard, if the classes of the tasks have names."""


def unscored(folder: Path | str, split: Split = "test") -> Scores:
    """Scores of no task of a run, to see before any work whether two runs can be compared."""
    tasks = Run(folder).tasks(split)
    identity = tasks.identity()
    none = np.zeros(0)
    return Scores(
        none, none, pairing(identity, split), tasks.families, split=split, identity=identity
    )


def evaluate_run(
    folder: Path | str,
    *,
    tasks: int = 1000,
    split: Split = "test",
    steps: int | None = None,
    change: Callable[[MetaLearner], MetaLearner] = lambda learner: learner,
    devices: int = 1,
    simple: bool = False,
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> Scored:
    """Score the newest checkpoint of a run folder on the first `tasks` tasks of a split.

    **Arguments**

    - `steps`: inner steps at test; those of the training if None.
    - `change`: a change of the learner before it is scored.
    - `devices`: of this process; they share the tasks, and the scores are the same to rounding.
    - `simple`: whether to score simple classifiers on the same tasks, too.
    - `watch`: called with the tasks done and their total.

    **Raises** `RunError` for a folder that is not a run or is damaged, `ValueError` for an invalid
    number of tasks or steps.
    """
    if tasks < 1:
        raise ValueError(f"tasks must be at least 1, got {tasks}: ask for some hundreds")
    run = Run(folder)
    learner = change(run.learner if steps is None else with_steps(run.learner, steps))
    distribution = run.tasks(split)
    mesh = mesh_of(devices)
    learner = everywhere(mesh, learner)
    classifies = _classifies(distribution)
    own = tasks + (CALIBRATION_TASKS if classifies and split == "test" else 0)
    total = own + tasks * len(simple_classifiers(distribution.problem) if simple else ())

    def predicted_on(split: Split, n: int, before: int) -> Predictions:
        return predictions(
            learner,
            everywhere(mesh, run.tasks(split)),
            split=split,
            n=n,
            chunk=run.experiment.chunk,
            mesh=mesh,
            watch=lambda done, _: watch(before + done, total),
        )

    predicted = predicted_on(split, tasks, 0)
    calibration = None
    if classifies:
        test = split == "test"
        validated = predicted_on("validation", CALIBRATION_TASKS, tasks) if test else None
        calibration = calibrated(predicted, validated)
    scores = replace(predicted.scores, step=run.step)
    summary = scores.summary()
    inputs = run.splits.inputs
    result = Result(
        format=FORMAT,
        # Rows of different models are not seeds of one experiment.
        recipe=run.experiment.recipe + (f" ({inputs['model']})" if inputs else ""),
        seed=run.experiment.seed,
        split=split,
        metric=scores.metric,
        score=summary["score"],
        families=summary["families"],
        inner_steps=steps_of(learner),
        protocol=protocol(run.experiment, learner, distribution),
        commit=commit(),
        versions=versions(),
        device=device(),
        seconds=round(run.seconds, 2),
        parameters=parameters(run.learner),
        steps=run.step,
        floor=distribution.floor(),
        trained=run.made,
        options=fingerprint(run.experiment),
        inputs=inputs,
        calibration=calibration,
    )
    if simple:
        result["simple"] = simple_scores(
            distribution,
            tasks,
            split=split,
            chunk=run.experiment.chunk,
            watch=lambda done: watch(own + done, total),
        )
    return Scored(run.folder, run, result, scores, _by_class(run, predicted, split, calibration))


def _by_class(
    run: Run, predicted: Predictions, split: Split, calibration: Calibration | None
) -> ByClass | None:
    tasks = run.tasks(split)
    names = class_names(run.folder, tasks, split)
    if names is None:
        return None
    best = (calibration["temperature"] if calibration else None) or 1.0
    return by_class(predicted, names, tasks, step=run.step, temperature=best)


def keep(scored: Scored) -> None:
    """Write the scores of single tasks and the result into the folder of the run."""
    write_scores(scored.folder / "scores.npz", scored.scores)
    (scored.folder / CLASSES).unlink(missing_ok=True)
    if scored.classes is not None:
        write_by_class(scored.folder, scored.classes)
    # Last: if there is a result, the scores are complete.
    write_result(scored.folder / "result.json", scored.result)


def kept(
    folder: Path | str, *, tasks: int, split: Split = "test", steps: int | None = None
) -> Scored | None:
    """The scores that `keep` wrote, of the first `tasks` tasks. None if they are of another split,
    of fewer tasks, of other inner steps or of another checkpoint than the newest."""
    run = Run(folder)
    scores, result = run.scores, run.result
    if scores is None or result is None:
        return None
    same = scores.split == split and scores.step == run.step and len(scores) >= tasks
    if not same or steps not in (None, scores.inner_steps):
        return None
    scores = scores.first(tasks)
    # The calibration in the result, and the simple scores, are of another number of tasks.
    if scores.score["n"] != result["score"]["n"]:
        result = {**result, "calibration": None, "simple": {}}
    return Scored(run.folder, run, cast(Result, {**result, **scores.summary()}), scores)


def calibrated(predicted: Predictions, validated: Predictions | None) -> Calibration:
    """The calibration of the probabilities of `predicted`, before and after the temperature that is
    best on `validated`. If that is None, there is no temperature."""
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


def protocol(experiment: Experiment, learner: MetaLearner, tasks: TaskDistribution) -> str:
    """The conditions of a score in words: the protocol of the tasks, and whether predictions depend
    on the other queries of a task."""
    said = in_words(tasks.protocol())
    statistics = {"batch": "batch statistics (transductive)", "support": "support statistics"}
    if normalisation := getattr(experiment.network, "normalisation", None):
        return f"{said}, {statistics[normalisation]}" if _classifies(tasks) else said
    parts = (experiment.network, experiment.algorithm)
    if all(type(part).__module__.startswith("arml.") for part in parts):
        return said  # our networks without this option have no normalisation
    return f"{said}, transductive" if is_transductive(learner, tasks) else said


def _classifies(tasks: TaskDistribution) -> bool:
    return tasks.problem.kind == "classification"


def is_transductive(learner: MetaLearner, tasks: TaskDistribution) -> bool:
    """Whether the prediction of a query changes if it is asked alone, on one task."""
    alone, together = _alone_and_together(learner, tasks)
    return not np.allclose(alone, together, rtol=1e-3, atol=1e-3)


@short
def _alone_and_together(learner: MetaLearner, tasks: TaskDistribution) -> tuple[Array, Array]:
    """The prediction of the first query of a task by itself, and among all of them."""
    draw, key = jax.random.split(jax.random.key(0))
    task = tasks.sample(draw)
    predict = adapted_to(learner, task.support, key=key).predict
    return predict(task.query.x[:1])[0], predict(task.query.x)[0]
