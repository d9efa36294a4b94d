"""A sweep of an experiment's options: Optuna proposes values, `run` trains with them, and trials
that fall behind are stopped early. All trials are scored on the same meta-validation tasks, never
on test tasks.

The folder holds `study.jsonl`, the record of Optuna, and a run folder for each trial under
`trials/`. The same call in the same folder continues the sweep, or joins others that run there:
a trial that was stopped, or whose process died, resumes at its checkpoint. With one worker, a
proposal depends only on the seed and on the earlier trials. A database can hold the record.
"""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import fields, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
from filelock import FileLock
from msgspec import ValidationError, convert

from arml.algorithms import ALGORITHMS
from arml.datasets.decode import LOG
from arml.experiment.options import Experiment, absolute, from_json, metric_of, to_json
from arml.experiment.running import CHECKPOINTS_FOLDER, METRICS_FILE, check_same, run
from arml.experiment.workers import Job, Stopping, carry_out
from arml.results.files import (
    Json,
    RunError,
    brief,
    cannot_write,
    drop_half_line,
    locked,
    plain,
    read_metrics,
)
from arml.results.folder import CONFIG_FILE, seeds_in
from arml.results.machine import extra
from arml.training import checkpoint
from arml.training.fit import NotFiniteError

if TYPE_CHECKING:
    import optuna

_SEARCHED_PARTS = ("algorithm", "outer", "network")  # scores on different tasks cannot be compared
JOURNAL_FILE = "study.jsonl"
LOCK_SECONDS = 60.0
"""Seconds to wait for other processes, which lock the sweep to choose a trial."""
HEARTBEAT_SECONDS, DEAD_SECONDS = 30, 180
"""Seconds between two heartbeats of a trial in a database, and seconds until it counts as dead."""
DATABASE_SECONDS = 3600.0
"""Seconds to wait for a database that is unreachable."""

Distribution: TypeAlias = "optuna.distributions.BaseDistribution"
Space = dict[str, Distribution]
"""Optuna's distribution of the values of each option, by its path PART.NAME."""


def installed() -> ModuleType:
    """The package Optuna. **Raises** `ValueError` if it is not installed."""
    package = extra("optuna", "tune", "a sweep")
    package.logging.set_verbosity(package.logging.ERROR)
    warnings.filterwarnings("ignore", category=package.exceptions.ExperimentalWarning)
    return package


def usual(experiment: Experiment) -> Space:
    """The options that are searched by default: the step sizes and weights that the method names,
    and the outer rate, each from a tenth of its value to ten times it."""
    named = ALGORITHMS.get(experiment.recipe.rpartition("/")[2])
    own = (named or ALGORITHMS.of(experiment.algorithm)).tune or ()
    values = {f"algorithm.{name}": getattr(experiment.algorithm, name, 0) for name in own}
    values["outer.outer_rate"] = getattr(experiment.outer, "outer_rate", 0)
    distribution = installed().distributions.FloatDistribution
    return {path: distribution(v / 10, v * 10, log=True) for path, v in values.items() if v}


def space(texts: tuple[str, ...], experiment: Experiment) -> Space:
    """The options that texts of the form `PART.NAME=LOW..HIGH` or `PART.NAME=A,B,C` name. A range
    that spans a factor of ten is searched on a logarithmic scale. **Raises** `ValueError` in one
    line for an unknown option, for one that is named twice, and for invalid values."""
    found: Space = {}
    for path, distribution in (_dimension(text, experiment) for text in texts):
        if path in found:
            raise ValueError(f"expected each option once, got {path} twice")
        found[path] = distribution
    return found


def _dimension(text: str, experiment: Experiment) -> tuple[str, Distribution]:
    path, _, values = text.partition("=")
    part, _, name = path.partition(".")
    options = getattr(experiment, part, None) if part in _SEARCHED_PARTS else None
    known = {field.name: field.type for field in fields(options)} if options else {}
    if name not in known:
        raise ValueError(
            f"expected an option of {', '.join(_SEARCHED_PARTS)} to search, such as "
            f"algorithm.inner_rate, got {path!r}"
            + (f": {part} has {', '.join(known)}" if known else "")
        )
    low, dots, high = values.partition("..")
    if not values or isinstance(getattr(options, name), tuple):
        raise ValueError(f"expected {path}=LOW..HIGH or {path}=A,B,C, got {text!r}: change it")
    texts = (low, high) if dots else values.split(",")
    try:
        tried = [convert(one.strip(), known[name], strict=False) for one in texts]
    except ValidationError as error:
        raise ValueError(f"{text}: {error}") from None
    for one in tried:
        chosen(experiment, {path: one}).check()
    distributions = installed().distributions
    if not dots:
        return path, distributions.CategoricalDistribution(tried)
    kind = {int: "IntDistribution", float: "FloatDistribution"}.get(type(tried[0]))
    if kind is None or not tried[0] < tried[1]:
        raise ValueError(f"expected a range of numbers from low to high, got {text!r}: change it")
    return path, getattr(distributions, kind)(*tried, log=0 < tried[0] <= tried[1] / 10)


def chosen(experiment: Experiment, values: Mapping[str, object]) -> Experiment:
    """The experiment with these values of the options at these paths."""
    for path, value in values.items():
        part, _, name = path.partition(".")
        options = replace(getattr(experiment, part), **{name: value})
        experiment = replace(experiment, **{part: options})
    return experiment


def space_in_words(search: Space) -> str:
    """The options and their values in one line."""
    return "  ".join(f"{path}={_in_words(one)}" for path, one in search.items())


def _in_words(one: Any) -> str:
    """The values that an option may have."""
    wide = hasattr(one, "low")
    return f"{one.low:g}..{one.high:g}" if wide else ",".join(map(str, one.choices))


def tune(
    experiment: Experiment,
    search: Space,
    folder: Path | str,
    *,
    trials: int,
    workers: int = 1,
    watch: Callable[["optuna.trial.FrozenTrial"], None] = lambda trial: None,
    stop: Stopping = lambda: False,
    storage: str | None = None,
    on: str | None = None,
) -> "list[optuna.trial.FrozenTrial]":
    """Try `trials` choices of the experiment's options in `folder`, all processes together, or
    continue an earlier call. `workers` trials run at a time, each in a separate process if there
    are several. `watch` is called with each trial of this call that is over. `storage` is the
    address of a database for Optuna's record, which then holds a study of the folder's name; `on`
    names the place of the workers, as in `carry_out`. **Returns** the trials that are over, the
    best first, as Optuna's `FrozenTrial`. Their user attribute `run` names the run folder under
    `trials/`; `why` is the reason for an early end if the loss was not finite. **Raises**
    `ValueError` or `RunError` in one line for invalid options, for a folder that holds another
    sweep, for a trial that failed, and if Optuna is not installed."""
    folder = Path(folder)
    experiment.check()
    if not search:
        raise ValueError("expected options to search, got none: give --search PART.NAME=LOW..HIGH")
    for name, value in (("trials", trials), ("workers", workers)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    states = installed().trial.TrialState
    ended = [states.COMPLETE, states.PRUNED]
    study = opened(experiment, search, folder, storage)
    if workers == 1 and on is None:
        for number in _tried(study, experiment, folder, search, trials, stop, storage):
            watch(study.get_trials()[number])
    else:
        shared = {"folder": str(folder.resolve()), "trials": trials, "storage": storage}
        jobs = [{**_plan(experiment, search), **shared}] * workers
        known = {trial.number for trial in study.get_trials(states=ended)}

        def look() -> None:
            for trial in study.get_trials(states=ended):
                if trial.number not in known:
                    known.add(trial.number)
                    watch(trial)

        work = f"{__name__}:{_work.__name__}"
        for _, why in carry_out(work, jobs, folder, workers=workers, stop=stop, watch=look, on=on):
            if why:
                raise RunError(why)
    over = study.get_trials(states=ended)
    sign = 1 if _falls(experiment) else -1
    return sorted(over, key=lambda t: (t.state.name, 0 if t.value is None else sign * t.value))


def _work(job: Job, stop: Stopping) -> None:
    """Try one choice after another as a worker."""
    read = installed().distributions.json_to_distribution
    experiment = from_json(job["experiment"], "the experiment of a sweep")
    search = {path: read(text) for path, text in job["search"].items()}
    folder, trials, storage = Path(job["folder"]), job["trials"], job["storage"]
    study = opened(experiment, search, folder, storage)
    for _ in _tried(study, experiment, folder, search, trials, stop, storage):
        pass


def _falls(experiment: Experiment) -> bool:
    """Whether a better score is smaller."""
    return metric_of(experiment.tasks) == "mse"


def _plan(experiment: Experiment, search: Space) -> Json:
    """The sweep as plain data."""
    write = installed().distributions.distribution_to_json
    written = {path: write(one) for path, one in search.items()}
    return {"experiment": plain(to_json(absolute(experiment))), "search": written}


def _readable(plan: Json) -> Json:
    """The sweep with the values of its options in words."""
    read = installed().distributions.json_to_distribution
    searched = {path: _in_words(read(text)) for path, text in plan["search"].items()}
    return {"experiment": plan["experiment"], **searched}


def opened(
    experiment: Experiment, search: Space, folder: Path, storage: str | None = None
) -> "optuna.Study":
    """Optuna's study of the sweep, which its record in the folder, or the database, holds.
    **Raises** `RunError` if the folder holds another sweep, or runs, or a damaged record."""
    if (folder / CONFIG_FILE).exists() or seeds_in(folder):
        raise RunError(f"expected a folder for a sweep, got {folder} with runs: name another")
    package = installed()
    with locked(folder, LOCK_SECONDS):
        try:
            if storage is None:
                # The system releases this lock when a process dies; Optuna's own would stay.
                lock = FileLock(folder.absolute() / ".study.lock", timeout=LOCK_SECONDS)
                kept = package.storages.JournalStorage(_journal(folder / JOURNAL_FILE, lock))
            else:
                kept = _database(storage)
            study = package.create_study(
                study_name="arml" if storage is None else folder.resolve().name,
                storage=kept,
                direction="minimize" if _falls(experiment) else "maximize",
                pruner=package.pruners.MedianPruner(n_warmup_steps=experiment.steps // 10),
                load_if_exists=True,
            )
            plan, known = _plan(experiment, search), study.user_attrs.get("plan")
        except ImportError as error:
            raise ValueError(
                f"--storage {storage}: no driver for this database ({error}): pip install "
                "'arml[postgresql]' for PostgreSQL"
            ) from None
        except RunError:
            raise
        except Exception as error:  # of any kind: Optuna reads the file
            text = brief(error, 200)
            where, what = "--storage", "check the address, and that the server runs"
            if storage is None:
                where, what = str(folder / JOURNAL_FILE), "restore it, or use a new folder"
            raise RunError(
                f"{where}: Optuna cannot read its record ({type(error).__name__}: {text}); {what}"
            ) from error
        if known is None:
            study.set_user_attr("plan", plan)
    if known is not None:
        check_same(folder, _readable(known), _readable(plan), "sweep")
        check_same(folder, known, plan, "sweep")  # two ranges may have the same words
    return study


def _journal(path: Path, lock: FileLock) -> Any:
    """Optuna's record in a file. A last line that a full disk or a dead process cut short is
    dropped before another follows: the rest of the record could not be read after it."""
    backend = installed().storages.journal.JournalFileBackend

    class Journal(backend):  # type: ignore[misc, valid-type]
        def append_logs(self, logs: list[Json]) -> None:
            with lock:
                drop_half_line(path)
                try:
                    super().append_logs(logs)
                except OSError as error:
                    raise cannot_write(path, error) from error

    return Journal(str(path), lock)


def _database(address: str) -> "optuna.storages.RDBStorage":
    """Optuna's record in a database. A server that leaves is waited for."""
    from sqlalchemy import event, make_url

    url = make_url(address)
    if url.drivername == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    storages = installed().storages
    kept = storages.RDBStorage(
        url.render_as_string(hide_password=False),
        engine_kwargs={"pool_pre_ping": True},
        heartbeat_interval=HEARTBEAT_SECONDS,
        grace_period=DEAD_SECONDS,
        heartbeat_stale_trial_callback=storages.RetryHeartbeatStaleTrialCallback(),
    )

    @event.listens_for(kept.engine, "do_connect")
    def patient(dialect: Any, record: Any, arguments: Any, options: Any) -> Any:
        since = time.monotonic()
        while True:
            try:
                return dialect.connect(*arguments, **options)
            except dialect.loaded_dbapi.OperationalError as error:
                if time.monotonic() - since > DATABASE_SECONDS:
                    raise
                LOG.warning(f"--storage: waiting for the server ({brief(error)})")
                time.sleep(5)

    return kept


def _tried(
    study: "optuna.Study",
    experiment: Experiment,
    folder: Path,
    search: Space,
    trials: int,
    stop: Stopping,
    storage: str | None,
) -> Iterator[int]:
    """Try one choice after another until there are `trials`; yields the number of each that is
    over. Other processes may do the same in the same study."""
    states, over = installed().trial.TrialState, list[int]()
    gone = installed().exceptions.UpdateFinishedTrialError

    def counted() -> list[int]:
        kinds = [states.RUNNING, states.COMPLETE, states.PRUNED]
        return [trial.number for trial in study.get_trials(deepcopy=False, states=kinds)]

    def again(trial: "optuna.trial.BaseTrial | optuna.trial.FrozenTrial") -> None:
        """Queue a trial that did not end: another will have its values and its run folder."""
        study.enqueue_trial(trial.params, user_attrs=trial.user_attrs)

    while not stop():
        with ExitStack() as choosing, ExitStack() as held:
            choosing.enter_context(locked(folder, LOCK_SECONDS))
            if storage is None:
                for old in study.get_trials(states=[states.RUNNING]):
                    # A trial whose folder is not locked has no process any more.
                    with suppress(RunError), locked(_place_of(old, folder)):
                        again(old)
                        study.tell(old.number, state=states.FAIL)
            else:
                installed().storages.fail_stale_trials(study)
            if (count := len(counted())) >= trials:
                return
            # A new sampler for each trial, so that a resumed sweep proposes the same values.
            seed = experiment.seed + count
            study.sampler = installed().samplers.TPESampler(seed=seed, constant_liar=True)

            def objective(
                trial: "optuna.Trial", choosing: ExitStack = choosing, held: ExitStack = held
            ) -> float | None:
                for path, one in search.items():
                    _suggested(trial, path, one)
                if counted().index(trial.number) >= trials:  # another process was faster
                    return None
                if "run" not in trial.user_attrs:
                    trial.set_user_attr("run", f"{trial.number:04d}")
                # Until Optuna has the result: others take a trial whose folder is free as dead.
                held.enter_context(locked(_place_of(trial, folder), LOCK_SECONDS))
                choosing.close()
                try:
                    score = _score(trial, chosen(experiment, trial.params), folder, stop)
                except installed().TrialPruned:
                    over.append(trial.number)
                    raise
                except gone:
                    raise
                except (Exception, KeyboardInterrupt):
                    again(trial)
                    raise
                if score is None:
                    again(trial)
                else:
                    over.append(trial.number)
                return score

            try:
                study.optimize(objective, n_trials=1)
            except gone:  # its database was away for so long that another process took it up
                over.clear()
                continue
        if not over:
            return
        yield over.pop()


def _suggested(trial: "optuna.Trial", path: str, one: Distribution) -> None:
    """Let Optuna choose a value of an option."""
    if hasattr(one, "choices"):
        trial.suggest_categorical(path, one.choices)
    else:
        suggest = trial.suggest_int if isinstance(one.low, int) else trial.suggest_float
        suggest(path, one.low, one.high, log=one.log)


def _place_of(trial: "optuna.trial.BaseTrial | optuna.trial.FrozenTrial", folder: Path) -> Path:
    """The run folder of a trial."""
    return folder / "trials" / str(trial.user_attrs.get("run", f"{trial.number:04d}"))


def _score(
    trial: "optuna.Trial", experiment: Experiment, folder: Path, stop: Stopping
) -> float | None:
    """Train, from the newest checkpoint if there is one; returns the validation score of the kept
    learner, or None if the training was stopped and can be resumed. **Raises** Optuna's
    `TrialPruned` for a trial that has fallen behind, or is not finite."""
    place, pruned = _place_of(trial, folder), installed().TrialPruned
    behind, better = False, min if _falls(experiment) else max
    score: float | None = None

    def watch(step: int, record: Mapping[str, int | float | None]) -> None:
        nonlocal behind, score
        if "validation" in record and not behind:
            new = record["validation"]
            if new is None:
                raise NotFiniteError(f"the validation score is not finite at step {step}")
            score = new if score is None or experiment.keep == "last" else better(score, new)
            trial.report(new, step)
            behind = step < experiment.steps and trial.should_prune()

    try:
        experiment.check()
    except ValueError as error:  # of values that are each valid
        trial.set_user_attr("why", str(error))
        raise pruned from error
    try:
        saved = checkpoint.latest(place / CHECKPOINTS_FOLDER) or 0
        for record in read_metrics(place / METRICS_FILE):
            if record["step"] <= saved:
                watch(record["step"], record)
        reached = run(experiment, place, watch=watch, stop=lambda: behind or stop()).last
    except NotFiniteError as error:
        trial.set_user_attr("why", str(error))
        raise pruned from error
    except (ValueError, OSError) as error:
        raise RunError(f"the trial in {place} failed: {error}") from error
    finally:
        jax.clear_caches()  # each trial compiles its own programs
    if behind:
        raise pruned
    # It may have ended early by its patience.
    return None if reached < experiment.steps and stop() else score
