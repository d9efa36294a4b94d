"""`run` carries an experiment out in a folder and takes it up where it stopped; `load` reads it."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from arml.core.compilation import ONCE, jit
from arml.core.episodes import Problem
from arml.core.learner import MetaLearner
from arml.core.novelty import Novelty
from arml.experiment.folder import check_claim, claim, differences
from arml.experiment.options import Experiment, absolute, fingerprint, from_json, steadier
from arml.results.folder import RunError, append_metric, load_run, summarise, truncate_metrics
from arml.tasks.options import Progress, Splits
from arml.tasks.stream import prefetched
from arml.training import checkpoint
from arml.training.devices import at_once, everywhere, mesh_of, own_parts, share
from arml.training.evaluate import Split, evaluate
from arml.training.processes import any_of, attended, check_same, leads, of_leader, together
from arml.training.step import Record, TrainState, make_interval, make_step, start, task_keys


def build(experiment: Experiment, problem: Problem) -> MetaLearner:
    """The learner with its initial weights, a function of the experiment's seed. Under `jax.jit`
    they are drawn in one program, and `eqx.filter_eval_shape` gives their shapes alone."""
    net_key, key = jax.random.split(_keys(experiment)[0])
    net = experiment.network.build(problem, key=net_key)
    learner: MetaLearner = experiment.algorithm.build(net, problem, key=key)
    return learner


def _keys(experiment: Experiment) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    weights, training = jax.random.split(jax.random.key(experiment.seed))
    return weights, training


class _Clocked(eqx.Module):
    """What a checkpoint holds: the training state, and the seconds that it has taken."""

    state: TrainState
    seconds: np.ndarray


def _start(experiment: Experiment, problem: Problem) -> TrainState:
    return start(build(experiment, problem), experiment.outer.build(experiment.steps))


def fresh(experiment: Experiment, problem: Problem) -> _Clocked:
    """What a checkpoint of the experiment holds before its first step."""
    return _Clocked(jit(_start, ONCE)(experiment, problem), np.zeros(()))


def _like(experiment: Experiment, problem: Problem) -> _Clocked:
    """What a checkpoint of the experiment holds, with shapes in the place of arrays."""
    return _Clocked(eqx.filter_eval_shape(_start, experiment, problem), np.zeros(()))


class NotFiniteError(RunError):
    """The loss of a run is no longer finite."""


Watch = Callable[[int, Mapping[str, float]], None]


@attended()
def run(
    experiment: Experiment,
    folder: Path | str,
    *,
    watch: Watch = lambda step, record: None,
    stop: Callable[[], bool] = lambda: False,
    progress: Progress | None = None,
    devices: int = 1,
) -> int:
    """Meta-train in `folder`, from its newest checkpoint if it has one.

    **Arguments**

    - `watch`: called with the step and what was recorded at it: `loss`, `validation`.
    - `stop`: asked after each interval; once true, the state is saved and the run ends.
    - `progress`: told about the decoding of images.
    - `devices`: of each process; all of them share the tasks of a step. Any number takes up what
      another has begun, and gives the same numbers to rounding.

    Where several processes were joined (`processes.join`) all call this alike, and the first alone
    keeps the folder; each reads the data itself.

    **Returns** the step that was reached, `experiment.steps` unless it was stopped.

    **Raises** `ValueError` or `RunError` in one line: options that cannot be, a folder that holds
    another run, a full disk, or a loss that is not finite.
    """
    folder = Path(folder)
    metrics, checkpoints = folder / "metrics.jsonl", folder / "checkpoints"
    with together():
        experiment.check()
        mesh = mesh_of(devices)
        chunk = at_once(experiment.chunk, share(mesh, experiment.batch))
        experiment = absolute(experiment)
        check_claim(experiment, folder)
        splits = _splits(experiment, folder, progress)
        problem = splits.train.problem
        like = _like(experiment, problem)  # before a folder is claimed: it refuses what cannot be
        if not experiment.steps and checkpoint.named(like.state.learner):
            raise ValueError("steps must be at least 1, got 0: this learner has weights to train")
        saved = None
        if leads():
            claim(experiment, splits, folder, devices=mesh.size if mesh else 1)
            saved = checkpoint.latest(checkpoints)
        if saved is None:
            now = fresh(experiment, problem)
        else:
            now = checkpoint.restore(checkpoints, saved, like)
        if leads():
            truncate_metrics(metrics, saved or 0)
    check_same("options", (fingerprint(experiment), experiment.seed, devices))
    check_same("data", splits.sources)
    now = of_leader(now)
    done = int(now.state.step)
    with together():
        watch(done, {})

    key = _keys(experiment)[1]
    optimiser = experiment.outer.build(experiment.steps)
    step = make_step(optimiser, batch=experiment.batch, chunk=chunk, mesh=mesh, key=key)
    intervals: dict[int, Any] = {}
    state, before, begun = everywhere(mesh, now.state), float(now.seconds), time.monotonic()
    train, validation = everywhere(mesh, (splits.train, splits.validation))
    keys = partial(task_keys, key, batch=experiment.batch)
    parts = own_parts(mesh, experiment.batch)
    with prefetched(train, keys, start=done, stop=experiment.steps, parts=parts):
        while done < experiment.steps:
            size = min(experiment.interval, experiment.steps - done)
            if size not in intervals:
                intervals[size] = make_interval(step, steps=size, scan=experiment.scan)
            state, records = intervals[size](train, state)
            _check_finite(records, done, experiment, splits, checkpoint.latest(checkpoints))
            done += size
            record = {"loss": float(np.mean(records.loss))}
            lines = [{"step": done, **record}]
            last = done == experiment.steps
            if last or done % experiment.validate_every == 0:
                scores = evaluate(
                    state.learner,
                    validation,
                    split="validation",
                    n=experiment.validation_tasks,
                    chunk=experiment.chunk,
                    mesh=mesh,
                )
                score = summarise(*scores, splits.validation.families)["score"]
                scored = {"validation": score["mean"], "validation_ci95": score["ci95"]}
                lines.append({"step": done, **scored})
                record |= scored
            with together():
                if leads():
                    for line in lines:
                        append_metric(metrics, line)
                watch(done, record)
            stopping = any_of(stop())
            if last or stopping or done % experiment.checkpoint_every == 0:
                with together():
                    if leads():
                        seconds = np.asarray(before + time.monotonic() - begun)
                        checkpoint.save(checkpoints, done, _Clocked(state, seconds))
            if stopping:
                break
    if saved is None and not experiment.steps:
        checkpoint.save(checkpoints, 0, now)
    return done


def _splits(experiment: Experiment, folder: Path, progress: Progress | None) -> Splits:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(
            f"expected a folder that can be made at {folder}, got: {error.strerror}; name another"
        ) from error
    splits: Splits = experiment.tasks.build(folder / "split.json", progress=progress)
    return splits


def _check_finite(
    records: Record, done: int, experiment: Experiment, splits: Splits, saved: int | None
) -> None:
    finite = np.asarray(records.finite)
    if finite.all():
        return
    first = int(np.argmin(finite))
    family = int(records.bad_family[first])
    families = splits.train.families
    where = f"on a task of the family {families[family]!r}" if family >= 0 else "in the gradient"
    good = f"the last good checkpoint is that of step {saved}" if saved else "no checkpoint yet"
    raise NotFiniteError(
        f"the loss is not finite at step {done + first + 1}, {where}; {good}; "
        f"{steadier(experiment)}, in a new folder"
    )


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
    now = checkpoint.restore(folder / "checkpoints", saved, _like(experiment, problem))
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
    config = load_run(folder).config
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
    now = checkpoint.restore(folder / "checkpoints", saved, _like(experiment, splits.train.problem))
    made = config.get("made") if isinstance(config.get("made"), dict) else None
    return Trained(experiment, now.state.learner, splits, saved, float(now.seconds), made)
