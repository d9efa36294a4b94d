"""The command line of a training: a recipe, the options of the command, and those of the experiment
(`--algorithm.inner-rate`, or `--inner-rate` if no other part has an option of that name)."""

import dataclasses
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from rich.console import Console
from tyro.conf import Suppress, arg

from arml.cli.console import Display, parse, understood
from arml.experiment.choose import DEFAULT_MINUTES, choose, paced
from arml.experiment.options import REGISTRIES, Experiment
from arml.experiment.recipes import recipe
from arml.results.folder import read_config, seeds_in

T = TypeVar("T", bound="TrainingOptions")
TASK_SHAPE = ("ways", "shots", "queries")
_EXPERIMENT_OPTIONS = ("data", "network", "outer", *TASK_SHAPE, "size")
"""Options of the command that change the experiment, besides the steps."""


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Options of a command that trains: they choose the experiment."""

    run: Path
    """Folder of the run; an unfinished one is resumed."""
    data: Annotated[tuple[str, ...], arg(aliases=("--tasks.data",))] = ()
    """Folders or zips of pictures, or folders of features; each is a family."""
    minutes: float | None = None
    """Time of the training, approximately: a few steps are timed first."""
    steps: int | None = None
    """Outer steps; those of the recipe if neither these nor minutes are given."""
    network: str | None = None
    """A network instead of the recipe's: `arml list` names them."""
    outer: str | None = None
    """An outer optimiser of a plug-in instead of the recipe's."""
    ways: Annotated[int | None, arg(aliases=("--tasks.ways",))] = None
    """Classes of a task. The method's options that depend on the shape are adjusted."""
    shots: Annotated[int | None, arg(aliases=("--tasks.shots",))] = None
    """Examples of each class."""
    queries: Annotated[int | None, arg(aliases=("--tasks.queries",))] = None
    """Queries of each class."""
    size: Annotated[int | None, arg(aliases=("--tasks.size",))] = None
    """Pixels of a picture on each side."""

    def given(self, *names: str) -> dict[str, Any]:
        return {name: value for name in names if (value := getattr(self, name)) not in (None, ())}


@dataclass(frozen=True)
class Parsed(Generic[T]):
    """A command line, understood."""

    options: T
    experiment: Experiment
    lines: list[str]
    """Without a recipe: a line for each choice that was made for the user."""
    words: list[str]
    """The words that chose the experiment, without its steps."""


def read_command(kind: type[T], words: Sequence[str], *, prog: str) -> Parsed[T]:
    """The options of a command, whose docstring is the help, and the experiment of the recipe or
    the data that they name. **Raises** `ValueError` in one line, and `SystemExit` as `parse`."""
    name, words = ("", words) if not words or words[0].startswith("-") else (words[0], words[1:])
    prog = f"{prog} {name}" if name else prog
    found = recipe(name) if name else None
    if {"-h", "--help"} & {*words}:
        try:
            parse(kind, ["--help"], prog=prog)
        finally:
            if found is not None:
                _changed(found, ["--help"], prog)
    options, rest = understood(kind, words, prog=prog, return_unknown_args=True)
    if options.minutes is not None and options.steps is not None:
        raise ValueError("--minutes and --steps exclude each other: leave one out")
    if options.steps is not None and options.steps < 1:
        raise ValueError(f"steps must be at least 1, got {options.steps}")
    lines: list[str] = []
    if found is not None:
        experiment = _shaped(found, options)
    elif options.data:
        fixed = options.given(*TASK_SHAPE, "size")
        minutes = options.minutes or DEFAULT_MINUTES
        experiment, lines = choose(options.data, fixed=fixed, minutes=minutes)
        lines.append(f"method {experiment.recipe}: `{prog} RECIPE` trains another")
    else:
        raise ValueError(
            f"no recipe and no data: `{prog} RECIPE --run DIR`, or `{prog} --data FOLDER... --run "
            "DIR` for your own pictures; `arml list` names the recipes"
        )
    for part, chosen in options.given("network", "outer").items():
        made = REGISTRIES[part].known(chosen).options_class()
        experiment = dataclasses.replace(experiment, **{part: made})
    if options.steps is not None:
        experiment = dataclasses.replace(experiment, steps=options.steps)
    experiment = _changed(experiment, _spelled_out(rest, experiment), prog)
    again = [name] if name else []
    for option, value in options.given(*_EXPERIMENT_OPTIONS).items():
        again += [f"--{option}", *map(str, value if isinstance(value, tuple) else (value,))]
    return Parsed(options, experiment, lines, [*again, *rest])


def timed(parsed: Parsed[T], since: float, *, devices: int, console: Console) -> Experiment:
    """The experiment with as many steps as fit in the given minutes, or in `DEFAULT_MINUTES` if
    only data were given. A run that exists keeps its steps."""
    experiment, options = parsed.experiment, parsed.options
    minutes = options.minutes
    if minutes is None and parsed.lines and not options.steps:
        minutes = DEFAULT_MINUTES
    if minutes is None or not experiment.steps:
        return experiment
    folder = next(iter(seeds_in(options.run)), options.run)
    if (folder / "config.json").exists():
        return dataclasses.replace(experiment, steps=read_config(folder)["experiment"]["steps"])
    experiment.check()
    with Display(console, "reading the data") as display:
        made = paced(experiment, minutes, since=since, devices=devices, watch=display.show)
    left = minutes - (time.monotonic() - since) / 60
    console.print(f"steps {made.steps:,}: about {left:.1f} min; --steps or --minutes change it")
    return made


def _shaped(experiment: Experiment, options: TrainingOptions) -> Experiment:
    """The recipe's experiment with the options of the tasks that were given."""
    given = options.given("data", *TASK_SHAPE, "size")
    known = {field.name for field in dataclasses.fields(experiment.tasks)}
    if unknown := [name for name in given if name not in known]:
        raise ValueError(
            f"the tasks of {experiment.recipe} have no option --{unknown[0]}: leave it out"
        )
    shape = {name: given[name] for name in TASK_SHAPE if name in given}
    if shape and min(shape.values()) >= 1:  # a smaller number is refused by `check`
        experiment = recipe(experiment.recipe, **shape)
    return dataclasses.replace(experiment, tasks=dataclasses.replace(experiment.tasks, **given))


def _changed(experiment: Experiment, words: Sequence[str], prog: str) -> Experiment:
    """The experiment changed by the options among the words."""
    # The annotation of a part is a protocol, and tyro needs the class of its options.
    types: dict[str, Any] = {part: type(getattr(experiment, part)) for part in REGISTRIES}
    types["recipe"] = Annotated[str, Suppress]
    fields = dataclasses.fields(experiment)
    kind = dataclasses.make_dataclass(
        "Experiment",
        [(f.name, types.get(f.name, f.type), getattr(experiment, f.name)) for f in fields],
        bases=(type(experiment),),
        frozen=True,
        namespace={"__doc__": f"The options of {experiment.recipe}, with its values."},
    )
    found: Any = parse(kind, words, prog=prog)
    values = {field.name: getattr(found, field.name) for field in fields}
    return dataclasses.replace(experiment, **values)


def _spelled_out(words: Sequence[str], experiment: Experiment) -> list[str]:
    """The words of a command line, each option of a part with the name of its part. **Raises**
    `ValueError` for a name that several parts have."""
    own = {name.replace("_", "-") for name in vars(experiment)}
    paths: dict[str, list[str]] = {}
    for part in REGISTRIES:
        for option in vars(getattr(experiment, part)):
            name = option.replace("_", "-")
            paths.setdefault(name, []).append(f"--{part}.{name}")
            paths.setdefault(f"no-{name}", []).append(f"--{part}.no-{name}")

    def one(word: str) -> str:
        name, equals, value = word.partition("=")
        name = name.removeprefix("--").replace("_", "-")
        if not word.startswith("--") or name in own or name not in paths:
            return word
        if len(paths[name]) > 1:
            raise ValueError(f"--{name} may be {' or '.join(paths[name])}: name one")
        return f"{paths[name][0]}{equals}{value}"

    return [one(word) for word in words]


def words_without(
    words: Sequence[str], paths: Collection[str], experiment: Experiment
) -> list[str]:
    """The words without the options at the paths `PART.NAME`, and without their values."""
    kept, drop = [], False
    for word, full in zip(words, _spelled_out(words, experiment), strict=True):
        if word.startswith("--"):
            path = full.partition("=")[0].removeprefix("--").replace("-", "_")
            drop = path in paths or path.replace(".no_", ".", 1) in paths
        if not drop:
            kept.append(word)
    return kept
