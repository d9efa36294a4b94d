"""Run folders. `run` trains an experiment in one, or continues where an earlier call stopped. `Run`
opens one. `train_seeds` trains several seeds in parallel."""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from arml.core.checks import Options
from arml.core.episodes import Problem, TaskDistribution
from arml.core.learner import MetaLearner
from arml.core.losses import score_of
from arml.core.registry import with_options
from arml.datasets.folders import Progress
from arml.experiment.held import ARRAYS_FILE, SplitsOptions
from arml.experiment.options import (
    CALLBACKS,
    REGISTRIES,
    RESTORE_HINT,
    Experiment,
    absolute,
    essence,
    from_json,
    problem_of,
    to_json,
)
from arml.experiment.recipes import experiment_for, initial, options_for, recipe, started
from arml.experiment.weights import source_of_weights
from arml.experiment.workers import Job, Stopping, carry_out
from arml.plugins.loading import load_plugins
from arml.results.files import (
    Json,
    JsonView,
    RunError,
    append_metric,
    locked,
    read_as,
    read_metrics,
    sealed,
    truncate_metrics,
    write_bytes,
    write_json,
)
from arml.results.folder import CONFIG_FILE, Result, read_config, read_result
from arml.results.scores import Scores, read_scores
from arml.tasks.own import OwnOptions
from arml.tasks.splits import Splits, TasksLike, TasksOptions, splits_of
from arml.training import checkpoint
from arml.training.checkpoint import named
from arml.training.devices import mesh_of, share
from arml.training.distributed import Processes, in_turn, is_first, of_all
from arml.training.fit import (
    SCORING_STAGE,
    Callback,
    Moment,
    OuterOptions,
    TrainState,
    best_of,
    checked_callbacks,
    ends,
    intervals,
    seeded,
    start,
)
from arml.training.provenance import provenance

METRICS_FILE, CHECKPOINTS_FOLDER = "metrics.jsonl", "checkpoints"
BEST_FOLDER = "best"
"""The folder of the checkpoint with the best validation score, if `keep` is best."""
_RUN_FOLDERS = (CHECKPOINTS_FOLDER, BEST_FOLDER, "explain")
"""The names of folders in a run folder."""


class Clocked(eqx.Module):
    """The content of a checkpoint: the training state, and the seconds of training so far."""

    state: TrainState
    seconds: np.ndarray


def like(experiment: Experiment, problem: Problem) -> Clocked:
    """A checkpoint of the experiment with shapes instead of arrays."""

    def first() -> TrainState:
        return start(initial(experiment, problem), experiment.outer.build(experiment.steps))

    return Clocked(eqx.filter_eval_shape(first), np.zeros(()))


def differences(old: object, new: object, name: str = "") -> list[str]:
    """`name old -> new` for each value that differs between two nested dictionaries."""
    if isinstance(old, dict) and isinstance(new, dict):
        rows = []
        # Parts of different kinds have different options, so only the kind is listed.
        same_kind = old.get("kind") == new.get("kind")
        for key in sorted({*old, *new}) if same_kind else ["kind"]:
            path = f"{name}.{key}" if name else key
            rows += differences(old.get(key), new.get(key), path)
        return rows
    return [] if old == new else [f"{name} {old!r} -> {new!r}"]


def check_same(folder: Path, old: object, new: object, what: str = "run", name: str = "") -> None:
    """Raise `RunError` with the differences if a folder was made with other options or data."""
    # The recipe comes first: with another algorithm many options differ.
    rows = sorted(differences(old, new, name), key=lambda row: not row.startswith("recipe "))
    if rows:
        more = f"; and {len(rows) - 5} more" if len(rows) > 5 else ""
        raise RunError(
            f"{folder} holds another {what}: {'; '.join(rows[:5])}{more}. Give the options it was "
            "made with to resume it, or another folder to start again"
        )


def check_place(folder: Path) -> None:
    """Raise `RunError` for a path that cannot be a run folder."""
    whole = folder.resolve() == Path(folder.resolve().anchor)
    # An empty name is the current folder.
    if whole or (folder == Path() and not (folder / CONFIG_FILE).is_file()):
        raise RunError(
            f"expected a separate folder for the run, got {str(folder)!r}: name a new folder, as "
            "in --run runs/mine"
        )
    if folder.exists() and not folder.is_dir():
        raise RunError(f"expected a folder for the run, got the file {folder}: name another")
    if folder.is_dir() and not (folder / CONFIG_FILE).exists():
        # Otherwise checkpoints among folders of pictures could be read as one more class.
        for path in sorted(folder.iterdir()):
            if path.is_dir() and path.name not in _RUN_FOLDERS:
                raise RunError(
                    f"expected a new folder for the run, got {folder}, which holds other folders, "
                    f"such as {path.name}: name another"
                )


def check_claim(experiment: Experiment, folder: Path, extend: bool | None = None) -> str:
    """Raise `RunError` for a folder that holds a run with other options, before data are read. More
    steps are allowed if `extend` is True, or if it is None and the rate is constant. **Returns** a
    line on how the training continues, or an empty text if it has no more steps."""
    path = folder / CONFIG_FILE
    if not path.exists():
        if checkpoint.latest(folder / CHECKPOINTS_FOLDER) is not None:
            raise RunError(
                f"{folder} has checkpoints, but no config.json that describes their run: restore "
                "the file, or train in a new folder"
            )
        return ""
    # Compared as options and not as text, so an option that this version added has its default.
    old = from_json(read_config(folder).get("experiment"), str(path))
    made, asked = essence(old), essence(absolute(experiment))
    longer = asked == {**made, "steps": experiment.steps}
    if extend is False or not (longer and 0 < old.steps < experiment.steps):
        check_same(folder, made, asked)
        return ""
    effect = _effect(experiment.outer, old.steps, experiment.steps)
    if effect and extend is None:
        raise RunError(
            f"{folder} holds a run of {old.steps:,} steps, and more steps change its schedule: "
            f"{effect}. Give --extend (extend=True) to accept that, or another folder"
        )
    return f"going on from {old.steps:,} to {experiment.steps:,} steps" + (effect and f": {effect}")


def _effect(outer: Options, old: int, new: int) -> str:
    """A text on how more outer steps change the schedule of an optimiser; empty if they do not."""
    if not isinstance(outer, OuterOptions):
        return f"its schedule is made again for {new:,} steps"
    rates = (outer.rate(n) for n in (old, new))
    at = [rate(jnp.asarray(old)) if callable(rate) else rate for rate in rates]
    mean = "the weights are averaged over the end of the longer training" if outer.average else ""
    fall = f"the rate at step {old:,} is {float(at[1]):.2g}, not {float(at[0]):.2g}"
    return "; ".join(filter(None, (fall if float(at[0]) != float(at[1]) else "", mean)))


def claim(experiment: Experiment, splits: Splits, folder: Path, *, devices: int = 1) -> None:
    """Write the experiment to the folder, or check that the data of its run have not changed."""
    path = folder / CONFIG_FILE
    if path.exists():
        config = read_config(folder)
        check_same(folder, config.get("sources"), {**splits.sources}, name="data")
        before = config["experiment"]["steps"]
        if before != experiment.steps:
            made = config.get("made") or {}
            config["made"] = {**made, "extended": [*made.get("extended", ()), before]}
            write_json(path, sealed({**config, "experiment": to_json(experiment)}))
        return
    config = {
        "recipe": experiment.recipe,
        "experiment": to_json(experiment),
        "sources": {**splits.sources},
        # With these the learner can be used without the data.
        "problem": asdict(splits.train.problem),
        "families": splits.train.families,
        "inputs": splits.inputs,
        "weights": source_of_weights(getattr(experiment.network, "weights", "")),
        # Only information: a run can be resumed if these differ.
        "made": provenance(devices),
    }
    write_json(path, sealed(config))


def run(
    experiment: Experiment | str,
    folder: Path | str,
    *,
    tasks: TasksLike | None = None,
    watch: Callable[[int, Mapping[str, float | None]], None] = lambda step, record: None,
    stop: Callable[[], bool] = lambda: False,
    progress: Progress | None = None,
    devices: int = 1,
    distributed: bool = False,
    extend: bool | None = None,
    callbacks: Sequence[Callback] = (),
    **changes: object,
) -> "Run":
    """Meta-train in `folder`. If it has a checkpoint, the training continues from the newest.

        run = arml.run("maml", "runs/sines", tasks=Sines(), steps=1_000)
        run.learner; run.metrics; arml.evaluate(run)

    **Arguments**

    - `experiment`: an `Experiment`, or the name of a recipe or, with `tasks`, of a method.
    - `tasks`: a task distribution, `Splits`, or the options of tasks, instead of the experiment's,
      or a mapping that changes some of these options, such as `{"shots": 5}`. Arrays of
      `Splits` are written into the folder. Your own class of a distribution must be at the top
      level of a file: to reopen the folder, pass it as `--plugin FILE`, or import it.
    - `changes`: other options of the experiment, such as `steps` and `seed`. A mapping changes some
      options of a part: `algorithm={"inner_rate": 0.05}`, `outer={...}`, `network={...}`.
    - `watch`: called with the step and its record: `loss`, `validation`. If a step takes longer
      than half a second, it is called after every step, with the mean loss of the interval so far.
    - `stop`: called after each `watch`. If it returns True, the state is saved and the run ends.
    - `progress`: called with a text, a number and the total, while images are decoded and while
      validation tasks are scored.
    - `devices`: the number of devices of this process that share the tasks of a step. A run can
      continue with other devices or processes, and its numbers are equal except for rounding.
    - `extend`: whether a run that was made with fewer `steps` continues to these. If None, it does
      if its optimiser has a constant rate. Any other schedule becomes that of the longer
      training. True also continues a run that a callback ended.
    - `callbacks`: called with a `Moment` after each interval, as in `arml.fit`, in addition to the
      registered callbacks.
    - `distributed`: whether this process is one of several (`arml.training.distributed`). Each
      makes this call, and can read the folder and the data. Only process 0 writes.

    **Returns** the `Run`. Its `last` is the step that was reached: `experiment.steps`, unless the
    run was stopped, or ended early by its `patience` or a callback.

    **Raises** `ValueError` or `RunError` in one line for invalid options, a folder that holds
    another run, a full disk, and a loss that is not finite.
    """
    experiment, arrays = _experiment(experiment, tasks, changes)
    experiment, folder = absolute(experiment), Path(folder)
    experiment.check()
    callbacks = checked_callbacks(callbacks)
    to_json(experiment)  # before any work: it raises for options that are not registered
    check_place(folder)
    check_claim(experiment, folder, extend)
    mesh = _joined(experiment.batch, devices, distributed=distributed)
    first = not distributed or is_first()
    training = _Training(experiment, folder, mesh, first, watch, stop, progress, callbacks)
    with locked(folder) if first else nullcontext():
        with in_turn(mesh):
            check_claim(experiment, folder, extend)
            splits, done, now = training.opened(arrays)
        if len({*of_all(mesh, done)}) > 1:
            raise RunError(f"processes read different checkpoints in {folder}: use a shared disk")
        watch(done, {})
        load_plugins()
        if extend or read_config(folder).get("ended") != done:
            training.follow(splits, done, now)
    of_all(mesh, 0)  # process 0 has written its files
    return Run(folder)


def _joined(batch: int, devices: int, *, distributed: bool) -> Mesh | None:
    """Join the other processes, if there are any. **Returns** the devices that share a batch."""
    if distributed:
        processes = Processes(distributed=True)
        processes.check(batch, devices)
        processes.join()
    mesh = mesh_of(devices, processes=distributed)
    share(mesh, batch)
    return mesh


@dataclass(frozen=True)
class _Training:
    """A training in a run folder, with arguments of `run`. Only the `first` process writes."""

    experiment: Experiment
    folder: Path
    mesh: Mesh | None
    first: bool
    watch: Callable[[int, Mapping[str, float | None]], None]
    stop: Stopping
    progress: Progress | None
    callbacks: Sequence[Callback]

    def opened(self, arrays: bytes) -> tuple[Splits, int, Clocked]:
        """Claim the folder. **Returns** its tasks, the step to start from, and the state there."""
        experiment, checkpoints = self.experiment, self.folder / CHECKPOINTS_FOLDER
        if self.first and arrays:
            write_bytes(self.folder / ARRAYS_FILE, arrays)
        split = self.folder / "split.json"
        splits = splits_of(experiment.tasks.build(split, progress=self.progress))
        # Made before the folder is claimed, because it may raise.
        now = Clocked(started(experiment, splits.train.problem), np.zeros(()))
        if not experiment.steps and named(now.state.learner):
            raise ValueError("steps must be at least 1, got 0: this learner has weights to train")
        claim(experiment, splits, self.folder, devices=1 if self.mesh is None else self.mesh.size)
        done, now = checkpoint.restore_newest(checkpoints, now) or (0, now)
        if self.first:
            truncate_metrics(self.folder / METRICS_FILE, done)
            if not experiment.steps:
                checkpoint.save(checkpoints, 0, now)
        return splits, done, now

    def follow(self, splits: Splits, done: int, now: Clocked) -> None:
        """Train until the last step, an early end or a stop, and write metrics and checkpoints."""
        falls, patience = score_of(splits.train.problem)[0] == "mse", self.experiment.patience
        records = [row for row in read_metrics(self.folder / METRICS_FILE) if row["step"] <= done]
        if 0 < patience <= best_of(records, falls=falls)[1]:
            return
        began = time.monotonic() - float(now.seconds)
        with closing(self._moments(splits, now.state)) as moments:
            for moment in moments:
                before, done = records[-1]["step"] if records else 0, moment.step
                records.append({"step": done, **moment.record})
                best, later = best_of(records, falls=falls)
                if self.first:
                    self._log(moment)
                self.watch(done, moment.record)
                ended = self._ended(moment) or 0 < patience <= later
                over = any(of_all(self.mesh, self.stop() or ended)) or done == self.experiment.steps
                if self.first:
                    clocked = Clocked(moment.state, np.asarray(time.monotonic() - began))
                    self._save(clocked, done, before, best=best == done, over=over)
                if over:
                    return

    def _moments(self, splits: Splits, state: TrainState) -> Generator[Moment]:
        """The loop of the training, from `state`."""

        def each(step: int, loss: float) -> bool:
            self.watch(step, {"loss": loss})
            return self.stop()

        progress = self.progress or (lambda stage, done, total: None)
        scoring = partial(progress, SCORING_STAGE)
        key, mesh = seeded(self.experiment.seed)[1], self.mesh
        tasks = splits.train, splits.validation
        return intervals(
            self.experiment, state, *tasks, key=key, mesh=mesh, each=each, scoring=scoring
        )

    def _log(self, moment: Moment) -> None:
        """Add the loss of an interval to the metrics, and its validation score as another line."""
        loss, *validation = moment.record.items()
        for items in filter(None, ([loss], validation)):
            append_metric(self.folder / METRICS_FILE, {"step": moment.step, **dict(items)})

    def _ended(self, moment: Moment) -> bool:
        """Whether a callback ends the training, which the folder then records."""
        callbacks = [*self.callbacks, *CALLBACKS.values()]
        ended = self.first and ends(callbacks, moment._replace(folder=self.folder))
        if ended:
            config = {**read_config(self.folder), "ended": moment.step}
            write_json(self.folder / CONFIG_FILE, sealed(config))
        return ended

    def _save(self, now: Clocked, done: int, before: int, *, best: bool, over: bool) -> None:
        """Write the checkpoints that are due after an interval from step `before` to `done`."""
        improved, every = best and self.experiment.keep == "best", self.experiment.checkpoint_every
        if improved:
            checkpoint.save(self.folder / BEST_FOLDER, done, now)
        # The newest is also written with the best, so a resumed run never starts before its best.
        if over or improved or done // every > before // every:
            checkpoint.save(self.folder / CHECKPOINTS_FOLDER, done, now)


def _experiment(
    what: Experiment | str, tasks: TasksLike | None, changes: JsonView
) -> tuple[Experiment, bytes]:
    """The experiment for the arguments of `run`, and the file of arrays that its tasks need."""
    arrays = b""
    if isinstance(tasks, Mapping):
        shape = {k: n for k, n in tasks.items() if k in ("ways", "shots", "queries")}
        made = recipe(what, **shape) if isinstance(what, str) else what
        what, tasks = replace(made, tasks=with_options(made.tasks, tasks, made.recipe)), None
    problem = None if tasks is None else splits_of(tasks).train.problem
    made = experiment_for(what, problem) if isinstance(what, str) else what
    if isinstance(tasks, Splits):
        given, arrays = SplitsOptions.of(splits_of(tasks))
        name = f"splits/{made.recipe.rpartition('/')[2]}"
        made = replace(made, recipe=name, tasks=given)
    elif isinstance(tasks, TasksOptions):
        made = replace(made, tasks=tasks)
    elif tasks is not None:
        own = OwnOptions.of(tasks)
        name = f"{own.name}/{made.recipe.rpartition('/')[2]}"
        made = replace(made, recipe=name, tasks=own)
    known = {field.name for field in fields(Experiment)} - {"tasks"}
    odd = sorted({*changes} - known)
    if odd:
        one = {odd[0]: changes[odd[0]]}
        how = [f"give {part}={one}" for part in REGISTRIES if hasattr(getattr(made, part), odd[0])]
        how = how or [f"expected one of {', '.join(sorted(known))}"]
        raise ValueError(f"unknown option {odd[0]!r}: {' or '.join(how)}")
    for part in {*REGISTRIES} & {*changes}:
        changes = {**changes, part: options_for(part, changes[part], getattr(made, part))}
    return replace(made, **changes), arrays


def of_seed(experiment: Experiment, folder: Path, seed: int) -> tuple[Experiment, Path]:
    """The experiment and the run folder of one seed."""
    return replace(experiment, seed=seed), folder / f"seed-{seed}"


def train_seeds(
    experiment: Experiment,
    folder: Path,
    seeds: list[int],
    *,
    workers: int,
    watch: Callable[[int, int, Mapping[str, float | None]], None],
    stop: Stopping = lambda: False,
    on: str | None = None,
    extend: bool | None = None,
) -> dict[int, str]:
    """Meta-train each seed in `folder/seed-N`, `workers` at a time. The same call continues seeds
    that were stopped. `on` is the engine, as in `carry_out`, and `extend` is that of `run`. `watch`
    is called repeatedly with a seed, the step that it has reached, and the record of that step.
    **Returns** the seeds that failed, each with the reason."""
    runs = [of_seed(absolute(experiment), folder, seed) for seed in seeds]
    jobs = [
        {"experiment": to_json(own), "folder": str(place.resolve()), "extend": extend}
        for own, place in runs
    ]

    def look() -> None:
        for seed, (_, place) in zip(seeds, runs, strict=True):
            if (place / CONFIG_FILE).exists():
                last = [{"step": 0}, *read_metrics(place / METRICS_FILE)][-1]
                watch(seed, last.pop("step"), last)

    function = f"{__name__}:{work.__name__}"
    ended = carry_out(function, jobs, folder, workers=workers, stop=stop, watch=look, on=on)
    return {seeds[number]: why for number, why in ended if why}


def work(job: Job, stop: Stopping) -> None:
    """Train one seed: the job `{experiment, folder, extend}` of a worker."""
    experiment = from_json(job["experiment"], "the experiment of a seed")
    run(experiment, job["folder"], stop=stop, extend=job["extend"])


class Run:
    """A run folder, opened at its newest checkpoint. Each part is read when it is first used.

        run = arml.Run("runs/sines")
        run.learner; run.tasks("test"); run.metrics; run.scores

    **Raises** `RunError` in one line if the folder is not a run, has no checkpoint, or is damaged.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.config: JsonView = read_config(self.folder)
        if "what" in self.config:
            what = str(self.config["what"])
            opener = "load_predictor" if "predictor" in what else "load"
            raise RunError(
                f"expected a run folder, got {folder}, an {what}: open it by arml.{opener}"
            )
        where = str(self.folder / CONFIG_FILE)
        self.experiment: Experiment = from_json(self.config.get("experiment"), where)
        self.problem: Problem = problem_of(self.config.get("problem"), f"{where}: problem")
        """The problem of its tasks."""
        families = self.config.get("families")
        self.families = read_as(tuple[str, ...], families, f"{where}: families", RESTORE_HINT)
        """The families of its tasks."""
        self.made: Json | None = self.config.get("made")
        """Commit, versions and device of the training."""
        self.inputs: Json | None = self.config.get("inputs")
        """The frozen model that made features of its pictures; None if there is none."""
        saved = checkpoint.latest(self.folder / CHECKPOINTS_FOLDER)
        if saved is None:
            raise RunError(
                f"expected a checkpoint in {folder}, found none: `arml train` with this folder "
                "makes one"
            )
        self.last: int = saved
        """The last outer step of the training."""
        self._falls = score_of(self.problem)[0] == "mse"
        # An interruption may leave scores of steps without a checkpoint.
        known = [record for record in self.metrics if record["step"] <= saved]
        best = best_of(known, falls=self._falls)[0] if self.experiment.keep == "best" else 0
        self._place = self.folder / (BEST_FOLDER if best else CHECKPOINTS_FOLDER)
        self.step: int = best or saved
        """The outer step at which its learner was saved."""

    @property
    def is_over(self) -> bool:
        """Whether its training took all steps, or was ended by its patience or a callback."""
        later = best_of(self.metrics, falls=self._falls)[1]
        early = self.last == self.config.get("ended") or 0 < self.experiment.patience <= later
        return early or self.last >= self.experiment.steps

    @property
    def chosen(self) -> str:
        """A text on how its learner was chosen: the last step, or the best validation score."""
        return self.experiment.chosen(self.metrics, self.last, falls=self._falls)

    @cached_property
    def _restored(self) -> Clocked:
        blank = like(self.experiment, self.problem)
        return checkpoint.restore(self._place, self.step, blank)

    @property
    def learner(self) -> MetaLearner:
        """The trained learner. It can be read without the data."""
        return self.state.learner

    @property
    def state(self) -> TrainState:
        """The learner, the state of the outer optimiser, and the step."""
        return self._restored.state

    @property
    def seconds(self) -> float:
        """The duration of the training in seconds."""
        if self.step == self.last:
            return float(self._restored.seconds)
        blank = like(self.experiment, self.problem)
        newest = checkpoint.restore(self.folder / CHECKPOINTS_FOLDER, self.last, blank)
        return float(newest.seconds)

    @cached_property
    def splits(self) -> Splits:
        """The tasks of all splits, made from the data.

        **Raises** `RunError` if the data has changed.
        """
        splits = splits_of(self.experiment.tasks.build(self.folder / "split.json"))
        changed = differences(self.config.get("sources"), {**splits.sources}, "data")
        if changed:
            raise RunError(f"{self.folder}: the data has changed: {'; '.join(changed)}; restore it")
        return splits

    @property
    def trained_on(self) -> TaskDistribution | None:
        """The tasks of its training if they have been read, or else None."""
        return self.splits.train if "splits" in vars(self) else None

    def tasks(self, split: str = "test") -> TaskDistribution:
        """The task distribution of a split: `train`, `validation` or `test`."""
        return getattr(self.splits, split)

    @property
    def metrics(self) -> list[Json]:
        """The records of its training in order: `step` and `loss`, or `step` and `validation`."""
        return read_metrics(self.folder / METRICS_FILE)

    @property
    def result(self) -> Result | None:
        """The scores that `arml evaluate` wrote; None if it has not run."""
        path = self.folder / "result.json"
        return read_result(path) if path.exists() else None

    @property
    def scores(self) -> Scores | None:
        """The score of each task that `arml evaluate` wrote; None if it has not run."""
        path = self.folder / "scores.npz"
        return read_scores(path) if path.exists() else None

    def __index__(self) -> int:
        """The last step: in earlier versions `arml.run` returned this number."""
        return self.last

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}: {self.experiment.recipe}, step {self.step:,})"
