"""Recipes: an experiment by name, with its expected time and score.

A recipe is a setting and a method. It is made when somebody asks for it, so that methods and tasks
that are registered later have recipes too.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from arml.algorithms import ALGORITHMS, Method, Variant
from arml.core.episodes import Problem
from arml.core.registry import nearest
from arml.experiment.options import Experiment
from arml.experiment.parts import TASKS
from arml.experiment.settings import PROBLEMS, Setting, changed
from arml.results.files import JsonView
from arml.tasks.options import TasksOptions


@dataclass(frozen=True)
class Recipe:
    """An experiment with its expected time and score."""

    setting: Setting
    method: Method
    variant: str = ""
    """One of the method's variants; empty for the method itself."""

    @property
    def name(self) -> str:
        return f"{self.setting.shared.recipe}/{self.variant or self.method.name}"

    @property
    def _entry(self) -> Method | Variant:
        return self.method.variants[self.variant] if self.variant else self.method

    @property
    def description(self) -> str:
        """One or two sentences."""
        return f"{self.setting.description}. {self._entry.about}"

    @property
    def title(self) -> str:
        """Its name in tables."""
        return self._entry.title or self.variant

    @property
    def minutes(self) -> float | None:
        """The training time on one CPU core, where the study measured it."""
        return self._measured("minutes")

    @property
    def expected(self) -> float | None:
        """The test score, a mean over seeds, where the study measured it."""
        return self._measured("scores")

    def _measured(self, what: str) -> float | None:
        setting, _, method = self.name.partition("/")
        return measured().get(setting, {}).get(what, {}).get(method)

    def make(self, *traits: str) -> Experiment:
        """The experiment, in a setting that may have more traits."""
        made = self.setting.of(self.method, *traits)
        if self.variant:
            made = changed(made, self.method.variants[self.variant].changes)
        return replace(made, recipe=self.name)


@cache
def measured() -> JsonView:
    """The scores of the study (`study/`) by setting: `metric`, `steps`, `protocol`, `tasks`, and of
    each method `scores` and `minutes`."""
    return json.loads(files("arml").joinpath("data/measured.json").read_text(encoding="utf-8"))


class Recipes(Mapping[str, Recipe]):
    """Every recipe by name, made when somebody asks for it."""

    def __getitem__(self, name: str) -> Recipe:
        setting, _, method = name.partition("/")
        found = PROBLEMS[setting]
        known = ALGORITHMS.get(method)
        if known is not None and known.suits(found.problem):
            return Recipe(found, known)
        for known in ALGORITHMS.values():
            variant = known.variants.get(method)
            if variant is not None and variant.setting == setting:
                return Recipe(found, known, method)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        for name, setting in PROBLEMS.items():
            for method, known in ALGORITHMS.items():
                if known.suits(setting.problem):
                    yield f"{name}/{method}"
        for known in ALGORITHMS.values():
            yield from (f"{v.setting}/{name}" for name, v in known.variants.items())

    def __len__(self) -> int:
        return len(list(iter(self)))


RECIPES = Recipes()


def recipe(name: str) -> Experiment:
    """The experiment of that name.

        arml.recipe("regression2d/arml").algorithm.vertices

    **Raises** `ValueError` with the nearest names for an unknown one.
    """
    return known_recipe(name).make()


def known_recipe(name: str) -> Recipe:
    """The recipe of that name, with its expected time and score. **Raises** as `recipe`."""
    if name not in RECIPES:
        setting, slash, _ = name.partition("/")
        own = slash and not any(known.startswith(f"{setting}/") for known in RECIPES)
        hint = f"; if a script of yours registers {setting!r}, give --plugin FILE.py, or import it"
        raise ValueError(f"unknown recipe {name!r}{nearest(name, RECIPES)}{hint if own else ''}")
    return RECIPES[name]


def reshaped(experiment: Experiment, **shape: int) -> Experiment:
    """The experiment with other `ways`, `shots` or `queries` of its tasks, each at least one.

    Some options of a method depend on the shape of the tasks: inner rates, weights of
    reconstructions. An option that has its value for the old shape gets its value for the new
    shape; other options stay.

    **Raises** `TypeError` for an option that the tasks do not have.
    """
    tasks = replace(experiment.tasks, **shape)
    options = vars(experiment.algorithm)
    moved: dict[str, object] = {}
    most = -1
    # Several methods may share a class of options: take the method that these are most like.
    for known in ALGORITHMS.values():
        if known.options_class is type(experiment.algorithm):
            before, after = (vars(known.options(shape_of(t))) for t in (experiment.tasks, tasks))
            alike = [name for name, value in options.items() if value == before[name]]
            if len(alike) > most:
                most, moved = len(alike), {name: after[name] for name in alike}
    algorithm = replace(experiment.algorithm, **moved)
    return replace(experiment, tasks=tasks, algorithm=algorithm)


def shape_of(tasks: TasksOptions) -> Problem:
    """The problem of tasks of this shape."""
    usual = TASKS.of(tasks).problem
    return replace(
        usual,
        outputs=getattr(tasks, "ways", usual.outputs),
        shots=getattr(tasks, "shots", usual.shots),
        queries=getattr(tasks, "queries", usual.queries),
    )
