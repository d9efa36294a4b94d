"""A sweep of an experiment's options: Optuna proposes values, `run` trains with them, and trials
that fall behind are stopped early. All trials are scored on the same meta-validation tasks, never
on test tasks.

The folder holds `study.jsonl`, Optuna's own record, and a run folder for each trial under
`trials/`. The same call in the same folder continues the sweep: a trial that was stopped resumes at
its checkpoint, and the next proposal depends only on the seed and on the trials before it.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import jax

from arml.algorithms import ALGORITHMS
from arml.experiment.options import Experiment, absolute, from_json, metric_of, to_json
from arml.experiment.recipes import RECIPES
from arml.experiment.running import CONFIG, differences, run
from arml.experiment.workers import Message, Send, Stop, carry_out
from arml.results.files import Json, RunError, alone, extra, plain, read_metrics
from arml.results.folder import seeds_in
from arml.training import checkpoint
from arml.training.fit import NotFiniteError

PARTS = ("algorithm", "outer", "network")
"""The parts whose options can be searched. The options of the tasks cannot: scores on different
tasks cannot be compared."""
JOURNAL = "study.jsonl"

Value = bool | int | float | str
Space = dict[str, Any]
"""Optuna's distribution of the values of each option, by its path PART.NAME."""


def optuna() -> Any:
    """The package Optuna. **Raises** `ValueError` if it is not installed."""
    package = extra("optuna", "tune", "a sweep")
    package.logging.set_verbosity(package.logging.ERROR)
    return package


def usual(experiment: Experiment) -> Space:
    """The options that are searched by default: the step sizes and weights that the method names,
    and the outer rate, each from a tenth of its value to ten times it."""
    known = RECIPES.get(experiment.recipe)
    own = (known.method if known else ALGORITHMS.of(experiment.algorithm)).tune or ()
    values = {f"algorithm.{name}": getattr(experiment.algorithm, name, 0) for name in own}
    values["outer.outer_rate"] = experiment.outer.outer_rate
    distribution = optuna().distributions.FloatDistribution
    return {path: distribution(v / 10, v * 10, log=True) for path, v in values.items() if v}


def space(texts: tuple[str, ...], experiment: Experiment) -> Space:
    """The options that texts of the form `PART.NAME=LOW..HIGH` or `PART.NAME=A,B,C` name. A range
    that spans a factor of ten is searched on a logarithmic scale.

    **Raises** `ValueError` in one line for an unknown option, for one that is named twice, and for
    invalid values.
    """
    found: Space = {}
    for text in texts:
        path, distribution = _dimension(text, experiment)
        if path in found:
            raise ValueError(f"expected each option once, got {path} twice")
        found[path] = distribution
    return found


def _dimension(text: str, experiment: Experiment) -> tuple[str, Any]:
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
    tried = [_value(one, now, text) for one in ((low, high) if dots else values.split(","))]
    distributions = optuna().distributions
    if dots:
        first, last = tried
        numbers = isinstance(first, int | float) and isinstance(last, int | float)
        if isinstance(now, bool) or not numbers or not -math.inf < first < last < math.inf:
            raise ValueError(
                f"expected a range of numbers from low to high, got {text!r}: change it"
            )
        whole = distributions.IntDistribution, distributions.FloatDistribution
        found = whole[not isinstance(now, int)](first, last, log=0 < first <= last / 10)
    else:
        allowed = get_args(known[name]) or tried
        if not {*tried} <= {*allowed}:
            raise ValueError(
                f"expected values of {', '.join(map(str, allowed))}, got {text!r}: change it"
            )
        found = distributions.CategoricalDistribution(tried)
    for one in tried:
        chosen(experiment, {path: one}).check()
    return path, found


def _value(text: str, like: Value, whole: str) -> Value:
    """`text` as a value of the type of `like`."""
    try:
        if isinstance(like, bool):
            return {"true": True, "false": False}[text.strip().lower()]
        return type(like)(text.strip())
    except (KeyError, ValueError):
        raise ValueError(
            f"expected values of the type {type(like).__name__}, got {text!r} in {whole!r}"
        ) from None


def chosen(experiment: Experiment, values: Mapping[str, Any]) -> Experiment:
    """The experiment with these values of the options at these paths."""
    for path, value in values.items():
        part, _, name = path.partition(".")
        options = replace(getattr(experiment, part), **{name: value})
        experiment = replace(experiment, **{part: options})
    return experiment


@dataclass(frozen=True)
class Sweep:
    """The experiment and the options that are searched."""

    experiment: Experiment
    search: Space

    def check(self) -> None:
        """Raise `ValueError` if the sweep cannot be run."""
        self.experiment.check()
        if not self.search:
            raise ValueError(
                "expected options to search, got none: give --search PART.NAME=LOW..HIGH"
            )

    def __str__(self) -> str:
        return "  ".join(
            f"{path}={one.low:g}..{one.high:g}"
            if hasattr(one, "low")
            else f"{path}={','.join(map(str, one.choices))}"
            for path, one in self.search.items()
        )

    def to_json(self) -> Json:
        """As plain data."""
        return {
            "experiment": plain(to_json(absolute(self.experiment))),
            "search": {
                path: optuna().distributions.distribution_to_json(one)
                for path, one in self.search.items()
            },
        }

    @classmethod
    def from_json(cls, value: Json) -> "Sweep":
        """The inverse of `to_json`."""
        read = optuna().distributions.json_to_distribution
        search = {path: read(text) for path, text in value["search"].items()}
        return cls(from_json(value["experiment"], "a sweep"), search)


class Trial(NamedTuple):
    """One choice of options, and its scores."""

    number: int
    folder: Path
    values: dict[str, Value]
    scores: dict[int, float]
    """Validation score by step."""
    finished: bool
    """Whether it took all steps; if not, it fell behind, or its loss was not finite."""
    why: str
    """The reason for an early end, if its loss was not finite."""

    @property
    def score(self) -> float | None:
        """The last validation score."""
        return self.scores[max(self.scores)] if self.scores else None


Watch = Callable[[Trial], None]


def tune(
    sweep: Sweep,
    folder: Path | str,
    *,
    trials: int,
    workers: int = 1,
    watch: Watch = lambda trial: None,
    stop: Stop = lambda: False,
) -> list[Trial]:
    """Try `trials` choices of the sweep's options in `folder`, or continue an earlier call.
    `workers` trials run at a time, each in a process of its own if there are several. `watch` is
    called with each trial that is over.

    **Returns** the trials that are over, the best first.

    **Raises** `ValueError` or `RunError` in one line for invalid options, for a folder that holds
    another sweep, for a trial that failed, and if Optuna is not installed.
    """
    folder = Path(folder)
    sweep.check()
    for name, value in (("trials", trials), ("workers", workers)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}: raise it")
    states = optuna().trial.TrialState
    with alone(folder):
        study = opened(sweep, folder)
        for old in study.get_trials(states=[states.RUNNING]):
            # It was interrupted: the next trial has its values and its folder.
            study.enqueue_trial(old.params, user_attrs={"run": _place(old, folder).name})
            study.tell(old.number, state=states.FAIL)
        if workers == 1:
            for number in _tried(study, sweep, folder, trials, stop):
                watch(_trial(study, number, folder))
        else:
            job = {"sweep": sweep.to_json(), "folder": str(folder.resolve()), "trials": trials}
            failed = carry_out(
                "arml.experiment.search:work",
                [job] * workers,
                folder,
                workers=workers,
                heard=lambda _, ended: watch(_trial(study, ended["trial"], folder)),
                stop=stop,
            )
            if failed:
                raise RunError(next(iter(failed.values())))
        over = study.get_trials(states=[states.COMPLETE, states.PRUNED])
        found = [_trial(study, one.number, folder) for one in over]
    sign = 1 if _falls(sweep) else -1
    return sorted(found, key=lambda t: (not t.finished, 0 if t.score is None else sign * t.score))


def work(job: Message, send: Send, stop: Stop) -> None:
    """Try one choice after another as a worker, and send the number of each trial that is over."""
    sweep, folder = Sweep.from_json(job["sweep"]), Path(job["folder"])
    for number in _tried(opened(sweep, folder), sweep, folder, job["trials"], stop):
        send({"trial": number})


def _falls(sweep: Sweep) -> bool:
    """Whether a better score is smaller."""
    return metric_of(sweep.experiment.tasks) == "mse"


def opened(sweep: Sweep, folder: Path) -> Any:
    """Optuna's study of the sweep, which its record in the folder holds.

    **Raises** `RunError` if the folder holds another sweep, or runs, or a damaged record.
    """
    if (folder / CONFIG).exists() or seeds_in(folder):
        raise RunError(f"expected a folder for a sweep, got {folder} with runs: name another")
    package = optuna()
    try:
        record = package.storages.journal.JournalFileBackend(str(folder / JOURNAL))
        study = package.create_study(
            study_name="arml",
            storage=package.storages.JournalStorage(record),
            direction="minimize" if _falls(sweep) else "maximize",
            pruner=package.pruners.MedianPruner(n_warmup_steps=sweep.experiment.steps // 10),
            load_if_exists=True,
        )
        plan, known = sweep.to_json(), study.user_attrs.get("plan")
    except Exception as error:  # of any kind: Optuna reads the file
        said = " ".join(str(error).split())[:200]
        raise RunError(
            f"{folder / JOURNAL}: Optuna cannot read its record ({type(error).__name__}: "
            f"{said}); restore the file, or start the sweep in a new folder"
        ) from error
    if known is None:
        study.set_user_attr("plan", plan)
    elif rows := differences(known, plan):
        raise RunError(
            f"{folder} holds another sweep: {'; '.join(rows[:8])}. Give the options it was made "
            "with to continue it, or another folder to start a new one"
        )
    return study


def _place(trial: Any, folder: Path) -> Path:
    """The run folder of one of Optuna's trials."""
    return folder / "trials" / str(trial.user_attrs.get("run", f"{trial.number:04d}"))


def _trial(study: Any, number: int, folder: Path) -> Trial:
    """A trial that is over."""
    one = study.get_trials(deepcopy=False)[number]
    why = one.user_attrs.get("why", "")
    finished = one.state.name == "COMPLETE"
    return Trial(number, _place(one, folder), one.params, one.intermediate_values, finished, why)


def _tried(study: Any, sweep: Sweep, folder: Path, trials: int, stop: Stop) -> Iterator[int]:
    """Try one choice after another until there are `trials`; yields the number of each that is
    over. Other processes may do the same in the same study."""
    states = optuna().trial.TrialState
    counted = [states.RUNNING, states.COMPLETE, states.PRUNED]
    while not stop():
        begun = [trial.number for trial in study.get_trials(deepcopy=False, states=counted)]
        if len(begun) >= trials:
            return
        # A new sampler for each trial, so that a resumed sweep proposes the same values.
        seed = sweep.experiment.seed + len(begun)
        study.sampler = optuna().samplers.TPESampler(seed=seed, constant_liar=True)
        trial = study.ask(sweep.search)
        begun = [one.number for one in study.get_trials(deepcopy=False, states=counted)]
        if begun.index(trial.number) >= trials:  # another process was faster
            study.tell(trial, state=states.FAIL)
            return
        end = _attempt(trial, sweep, _place(trial, folder), stop)
        if end is None:
            return
        study.tell(trial, state=states[end.state], values=end.score)
        yield trial.number


class End(NamedTuple):
    """How a trial ended."""

    state: Literal["COMPLETE", "PRUNED"]
    score: float | None = None


def _attempt(trial: Any, sweep: Sweep, place: Path, stop: Stop) -> End | None:
    """Train with the trial's values, from the newest checkpoint if there is one; None if it was
    stopped and can be resumed."""
    experiment, behind, score = chosen(sweep.experiment, trial.params), False, None

    def watch(step: int, record: Mapping[str, int | float | None]) -> None:
        nonlocal behind, score
        if "validation" in record and not behind:
            score = record["validation"]
            if score is None:
                raise NotFiniteError(f"the validation score is not finite at step {step}")
            trial.report(score, step)
            behind = step < experiment.steps and trial.should_prune()

    try:
        saved = checkpoint.latest(place / "checkpoints") or 0
        for record in read_metrics(place / "metrics.jsonl"):
            if record["step"] <= saved:
                watch(record["step"], record)
        reached = (
            0 if behind else run(experiment, place, watch=watch, stop=lambda: behind or stop())
        )
    except NotFiniteError as error:
        trial.set_user_attr("why", str(error))
        return End("PRUNED")
    except (ValueError, OSError) as error:
        raise RunError(f"the trial in {place} failed: {error}") from error
    finally:
        jax.clear_caches()  # each trial compiles programs of its own
    if behind:
        return End("PRUNED")
    return End("COMPLETE", score) if reached == experiment.steps else None
