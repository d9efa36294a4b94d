"""`arml train`: a recipe's options as flags, a run with its progress, and a way to stop it."""

import dataclasses
import shlex
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from tyro.conf import Suppress, arg

from arml import checkpoint
from arml.cli.console import INTERRUPTED, Display, Stop, TensorBoard, UsageError, parse, say
from arml.experiment import Experiment, run
from arml.experiment.folder import check_claim
from arml.recipes import RECIPES, recipe
from arml.results import load_run


def _taken(recipe: str, experiment: Experiment) -> tuple[type, Callable[[Any], Experiment]]:
    """The options of `arml train` with the recipe's values, and the way back to an experiment.

    Names of nested options are flat: where two parts have one of the same name, the algorithm's
    gets a prefix.
    """
    names = {
        field.name
        for part in (experiment, experiment.tasks, experiment.network, experiment.outer)
        for field in dataclasses.fields(part)
    }
    doubled = {f.name for f in dataclasses.fields(experiment.algorithm)} & names
    algorithm = _annotated(
        experiment.algorithm, {n: arg(name=f"algorithm-{n.replace('_', '-')}") for n in doubled}
    )
    default = _annotated(dataclasses.replace(experiment, algorithm=algorithm), {"recipe": Suppress})
    fields: list[Any] = [
        ("run", Annotated[Path, arg(help="Folder of the run; an unfinished one is resumed.")]),
        # Any, so that each part is parsed as the type of its default.
        ("experiment", Any, dataclasses.field(default=default)),
        (
            "tensorboard",
            Annotated[bool, arg(help="Write TensorBoard events to the run's folder tensorboard.")],
            dataclasses.field(default=False),
        ),
    ]
    doc = f"Meta-train the recipe {recipe}; the same command again resumes."
    kind = dataclasses.make_dataclass("TrainOptions", fields, namespace={"__doc__": doc})

    def back(parsed: Any) -> Experiment:
        parsed = _as(type(experiment), parsed)
        return dataclasses.replace(
            parsed, algorithm=_as(type(experiment.algorithm), parsed.algorithm)
        )

    return kind, back


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


TRAIN_HELP = """usage: arml train RECIPE --run DIR [OPTIONS]
       arml train --data FOLDER... --run DIR [--minutes MINUTES] [OPTIONS]

Meta-train a recipe in a folder; the same command again resumes. `arml train RECIPE --help` lists
the options of a recipe, `arml list` the recipes. Without a recipe, ARML is trained on your own
pictures (one folder a class; each FOLDER or zip is a family) or on features of them, with options
that suit them: what is chosen is said, and every option can be given. The recipes:
"""


def _recipe_at(words: Sequence[str]) -> int | None:
    """Where the recipe stands: first, or after options; the value of --run is none."""
    if words and not words[0].startswith("-"):
        return 0
    for i, word in enumerate(words):
        if word in RECIPES and words[i - 1] != "--run":
            return i
    after = words.index("--run") + 2 if "--run" in words else len(words)
    # A recipe that is not known, which is said when it is looked up.
    return after if after < len(words) and not words[after].startswith("-") else None


def _values(words: Sequence[str], option: str) -> list[str]:
    """What is given to an option: the words up to the next one."""
    for i, word in enumerate(words):
        if word.startswith(f"{option}="):
            return [word.partition("=")[2]]
        if word == option:
            return list(takewhile(lambda value: not value.startswith("--"), words[i + 1 :]))
    return []


def _chosen(rest: list[str], data: Sequence[str]) -> tuple[Experiment, list[str]]:
    """An experiment for the user's own data, and what was chosen. Takes --minutes from `rest`."""
    from arml.choose import CHOSEN, MINUTES, choose

    minutes = MINUTES
    if "--minutes" in rest:
        at = rest.index("--minutes")
        value = " ".join(rest[at + 1 : at + 2])
        del rest[at : at + 2]
        try:
            minutes = float(value)
        except ValueError:
            raise UsageError(f"expected --minutes as a number, got {value!r}") from None
    fixed = {}
    for name in CHOSEN:
        value = " ".join(_values(rest, f"--{name}"))
        # What is no number is refused where all options are read.
        if value.isdecimal():
            fixed[name] = int(value)
    return choose(data, fixed=fixed, minutes=minutes)


def train_command(arguments: Sequence[str]) -> int:
    """Meta-train a recipe in a folder; the same command again resumes"""
    rest = list(arguments)
    place = _recipe_at(rest)
    console = Console()
    if place is None and (data := _values(rest, "--data")):
        experiment, lines = _chosen(rest, data)
    elif place is None:
        if {"-h", "--help"} & {*rest}:
            print(TRAIN_HELP + "\n".join(f"  {known}" for known in RECIPES))
            return 0
        raise UsageError(
            f"expected a recipe, got none: `arml train RECIPE --run DIR`, or "
            f"`arml train --data FOLDER... --run DIR` for your own pictures; RECIPE is one of "
            f"{', '.join(RECIPES)}"
        )
    else:
        experiment, lines = recipe(rest.pop(place)), []
    kind, back = _taken(experiment.recipe, experiment)
    options = parse(kind, rest, prog=f"arml train {experiment.recipe}")
    experiment, folder = back(options.experiment), options.run
    experiment.check()
    check_claim(experiment, folder)
    for line in lines:
        say(console, line)
    if checkpoint.latest(folder / "checkpoints") == experiment.steps:
        say(console, f"already trained for {experiment.steps:,} steps: nothing is left to do")
        _finish(console, folder)
        return 0
    display, stop = Display(console, experiment.steps), Stop()
    write = TensorBoard(folder / "tensorboard") if options.tensorboard else None

    def watch(step: int, record: Any) -> None:
        if write is not None:
            write(step, record)
        display.watch(step, record)

    def reading(what: str, done: int, total: int) -> None:
        if stop():
            raise KeyboardInterrupt
        display.reading(what, done, total)

    with stop.listening(), display.bar:
        reached = run(experiment, folder, watch=watch, stop=stop, progress=reading)
    if reached < experiment.steps:
        again = shlex.join(["arml", "train", *arguments])
        say(console, f"stopped and saved at step {reached:,}; to resume: {again}")
        return INTERRUPTED
    _finish(console, folder)
    return 0


def _finish(console: Console, folder: Path) -> None:
    scores = [record for record in load_run(folder).metrics if "validation" in record]
    if scores:
        last = scores[-1]
        mean, half = last["validation"], last.get("validation_ci95")
        said = "not finite" if mean is None or half is None else f"{mean:.4f} ± {half:.4f}"
        say(console, f"step {last['step']:,}: validation score {said} (95% over tasks)")
    say(console, f"metrics.jsonl, checkpoints and config.json are in {folder}")
    say(console, f"next: arml evaluate {shlex.quote(str(folder))}")
