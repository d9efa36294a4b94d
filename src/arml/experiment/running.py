"""`run` trains an experiment in a folder, or continues where an earlier call stopped;
`train_seeds` trains several seeds of it, side by side."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import fields, replace
from pathlib import Path

import equinox as eqx
import numpy as np

from arml.core.episodes import Problem
from arml.datasets.folders import Progress
from arml.experiment.building import experiment_for, initial, started
from arml.experiment.folder import check_claim, check_place, claim, take_up
from arml.experiment.options import Experiment, absolute, fingerprint, from_json, steadier, to_json
from arml.experiment.workers import Message, Send, carry_out, processes
from arml.results.files import JsonView, alone, append_metric
from arml.tasks.options import Splits, TasksLike, TasksOptions, splits_of
from arml.tasks.own import OwnOptions
from arml.training import checkpoint
from arml.training.devices import at_once, mesh_of, share
from arml.training.fit import FitOptions, Moment, NotFiniteError, intervals, training_key
from arml.training.processes import any_of, attended, check_same, leads, of_leader, together
from arml.training.step import TrainState, start


class Clocked(eqx.Module):
    """The content of a checkpoint: the training state, and the seconds that it has taken."""

    state: TrainState
    seconds: np.ndarray


def fresh(experiment: Experiment, problem: Problem) -> Clocked:
    """The checkpoint of the experiment before its first step."""
    return Clocked(started(experiment, problem), np.zeros(()))


def like(experiment: Experiment, problem: Problem) -> Clocked:
    """A checkpoint of the experiment, with shapes in the place of arrays."""

    def begun() -> TrainState:
        return start(initial(experiment, problem), experiment.outer.build(experiment.steps))

    return Clocked(eqx.filter_eval_shape(begun), np.zeros(()))


Watch = Callable[[int, Mapping[str, float | None]], None]


@attended()
def run(
    experiment: Experiment | str,
    folder: Path | str,
    *,
    tasks: TasksLike | None = None,
    watch: Watch = lambda step, record: None,
    stop: Callable[[], bool] = lambda: False,
    progress: Progress | None = None,
    devices: int = 1,
    **changes: object,
) -> int:
    """Meta-train in `folder`, from its newest checkpoint if it has one.

        arml.run("maml", "runs/sines", tasks=Sines(), steps=1_000)

    **Arguments**

    - `experiment`: an `Experiment`, or the name of a recipe or, with `tasks`, of a method.
    - `tasks`: a task distribution, or the options of tasks, in place of the experiment's. The class
      of a distribution must be at the top of a file: whoever opens the folder later gives that file
      by `--plugin FILE`, or imports it first.
    - `changes`: other options of the experiment, such as `steps` and `seed`.
    - `watch`: called with the step and its record: `loss`, `validation`.
    - `stop`: asked after each interval; once true, the state is saved and the run ends.
    - `progress`: called while images are decoded.
    - `devices`: of each process; all of them share the tasks of a step. A run can be continued
      with another number of devices, and its numbers are the same to rounding.

    If several processes were joined (`processes.join`), all of them make the same call. Each reads
    the data, and only the first writes to the folder.

    **Returns** the step that was reached: `experiment.steps`, unless the run was stopped.

    **Raises** `ValueError` or `RunError` in one line for invalid options, a folder that holds
    another run, a full disk, and a loss that is not finite.
    """
    experiment, folder = _experiment(experiment, tasks, changes), Path(folder)
    metrics, checkpoints = folder / "metrics.jsonl", folder / "checkpoints"
    with ExitStack() as stack:
        with together():
            experiment.check()
            check_place(folder)
            check_claim(experiment, folder)  # before anything is written in somebody's folder
            held = stack.enter_context(alone(folder)) if leads() else None
        with together():
            mesh = mesh_of(devices)
            at_once(experiment.chunk, share(mesh, experiment.batch))
            experiment = absolute(experiment)
            check_claim(experiment, folder)  # again: another process may have been faster
            splits = splits_of(experiment.tasks.build(folder / "split.json", progress=progress))
            # Before the folder is claimed, because it may raise.
            now = fresh(experiment, splits.train.problem)
            if not experiment.steps and checkpoint.named(now.state.learner):
                raise ValueError(
                    "steps must be at least 1, got 0: this learner has weights to train"
                )
            found = None
            if leads():
                claim(experiment, splits, folder, devices=mesh.size if mesh else 1)
                found = take_up(experiment, folder, now)
            saved, now = found or (None, now)
        check_same("options", (fingerprint(experiment), experiment.seed, devices))
        check_same("data", splits.sources)
        now = of_leader(now)
        begins = before = done = int(now.state.step)
        with together():
            watch(done, {})

        clock = time.monotonic()
        loop = intervals(
            FitOptions.of(experiment),
            now.state,
            splits.train,
            splits.validation,
            key=training_key(experiment.seed),
            mesh=mesh,
        )
        with closing(loop), _advised(experiment, checkpoints):
            for moment in loop:
                done = moment.step
                with together():
                    if leads():
                        _write(metrics, moment)
                    watch(done, moment.record)
                stopping = any_of(stop())
                due = done // experiment.checkpoint_every > before // experiment.checkpoint_every
                before = done
                if done == experiment.steps or stopping or due:
                    with together():
                        if held is not None:
                            held.check()
                            seconds = np.asarray(float(now.seconds) + time.monotonic() - clock)
                            checkpoint.save(checkpoints, done, Clocked(moment.state, seconds))
                if stopping:
                    break
        if held is not None and saved is None and done == begins:
            checkpoint.save(checkpoints, done, now)  # a learner that has nothing to train
        return done


def _experiment(what: Experiment | str, tasks: TasksLike | None, changes: JsonView) -> Experiment:
    """The experiment of the arguments of `run`."""
    if isinstance(tasks, Splits):
        raise ValueError(
            "expected a task distribution or options, got Splits: a run folder holds how its "
            "tasks are made, so give their options, or arml.fit the splits"
        )
    problem = None if tasks is None else splits_of(tasks).train.problem
    made = experiment_for(what, problem) if isinstance(what, str) else what
    if isinstance(tasks, TasksOptions):
        made = replace(made, tasks=tasks)
    elif tasks is not None:
        own = OwnOptions.of(tasks)
        name = f"{own.name}/{made.recipe.rpartition('/')[2]}"
        made = replace(made, recipe=name, tasks=own)
    known = {field.name for field in fields(Experiment)} - {"tasks"}
    odd = sorted({*changes} - known)
    if odd:
        raise ValueError(f"unknown option {odd[0]!r}: expected one of {', '.join(sorted(known))}")
    return replace(made, **changes)


def _write(metrics: Path, moment: Moment) -> None:
    """A line for the loss, and one for the score on validation tasks if there is one."""
    scored = {name: v for name, v in moment.record.items() if name.startswith("validation")}
    append_metric(metrics, {"step": moment.step, "loss": moment.record["loss"]})
    if scored:
        append_metric(metrics, {"step": moment.step, **scored})


@contextmanager
def _advised(experiment: Experiment, checkpoints: Path) -> Iterator[None]:
    """If the loss is not finite, add to the error which options to change."""
    try:
        yield
    except NotFiniteError as error:
        saved = checkpoint.latest(checkpoints)
        good = f"the last good checkpoint is that of step {saved}" if saved else "no checkpoint yet"
        advice = f"{good}; {steadier(experiment)}, in a new folder"
        raise NotFiniteError(error.where, advice) from None


SeedWatch = Callable[[int, int, Mapping[str, float | None]], None]
"""Called with the seed, the step that it has reached, and the record of that step."""


def of_seed(experiment: Experiment, folder: Path, seed: int) -> tuple[Experiment, Path]:
    """The experiment and the run folder of one seed."""
    return replace(experiment, seed=seed), folder / f"seed-{seed}"


def work(job: Message, send: Send, stop: Callable[[], bool]) -> Message:
    """One seed as a worker's job `{experiment, folder}`: sends each record with its `step`."""

    def watch(step: int, record: Mapping[str, float | None]) -> None:
        send({**record, "step": step})

    experiment = from_json(job["experiment"], "the experiment of a seed")
    reached = run(experiment, job["folder"], watch=watch, stop=stop)
    return {"end": "done" if reached == experiment.steps else "stopped"}


def train_seeds(
    experiment: Experiment,
    folder: Path,
    seeds: list[int],
    *,
    workers: int,
    watch: SeedWatch,
    stop: Callable[[], bool] = lambda: False,
    tick: Callable[[], None] = lambda: None,
) -> dict[int, str]:
    """Meta-train with each seed in `folder/seed-N`, `workers` at a time, or continue there.

    **Returns** the seeds that failed, each with the reason. The same call continues the seeds that
    were stopped.
    """
    failed: dict[int, str] = {}
    experiment = absolute(experiment)
    jobs = []
    for seed in seeds:
        own, place = of_seed(experiment, folder, seed)
        jobs.append({"experiment": to_json(own), "folder": str(place.resolve()), "seed": seed})

    def heard(index: int, job: Message, message: Message) -> bool:
        if message.get("end") == "failed":
            failed[job["seed"]] = message["error"]
        elif "step" in message:
            record = {k: v for k, v in message.items() if k != "step"}
            watch(job["seed"], message["step"], record)
        return False

    workers = min(workers, len(jobs))
    hire = processes("arml.experiment.running:work", folder, workers)
    carry_out(jobs, hire, workers=workers, heard=heard, stop=stop, tick=tick)
    return failed
