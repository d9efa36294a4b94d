"""The entry of a method in the registry: all that the library knows about it, in its own file.

Each module of this folder lists its entries in `METHODS`; no other place lists methods.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from arml.core.checks import Options
from arml.core.episodes import Problem
from arml.core.registry import Entry

Changes = Mapping[str, Mapping[str, Any]]
"""Options that differ from the usual ones, by part: `algorithm`, `tasks`, `network`, `outer`, or
`experiment` for its own numbers."""
PROBLEM_KINDS = ("regression", "classification")


@dataclass(frozen=True, kw_only=True)
class Method(Entry):
    """One method: a name, options for each problem, and facts for tables and tests."""

    title: str = ""
    """Its name in tables; if empty, `about` up to its colon, or else `name`."""
    paper: str = ""
    """Its authors, and where they published it."""
    year: int = 0
    """When it was published; if 0, the first year in `paper`. Lists are in this order."""
    preset: Callable[[Problem], Options] | None = None
    """Its options for a problem; the class's defaults if None."""
    kinds: tuple[str, ...] = PROBLEM_KINDS
    """The kinds of problems that it is made for; it raises an error for others."""
    inputs: tuple[str, ...] = ("vectors", "pictures")
    """The kinds of inputs that it is made for."""
    settings: Mapping[str, Changes] = field(default_factory=dict)
    """Options of its experiments that differ from those of other methods, by a trait of the
    setting, such as `regression`, `pictures`, or the setting's name."""
    places: tuple[str, ...] = ()
    """The settings (first parts of recipes' names) that it has recipes for; all if empty."""
    inside: str | Callable[..., dict[str, object]] = ""
    """What `arml explain` shows of a learner: "graph" for the meta-knowledge graph, or a function
    `(learner, tasks, *, n, chunk)` that returns plain data; empty if it shows nothing."""
    tune: tuple[str, ...] | None = None
    """Step sizes and weights that `arml tune` searches if no option is named; if None, the
    `inner_rate` if there is one."""
    descends: bool = True
    """Whether it adapts by gradient steps."""
    widens: bool = False
    """Whether a task may have more classes than in training although its head has an output for
    each, because a task's steps change the head: see `arml.experiment.recipes.widened`."""
    dead: tuple[str, ...] = ()
    """Prefixes of the paths of meta-parameters that no gradient reaches at the first step."""
    variants: Mapping[str, tuple[str, Mapping[str, Any]]] = field(default_factory=dict)
    """Recipes of their own, `NAME-VARIANT`: what each is, and the options that differ."""
    exceptions: Mapping[str, str] = field(default_factory=dict)
    """Contract tests that the method does not pass, by name (`test_...`), each with the reason."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.preset is None:
            object.__setattr__(self, "preset", lambda problem: self.options_class())
        if self.tune is None:
            known = {f.name for f in fields(self.options_class)}
            object.__setattr__(self, "tune", ("inner_rate",) if "inner_rate" in known else ())
        title, colon, _ = self.about.partition(": ")
        object.__setattr__(self, "title", self.title or (title if colon else self.name))
        published = re.search(r"\b\d{4}\b", self.paper)
        object.__setattr__(self, "year", self.year or (int(published[0]) if published else 9999))

    def suits(self, problem: Problem, place: str = "") -> bool:
        """Whether it is made for tasks of this problem, and has a recipe in this setting if one is
        named."""
        suited = bool({problem.inputs, problem.form.like} & {*self.inputs})
        there = not place or not self.places or place in self.places
        return there and problem.kind in self.kinds and suited

    def variant(self, name: str) -> "Method":
        """The method with the options of a variant. **Raises** `KeyError` for an unknown one."""
        about, changes = self.variants[name]
        settings = {  # the variant's own options come last
            trait: {
                part: {k: v for k, v in some.items() if part != "algorithm" or k not in changes}
                for part, some in parts.items()
            }
            for trait, parts in self.settings.items()
        }
        return replace(
            self,
            name=f"{self.name}-{name}",
            title=f"{self.title}, {name}",
            about=f"{self.title}, row {name} of its ablations: {about}.",
            preset=lambda problem: replace(self.options(problem), **changes),
            settings=settings,
            variants={},
        )

    def options(self, problem: Problem) -> Options:
        """Its options for a problem."""
        assert self.preset is not None
        return self.preset(problem)
