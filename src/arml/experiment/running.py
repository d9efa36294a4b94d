"""`run` carries an experiment out in a folder and takes it up where it stopped."""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
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
from arml.experiment.folder import check_claim, check_place, claim, take_up
from arml.experiment.options import Experiment, absolute, fingerprint, steadier
from arml.results.folder import RunError, append_metric, summarise
from arml.results.lock import Hold, alone
from arml.results.manifest import seal
from arml.tasks.options import Progress, Splits
from arml.tasks.stream import prefetched
from arml.training import checkpoint
from arml.training.devices import at_once, everywhere, mesh_of, own_parts, share
from arml.training.evaluate import evaluate
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


def like_of(experiment: Experiment, problem: Problem) -> _Clocked:
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
    with ExitStack() as stack:
        with together():
            experiment.check()
            check_place(folder)
            held = stack.enter_context(alone(folder)) if leads() else None
        return _run(experiment, folder, held, watch, stop, progress, devices)


def _run(
    experiment: Experiment,
    folder: Path,
    held: Hold | None,
    watch: Watch,
    stop: Callable[[], bool],
    progress: Progress | None,
    devices: int,
) -> int:
    """`run` in a folder that the process which leads has `held`."""
    metrics, checkpoints = folder / "metrics.jsonl", folder / "checkpoints"
    with together():
        mesh = mesh_of(devices)
        chunk = at_once(experiment.chunk, share(mesh, experiment.batch))
        experiment = absolute(experiment)
        check_claim(experiment, folder)
        splits = _splits(experiment, folder, progress)
        problem = splits.train.problem
        like = like_of(experiment, problem)  # before a folder is claimed: it refuses what cannot be
        if not experiment.steps and checkpoint.named(like.state.learner):
            raise ValueError("steps must be at least 1, got 0: this learner has weights to train")
        found = None
        if leads():
            claim(experiment, splits, folder, devices=mesh.size if mesh else 1)
            found = take_up(experiment, folder, like)
        saved, now = found or (None, fresh(experiment, problem))
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
                    if held is not None:
                        held.check()
                        seconds = np.asarray(before + time.monotonic() - begun)
                        checkpoint.save(checkpoints, done, _Clocked(state, seconds))
                        seal(folder, metrics.name)
            if stopping:
                break
    if held is not None and saved is None and not experiment.steps:
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
