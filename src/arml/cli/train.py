"""`arml train`: a recipe's options as flags, a run with its progress, and a way to stop it."""

import dataclasses
import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from tyro.conf import Suppress, arg

from arml.cli.console import Display, Stop, TensorBoard, UsageError, parse, say
from arml.experiment import Experiment, run
from arml.recipes import RECIPES, recipe
from arml.results import load_run

INTERRUPTED = 130


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

Meta-train a recipe in a folder; the same command again resumes. `arml train RECIPE --help` lists
the options of a recipe, `arml list` the recipes:
"""


def train_command(arguments: Sequence[str]) -> int:
    """Meta-train a recipe in a folder; the same command again resumes"""
    rest = list(arguments)
    name = next((a for a in rest if a in RECIPES), None)
    if name is None and rest and not rest[0].startswith("-"):
        name = rest[0]
    if name is None:
        if {"-h", "--help"} & {*rest}:
            print(TRAIN_HELP + "\n".join(f"  {known}" for known in RECIPES))
            return 0
        raise UsageError(
            f"expected a recipe, got none: `arml train RECIPE --run DIR`, where RECIPE is one of "
            f"{', '.join(RECIPES)}"
        )
    rest.remove(name)
    kind, back = _taken(name, recipe(name))
    options = parse(kind, rest, prog=f"arml train {name}")
    experiment, folder = _absolute(back(options.experiment)), options.run
    experiment.check()

    console = Console()
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


def _absolute(experiment: Experiment) -> Experiment:
    """Data by absolute paths, so that the run can be used from any folder."""
    data = getattr(experiment.tasks, "data", None)
    if not data:
        return experiment
    paths = tuple(os.path.abspath(path) for path in data)
    return dataclasses.replace(experiment, tasks=dataclasses.replace(experiment.tasks, data=paths))


def _finish(console: Console, folder: Path) -> None:
    scores = [record for record in load_run(folder).metrics if "validation" in record]
    last = scores[-1]
    mean, half = last["validation"], last["validation_ci95"]
    said = "not finite" if mean is None or half is None else f"{mean:.4f} ± {half:.4f}"
    say(console, f"step {last['step']:,}: validation score {said} (95% over tasks)")
    say(console, f"metrics.jsonl, checkpoints and config.json are in {folder}")
    say(console, f"next: arml evaluate {shlex.quote(str(folder))}")
