"""What a run scored, with all that one must know to read the number: the content of `result.json`.

The tasks of a split are the same for every run, so two runs are compared task by task.
"""

import os
import platform
import subprocess
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax

import arml
from arml.evaluate import Scores, Split, evaluate
from arml.experiment import Experiment, Trained, load
from arml.inner import with_steps
from arml.losses import score_of
from arml.results import FORMAT, Result, RunError, paired, read_json, summarise
from arml.tasks.options import FoldersOptions, FunctionsOptions

FLOORS: dict[tuple[float, float], float] = {(0.0, 5.0): 0.127, (-5.0, 5.0): 0.153}
"""Mean squared error of the Bayes-optimal predictor by range of the inputs, at the other defaults
of `FunctionsOptions`: `python -m arml.reference` measures it."""


class Scored(NamedTuple):
    """A run and its scores: the summary that a file holds, and one score for each task."""

    folder: Path
    run: Trained
    result: Result
    scores: Scores


def score(
    folder: Path,
    *,
    tasks: int = 1000,
    split: Split = "test",
    steps: int | None = None,
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> Scored:
    """Score the newest checkpoint of a run folder on the first `tasks` tasks of a split.

    **Arguments**

    - `steps`: inner steps at test; those of the training if None.
    - `watch`: called with the tasks done and their total.

    **Raises** `RunError` for a folder that is no run or is damaged, `ValueError` for a number of
    tasks or steps that means nothing.
    """
    if tasks < 1:
        raise ValueError(f"tasks must be at least 1, got {tasks}: ask for some hundreds")
    if steps is not None and steps < 0:
        raise ValueError(f"steps must be 0 or more, got {steps}: raise it")
    run = load(folder)
    learner = run.learner if steps is None else with_steps(run.learner, steps)
    distribution = run.tasks(split)
    scores = evaluate(
        learner, distribution, split=split, n=tasks, chunk=run.experiment.chunk, watch=watch
    )
    summary = summarise(*scores, distribution.families)
    result = Result(
        format=FORMAT,
        recipe=run.experiment.recipe,
        seed=run.experiment.seed,
        split=split,
        metric=score_of(distribution.problem)[0],
        score=summary["score"],
        families=summary["families"],
        inner_steps=run.experiment.algorithm.inner_steps if steps is None else steps,
        protocol=protocol(run.experiment),
        commit=commit(),
        versions=versions(),
        device=device(),
        seconds=round(run.seconds, 2),
        parameters=parameters(run.learner),
        steps=run.step,
        floor=floor(run.experiment),
    )
    return Scored(folder, run, result, scores)


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


def _identity(scored: Scored) -> tuple[Any, ...]:
    """All that decides which tasks a run was scored on."""
    options = scored.run.experiment.tasks
    drawn: dict[str, Any] = {"kind": type(options).__name__, **vars(options)}
    parts = None
    if isinstance(options, FoldersOptions):
        # The digests and the split's file say what these led to.
        drawn = {key: drawn[key] for key in drawn if key not in ("data", "split_seed")}
        parts = read_json(scored.folder / "split.json")
    # Families are drawn by their place, so their order counts.
    data = list(scored.run.splits.sources.items())
    return drawn, data, parts, (scored.result["split"], scored.result["score"]["n"])


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 160 else f"{text[:157]}..."


def protocol(experiment: Experiment) -> str:
    """The conditions of a score in words."""
    tasks: Any = experiment.tasks
    if isinstance(tasks, FunctionsOptions):
        planes = "" if tasks.flat else ", all families over both inputs"
        return (
            f"{tasks.shots}-shot, {tasks.queries} queries, inputs U[{tasks.low:g}, "
            f"{tasks.high:g}], noise {tasks.noise:g}{planes}"
        )
    statistics = {"batch": "batch statistics (transductive)", "support": "support statistics"}
    return (
        f"{tasks.ways}-way {tasks.shots}-shot, {tasks.queries} queries, {tasks.size} px, "
        f"{statistics[experiment.network.normalisation]}"
    )


def floor(experiment: Experiment) -> float | None:
    """The least possible expected score, where it has been measured."""
    tasks = experiment.tasks
    if not isinstance(tasks, FunctionsOptions):
        return None
    usual = FunctionsOptions(low=tasks.low, high=tasks.high, queries=tasks.queries)
    return FLOORS.get((tasks.low, tasks.high)) if tasks == usual else None


def parameters(learner: Any) -> int:
    """How many numbers the outer loop learns."""
    learned = eqx.filter(learner, eqx.is_inexact_array)
    return sum(leaf.size for leaf in jax.tree.leaves(learned))


def versions() -> dict[str, str]:
    """The versions that a score may depend on."""
    packages = ("jax", "jaxlib", "equinox", "optax", "numpy")
    own = {"arml": arml.__version__, "python": platform.python_version()}
    return own | {name: version(name) for name in packages}


def device() -> str:
    """The accelerator, if any, and the processor with its usable cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    host = f"{_processor()}, {cores} core{'s' if cores != 1 else ''}"
    first = jax.devices()[0]
    return host if first.platform == "cpu" else f"{first.device_kind} ({host})"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def commit() -> str | None:
    """The commit of the checkout that this package runs from, with -dirty if its code differs;
    None for an installed package."""
    package = Path(arml.__file__).resolve().parent

    def git(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["git", "-C", str(package), *arguments], capture_output=True, text=True, check=False
        )

    try:
        top = git("rev-parse", "--show-toplevel")
        # An environment inside somebody's repository is not a checkout of ours.
        if top.returncode or Path(top.stdout.strip()).resolve() / "src" / "arml" != package:
            return None
        head = git("rev-parse", "HEAD")
        if head.returncode:
            return None
        changed = git("diff", "--quiet", "HEAD", "--", ".").returncode
    except OSError:
        return None
    return head.stdout.strip() + ("-dirty" if changed else "")
