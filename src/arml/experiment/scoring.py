"""The score of a run, with all facts that a reader needs: the content of `result.json`.

The tasks of a split are the same for every run, so two runs are compared task by task.

Beside it are the scores of classifiers that need no meta-training: they learn each task from its
support set only, on the raw inputs. A learner that is not above them has learned nothing useful.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from arml.core.checks import check_options
from arml.core.episodes import Problem, Task, TaskDistribution, in_words
from arml.core.learner import MetaLearner, check_suits, parameters
from arml.experiment.options import fingerprint
from arml.experiment.recipes import widened
from arml.experiment.running import Run
from arml.results.files import check_writable, sealed, write_json
from arml.results.folder import Result
from arml.results.machine import one_blas_thread
from arml.results.scores import Score, Scores, summary_of, write_scores
from arml.tasks.splits import TasksLike, TasksOptions, splits_of
from arml.training.evaluate import Held, check_split, looks, score_tasks
from arml.training.provenance import provenance


class Scored(NamedTuple):
    """A run and its scores: the summary for `result.json`, and one score for each task."""

    run: Run
    result: Result
    scores: Scores


def evaluate(
    learner: object,
    tasks: TasksLike | None = None,
    n: int = 1_000,
    *,
    split: Held = "test",
    steps: int | None = None,
    ways: int | None = None,
    shots: int | None = None,
    chunk: int | None = None,
    mesh: Mesh | None = None,
    watch: Callable[[int, int], None] = lambda done, total: None,
    progress: bool | None = None,
) -> Scores:
    """Score a learner on the first `n` tasks of a split: the mse or the accuracy of each task.

        scores = arml.evaluate(fitted.learner, tasks, n=200)
        scores.mean, scores.ci95, scores.by_family()

    Task `i` depends on the split and on `i` only, so that the scores of two learners are paired:
    see `arml.compare`.

    **Arguments**

    - `learner`: a `MetaLearner`, or a `Fitted`, a `Run` or a learner of `arml.load`, which has one.
    - `tasks`: a task distribution, `Splits`, or the options of a recipe's tasks. None is for a
      `Run`: its own tasks. Scores on its test tasks as in the training are then kept in its folder,
      as `arml evaluate` keeps them (`run.result`, `run.scores`).
    - `split`: validation or test. Only validation tasks may be used to choose anything.
    - `steps`: inner steps at test; as many as in training if None.
    - `ways`, `shots`: of the tasks, if these are options or those of a `Run`; as they are if None.
    - `chunk`: how many tasks each device of `mesh` adapts to at once. It changes the memory that is
      needed, not the scores.
    - `watch`: called with the number of tasks done and their total.
    - `progress`: whether to show a bar; in terminals and notebooks if None.

    **Raises** `ValueError` in one line if `n` or `steps` is invalid, or `tasks` draws no tasks or
    has no such option; `RunError` for a run whose data have changed or whose folder is read-only.
    """
    check_split(split)
    holds = learner if isinstance(learner, MetaLearner) else getattr(learner, "learner", None)
    if not isinstance(holds, MetaLearner) or getattr(learner, "estimator", None) is not None:
        raise ValueError(
            f"expected a learner, a Fitted or an arml.Run, got {type(learner).__name__}: "
            "arml.Run(FOLDER) opens a run, arml.load(NAME) another learner"
        )
    shape = {k: v for k, v in (("ways", ways), ("shots", shots)) if v is not None}
    if isinstance(learner, Run) and tasks is None:
        kept = split == "test" and steps is None and not shape
        if kept:
            check_writable(learner.folder)
        found = evaluate_run(
            learner,
            tasks=n,
            split=split,
            steps=steps,
            shape=shape,
            chunk=chunk,
            mesh=mesh,
            simple=kept,
            watch=watch,
            progress=progress,
        )
        if kept:
            keep(found)
        return found.scores
    if tasks is None:
        raise ValueError(
            f"expected tasks, got none: a {type(learner).__name__} has none, only an arml.Run has"
        )
    if shape:
        own = type(tasks).__name__
        made: Any = replace(tasks, **_known(shape, tasks, f"the tasks {own}"))  # type: ignore[type-var]
        check_options(made)
        tasks = made
    splits = splits_of(tasks)
    problem: Problem = getattr(splits, split).problem
    known: Any = holds.origin or learner
    made_for: Any = getattr(known, "problem", None)
    if hasattr(known, "experiment") and problem.kind == made_for.kind == "classification":
        holds = widened(holds, known.experiment, made_for, problem.outputs)
    check_suits(holds, problem, made_for)
    return score_tasks(
        holds,
        splits if isinstance(tasks, TasksOptions) else tasks,
        n,
        split=split,
        steps=steps,
        trained_on=getattr(learner, "trained_on", None),
        chunk=chunk,
        mesh=mesh,
        watch=watch,
        progress=progress,
    )


def _known(shape: Mapping[str, int], tasks: object, whose: str) -> Mapping[str, int]:
    """The shape. **Raises** `ValueError` for an option that the tasks do not have."""
    for name in shape:
        if not isinstance(tasks, TasksOptions) or name not in tasks.__dataclass_fields__:
            raise ValueError(f"{whose} have no option {name}: make tasks of that shape")
    return shape


def evaluate_run(
    run: Run | Path | str,
    *,
    tasks: int = 1000,
    split: Held = "test",
    steps: int | None = None,
    shape: Mapping[str, int] = MappingProxyType({}),
    chunk: int | None = None,
    mesh: Mesh | None = None,
    simple: bool = False,
    watch: Callable[[int, int], None] = lambda done, total: None,
    progress: bool | None = False,
) -> Scored:
    """Score a run on the first `tasks` tasks of one of its splits: see `evaluate`. `shape` are
    `ways`, `shots` or `queries` that are not those of the training; `simple` also scores simple
    classifiers. **Raises** `RunError` for a folder that is not a run or is damaged."""
    if tasks < 1:
        raise ValueError(f"tasks must be at least 1, got {tasks}: ask for some hundreds")
    run = run if isinstance(run, Run) else Run(run)
    if shape:
        run, learner = Run(run.folder), run.learner  # with its own tasks
        _known(shape, run.experiment.tasks, f"the tasks of {run.experiment.recipe}")
        learner = widened(learner, run.experiment, run.problem, shape.get("ways", 0))
        own = run.experiment.tasks
        # These are about training tasks, and may not suit the new shape.
        off = {"mixed_shots": False, "train_ways": 0, "augment": False}
        off = {name: value for name, value in off.items() if hasattr(own, name)}
        run.experiment = replace(run.experiment, tasks=replace(own, **off, **shape))
        run.experiment.check()
    else:
        learner = run.learner
    distribution, chunk = run.tasks(split), chunk or run.experiment.chunk
    total = tasks * (2 if simple and has_simple(distribution.problem) else 1)
    scores = score_tasks(
        learner,
        run.splits,
        tasks,
        split=split,
        steps=steps,
        chunk=chunk,
        mesh=mesh,
        watch=lambda done, _: watch(done, total),
        progress=progress,
    )
    scores = replace(scores, step=run.step)
    inputs, made = run.splits.inputs, provenance()
    result = Result(
        # Rows of different models are not seeds of one experiment.
        recipe=run.experiment.recipe + (f" ({inputs['model']})" if inputs else ""),
        seed=run.experiment.seed,
        split=split,
        metric=scores.metric,
        score=scores.score,
        families=scores.by_family(),
        inner_steps=scores.inner_steps or 0,
        protocol=protocol(learner, distribution, shared=scores.shared),
        commit=made["commit"],
        versions=made["versions"],
        device=made["device"],
        seconds=round(run.seconds, 2),
        parameters=parameters(run.learner),
        steps=run.step,
        floor=distribution.floor(),
        trained=run.made,
        options=fingerprint(run.experiment),
        inputs=inputs,
        weights=run.config.get("weights"),
        shared=scores.shared,
        chosen=run.chosen,
        tasks=scores.tasks,
    )
    if simple:
        result["simple"] = simple_scores(
            distribution,
            tasks,
            split=split,
            chunk=chunk,
            watch=lambda done: watch(tasks + done, total),
        )
    return Scored(run, result, scores)


def keep(scored: Scored) -> None:
    """Write the scores of single tasks and the result into the folder of the run."""
    write_scores(scored.run.folder / "scores.npz", scored.scores)
    # Last: if there is a result, the scores are complete.
    write_json(scored.run.folder / "result.json", sealed(scored.result))


def kept_scores(
    folder: Path | str, *, tasks: int, split: Held = "test", steps: int | None = None
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
    # The simple scores in the result may be of another number of tasks.
    if scores.score["n"] != result["score"]["n"]:
        result = {**result, "simple": {}}
    return Scored(
        run, cast(Result, {**result, "score": scores.score, "families": scores.by_family()}), scores
    )


def protocol(learner: MetaLearner, tasks: TaskDistribution, *, shared: bool = False) -> str:
    """The conditions of a score in words: the protocol of the tasks, whether they are drawn from
    the training distribution, the statistics by which the learner normalises, and whether it is
    transductive."""
    drawn = "classes" if tasks.problem.kind == "classification" else "tasks"
    return (
        in_words(tasks.protocol())
        + (f", {drawn} of the training distribution" if shared else "")
        + (f", {learner.statistics} statistics" if learner.statistics else "")
        + (" (transductive)" if learner.is_transductive else "")
    )


LOGISTIC_NAME = "logistic regression on the inputs"
NEAREST_NAME = "nearest class mean of the inputs"
L2_PENALTY = 0.01
"""Half of it times the squared weights is added to the mean loss of logistic regression."""


def has_simple(problem: Problem) -> bool:
    """Whether simple classifiers suit a problem. The cells of tables are not plain numbers."""
    return problem.kind == "classification" and problem.form.plain


def simple_scores(
    tasks: TaskDistribution,
    n: int,
    *,
    split: Held,
    chunk: int,
    watch: Callable[[int], None] = lambda done: None,
) -> dict[str, Score]:
    """The mean accuracy of simple classifiers on the first `n` tasks of a split, with its interval
    over tasks; none if the tasks are not classification. `watch` is called with the tasks done."""
    if not has_simple(tasks.problem):
        return {}
    rights: dict[str, list[float]] = {LOGISTIC_NAME: [], NEAREST_NAME: []}
    for drawn in looks(_drawn, None, tasks, split=split, n=n, chunk=chunk):
        with one_blas_thread():
            for x, y, queries, targets in zip(*drawn, strict=True):
                guesses = simple_predictions(x, y, queries)
                for name, right in rights.items():
                    right.append(float(np.mean(guesses[name] == targets)))
        watch(len(rights[LOGISTIC_NAME]))
    return {name: summary_of(np.asarray(right)) for name, right in rights.items()}


def _drawn(part: None, task: Task, key: Array) -> tuple[Array, Array, Array, Array]:
    (x, y), (queries, targets) = task.support, task.query
    return x.reshape(len(x), -1), y, queries.reshape(len(queries), -1), targets


def simple_predictions(
    x: Float[np.ndarray, "support inputs"],
    y: Int[np.ndarray, " support"],
    queries: Float[np.ndarray, "queries inputs"],
) -> dict[str, Int[np.ndarray, " queries"]]:
    """The classes that each simple classifier predicts for the queries of ONE task. Logistic
    regression gets the inputs centred and divided by the root mean square of their norms."""
    from sklearn.decomposition import PCA
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import pairwise_distances_argmin

    # A rotation: it changes no prediction, and leaves at most as many inputs as there are examples.
    rotation = PCA(svd_solver="full").fit(x)
    inputs, asked = rotation.transform(x), rotation.transform(queries)
    scale = np.sqrt(np.mean(np.sum(inputs**2, axis=1))) + 1e-6
    logistic = LogisticRegression(C=1 / (L2_PENALTY * len(y)), max_iter=1_000).fit(
        inputs / scale, y
    )
    classes = np.unique(y)
    means = np.stack([inputs[y == k].mean(axis=0) for k in classes])
    nearest = classes[pairwise_distances_argmin(asked, means)]
    return {LOGISTIC_NAME: logistic.predict(asked / scale), NEAREST_NAME: nearest}
