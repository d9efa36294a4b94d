"""Settings: a data set with everything that the experiments on it share, except the method."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from functools import cache
from typing import NamedTuple

from arml.algorithms import Changes, Method
from arml.core.episodes import Problem
from arml.experiment import parts
from arml.experiment.options import Experiment
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
)
from arml.tasks.own import OwnOptions
from arml.training.step import OuterOptions

UNNAMED = OwnOptions()
"""Stands for tasks that are given later."""


class Setting(NamedTuple):
    """The part that all recipes of one data set share."""

    problem: Problem
    description: str
    shared: Experiment
    """Everything but the method, whose name and options are filled in."""
    traits: tuple[str, ...] = ()
    """Words for which methods state settings, beside `any`, the kind of its tasks (`regression`,
    `vectors`, `images` or `tables`), and its name."""

    def of(self, known: Method, *traits: str) -> Experiment:
        """A method's experiment in this setting, which may have more traits."""
        name, algorithm = self.shared.recipe, known.options(self.problem)
        made = replace(self.shared, recipe=f"{name}/{known.name}", algorithm=algorithm)
        kind = {1: "vectors", 2: "tables", 3: "images"}[len(self.problem.features)]
        regression = self.problem.kind == "regression" and kind != "tables"
        first = "regression" if regression else kind
        for trait in ("any", first, *self.traits, name, *traits):
            made = changed(made, known.settings.get(trait, {}))
        return made


def changed(experiment: Experiment, changes: Changes) -> Experiment:
    """The experiment with these changes of its options, by part."""
    own = dict(changes.get("experiment", {}))
    for part, options in changes.items():
        if part != "experiment":
            old = getattr(experiment, part)
            # A user's own network may have no such option.
            known = {field.name for field in fields(old)}
            own[part] = replace(old, **{k: v for k, v in options.items() if k in known})
    return replace(experiment, **own)


def regression2d(name: str, *, low: float = 0.0) -> Experiment:
    """The paper's 2-D regression: 10-shot, batch 25, 5 inner steps, 70,000 outer steps, two hidden
    layers of 40. `low=-5` is the range of inputs in the authors' code."""
    return Experiment(name, tasks=FunctionsOptions(low=low))


def images(
    name: str, tasks: TasksOptions, outer: OuterOptions, steps: int, every: int
) -> Experiment:
    """The options that all experiments on images share: Conv-4 with 32 filters, batch 4."""
    return Experiment(
        name,
        tasks=tasks,
        network=Conv4Options(),
        outer=outer,
        steps=steps,
        batch=4,
        interval=20,
        checkpoint_every=100,
        validate_every=every,
        validation_tasks=200,
        scan=False,
        chunk=1,
    )


def small_images(name: str, tasks: TasksOptions) -> Experiment:
    """Images of about 28 px: a user's own pictures, and those in the package."""
    # On validation tasks this rate is better than 0.001 for each method that was tried, except for
    # ARML with its published settings (results/starter).
    outer = OuterOptions(outer_rate=0.003, schedule="cosine")
    return images(name, tasks, outer, steps=20_000, every=500)


def prepared(store: str, steps: int) -> Experiment:
    """A benchmark that `arml data prepare` made, as in the paper: 5-way 1-shot, 15 queries, 84 px,
    Conv-4 with 32 filters, batch 4, 5 inner steps, Adam with a constant rate.

    `steps` is the authors' number of outer steps for Plain- and Art-Multi, and MAML's for
    miniImageNet.
    """
    tasks = StoreOptions(store=store)
    return images(store, tasks, OuterOptions(), steps=steps, every=1_000)


def features(name: str, tasks: TasksOptions) -> Experiment:
    """Vectors to be classified: a hidden layer of 64, batch 16, 5 inner steps."""
    return Experiment(
        name,
        tasks=tasks,
        network=MLPOptions(hidden=(64,), init="he"),
        outer=OuterOptions(clip=10.0, schedule="cosine"),
        steps=5_000,
        batch=16,
        chunk=16,
        interval=50,
        checkpoint_every=500,
        validate_every=500,
    )


def tables(name: str, tasks: TasksOptions) -> Experiment:
    """Small tables of any columns: batch 16."""
    return Experiment(
        name,
        tasks=tasks,
        network=CellsOptions(),
        outer=OuterOptions(outer_rate=0.003, clip=1.0, schedule="cosine", warmup=0.04),
        steps=5_000,
        batch=16,
        chunk=16,
        interval=50,
        checkpoint_every=250,
        validate_every=500,
        validation_tasks=256,
        scan=False,
    )


SMALL = ("small images",)
TABLES = parts.TASKS.built_in()["tables"].options_class()
NUMBERS = replace(TABLES, predict="numbers")
OWN: dict[str, Setting] = {
    setting.shared.recipe: setting
    for setting in (
        Setting(parts.REGRESSION, "2-D regression of six families", regression2d("regression2d")),
        Setting(
            parts.REGRESSION,
            "2-D regression of six families, inputs U[-5, 5]",
            regression2d("regression2d-wide", low=-5.0),
        ),
        Setting(
            parts.STARTER,
            "The pictures in the package, three families",
            small_images("starter", StarterOptions()),
            SMALL,
        ),
        Setting(
            parts.STARTER,
            "The pictures in the package, also blurred and in pencil, nine families",
            small_images("starter-art", StarterOptions(art=True)),
            SMALL,
        ),
        Setting(
            parts.CONFLICT,
            "The pictures in the package under two questions each, six families",
            small_images("starter-conflict", ConflictOptions()),
            SMALL,
        ),
        Setting(
            parts.IMAGES,
            "Your own images (--data FOLDER_OR_ZIP...)",
            small_images("folders", FoldersOptions()),
            SMALL,
        ),
        Setting(
            parts.VECTORS,
            "Frozen features of images (--data FEATURES...)",
            features("features", VectorsOptions()),
        ),
        Setting(
            TABLES.problem,
            "Classes of small synthetic tables",
            tables("tables", TABLES),
        ),
        Setting(
            NUMBERS.problem,
            "Numbers of small synthetic tables",
            tables("tables-regression", NUMBERS),
        ),
        *(
            Setting(parts.BENCHMARK, about, prepared(store, steps), tuple(more))
            for store, about, steps, *more in (
                ("plain-multi", "Plain-Multi, four families", 50_000),
                ("art-multi", "Art-Multi, twelve families", 60_000, "many families"),
                ("mini-imagenet", "miniImageNet", 60_000),
                ("tiered-imagenet", "tieredImageNet", 60_000),
            )
        ),
    )
}
"""The package's own settings."""


@cache
def _setting_of(family: parts.TaskFamily) -> Setting:
    """The setting of tasks that somebody else registered."""
    made = setting_for(family.problem, family.name, family.options_class())
    shared = made.shared
    if family.network:
        shared = replace(shared, network=parts.NETWORKS.known(family.network).options_class())
    return made._replace(description=family.about.rstrip("."), shared=shared)


def setting_for(problem: Problem, name: str = "own", tasks: TasksOptions = UNNAMED) -> Setting:
    """The setting of any tasks with this problem: like that of small tables, of 2-D regression, of
    the package's pictures or of frozen features, whichever has such problems."""
    if len(problem.features) == 2:
        shared = tables(name, tasks)
    elif problem.kind == "regression":
        shared = replace(
            regression2d(name), network=MLPOptions(init="he"), outer=OuterOptions(clip=10.0)
        )
    elif len(problem.features) == 3:
        shared = small_images(name, tasks)
    else:
        shared = features(name, tasks)
    return Setting(problem, name, replace(shared, tasks=tasks))


class Problems(Mapping[str, Setting]):
    """Settings by name: the package's own, and one for each kind of tasks that others register."""

    def __getitem__(self, name: str) -> Setting:
        if name in OWN:
            return OWN[name]
        family = parts.TASKS[name]
        if family.source is None:
            raise KeyError(name)
        return _setting_of(family)

    def __iter__(self) -> Iterator[str]:
        yield from OWN
        for name, family in parts.TASKS.items():
            # Tasks that need data and do not state a usual problem raise an error when named.
            with contextlib.suppress(ValueError):
                if family.source is not None and family.problem:
                    yield name

    def __len__(self) -> int:
        return len(list(iter(self)))


PROBLEMS = Problems()
"""Data sets, by the first part of a recipe's name."""
