"""The parts of an experiment, each with its registry; and `register`, which adds a user's own
method, tasks or network."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from arml.algorithms import ALGORITHMS
from arml.core.episodes import Problem
from arml.core.losses import score_of
from arml.core.registry import Entry, Registry
from arml.nn.flat import CellsOptions
from arml.nn.networks import Conv4Options, MLPOptions
from arml.tasks.conflict import ConflictOptions
from arml.tasks.options import (
    FoldersOptions,
    FunctionsOptions,
    StarterOptions,
    StoreOptions,
    TasksOptions,
    VectorsOptions,
    splits_of,
)
from arml.tasks.own import OwnOptions
from arml.training.step import OuterOptions

REGRESSION = Problem("regression", (2,), 1, shots=10, queries=10)
IMAGES = Problem("classification", (28, 28, 3), 5, shots=1, queries=15)
STARTER = Problem("classification", (32, 32, 3), 5, shots=1, queries=15)
CONFLICT = Problem("classification", (32, 32, 3), 5, shots=5, queries=15)
VECTORS = Problem("classification", (512,), 5, shots=1, queries=15)
BENCHMARK = Problem("classification", (84, 84, 3), 5, shots=1, queries=15)


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
            found: Problem = splits_of(self.options_class()).train.problem
        except (ValueError, OSError) as error:
            raise ValueError(
                f"expected tasks {self.name!r} that can be made of their default options, got: "
                f"{error}; or give arml.register their usual problem: usual=arml.Problem(...)"
            ) from error
        return found


def _tasks(name: str, options_class: type, usual: Problem) -> TaskFamily:
    return TaskFamily(name=name, options_class=options_class, usual=usual)


TASKS: Registry[TaskFamily] = Registry(
    "tasks",
    TaskFamily,
    [
        _tasks("functions", FunctionsOptions, REGRESSION),
        _tasks("folders", FoldersOptions, IMAGES),
        _tasks("starter", StarterOptions, STARTER),
        _tasks("starter-conflict", ConflictOptions, CONFLICT),
        _tasks("prepared", StoreOptions, BENCHMARK),
        _tasks("vectors", VectorsOptions, VECTORS),
        _tasks("own", OwnOptions, REGRESSION),
    ],
    rooms=("arml.tables.tasks",),
)
NETWORKS: Registry[Entry] = Registry(
    "network",
    Entry,
    [
        Entry(name="mlp", options_class=MLPOptions),
        Entry(name="conv4", options_class=Conv4Options),
        Entry(name="cells", options_class=CellsOptions),
    ],
)
PARTS: dict[str, Registry[Any]] = {
    "algorithm": ALGORITHMS,
    "network": NETWORKS,
    "tasks": TASKS,
    "outer": Registry("outer", Entry, [Entry(name="adam", options_class=OuterOptions)]),
}
"""By the name of the experiment's field."""


def metric_of(tasks: TasksOptions) -> str:
    """The score of such tasks, from their options: `accuracy` or `mse`."""
    own: str | None = getattr(tasks, "metric", None)
    return score_of(TASKS.of(tasks).problem)[0] if own is None else own


def register(part: str, name: str, options: Callable[..., object], **about: Any) -> None:
    """Add a method, a kind of tasks or a network of one's own.

        def narrow(problem, *, key, width: int = 4):
            keys = jax.random.split(key)
            layer = arml.linear(problem.features[0], width, key=keys[0])
            return arml.network([layer], arml.linear(width, problem.outputs, key=keys[1]))

        arml.register("network", "narrow", narrow)
        arml.build("maml", tasks, network="narrow")

    From then on a method has a recipe `SETTING/NAME` for each setting that suits it, and tasks are
    a setting `NAME` with a recipe for each method. On the command line, `--plugin FILE.py` loads a
    file that registers something. Entry points of a package in the groups `arml.methods`,
    `arml.tasks` and `arml.networks` are found by themselves.

    **Arguments**

    - `part`: `method`, `tasks` or `network`.
    - `options`: a frozen dataclass whose fields have defaults, with `check()` and `build`:
      `build(net, problem, *, key)` of a method returns a `MetaLearner`, `build(split, *, progress)`
      of tasks `Splits`, and `build(problem, *, key)` of a network the network. A function with the
      arguments of `build` can take the place of the class: its parameters with defaults are the
      options. So can a class of tasks whose fields have defaults.
    - `about`: other fields of `Method`, `TaskFamily` or `Entry`, such as `kinds`, `settings`,
      `network`, `usual` or `about`. Tasks that read data need `usual`, their usual problem.

    **Raises** `ValueError` in one line if the options lack something, or the name is taken.
    """
    registry = PARTS.get("algorithm" if part == "method" else part)
    if registry is None or part == "outer":
        raise ValueError(f"expected to register a method, tasks or network, got {part!r}")
    registry.add(registry.make(name, options, **about))
