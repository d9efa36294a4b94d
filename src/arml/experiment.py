"""An experiment is pure data; `run` carries it out in a folder, and takes it up where it stopped.

The folder holds `config.json`, `split.json` (image tasks), `metrics.jsonl`, `checkpoints/` and,
after evaluation, `result.json`. A step depends on the seed and its own number alone, so a resumed
run is the same run, bit for bit.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from arml import checkpoint
from arml.algorithms import ALGORITHMS
from arml.algorithms.maml import MAMLOptions
from arml.evaluate import Split, evaluate
from arml.learner import MetaLearner
from arml.nn.networks import Conv4Options, MLPOptions
from arml.results import (
    FORMAT,
    RunError,
    append_metric,
    load_run,
    summarise,
    truncate_metrics,
    write_json,
)
from arml.tasks.options import FoldersOptions, FunctionsOptions, Progress, Splits
from arml.train import OuterOptions, Record, TrainState, make_interval, make_step, start

NETWORKS: dict[str, Any] = {"mlp": MLPOptions, "conv4": Conv4Options}
TASKS: dict[str, Any] = {"functions": FunctionsOptions, "folders": FoldersOptions}
PARTS: dict[str, dict[str, Any]] = {
    "algorithm": ALGORITHMS,
    "network": NETWORKS,
    "tasks": TASKS,
    "outer": {"adam": OuterOptions},
}


@dataclass(frozen=True)
class Experiment:
    """One meta-training run. A recipe fills it; the command line may change any of it."""

    recipe: str
    algorithm: Any = field(default_factory=MAMLOptions)
    """Options of the algorithm, one of `ALGORITHMS`."""
    tasks: Any = field(default_factory=FunctionsOptions)
    """Options of the tasks, one of `TASKS`."""
    network: Any = field(default_factory=MLPOptions)
    """Options of the base network, one of `NETWORKS`."""
    outer: OuterOptions = field(default_factory=OuterOptions)
    steps: int = 70_000
    """Outer steps."""
    batch: int = 25
    """Tasks of one outer step."""
    seed: int = 0
    """Seeds the initial weights and the training tasks; never the test tasks."""
    interval: int = 100
    """Steps between two lines of metrics."""
    checkpoint_every: int = 1_000
    """Steps between two checkpoints."""
    validate_every: int = 1_000
    """Steps between two scores on validation tasks."""
    validation_tasks: int = 500
    """Validation tasks of one score."""
    scan: bool = True
    """One compiled loop an interval: right for small networks, slow for convolutions on a CPU."""
    chunk: int = 100
    """Tasks that an evaluation adapts to at once."""

    def check(self) -> None:
        """Refuse what cannot be run, in one line, before any work."""
        for name in ("steps", "batch", "interval", "chunk", "validation_tasks"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}: raise it")
        for name in ("checkpoint_every", "validate_every"):
            value = getattr(self, name)
            if value < 1 or value % self.interval:
                raise ValueError(
                    f"{name} must be a multiple of the interval {self.interval}, got {value}: "
                    "change one of them"
                )
        self.outer.check()
        self.algorithm.check()


def to_json(experiment: Experiment) -> dict[str, Any]:
    """The experiment as plain data; each part names its kind."""
    value = dataclasses.asdict(experiment)
    for part, kinds in PARTS.items():
        options = getattr(experiment, part)
        kind = next(name for name, cls in kinds.items() if type(options) is cls)
        value[part] = {"kind": kind, **value[part]}
    return value


def from_json(value: Mapping[str, Any], where: str) -> Experiment:
    """The inverse of `to_json`.

    **Raises** `RunError` for a kind or an option that this version does not know.
    """

    def make(cls: Any, options: Mapping[str, Any], what: str) -> Any:
        known = {f.name for f in dataclasses.fields(cls)}
        odd = sorted(set(options) - known)
        if odd:
            raise RunError(
                f"{where}: {what} has the option {odd[0]!r}, which this version does not know; "
                "use the version of arml that wrote it"
            )
        return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in options.items()})

    parts = {}
    for part, kinds in PARTS.items():
        options = dict(value.get(part, {}))
        kind = options.pop("kind", None)
        if kind not in kinds:
            raise RunError(
                f"{where}: expected {part} to be one of {', '.join(kinds)}, got {kind!r}; "
                "use the version of arml that wrote it"
            )
        parts[part] = make(kinds[kind], options, part)
    return make(Experiment, {**value, **parts}, "the experiment")


def build(experiment: Experiment, splits: Splits) -> MetaLearner:
    """The learner with its initial weights, a function of the experiment's seed."""
    net_key, key = jax.random.split(_keys(experiment)[0])
    problem = splits.train.problem
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


def _fresh(experiment: Experiment, splits: Splits) -> _Clocked:
    optimiser = experiment.outer.build(experiment.steps)
    return _Clocked(start(build(experiment, splits), optimiser), np.zeros(()))


def _differences(old: Any, new: Any, name: str = "") -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        rows = []
        for key in sorted({*old, *new}):
            path = f"{name}.{key}" if name else key
            rows += _differences(old.get(key), new.get(key), path)
        return rows
    return [] if old == new else [f"{name} {old!r} -> {new!r}"]


def _check_claim(experiment: Experiment, folder: Path) -> None:
    """Refuse a folder that holds a run with other options, before any data is read."""
    if not (folder / "config.json").exists():
        return
    old = load_run(folder).config
    _refuse(folder, _differences(old.get("experiment"), _plain(to_json(experiment))))


def _claim(experiment: Experiment, splits: Splits, folder: Path) -> None:
    """Make the folder this experiment's, or check that its data is what it was."""
    path = folder / "config.json"
    if path.exists():
        _refuse(
            folder, _differences(load_run(folder).config.get("sources"), splits.sources, "data")
        )
        return
    config = {
        "format": FORMAT,
        "recipe": experiment.recipe,
        "experiment": to_json(experiment),
        "sources": splits.sources,
    }
    write_json(path, config)


def _refuse(folder: Path, differences: list[str]) -> None:
    if differences:
        # The recipe says most, and a whole other algorithm would be lines and lines.
        rows = sorted(differences, key=lambda row: not row.startswith("recipe "))
        more = f"; and {len(rows) - 8} more" if len(rows) > 8 else ""
        raise RunError(
            f"{folder} holds another run: {'; '.join(rows[:8])}{more}. Give the options it was "
            "made with to resume it, or another folder to start anew"
        )


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value


Watch = Callable[[int, Mapping[str, float]], None]


def run(
    experiment: Experiment,
    folder: Path,
    *,
    watch: Watch = lambda step, record: None,
    stop: Callable[[], bool] = lambda: False,
    progress: Progress | None = None,
) -> int:
    """Meta-train in `folder`, from its newest checkpoint if it has one.

    **Arguments**

    - `watch`: called with the step and what was recorded at it: `loss`, `validation`.
    - `stop`: asked after each interval; once true, the state is saved and the run ends.
    - `progress`: told about the decoding of images.

    **Returns** the step that was reached, `experiment.steps` unless it was stopped.

    **Raises** `ValueError` or `RunError` in one line: options that cannot be, a folder that holds
    another run, a full disk, or a loss that is not finite.
    """
    experiment.check()
    _check_claim(experiment, folder)
    splits = _splits(experiment, folder, progress)
    now = _fresh(experiment, splits)
    _claim(experiment, splits, folder)
    metrics, checkpoints = folder / "metrics.jsonl", folder / "checkpoints"
    saved = checkpoint.latest(checkpoints)
    if saved is not None:
        now = checkpoint.restore(checkpoints, saved, now)
    done = saved or 0
    truncate_metrics(metrics, done)
    watch(done, {})

    step = make_step(
        experiment.outer.build(experiment.steps),
        batch=experiment.batch,
        key=_keys(experiment)[1],
    )
    intervals: dict[int, Any] = {}
    state, before, begun = now.state, float(now.seconds), time.monotonic()
    while done < experiment.steps:
        size = min(experiment.interval, experiment.steps - done)
        if size not in intervals:
            intervals[size] = make_interval(step, steps=size, scan=experiment.scan)
        state, records = intervals[size](splits.train, state)
        _check_finite(records, done, splits.train.families, checkpoint.latest(checkpoints))
        done += size
        record = {"loss": float(np.mean(records.loss))}
        append_metric(metrics, {"step": done, **record})
        last = done == experiment.steps
        if last or done % experiment.validate_every == 0:
            scores = evaluate(
                state.learner,
                splits.validation,
                split="validation",
                n=experiment.validation_tasks,
                chunk=experiment.chunk,
            )
            score = summarise(*scores, splits.validation.families)["score"]
            record |= {"validation": score["mean"], "validation_ci95": score["ci95"]}
            validated = {k: v for k, v in record.items() if k != "loss"}
            append_metric(metrics, {"step": done, **validated})
        watch(done, record)
        stopping = stop()
        if last or stopping or done % experiment.checkpoint_every == 0:
            seconds = np.asarray(before + time.monotonic() - begun)
            checkpoint.save(checkpoints, done, _Clocked(state, seconds))
        if stopping:
            break
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


def _check_finite(records: Record, done: int, families: tuple[str, ...], saved: int | None) -> None:
    finite = np.asarray(records.finite)
    if finite.all():
        return
    first = int(np.argmin(finite))
    family = int(records.bad_family[first])
    where = f"on a task of the family {families[family]!r}" if family >= 0 else "in the gradient"
    good = f"the last good checkpoint is that of step {saved}" if saved else "no checkpoint yet"
    raise RunError(
        f"the loss is not finite at step {done + first + 1}, {where}; {good}; lower --inner-rate "
        "or --outer-rate, or set --clip, in a new folder"
    )


@dataclass(frozen=True)
class Trained:
    """A run, loaded for use."""

    experiment: Experiment
    learner: MetaLearner
    splits: Splits
    step: int
    seconds: float

    def tasks(self, split: Split) -> Any:
        """The task distribution of a split."""
        return getattr(self.splits, split)


def load(folder: Path) -> Trained:
    """The learner of a run folder at its newest checkpoint.

    **Raises** `RunError` if the folder is no run, has no checkpoint, is damaged, or its data has
    changed.
    """
    config = load_run(folder).config
    where = str(folder / "config.json")
    if not isinstance(config.get("experiment"), dict):
        raise RunError(
            f"{where}: expected an experiment, found none; restore the file, or train in a new "
            "folder"
        )
    experiment = from_json(config["experiment"], where)
    saved = checkpoint.latest(folder / "checkpoints")
    if saved is None:
        raise RunError(
            f"expected a checkpoint in {folder}, found none: `arml train` with this folder makes "
            "one"
        )
    splits: Splits = experiment.tasks.build(folder / "split.json")
    changed = _differences(config.get("sources"), splits.sources, "data")
    if changed:
        raise RunError(f"{folder}: the data has changed: {'; '.join(changed)}; restore it")
    now = checkpoint.restore(folder / "checkpoints", saved, _fresh(experiment, splits))
    return Trained(experiment, now.state.learner, splits, saved, float(now.seconds))
