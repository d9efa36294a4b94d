"""Converts an experiment to the options of a command, and back.

An option of a part is spelled as in tyro, `--algorithm.inner-rate`. The part may be left out if no
other part has an option of that name: `--inner-rate`. `--network NAME` chooses another network.
"""

import dataclasses
from collections.abc import Sequence
from textwrap import TextWrapper
from typing import Annotated, Any

from tyro.conf import Suppress, arg

from arml.cli.console import parse
from arml.cli.errors import UsageError
from arml.experiment.options import Experiment
from arml.experiment.parts import NETWORKS, PARTS
from arml.experiment.recipes import RECIPES, reshaped

Field = tuple[str, Any] | tuple[str, Any, Any]
"""The name of an option, its annotated type, and its default if it has one."""


def option(name: str, kind: Any, words: str, *default: Any) -> Field:
    """A field with its help."""
    return (name, Annotated[kind, arg(help=words)], *default)


SHOWN = (
    *("run", "trials", "search", "data", "minutes", "seeds", "steps", "batch", "seed"),
    "stream",
)
"""The options that `--help` describes; `--help-all` describes all of them."""


def read(
    experiment: Experiment, fields: Sequence[Field], about: str, words: Sequence[str], *, prog: str
) -> tuple[Any, Experiment]:
    """The options of a command, and the recipe's experiment changed by the given options.

    The defaults of the algorithm are those for tasks of the given ways, shots and queries.

    **Raises** `UsageError` in one line, and `SystemExit` as `parse` does.
    """
    experiment, words = _with_network(experiment, words)
    whole = "--help-all" in words
    words = ["--help"] if whole else spelled_out(words, experiment, fields)
    if {"-h", "--help"} & {*words} and not whole:
        try:
            parse(_kind(experiment, fields, about, SHOWN), ["--help"], prog=prog)
        finally:
            print(_others(experiment, fields))

    def once(experiment: Experiment) -> tuple[Any, Experiment]:
        kind: type[Any] = _kind(experiment, fields, about)
        options = parse(kind, words, prog=prog)
        values = {
            f.name: getattr(options.experiment, f.name) for f in dataclasses.fields(experiment)
        }
        return options, dataclasses.replace(experiment, **values)

    options, given = once(experiment)
    shape = _shape(given)
    # A number below one is refused when the experiment is checked.
    if shape == _shape(experiment) or min(shape.values()) < 1:
        return options, given
    return once(reshaped(experiment, **shape))


def _with_network(experiment: Experiment, words: Sequence[str]) -> tuple[Experiment, Sequence[str]]:
    """The experiment with the network that `--network NAME` names, and the other words."""
    given = list(words)
    for i, word in enumerate(words):
        option, equals, name = word.partition("=")
        if option == "--network":
            name = name if equals else " ".join(words[i + 1 : i + 2])
            del given[i : i + (1 if equals else 2)]
            options = NETWORKS.known(name).options_class()
            return _with_network(dataclasses.replace(experiment, network=options), given)
    return experiment, given


def _kind(
    experiment: Experiment, fields: Sequence[Field], about: str, shown: Sequence[str] | None = None
) -> type:
    """A dataclass that tyro reads: the command's own options and the experiment with the recipe's
    values. The help leaves out all options but those in `shown`, if it is given."""

    def hint(name: str, kind: Any) -> Any:
        hidden = name == "recipe" or (shown is not None and name not in shown)
        return Annotated[kind, Suppress] if hidden else kind

    # A part is annotated as a protocol, and tyro needs the class of its options.
    parts = {part: type(getattr(experiment, part)) for part in PARTS}
    typed = dataclasses.make_dataclass(
        "Experiment",
        [
            (f.name, hint(f.name, parts.get(f.name, f.type)), getattr(experiment, f.name))
            for f in dataclasses.fields(experiment)
        ],
        bases=(type(experiment),),
        frozen=True,
        namespace={"__doc__": "The experiment."},
    )
    own: list[Any] = [(name, hint(name, kind), *default) for name, kind, *default in fields]
    own.append(("experiment", Annotated[typed, arg(name="")], typed(**vars(experiment))))
    own.sort(key=lambda field: len(field) == 3)  # those without a default come first
    return dataclasses.make_dataclass("Options", own, namespace={"__doc__": about})


def _flag(name: str) -> str:
    return name.replace("_", "-")


def spelled_out(
    words: Sequence[str], experiment: Experiment, fields: Sequence[Field] = ()
) -> list[str]:
    """The words of a command line, each option of a part with the name of its part.

    **Raises** `UsageError` for a name that several parts have.
    """
    plain = {_flag(name) for name in (*(f[0] for f in fields), *(vars(experiment)))}
    parts: dict[str, list[str]] = {}
    for part in PARTS:
        for field in dataclasses.fields(getattr(experiment, part)):
            name = _flag(field.name)
            parts.setdefault(name, []).append(f"{part}.{name}")
            parts.setdefault(f"no-{name}", []).append(f"{part}.no-{name}")

    def one(word: str) -> str:
        name, *value = word.split("=", 1)
        name = _flag(name.removeprefix("--"))
        if not word.startswith("--") or name in plain or name not in parts:
            return word
        if len(parts[name]) > 1:
            full = " or ".join(f"--{path}" for path in parts[name])
            raise UsageError(f"expected {full}, got --{name}, which is the name of both: name one")
        return "=".join([f"--{parts[name][0]}", *value])

    return [one(word) for word in words]


def _others(experiment: Experiment, fields: Sequence[Field]) -> str:
    """The options that the short help does not describe, by part."""
    own = [name for name, *_ in fields] + [f.name for f in dataclasses.fields(experiment)]
    own = [name for name in own if name not in (*SHOWN, *PARTS, "recipe")]
    groups = {"the run": own}
    groups |= {p: [f.name for f in dataclasses.fields(getattr(experiment, p))] for p in PARTS}
    lines = ["More options (--help-all describes them):"]
    for group, names in groups.items():
        prefix = "--" if group == "the run" else f"--{group}."
        first, more = f"  {prefix:12} ", " " * 15
        text = " ".join(map(_flag, names))
        wrap = TextWrapper(99, initial_indent=first, subsequent_indent=more, break_on_hyphens=False)
        lines.append(wrap.fill(text))
    lines.append(
        "`algorithm.`, `tasks.` and the like may be left out where one part has the name: "
        "--inner-rate"
    )
    return "\n".join(lines)


def flags(recipe: Experiment, experiment: Experiment) -> list[str]:
    """The options on the command line that make `experiment` of its `recipe`."""
    # With the shots and ways of the experiment come the algorithm's defaults for them.
    fitted = reshaped(recipe, **_shape(experiment)).algorithm
    recipe = dataclasses.replace(recipe, algorithm=fitted)
    words = []
    for part in ("", "tasks", "network", "outer", "algorithm"):
        before, after = ((getattr(e, part) if part else e) for e in (recipe, experiment))
        if part == "network" and type(before) is not type(after):
            words += ["--network", NETWORKS.of(after).name]
            before = NETWORKS.of(after).options_class()
        prefix = f"{part}." if part else ""
        for field in dataclasses.fields(after):
            old, new = getattr(before, field.name), getattr(after, field.name)
            if old == new or dataclasses.is_dataclass(new):
                continue
            name = _flag(field.name)
            if isinstance(new, bool):
                words.append(f"--{prefix}{name}" if new else f"--{prefix}no-{name}")
            else:
                words.append(f"--{prefix}{name}")
                words += map(str, new if isinstance(new, tuple) else (new,))
    return words


def _shape(experiment: Experiment) -> dict[str, int]:
    names = ("ways", "shots", "queries")
    return {name: n for name in names if (n := getattr(experiment.tasks, name, None)) is not None}


def recipe_at(words: Sequence[str]) -> int | None:
    """The index of the recipe: first, or after options. The value of --run is not a recipe."""
    if words and not words[0].startswith("-"):
        return 0
    for i, word in enumerate(words):
        if word in RECIPES and words[i - 1] != "--run":
            return i
    after = words.index("--run") + 2 if "--run" in words else len(words)
    # An unknown recipe, which the look-up reports.
    return after if after < len(words) and not words[after].startswith("-") else None
