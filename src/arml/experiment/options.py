"""An experiment as pure data, and as JSON; the registries of its parts; and `register`, which adds
your own method, tasks, network or outer optimiser."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from arml.algorithms import ALGORITHMS
from arml.algorithms.maml import MAMLOptions
from arml.core.checks import MAX_COUNT, Options, Period, check_options
from arml.core.episodes import Problem, problem_fields
from arml.core.inputs import INPUTS
from arml.core.losses import score_of
from arml.core.registry import Entry, Registry
from arml.experiment.held import SplitsOptions
from arml.nn.networks import Conv4Options, MLPOptions
from arml.nn.residual import ResNet12Options, WideResNetOptions
from arml.plugins.sources import Source, source_of, warn_of_change
from arml.results.files import Json, RunError, read_as, read_options
from arml.tasks.options import (
    FoldersOptions,
    FunctionsOptions,
    StarterOptions,
    StoreOptions,
    VectorsOptions,
)
from arml.tasks.own import OwnOptions
from arml.tasks.splits import TasksOptions, splits_of
from arml.training.fit import FitOptions, OuterOptions, checked_callbacks

REGRESSION = Problem("regression", (2,), 1, shots=10, queries=10)
IMAGES = Problem("classification", (28, 28, 3), 5, 1, 15, inputs="pictures")
STARTER = Problem("classification", (32, 32, 3), 5, 1, 15, inputs="pictures")
VECTORS = Problem("classification", (512,), 5, shots=1, queries=15)
BENCHMARK = Problem("classification", (84, 84, 3), 5, 1, 15, inputs="pictures")


@dataclass(frozen=True, kw_only=True)
class TaskFamily(Entry):
    """One kind of tasks."""

    usual: Problem | None = None
    """The problem of its default options; if None, they are built to find it."""
    network: str = ""
    """The network of its recipes; if empty, `conv4` on images and `mlp` on vectors."""

    @property
    def problem(self) -> Problem:
        """The problem of its default options."""
        if self.usual is not None:
            return self.usual
        try:
            problem: Problem = splits_of(self.options_class()).train.problem
        except (ValueError, OSError) as error:
            raise ValueError(
                f"expected tasks {self.name!r} that can be made of their default options, got: "
                f"{error}; or give arml.register their usual problem: usual=arml.Problem(...)"
            ) from error
        return problem


TASKS: Registry[TaskFamily] = Registry(
    "tasks",
    TaskFamily,
    [
        TaskFamily(name=name, options_class=options, usual=usual)
        for name, options, usual in (
            ("functions", FunctionsOptions, REGRESSION),
            ("folders", FoldersOptions, IMAGES),
            ("starter", StarterOptions, STARTER),
            ("prepared", StoreOptions, BENCHMARK),
            ("vectors", VectorsOptions, VECTORS),
            ("own", OwnOptions, REGRESSION),
            ("splits", SplitsOptions, VECTORS),
        )
    ],
)
NETWORKS: Registry[Entry] = Registry(
    "network",
    Entry,
    [
        Entry(name="mlp", options_class=MLPOptions),
        Entry(name="conv4", options_class=Conv4Options),
        Entry(name="resnet12", options_class=ResNet12Options),
        Entry(name="wrn28-10", options_class=WideResNetOptions),
    ],
)
REGISTRIES: dict[str, Registry[Any]] = {
    "algorithm": ALGORITHMS,
    "network": NETWORKS,
    "tasks": TASKS,
    "outer": Registry("outer", Entry, [Entry(name="adam", options_class=OuterOptions)]),
}
"""The registry for each field of an experiment, by the name of the field."""


def metric_of(tasks: TasksOptions) -> str:
    """The score of these tasks, from their options: `accuracy` or `mse`."""
    own: str | None = getattr(tasks, "metric", None)
    if own is not None:
        return own
    # Only your own tasks themselves show their kind.
    known = isinstance(tasks, OwnOptions)
    return score_of(splits_of(tasks).train.problem if known else TASKS.of(tasks).problem)[0]


def register(part: str, name: str, options: Callable[..., object], **about: Any) -> None:
    """Add your own method, kind of tasks, network, outer optimiser, callback or kind of inputs.

        def narrow(problem, *, key, width: int = 4):
            keys = jax.random.split(key)
            layer = arml.nn.linear(problem.features[0], width, key=keys[0])
            return arml.network([layer], arml.nn.linear(width, problem.outputs, key=keys[1]))

        arml.register("network", "narrow", narrow)
        arml.build("maml", tasks, network="narrow")

    From then on a method has a recipe `SETTING/NAME` for each setting that suits it, and tasks are
    a setting `NAME` with a recipe for each method. On the command line, `--plugin FILE.py` loads a
    file that registers something; entry points of a package are discovered automatically.

    **Arguments**

    - `part`: `method`, `tasks`, `network`, `outer`, `inputs` or `callback`.
    - `options`: a frozen dataclass whose fields have defaults, with `check()` and `build`:
      `build(net, problem, *, key)` of a method returns a `MetaLearner`, `build(split, *, progress)`
      of tasks `Splits`, `build(problem, *, key)` of a network the network, and `build(steps)` of
      an outer optimiser one of Optax. A function with the arguments of `build` can take the place
      of the class: its parameters with defaults are the options. So can a class of tasks whose
      fields have defaults. A callback is a function of a `Moment`, as those of `arml.fit`: every
      training in a run folder calls it. A kind of inputs is a subclass of `arml.Inputs`.
    - `about`: other fields of `Method`, `TaskFamily` or `Entry`, such as `kinds`, `settings`,
      `network`, `usual` or `about`. Tasks that read data need `usual`, their usual problem.

    **Raises** `ValueError` in one line if the options lack something, or the name is taken.
    """
    if part == "callback":
        (CALLBACKS[name],) = checked_callbacks((options,))
        return
    registry = {**REGISTRIES, "method": ALGORITHMS, "inputs": INPUTS}.get(part)
    if registry is None:
        known = "a method, tasks, network, outer, inputs or callback"
        raise ValueError(f"expected to register {known}, got {part!r}")
    registry.add(registry.make(name, options, **about))


CALLBACKS: dict[str, Callable[..., Any]] = {}
"""Called after each interval of every training in a run folder, by name."""


RESTORE_HINT = "restore the file, or use the version of arml that wrote it"


@dataclass(frozen=True)
class Experiment(FitOptions):
    """One meta-training run. A recipe fills it, and the command line can change each option.

        experiment = arml.Experiment("mine", steps=1_000, validate_every=500)
        experiment.check()

    `arml.run(experiment, folder)` trains it.
    """

    recipe: str
    algorithm: Options = field(default_factory=MAMLOptions)
    """Options of the method."""
    tasks: TasksOptions = field(default_factory=FunctionsOptions)
    network: Options = field(default_factory=MLPOptions)
    seed: Annotated[int, Meta(ge=0, le=2**32 - 1)] = 0
    """Seeds the initial weights and the training tasks; never the test tasks."""
    checkpoint_every: Period = 1_000
    """Outer steps between two checkpoints; they are saved at the ends of intervals."""

    def check(self) -> None:
        """Raise `ValueError` in one line if the experiment cannot be run, before any work."""
        super().check()
        for part in (self.algorithm, self.network, self.tasks):
            check_options(part)


def absolute(experiment: Experiment) -> Experiment:
    """The experiment with absolute paths to its data, so that the run can be used from any
    folder."""
    own = getattr(experiment.tasks, "absolute", None)
    if file := getattr(experiment.network, "weights", ""):
        network = dataclasses.replace(experiment.network, weights=str(Path(file).absolute()))
        experiment = dataclasses.replace(experiment, network=network)
    return experiment if own is None else dataclasses.replace(experiment, tasks=own())


def to_json(experiment: Experiment) -> Json:
    """The experiment as plain data. Each part names its kind; `plugins` names the source of each
    part that is not this package's. **Raises** `ValueError` for options that are not registered."""
    value = {"recipe": "", **dict.fromkeys(REGISTRIES), **dataclasses.asdict(experiment)}
    plugins = {}
    for part, registry in REGISTRIES.items():
        entry = registry.of(getattr(experiment, part))
        value[part] = {"kind": entry.kind, **value[part]}
        if entry.source is not None:
            plugins[part] = entry.source._asdict()
    return {**value, "plugins": plugins} if plugins else value


def essence(experiment: Experiment) -> Json:
    """The experiment as plain data, without the versions of plug-ins and of a user's own classes: a
    run can be resumed after its script was edited."""
    value = to_json(experiment)
    value.pop("plugins", None)
    value["tasks"].pop("version", None)
    return value


def fingerprint(experiment: Experiment) -> str:
    """Twelve letters that are the same for runs which differ only in their seed and in the place of
    their data. They stay the same if a later version adds an option whose default changes
    nothing."""
    value = essence(experiment)
    del value["seed"]
    for name in ("precision", "patience", "keep"):
        if value[name] == Experiment.__dataclass_fields__[name].default:
            del value[name]
    value["tasks"].pop("data", None)
    for part in REGISTRIES:
        usual = dataclasses.asdict(type(getattr(experiment, part))())
        value[part] = {k: v for k, v in value[part].items() if k == "kind" or v != usual[k]}
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def from_json(value: object, where: str) -> Experiment:
    """The inverse of `to_json`. **Raises** `RunError` for a kind or an option that this version
    does not know, for an option of the wrong type, and for JSON that is not an experiment."""
    if not isinstance(value, Mapping):
        raise RunError(
            f"{where}: expected an experiment, found none; restore the file, or train in a new "
            "folder"
        )
    value = dict(value)
    plugins = value.pop("plugins", {})
    plugins = plugins if isinstance(plugins, Mapping) else {}
    parts: Json = {}
    for part, registry in REGISTRIES.items():
        options = value.get(part, {})
        kind = options.get("kind") if isinstance(options, Mapping) else options
        known = {entry.kind: entry.options_class for entry in registry.values()}
        cls, made = known.get(kind) if isinstance(kind, str) else None, plugins.get(part)
        then = Source("", "")
        if isinstance(made, Mapping):
            then = Source(str(made.get("name")), str(made.get("version")))
        if cls is None:
            wrong = (
                f"its {part} {kind!r} must come from the plug-in {then.name}: {then.remedy}"
                if then.name
                else f"expected {part} to be one of {', '.join(known)}, got {kind!r}; use the "
                "version of arml that wrote it"
            )
            raise RunError(f"{where}: {wrong}")
        warn_of_change(source_of(cls), then.version, where)
        own = {name: v for name, v in options.items() if name != "kind"}
        parts[part] = read_options(cls, own, f"{where}: {part}", RESTORE_HINT)
    for part in ("outer", "algorithm", "network"):  # tasks may lack their data here
        try:
            check_options(parts[part])
        except ValueError as error:
            raise RunError(f"{where}: {part}: {error}") from None
    return read_options(Experiment, {**value, **parts}, f"{where}: experiment", RESTORE_HINT)


def problem_of(value: object, where: str = "problem") -> Problem:
    """The problem that JSON holds. **Raises** `RunError` if no task can have it."""
    if isinstance(value, dict) and isinstance(value.get("features"), list):
        value = problem_fields(value)
    problem = read_as(Problem, value, where, RESTORE_HINT)
    if not all(1 <= n <= MAX_COUNT for n in (*problem.features, problem.outputs)):
        raise RunError(
            f"{where}: expected inputs and outputs of sizes from 1 to {MAX_COUNT:,}, got "
            f"{list(problem.features)} and {problem.outputs}; {RESTORE_HINT}"
        )
    return problem
