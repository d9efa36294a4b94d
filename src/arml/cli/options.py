"""The options of a recipe's experiment as flags of a command, and back."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from tyro.conf import Suppress, arg

from arml.cli.console import parse
from arml.experiment import Experiment
from arml.experiment.recipes import RECIPES, reshaped

Field = tuple[str, Any] | tuple[str, Any, Any]
"""The name of an option, its annotated type, and its default if it has one."""


def read(
    experiment: Experiment, fields: Sequence[Field], about: str, words: Sequence[str], *, prog: str
) -> tuple[Any, Experiment]:
    """The options of a command, and the recipe's experiment with those of its own that are given.

    The defaults of its algorithm are those for tasks of the ways, shots and queries that are given.
    """

    def once(experiment: Experiment) -> tuple[Any, Experiment]:
        kind, back = taken(experiment, fields, about)
        options = parse(kind, words, prog=prog)
        return options, back(options.experiment)

    options, given = once(experiment)
    shape = _shape(given)
    if shape == _shape(experiment) or min(shape.values()) < 1:  # the latter are refused later
        return options, given
    return once(reshaped(experiment, **shape))


def taken(
    experiment: Experiment, fields: Sequence[Field], about: str
) -> tuple[type, Callable[[Any], Experiment]]:
    """The options of a command, with a recipe's values for those of its experiment; and the way
    back to an experiment.

    Names of nested options are flat: where two parts have one of the same name, the algorithm's
    gets a prefix.
    """
    doubled = _doubled(experiment)
    algorithm = _annotated(
        experiment.algorithm, {n: arg(name=f"algorithm-{n.replace('_', '-')}") for n in doubled}
    )
    default = _annotated(dataclasses.replace(experiment, algorithm=algorithm), {"recipe": Suppress})
    every: list[Any] = [
        *(_field(*field) for field in fields),
        # Any, so that each part is parsed as the type of its default.
        ("experiment", Any, dataclasses.field(default=default)),
    ]
    every.sort(key=lambda field: len(field) == 3)  # those that must be given come first
    kind = dataclasses.make_dataclass("Options", every, namespace={"__doc__": about})

    def back(parsed: Any) -> Experiment:
        parsed = _as(type(experiment), parsed)
        return dataclasses.replace(
            parsed, algorithm=_as(type(experiment.algorithm), parsed.algorithm)
        )

    return kind, back


def _field(name: str, hint: Any, *default: Any) -> tuple[Any, ...]:
    return (name, hint, *(dataclasses.field(default=value) for value in default))


def _doubled(experiment: Experiment) -> set[str]:
    """The algorithm's options that another part has too."""
    names = {
        field.name
        for part in (experiment, experiment.tasks, experiment.network, experiment.outer)
        for field in dataclasses.fields(part)
    }
    return {field.name for field in dataclasses.fields(experiment.algorithm)} & names


def flags(recipe: Experiment, experiment: Experiment) -> list[str]:
    """The options on the command line that make `experiment` of its `recipe`."""
    # Given these shots and ways, the defaults of the algorithm are those for them.
    fitted = reshaped(recipe, **_shape(experiment)).algorithm
    recipe = dataclasses.replace(recipe, algorithm=fitted)
    doubled, words = _doubled(recipe), []
    for part in ("", "tasks", "network", "outer", "algorithm"):
        before, after = ((getattr(e, part) if part else e) for e in (recipe, experiment))
        for field in dataclasses.fields(after):
            old, new = getattr(before, field.name), getattr(after, field.name)
            if old == new or dataclasses.is_dataclass(new):
                continue
            prefix = "algorithm-" if part == "algorithm" and field.name in doubled else ""
            name = prefix + field.name.replace("_", "-")
            if isinstance(new, bool):
                words.append(f"--{name}" if new else f"--no-{name}")
            else:
                words += [f"--{name}", *map(str, new if isinstance(new, tuple) else (new,))]
    return words


def _annotated(options: Any, marks: dict[str, Any]) -> Any:
    """The same options as a subclass whose fields have marks for the parser."""
    values = {f.name: getattr(options, f.name) for f in dataclasses.fields(options)}
    hints = {f.name: f.type for f in dataclasses.fields(options)}
    fields = [
        (name, Annotated[hints[name], mark], dataclasses.field(default=values[name]))
        for name, mark in marks.items()
    ]
    kind = dataclasses.make_dataclass(
        type(options).__name__,
        fields,
        bases=(type(options),),
        frozen=True,
        kw_only=True,
        namespace={"__doc__": type(options).__doc__},
    )
    return kind(**values)


def _as(kind: type, options: Any) -> Any:
    return kind(**{f.name: getattr(options, f.name) for f in dataclasses.fields(kind)})


def _shape(experiment: Experiment) -> dict[str, int]:
    names = ("ways", "shots", "queries")
    return {name: n for name in names if (n := getattr(experiment.tasks, name, None)) is not None}


def recipe_at(words: Sequence[str]) -> int | None:
    """Where the recipe stands: first, or after options; the value of --run is none."""
    if words and not words[0].startswith("-"):
        return 0
    for i, word in enumerate(words):
        if word in RECIPES and words[i - 1] != "--run":
            return i
    after = words.index("--run") + 2 if "--run" in words else len(words)
    # A recipe that is not known, which is said when it is looked up.
    return after if after < len(words) and not words[after].startswith("-") else None
