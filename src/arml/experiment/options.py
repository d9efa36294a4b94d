"""An experiment as pure data, and the same as JSON."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from arml.algorithms import OPTIONS
from arml.algorithms.maml import MAMLOptions
from arml.nn.networks import Conv4Options, MLPOptions
from arml.results import RunError
from arml.tasks.options import FoldersOptions, FunctionsOptions
from arml.train import OuterOptions

NETWORKS: dict[str, Any] = {"mlp": MLPOptions, "conv4": Conv4Options}
TASKS: dict[str, Any] = {"functions": FunctionsOptions, "folders": FoldersOptions}
PARTS: dict[str, dict[str, Any]] = {
    "algorithm": OPTIONS,
    "network": NETWORKS,
    "tasks": TASKS,
    "outer": {"adam": OuterOptions},
}


@dataclass(frozen=True)
class Experiment:
    """One meta-training run. A recipe fills it; the command line may change any of it."""

    recipe: str
    algorithm: Any = field(default_factory=MAMLOptions)
    """Options of the algorithm, one of `OPTIONS`."""
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
    """Tasks adapted to at once, in training and in evaluation: fewer need less memory."""

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
        if self.batch % min(self.chunk, self.batch):
            raise ValueError(
                f"chunk must divide the batch of {self.batch} tasks or be larger, got "
                f"{self.chunk}: change one of them"
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
