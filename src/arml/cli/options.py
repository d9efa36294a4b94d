"""Reads the command line of a training: the options of the command, then those of its experiment.

The first word may be a recipe. An option of a part is spelled as in tyro, `--algorithm.inner-rate`.
The part may be left out if no other part has an option of that name: `--inner-rate`.
"""

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import tyro
from rich.console import Console
from tyro.conf import Suppress, arg

from arml.cli.console import CONFIG, parse
from arml.cli.errors import UsageError
from arml.cli.progress import working
from arml.experiment.choose import MINUTES, choose, paced
from arml.experiment.options import NETWORKS, PARTS, Experiment
from arml.experiment.recipes import recipe, reshaped
from arml.results.folder import read_config, seeds_in

T = TypeVar("T", bound="TrainingOptions")
SHAPE = ("ways", "shots", "queries")


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Options of a command that trains: they choose the experiment."""

    run: Path
    """Folder of the run; an unfinished one is resumed."""
    data: Annotated[tuple[str, ...], arg(aliases=("--tasks.data",))] = ()
    """Folders or zips of pictures with one folder for each class, or folders of features; each is a
    family."""
    minutes: float | None = None
    """Train for about this time: a few steps are timed first."""
    steps: int | None = None
    """Outer steps; those of the recipe if neither these nor the minutes are given."""
    network: str | None = None
    """A network in place of the recipe's: `arml list` names them."""
    ways: Annotated[int | None, arg(aliases=("--tasks.ways",))] = None
    """Classes of a task; those of the recipe if not given. The options of a method that depend on
    the shape of tasks follow."""
    shots: Annotated[int | None, arg(aliases=("--tasks.shots",))] = None
    """Examples of each class."""
    queries: Annotated[int | None, arg(aliases=("--tasks.queries",))] = None
    """Queries of each class."""
    size: Annotated[int | None, arg(aliases=("--tasks.size",))] = None
    """Pixels of a picture on each side."""

    def of_tasks(self) -> dict[str, int]:
        """The options of the tasks that were given."""
        return {name: n for name in (*SHAPE, "size") if (n := getattr(self, name)) is not None}


@dataclass(frozen=True)
class Asked(Generic[T]):
    """What a command line asks for."""

    options: T
    experiment: Experiment
    lines: list[str]
    """A line for each choice that was made for the user."""
    own: bool
    """Whether the user gave data and no recipe."""


def read(kind: type[T], words: Sequence[str], *, prog: str, method: str = "") -> Asked[T]:
    """The options of a command, and the experiment of the recipe or the data that they name.

    **Arguments**

    - `kind`: the options of the command; its docstring is the help.
    - `method`: the method for data without a recipe; see `choose`.

    **Raises** `UsageError` in one line, and `SystemExit` as `parse` does.
    """
    name, words = ("", words) if not words or words[0].startswith("-") else (words[0], words[1:])
    prog = f"{prog} {name}" if name else prog
    found = recipe(name) if name else None
    if {"-h", "--help"} & {*words}:
        try:
            parse(kind, ["--help"], prog=prog)
        finally:
            if found is not None:
                _changed(found, ["--help"], prog)
    options, rest = tyro.cli(
        kind, args=list(words), prog=prog, config=CONFIG, return_unknown_args=True
    )
    if options.minutes is not None and options.steps is not None:
        raise UsageError("--minutes and --steps exclude each other: leave one out")
    if options.steps is not None and options.steps < 1:
        raise UsageError(f"steps must be at least 1, got {options.steps}: raise it")
    lines: list[str] = []
    if found is not None:
        experiment = _shaped(found, options)
    elif options.data:
        fixed, minutes = options.of_tasks(), options.minutes or MINUTES
        experiment, lines = choose(options.data, fixed=fixed, minutes=minutes, method=method)
        lines.append(f"method {experiment.recipe}: `{prog} RECIPE` trains another")
    else:
        raise UsageError(
            f"no recipe and no data: `{prog} RECIPE --run DIR`, or `{prog} --data FOLDER... --run "
            "DIR` for your own pictures; `arml list` names the recipes"
        )
    if options.network is not None:
        network = NETWORKS.known(options.network).options_class()
        experiment = dataclasses.replace(experiment, network=network)
    if options.steps is not None:
        experiment = dataclasses.replace(experiment, steps=options.steps)
    experiment = _changed(experiment, spelled_out(rest, experiment), prog)
    return Asked(options, experiment, lines, found is None)


def timed(
    asked: Asked[T], since: float, *, devices: int, console: Console, usual: float = MINUTES
) -> Experiment:
    """The experiment with as many steps as fit in the minutes that were asked for, or in the
    `usual` ones if the user gave data alone. A run that was begun keeps its steps."""
    experiment, options = asked.experiment, asked.options
    minutes = options.minutes or (usual if asked.own and options.steps is None else None)
    if minutes is None or not experiment.steps:
        return experiment
    begun = next(iter(seeds_in(options.run)), options.run)
    if (begun / "config.json").exists():
        return dataclasses.replace(experiment, steps=read_config(begun)["experiment"]["steps"])
    experiment.check()
    with working("reading the data", console) as show:
        made = paced(experiment, minutes, since=since, devices=devices, watch=show)
    left = minutes - (time.monotonic() - since) / 60
    console.print(f"steps {made.steps:,}: about {left:.1f} min; --steps or --minutes change it")
    return made


def _shaped(experiment: Experiment, options: TrainingOptions) -> Experiment:
    """The recipe's experiment with the options of the tasks that were given."""
    given: dict[str, Any] = dict(options.of_tasks())
    if options.data:
        given["data"] = options.data
    known = {field.name for field in dataclasses.fields(experiment.tasks)}
    if odd := [name for name in given if name not in known]:
        raise UsageError(
            f"the tasks of {experiment.recipe} have no option --{odd[0]}: leave it out"
        )
    shape = {name: given[name] for name in SHAPE if name in given}
    if shape and min(shape.values()) >= 1:  # a smaller number is refused by `check`
        experiment = reshaped(experiment, **shape)
    return dataclasses.replace(experiment, tasks=dataclasses.replace(experiment.tasks, **given))


def _changed(experiment: Experiment, words: Sequence[str], prog: str) -> Experiment:
    """The experiment changed by the options among the words."""
    # A part is annotated as a protocol, and tyro needs the class of its options.
    parts = {part: type(getattr(experiment, part)) for part in PARTS}
    kind = dataclasses.make_dataclass(
        "Experiment",
        [
            (
                f.name,
                Annotated[str, Suppress] if f.name == "recipe" else parts.get(f.name, f.type),
                getattr(experiment, f.name),
            )
            for f in dataclasses.fields(experiment)
        ],
        bases=(type(experiment),),
        frozen=True,
        namespace={"__doc__": f"The options of {experiment.recipe}, with its values."},
    )
    found: Any = parse(kind, words, prog=prog)
    values = {f.name: getattr(found, f.name) for f in dataclasses.fields(experiment)}
    return dataclasses.replace(experiment, **values)


def _flag(name: str) -> str:
    return name.replace("_", "-")


def spelled_out(words: Sequence[str], experiment: Experiment) -> list[str]:
    """The words of a command line, each option of a part with the name of its part.

    **Raises** `UsageError` for a name that several parts have.
    """
    plain = {_flag(name) for name in vars(experiment)}
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


def flags(recipe: Experiment, experiment: Experiment) -> list[str]:
    """The options on the command line that make `experiment` of its `recipe`."""
    # With the shots and ways of the experiment come the algorithm's defaults for them.
    known = {name: n for name in SHAPE if (n := getattr(experiment.tasks, name, None)) is not None}
    recipe = dataclasses.replace(recipe, algorithm=reshaped(recipe, **known).algorithm)
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
