"""An experiment as pure data, and as JSON."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from arml.algorithms.maml import MAMLOptions
from arml.core.checks import at_least
from arml.core.learner import MethodOptions, NetworkOptions
from arml.core.registry import Source, source_of, warn_of_change
from arml.experiment.parts import PARTS
from arml.nn.networks import MLPOptions
from arml.results.files import Json, RunError
from arml.results.schema import read_options
from arml.tasks.options import FunctionsOptions, TasksOptions
from arml.training.devices import at_once
from arml.training.step import OuterOptions

REMEDY = "restore the file, or use the version of arml that wrote it"


@dataclass(frozen=True)
class Experiment:
    """One meta-training run. A recipe fills it, and the command line can change each option.

        experiment = arml.Experiment("mine", steps=1_000, validate_every=500)
        experiment.check()

    `arml.run(experiment, folder)` trains it.
    """

    recipe: str
    algorithm: MethodOptions = field(default_factory=MAMLOptions)
    """Options of the method, registered in `PARTS`, as those of the tasks and the network are."""
    tasks: TasksOptions = field(default_factory=FunctionsOptions)
    network: NetworkOptions = field(default_factory=MLPOptions)
    outer: OuterOptions = field(default_factory=OuterOptions)
    steps: int = 70_000
    """Outer steps; 0 for a learner that has nothing to learn."""
    batch: int = 25
    """Tasks of one outer step."""
    seed: int = 0
    """Seeds the initial weights and the training tasks; never the test tasks."""
    interval: int = 100
    """Outer steps between two lines of metrics."""
    checkpoint_every: int = 1_000
    """Outer steps between two checkpoints; they are saved at the ends of intervals."""
    validate_every: int = 1_000
    """Outer steps between two scores on validation tasks, at the ends of intervals."""
    validation_tasks: int = 500
    """Validation tasks of one score."""
    scan: bool = True
    """Compile the steps of an interval as one loop: fast for small networks, slow for convolutions
    on a CPU."""
    chunk: int = 100
    """Tasks that are adapted to at once, in training and in evaluation. Fewer need less memory."""

    def check(self) -> None:
        """Raise `ValueError` in one line if the experiment cannot be run, before any work."""
        at_least(self, ("steps",), 0, most=10**9)
        at_least(self, ("interval",), 1, most=10**9)
        at_least(self, ("batch", "chunk", "validation_tasks"), 1)
        at_least(self, ("checkpoint_every", "validate_every"), 1, most=10**9)
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed must be from 0 to {2**32 - 1}, got {self.seed}: change it")
        at_once(self.chunk, self.batch)
        for part in (self.outer, self.algorithm, self.network, self.tasks):
            part.check()


def absolute(experiment: Experiment) -> Experiment:
    """The experiment with absolute paths to its data, so that the run can be used from any
    folder."""
    own = getattr(experiment.tasks, "absolute", None)
    return experiment if own is None else dataclasses.replace(experiment, tasks=own())


def to_json(experiment: Experiment) -> Json:
    """The experiment as plain data. Each part names its kind; `plugins` names the source of each
    part that is not this package's.

    **Raises** `ValueError` for options that are not registered.
    """
    value = dataclasses.asdict(experiment)
    plugins = {}
    for part, registry in PARTS.items():
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
    value["tasks"].pop("data", None)
    for part in PARTS:
        usual = dataclasses.asdict(type(getattr(experiment, part))())
        value[part] = {k: v for k, v in value[part].items() if k == "kind" or v != usual[k]}
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def steadier(experiment: Experiment) -> str:
    """Advice for a loss that is not finite: the options to lower, and those that are not set."""
    options = {**vars(experiment.algorithm), **vars(experiment.outer)}
    names = ("inner_rate", "outer_rate", "inner_bound", "inner_clip", "clip")
    flags = {name: f"--{name.replace('_', '-')}" for name in names if name in options}
    lower = " or ".join(flag for name, flag in flags.items() if options[name])
    unset = " or ".join(flag for name, flag in flags.items() if not options[name])
    return f"lower {lower}" + (f", or set {unset}" if unset else "")


def from_json(value: object, where: str) -> Experiment:
    """The inverse of `to_json`.

    **Raises** `RunError` for a kind or an option that this version does not know, for an option of
    the wrong type, and for JSON that is not an experiment.
    """
    if not isinstance(value, Mapping):
        raise RunError(
            f"{where}: expected an experiment, found none; restore the file, or train in a new "
            "folder"
        )
    value = dict(value)
    plugins = value.pop("plugins", {})
    parts: Json = {}
    for part, registry in PARTS.items():
        options = value.get(part, {})
        kind = options.get("kind") if isinstance(options, Mapping) else options
        cls = registry.class_of(kind) if isinstance(kind, str) else None
        if cls is None:
            raise RunError(f"{where}: {_unknown(part, kind, plugins)}")
        then = plugins.get(part)
        if isinstance(then, Mapping):
            warn_of_change(source_of(cls), str(then.get("version")), where)
        given = {name: options[name] for name in options if name != "kind"}
        parts[part] = read_options(cls, given, f"{where}: {part}", REMEDY)
    for part in ("outer", "algorithm", "network"):  # tasks may lack their data here
        try:
            parts[part].check()
        except ValueError as error:
            raise RunError(f"{where}: {part}: {error}") from None
    return read_options(Experiment, {**value, **parts}, f"{where}: experiment", REMEDY)


def _unknown(part: str, kind: object, plugins: object) -> str:
    """The message for a kind of options that is not registered."""
    source = plugins.get(part) if isinstance(plugins, Mapping) else None
    if isinstance(source, Mapping):
        found = Source(str(source.get("name")), str(source.get("version")))
        return f"its {part} {kind!r} must come from the plug-in {found.name}: {found.remedy}"
    return (
        f"expected {part} to be one of {', '.join(PARTS[part].kinds())}, got {kind!r}; use the "
        "version of arml that wrote it"
    )
