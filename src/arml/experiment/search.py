"""A sweep of an experiment's options: Optuna proposes values, `run` trains with them, and trials
that fall behind are stopped early. All trials are scored on the same meta-validation tasks, never
on test tasks.

The folder holds `plan.json` (the search), `study.jsonl` (Optuna's own record), a run folder for
each trial under `trials/`, and `best.json`. The same call in the same folder continues the sweep: a
trial that was stopped resumes at its checkpoint, and the next proposal depends only on the seed and
on the trials before it.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict, get_args

import jax

from arml.algorithms import ALGORITHMS
from arml.experiment.folder import differences
from arml.experiment.options import Experiment, absolute, from_json, to_json
from arml.experiment.parts import metric_of
from arml.experiment.recipes import RECIPES
from arml.experiment.running import run
from arml.experiment.workers import Message, Send, carry_out, processes
from arml.results.files import Json, RunError, alone, extra, plain, read_metrics, write_json
from arml.results.folder import seeds_in
from arml.results.schema import Text, read_checked
from arml.training import checkpoint
from arml.training.fit import NotFiniteError

PARTS = ("algorithm", "outer", "network")
"""The parts whose options can be searched. The options of the tasks cannot: scores on different
tasks cannot be compared."""

Scalar = bool | int | float | str
Value = Scalar | tuple[int, ...]
"""A value of an option; the search proposes scalars."""


@dataclass(frozen=True)
class Dimension:
    """An option, `part.name`, and its values: from `low` to `high`, or one of `choices`."""

    path: str
    low: float = 0.0
    high: float = 0.0
    whole: bool = False
    choices: tuple[Scalar, ...] = ()

    @property
    def log(self) -> bool:
        """Whether the range spans a factor of ten, and so is searched on a logarithmic scale."""
        return 0 < self.low <= self.high / 10

    def suggest(self, trial: Any) -> Value:
        """A value that Optuna's `trial` proposes."""
        if self.choices:
            return trial.suggest_categorical(self.path, self.choices)
        if self.whole:
            return trial.suggest_int(self.path, int(self.low), int(self.high), log=self.log)
        return trial.suggest_float(self.path, self.low, self.high, log=self.log)

    def __str__(self) -> str:
        if self.choices:
            return f"{self.path}={','.join(map(str, self.choices))}"
        return f"{self.path}={self.low:g}..{self.high:g}"


def usual(experiment: Experiment) -> tuple[Dimension, ...]:
    """The dimensions that are searched by default: the step sizes and weights that the method
    names, and the outer rate, each from a tenth of its value to ten times it."""
    values = {"outer.outer_rate": experiment.outer.outer_rate}
    known = RECIPES.get(experiment.recipe)
    own = (known.method if known else ALGORITHMS.of(experiment.algorithm)).tune or ()
    values = {f"algorithm.{name}": getattr(experiment.algorithm, name, 0) for name in own} | values
    return tuple(Dimension(path, now / 10, now * 10) for path, now in values.items() if now)


def dimension(text: str, experiment: Experiment) -> Dimension:
    """The dimension that `PART.NAME=LOW..HIGH` or `PART.NAME=A,B,C` names.

    **Raises** `ValueError` in one line for an unknown option and for invalid values.
    """
    path, equals, values = text.partition("=")
    part, _, name = path.partition(".")
    options = getattr(experiment, part, None) if part in PARTS else None
    known = {field.name: field.type for field in dataclasses.fields(options)} if options else {}
    if name not in known:
        raise ValueError(
            f"expected an option of {', '.join(PARTS)} to search, such as algorithm.inner_rate, "
            f"got {path!r}" + (f": {part} has {', '.join(known)}" if known else "")
        )
    now = getattr(options, name)
    low, dots, high = values.partition("..")
    if not equals or not values or isinstance(now, tuple):
        raise ValueError(f"expected {path}=LOW..HIGH or {path}=A,B,C, got {text!r}: change it")
    if not dots:
        found = Dimension(path, choices=tuple(_value(one, now, text) for one in values.split(",")))
        allowed = get_args(known[name]) or found.choices
        if not {*found.choices} <= {*allowed}:
            raise ValueError(
                f"expected values of {', '.join(map(str, allowed))}, got {text!r}: change it"
            )
    else:
        ends = [_value(end, now, text) for end in (low, high)]
        first, last = (float(end) if isinstance(end, int | float) else math.nan for end in ends)
        if isinstance(now, bool) or not -math.inf < first < last < math.inf:
            raise ValueError(
                f"expected a range of numbers from low to high, got {text!r}: change it"
            )
        found = Dimension(path, first, last, isinstance(now, int))
    for one in found.choices or ends:
        chosen(experiment, {path: one}).check()
    return found


def _value(text: str, like: Scalar, given: str) -> Scalar:
    """`text` as a value of the type of `like`."""
    try:
        if isinstance(like, bool):
            return {"true": True, "false": False}[text.strip().lower()]
        return type(like)(text.strip())
    except (KeyError, ValueError):
        raise ValueError(
            f"expected values of the type {type(like).__name__}, got {text!r} in {given!r}"
        ) from None


def chosen(experiment: Experiment, values: Mapping[str, Value]) -> Experiment:
    """The experiment with these values of the options at these paths."""
    for path, value in values.items():
        part, _, name = path.partition(".")
        options = replace(getattr(experiment, part), **{name: value})
        experiment = replace(experiment, **{part: options})
    return experiment


def check_apart(dimensions: Sequence[Dimension]) -> None:
    """Raise `ValueError` if an option is searched twice, or none is."""
    paths = [dimension.path for dimension in dimensions]
    if not paths:
        raise ValueError("expected options to search, got none: give --search PART.NAME=LOW..HIGH")
    if twice := {path for path in paths if paths.count(path) > 1}:
        raise ValueError(f"expected each option once, got {', '.join(sorted(twice))} twice")


Report = Callable[[int, float], bool]
"""Called with a step and its validation score; returns whether to stop the trial."""


class End(NamedTuple):
    """How a trial ended, and why: `complete`, `behind` other trials, `bad` (its loss was not
    finite), or `stopped` (it can be resumed)."""

    how: str
    why: str = ""


def attempt(experiment: Experiment, folder: Path, report: Report, stop: Callable[[], bool]) -> End:
    """Train in `folder`, from its newest checkpoint if it has one, and report each validation
    score."""
    behind = bad = False

    def told(step: int, record: Mapping[str, int | float | None]) -> None:
        nonlocal behind, bad
        if "validation" in record:
            score = record["validation"]
            bad = bad or score is None
            behind = behind or (score is not None and report(step, score))

    saved = checkpoint.latest(folder / "checkpoints") or 0
    for record in read_metrics(folder / "metrics.jsonl"):
        if record["step"] <= saved:
            told(record["step"], record)
    try:
        if not (behind or bad):
            reached = run(experiment, folder, watch=told, stop=lambda: behind or bad or stop())
    except NotFiniteError as error:
        return End("bad", str(error))
    finally:
        # Each trial compiles programs of its own.
        jax.clear_caches()
    if bad:
        return End("bad", "the validation score is not finite")
    if behind:
        return End("behind")
    return End("complete" if reached == experiment.steps else "stopped")


def work(job: Message, send: Send, stop: Callable[[], bool]) -> Message:
    """A trial as a worker's job `{experiment, folder}`: sends each score as `{step, score}`."""

    def report(step: int, score: float) -> bool:
        send({"step": step, "score": score})
        return False

    experiment = from_json(job["experiment"], "the experiment of a trial")
    end = attempt(experiment, Path(job["folder"]), report, stop)
    return {"end": end.how, "error": end.why}


FORMAT = 1
JOURNAL = "study.jsonl"
RUN = "run"
"""The attribute of a trial that names its folder, if its number does not."""

Watch = Callable[["Trial"], None]


class Plan(TypedDict):
    """`plan.json`."""

    format: Literal[1]
    experiment: Json
    search: list[Text]
    pruner: Literal["median", "hyperband", "none"]


@dataclass(frozen=True)
class Sweep:
    """The options that are searched, and how trials are stopped early."""

    experiment: Experiment
    search: tuple[Dimension, ...]
    pruner: Literal["median", "hyperband", "none"] = "median"

    def check(self) -> None:
        """Raise `ValueError` if the sweep cannot be run."""
        self.experiment.check()
        check_apart(self.search)

    def to_json(self) -> Json:
        """As plain data."""
        return {
            "format": FORMAT,
            "experiment": to_json(absolute(self.experiment)),
            "search": [str(dimension) for dimension in self.search],
            "pruner": self.pruner,
        }


@dataclass
class Trial:
    """One choice of options, and its scores."""

    number: int
    folder: Path
    values: dict[str, Value]
    scores: dict[int, float] = field(default_factory=dict)
    """Validation score by step."""
    state: Literal["running", "complete", "pruned"] = "running"
    why: str = ""
    """The reason for an early end, if its loss was not finite."""

    @property
    def score(self) -> float | None:
        """The last validation score."""
        return self.scores[max(self.scores)] if self.scores else None


def optuna() -> Any:
    """The package Optuna. **Raises** `ValueError` if it is not installed."""
    package = extra("optuna", "tune", "a sweep")
    package.logging.set_verbosity(package.logging.ERROR)
    return package


class Study:
    """Optuna's study of a sweep."""

    def __init__(self, sweep: Sweep, folder: Path) -> None:
        package = self.optuna = optuna()
        self.sweep, self.folder = sweep, folder
        journal = package.storages.journal
        steps, every = sweep.experiment.steps, sweep.experiment.validate_every
        pruners = {
            "median": lambda: package.pruners.MedianPruner(n_warmup_steps=steps // 10),
            "hyperband": lambda: package.pruners.HyperbandPruner(
                min_resource=every, max_resource=max(steps, every)
            ),
            "none": package.pruners.NopPruner,
        }
        # Mean squared error falls, accuracy rises.
        falls = metric_of(sweep.experiment.tasks) == "mse"
        self.asked: dict[int, Any] = {}
        try:
            record = journal.JournalFileBackend(str(folder / JOURNAL))
            self.study = package.create_study(
                study_name="arml",
                storage=package.storages.JournalStorage(record),
                direction="minimize" if falls else "maximize",
                pruner=pruners[sweep.pruner](),
                load_if_exists=True,
            )
            self._take_up()
        except Exception as error:  # of any kind: Optuna reads the file
            said = " ".join(str(error).split())[:200]
            raise RunError(
                f"{folder / JOURNAL}: Optuna cannot read its record ({type(error).__name__}: "
                f"{said}); restore the file, or start the sweep in a new folder"
            ) from error

    def _of(self, *states: str) -> list[Any]:
        wanted = [self.optuna.trial.TrialState[state] for state in states]
        return list(self.study.get_trials(deepcopy=False, states=wanted))

    def _take_up(self) -> None:
        """Queue the trials that were interrupted, with their values and folders."""
        for old in self._of("RUNNING"):
            self.study.enqueue_trial(old.params, user_attrs={RUN: self._place(old).name})
            self.study.tell(old.number, state=self.optuna.trial.TrialState.FAIL)

    def next(self, trials: int) -> Trial | None:
        """The next trial, or None if there are `trials`."""
        begun = len(self._of("RUNNING", "COMPLETE", "PRUNED"))
        if begun >= trials:
            return None
        # A new sampler for each trial, so that a resumed sweep proposes the same values.
        self.study.sampler = self.optuna.samplers.TPESampler(
            seed=self.sweep.experiment.seed + begun
        )
        asked = self.study.ask()
        self.asked[asked.number] = asked
        values = {one.path: one.suggest(asked) for one in self.sweep.search}
        return Trial(asked.number, self._place(asked), values)

    def _place(self, trial: Any) -> Path:
        """The run folder of one of Optuna's trials."""
        return self.folder / "trials" / str(trial.user_attrs.get(RUN, f"{trial.number:04d}"))

    def report(self, trial: Trial, step: int, score: float) -> bool:
        """Record a validation score; returns whether the trial has fallen behind."""
        asked = self.asked[trial.number]
        trial.scores[step] = score
        asked.report(score, step)
        return step < self.sweep.experiment.steps and bool(asked.should_prune())

    def end(self, trial: Trial, end: End) -> None:
        """Record that the trial is over."""
        trial.why = end.why
        if end.how == "complete":
            trial.state = "complete"
            self.study.tell(trial.number, trial.score)
        else:
            trial.state = "pruned"
            self.study.tell(trial.number, state=self.optuna.trial.TrialState.PRUNED)

    def ended(self) -> list[Trial]:
        """The trials that are over, the best first; those that ended early are last."""
        rows = [
            Trial(
                one.number,
                self._place(one),
                dict(one.params),
                dict(one.intermediate_values),
                "complete" if one.state.name == "COMPLETE" else "pruned",
            )
            for one in self._of("COMPLETE", "PRUNED")
        ]
        sign = 1 if self.study.direction.name == "MINIMIZE" else -1
        return sorted(
            rows, key=lambda row: (row.state, 0.0 if row.score is None else sign * row.score)
        )


def tune(
    sweep: Sweep,
    folder: Path | str,
    *,
    trials: int,
    workers: int = 1,
    watch: Watch = lambda trial: None,
    stop: Callable[[], bool] = lambda: False,
) -> list[Trial]:
    """Try `trials` choices of the sweep's options in `folder`, or continue an earlier call.
    `workers` trials run at a time. If there are several, each trial has a process of its own.

    **Returns** the trials that are over, the best first.

    **Raises** `ValueError` or `RunError` in one line for invalid options, for a folder that holds
    another sweep, and if Optuna is not installed.
    """
    folder = Path(folder)
    sweep.check()
    for name, value in (("trials", trials), ("workers", workers)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}: raise it")
    optuna()
    with alone(folder):
        _claim(sweep, folder)
        study = Study(sweep, folder)
        if workers == 1:
            _one_by_one(study, trials, watch, stop)
        else:
            _side_by_side(study, trials, workers, watch, stop)
        return study.ended()


def _one_by_one(study: Study, trials: int, watch: Watch, stop: Callable[[], bool]) -> None:
    while not stop() and (trial := study.next(trials)) is not None:
        experiment = chosen(study.sweep.experiment, trial.values)
        end = attempt(experiment, trial.folder, partial(study.report, trial), stop)
        if end.how != "stopped":
            study.end(trial, end)
            watch(trial)


def _side_by_side(
    study: Study, trials: int, workers: int, watch: Watch, stop: Callable[[], bool]
) -> None:
    running: dict[str, Trial] = {}
    behind: set[str] = set()

    def jobs() -> Iterator[Message]:
        while (trial := study.next(trials)) is not None:
            running[str(trial.folder)] = trial
            experiment = to_json(chosen(study.sweep.experiment, trial.values))
            yield {"experiment": experiment, "folder": str(trial.folder)}

    def heard(index: int, job: Message, message: Message) -> bool:
        folder = job["folder"]
        trial = running[folder]
        if "end" not in message:
            if study.report(trial, message["step"], message["score"]):
                behind.add(folder)
            return folder in behind
        end = End(message["end"], message.get("error", ""))
        if end.how == "failed":
            raise RunError(f"the trial in {folder} failed: {end.why}")
        if end.how == "stopped" and folder in behind:
            end = End("behind")
        if end.how != "stopped":
            study.end(trial, end)
            watch(trial)
        return False

    carry_out(
        jobs(),
        processes("arml.experiment.search:work", study.folder, workers),
        workers=workers,
        heard=heard,
        stop=stop,
    )


def _claim(sweep: Sweep, folder: Path) -> None:
    """Write the sweep into the folder, or check that the folder holds it."""
    path = folder / "plan.json"
    plan = plain(sweep.to_json())
    if not path.exists():
        if (folder / "config.json").exists() or seeds_in(folder):
            raise RunError(f"expected a folder for a sweep, got {folder} with runs: name another")
        write_json(path, plan)
        return
    known = read_checked(path, Plan, "restore the file, or give another folder")
    rows = differences(known, plan)
    if rows:
        raise RunError(
            f"{folder} holds another sweep: {'; '.join(rows[:8])}. Give the options it was made "
            "with to continue it, or another folder to start a new one"
        )
