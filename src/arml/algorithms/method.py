"""The entry of a method in the registry. Each module of this folder lists its own in `METHODS`."""

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


@dataclass(frozen=True, kw_only=True)
class Method(Entry):
    """One method: a name, options for each problem, and facts for tables and tests."""

    title: str = ""
    """Its name in tables; if empty, `about` up to its colon, or else `name`."""
    paper: str = ""
    """Its authors, the conference and the year."""
    year: int = 0
    """The year of publication; if 0, the first year in `paper`. It orders lists of methods."""
    preset: Callable[[Problem], Options] | None = None
    """Its options for a problem; the class's defaults if None."""
    kinds: tuple[str, ...] = ("regression", "classification")
    """The kinds of problems that it can learn; it raises an error for others."""
    inputs: tuple[str, ...] = ("vectors", "pictures")
    """The kinds of inputs that it can read."""
    settings: Mapping[str, Changes] = field(default_factory=dict)
    """Options of its experiments that differ from those of other methods, by a trait of the
    setting (`regression`, `pictures`) or by its name."""
    places: tuple[str, ...] = ()
    """The settings (first parts of recipes' names) that it has recipes for; all if empty."""
    inside: str | Callable[..., dict[str, object]] = ""
    """For `arml explain`: "graph" to show the meta-knowledge graph, or a function
    `(learner, tasks, *, n, chunk)` that returns plain data; empty to show nothing."""
    tune: tuple[str, ...] | None = None
    """Step sizes and weights that `arml tune` searches if no option is named; if None, the
    `inner_rate` if there is one."""
    descends: bool = True
    """Whether it adapts by gradient steps."""
    widens: bool = False
    """Whether a task may have more classes than a training task: its head has an output for each
    class, and the task's steps change the head. See `arml.experiment.recipes.widened`."""
    dead: tuple[str, ...] = ()
    """Prefixes of the paths of meta-parameters that no gradient reaches at the first step."""
    variants: Mapping[str, tuple[str, Mapping[str, Any]]] = field(default_factory=dict)
    """Further recipes, `NAME-VARIANT`: a description of each, and the options that differ."""
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
        """Whether it can learn tasks of this problem, and has a recipe in this setting if given."""
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
        assert self.preset is not None
        return self.preset(problem)
