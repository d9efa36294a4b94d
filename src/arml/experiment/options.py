"""An experiment as pure data, and the same as JSON."""

import dataclasses
import hashlib
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin

from arml.algorithms.maml import MAMLOptions
from arml.core.checks import at_least
from arml.core.learner import MethodOptions, NetworkOptions
from arml.core.plugins import Source, source_of
from arml.experiment.parts import PARTS
from arml.nn.networks import MLPOptions
from arml.results.folder import RunError
from arml.tasks.options import FunctionsOptions
from arml.training.step import OuterOptions


@dataclass(frozen=True)
class Experiment:
    """One meta-training run. A recipe fills it; the command line may change any of it."""

    recipe: str
    algorithm: MethodOptions = field(default_factory=MAMLOptions)
    """Options of the method, registered in `PARTS`, as those of the tasks and the network are."""
    tasks: Any = field(default_factory=FunctionsOptions)
    network: NetworkOptions = field(default_factory=MLPOptions)
    outer: OuterOptions = field(default_factory=OuterOptions)
    steps: int = 70_000
    """Outer steps; 0 for a learner that has nothing to learn."""
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
    """Tasks adapted to at once, in training and in evaluation: fewer need less memory."""

    def check(self) -> None:
        """Refuse what cannot be run, in one line, before any work."""
        at_least(self, ("steps",), 0)
        at_least(self, ("batch", "interval", "chunk", "validation_tasks"), 1)
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed must be from 0 to {2**32 - 1}, got {self.seed}: change it")
        for name in ("checkpoint_every", "validate_every"):
            value = getattr(self, name)
            if value < 1 or value % self.interval:
                raise ValueError(
                    f"{name} must be a multiple of the interval {self.interval}, got {value}: "
                    "change one of them"
                )
        if self.batch % min(self.chunk, self.batch):
            raise ValueError(
                f"chunk must divide the batch of {self.batch} tasks or be larger, got "
                f"{self.chunk}: change one of them"
            )
        for part in (self.outer, self.algorithm, self.network, self.tasks):
            part.check()


def absolute(experiment: Experiment) -> Experiment:
    """Data by absolute paths, so that the run can be used from any folder."""
    own = getattr(experiment.tasks, "absolute", None)
    return experiment if own is None else dataclasses.replace(experiment, tasks=own())


def to_json(experiment: Experiment) -> dict[str, Any]:
    """The experiment as plain data; each part names its kind, and `plugins` where it comes from if
    it is not this package's.

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


def fingerprint(experiment: Experiment) -> str:
    """Twelve letters that are the same for runs which differ only in their seed and in where their
    data lie. An option that a later version adds, with a default that changes nothing, leaves them
    as they are."""
    value = to_json(experiment)
    del value["seed"]
    value.pop("plugins", None)
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


def from_json(value: Any, where: str) -> Experiment:
    """The inverse of `to_json`.

    **Raises** `RunError` for a kind or an option that this version does not know, an option of the
    wrong type, and for what is no experiment at all.
    """
    if not isinstance(value, Mapping):
        raise RunError(
            f"{where}: expected an experiment, found none; restore the file, or train in a new "
            "folder"
        )
    value = dict(value)
    plugins = value.pop("plugins", {})
    parts = {}
    for part, registry in PARTS.items():
        options = value.get(part, {})
        kind = options.get("kind") if isinstance(options, Mapping) else options
        cls = registry.class_of(kind) if isinstance(kind, str) else None
        if cls is None:
            raise RunError(f"{where}: {_unknown(part, kind, plugins)}")
        _check_version(source_of(cls), plugins.get(part), where)
        given = {name: options[name] for name in options if name != "kind"}
        parts[part] = _made(cls, given, part, where)
    experiment: Experiment = _made(Experiment, {**value, **parts}, "the experiment", where)
    return experiment


def _check_version(now: Source | None, then: Any, where: str) -> None:
    """Warn if a plug-in is not what it was when the experiment was written."""
    if now is not None and isinstance(then, Mapping) and then.get("version") != now.version:
        warnings.warn(
            f"{where}: {now.name} is not the version that this was made with "
            f"({now.version}, not {then.get('version')})",
            stacklevel=3,
        )


def _unknown(part: str, kind: Any, plugins: Any) -> str:
    """What to say of a kind of options that is not registered."""
    source = plugins.get(part) if isinstance(plugins, Mapping) else None
    if isinstance(source, Mapping):
        found = Source(str(source.get("name")), str(source.get("version")))
        return f"its {part} {kind!r} needs the plug-in {found.name}: {found.remedy}"
    return (
        f"expected {part} to be one of {', '.join(PARTS[part].kinds())}, got {kind!r}; use the "
        "version of arml that wrote it"
    )


def _made(cls: Any, options: Mapping[str, Any], what: str, where: str) -> Any:
    fields = {field.name: field for field in dataclasses.fields(cls)}
    odd = sorted(set(options) - set(fields))
    if odd:
        raise RunError(
            f"{where}: {what} has the option {odd[0]!r}, which this version does not know; "
            "use the version of arml that wrote it"
        )
    for name, field_ in fields.items():
        needed = field_.default is field_.default_factory is dataclasses.MISSING
        if name in options and not _fits(options[name], field_.type):
            got = repr(options[name])[:40]
        elif name not in options and needed:
            got = "nothing"
        else:
            continue
        raise RunError(
            f"{where}: {what} needs {name} as {_described(field_.type)}, got {got}; restore the "
            "file, or train in a new folder"
        )
    return cls(**{name: _of_json(v, fields[name].type) for name, v in options.items()})


def _described(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    return str(kind) if get_origin(kind) else kind.__name__


def _of_json(value: Any, kind: Any) -> Any:
    """JSON has no tuples, and may write a float as a whole number."""
    if isinstance(value, list):
        return tuple(value)
    return float(value) if kind is float else value


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value from JSON can be of the annotated type."""
    if kind is Any:
        return True
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if get_origin(kind) is tuple:
        return isinstance(value, list | tuple) and all(_fits(v, get_args(kind)[0]) for v in value)
    if kind in (int, float):
        return isinstance(value, kind | int) and not isinstance(value, bool)
    return isinstance(value, kind)
