"""`arml train`: a recipe's options as flags, a run with its progress, and a way to stop it."""

import contextlib
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from tyro.conf import arg

from arml.cli.console import INTERRUPTED, Display, Stop, TensorBoard, UsageError, say
from arml.cli.options import Field, read, recipe_at
from arml.experiment import Experiment, run
from arml.experiment.folder import check_claim, check_place
from arml.experiment.recipes import recipe
from arml.results.folder import load_run
from arml.training import checkpoint
from arml.training.devices import own_cores, sharing
from arml.training.processes import LostError, alone, join, leads, together

if TYPE_CHECKING:
    from arml.experiment.choose import Choice

FIELDS: tuple[Field, ...] = (
    ("run", Annotated[Path, arg(help="Folder of the run; an unfinished one is resumed.")]),
    (
        "tensorboard",
        Annotated[bool, arg(help="Write TensorBoard events to the run's folder tensorboard.")],
        False,
    ),
    (
        "devices",
        Annotated[
            int,
            arg(
                help="Devices of each process that share the tasks of a step; 0: where a step on "
                "images is made on a CPU, as many cores as share them evenly, and one otherwise."
            ),
        ],
        0,
    ),
    (
        "coordinator",
        Annotated[
            str | None,
            arg(help="HOST:PORT of process 0, where several make one run; auto: as JAX finds it."),
        ],
        None,
    ),
    ("processes", Annotated[int | None, arg(help="How many processes make the run.")], None),
    ("process", Annotated[int | None, arg(help="Which of them this is, from 0.")], None),
)
"""What a command line says of where and how a run is made, which is no part of the experiment."""

TRAIN_HELP = """usage: arml train RECIPE --run DIR [OPTIONS]
       arml train --data FOLDER... --run DIR [--minutes MINUTES] [OPTIONS]

Meta-train a recipe in a folder; the same command again resumes.

  RECIPE            a setting and a method, such as starter/maml: `arml list` shows them all, and
                    `arml train RECIPE --help` the options of one
  --data FOLDER...  instead of a recipe, folders or zips of your own pictures with one folder for
                    each class, or folders that `arml features` wrote: the best of a few methods in
                    a short race is trained, with options that suit the data. The command prints
                    each choice; every option can be given.
"""


def _values(words: Sequence[str], option: str) -> list[str]:
    """The values of an option of the tasks: the words up to the next option."""
    for i, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name not in (f"--{option}", f"--tasks.{option}"):
            continue
        if equals:
            return [value]
        return list(takewhile(lambda value: not value.startswith("--"), words[i + 1 :]))
    return []


def _chosen(rest: list[str], data: Sequence[str]) -> tuple[Experiment, list[str]]:
    """An experiment for the user's own data, and what was chosen. Takes --minutes from `rest`."""
    from arml.experiment.choose import CHOSEN, MINUTES, choose

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
        value = " ".join(_values(rest, name))
        # What is no number is refused where all options are read.
        if value.isdecimal():
            fixed[name] = int(value)
    choice = choose(data, fixed=fixed, minutes=minutes)
    folder = " ".join(_values(rest, "run"))
    if not folder or {"-h", "--help", "--coordinator"} & {*rest}:
        return choice.experiment, choice.why
    return _winner(choice, Path(folder), minutes)


def _winner(choice: "Choice", folder: Path, minutes: float) -> tuple[Experiment, list[str]]:
    """The best of the entrants of a short race; of a run that is resumed, the one that it has."""
    from arml.experiment.race import race

    by_name = {entrant.recipe: entrant for entrant in choice.entrants}
    if (folder / "config.json").exists():
        known = load_run(folder).config["experiment"]["recipe"]
        return by_name.get(known, choice.experiment), choice.why
    console = Console()
    for line in choice.why:
        say(console, line)
    say(console, f"race: {len(by_name)} methods, about {minutes / 20:.1f} min each")
    steps = choice.experiment.steps
    places = race(
        choice.entrants,
        seconds=3 * minutes,
        least=min(20, max(1, steps)),
        said=lambda place: say(
            console,
            f"  {place.name}: {place.score:.1%} ± {place.ci95:.1%} on validation classes, "
            f"{place.steps} steps, {place.seconds:.0f} s",
        ),
    )
    best = max(places[1:], key=lambda place: place.score)
    line = f"method {best.name}: the best of the race; to choose yourself, `arml train RECIPE`"
    if best.score < places[0].score:
        line += f"; it is still below {places[0].name}"
    return by_name[best.name], [line]


def train_command(arguments: Sequence[str]) -> int:
    """Meta-train a recipe in a folder; the same command again resumes"""
    rest = list(arguments)
    place = recipe_at(rest)
    if place is None and (data := _values(rest, "data")):
        experiment, lines = _chosen(rest, data)
    elif place is None:
        if {"-h", "--help"} & {*rest}:
            print(TRAIN_HELP, end="")
            return 0
        raise UsageError(
            "expected a recipe, got none: `arml train RECIPE --run DIR`, or "
            "`arml train --data FOLDER... --run DIR` for your own pictures; `arml list` names the "
            "recipes"
        )
    else:
        experiment, lines = recipe(rest.pop(place)), []
    about = f"Meta-train the recipe {experiment.recipe}; the same command again resumes."
    prog = f"arml train {experiment.recipe}"
    options, experiment = read(experiment, FIELDS, about, rest, prog=prog)
    folder = options.run
    if options.coordinator is not None:
        if not options.process:
            waiting = "waiting for the other processes of the run, five minutes at most"
            print(waiting, file=sys.stderr, flush=True)
        join(options.coordinator, options.processes, options.process)
    elif options.processes is not None or options.process is not None:
        raise UsageError(
            "expected a coordinator with --processes and --process: give --coordinator"
        )
    with together():
        experiment.check()
        check_place(folder)
        check_claim(experiment, folder)

    # One process speaks for all of a run.
    console = Console(quiet=not leads())
    for line in lines:
        say(console, line)
    if alone() and _is_trained(experiment, folder):
        say(console, f"already trained for {experiment.steps:,} steps: nothing is left to do")
        _finish(console, folder)
        return 0
    devices = options.devices
    if not devices:
        # With others, all must have as many; and the steps of small networks take milliseconds.
        several = alone() and not experiment.scan
        devices = sharing(experiment.batch, experiment.chunk, own_cores()) if several else 1
    display, stop = Display(console, experiment.steps), Stop()
    write = TensorBoard(folder / "tensorboard") if options.tensorboard and leads() else None

    def watch(step: int, record: Any) -> None:
        if write is not None:
            write(step, record)
        display.watch(step, record)

    def reading(what: str, done: int, total: int) -> None:
        if stop():
            raise KeyboardInterrupt
        display.reading(what, done, total)

    with leaving(), stop.listening(), display.bar:
        reached = run(
            experiment,
            folder,
            watch=watch,
            stop=stop,
            progress=reading,
            devices=devices,
        )
    if reached < experiment.steps:
        again = shlex.join(["arml", "train", *arguments])
        say(console, f"stopped and saved at step {reached:,}; to resume: {again}")
        return INTERRUPTED
    if leads():
        _finish(console, folder)
    return 0


def _is_trained(experiment: Experiment, folder: Path) -> bool:
    """Whether the newest checkpoint is the last one, and can be read."""
    place = folder / "checkpoints"
    done = checkpoint.latest(place) == experiment.steps
    return done and checkpoint.is_sound(place, experiment.steps)


@contextlib.contextmanager
def leaving() -> Iterator[None]:
    """Ends the program at once where another process has gone: JAX would wait for it at the exit,
    and then end the program with a signal."""
    try:
        yield
    except LostError as error:
        print(f"arml: error: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
        os._exit(2)


def _finish(console: Console, folder: Path) -> None:
    scores = [record for record in load_run(folder).metrics if "validation" in record]
    if scores:
        last = scores[-1]
        mean, half = last["validation"], last.get("validation_ci95")
        said = "not finite" if mean is None or half is None else f"{mean:.4f} ± {half:.4f}"
        say(console, f"step {last['step']:,}: validation score {said} (95% over tasks)")
    say(console, f"metrics.jsonl, checkpoints and config.json are in {folder}")
    say(console, f"next: arml evaluate {shlex.quote(str(folder))}")
