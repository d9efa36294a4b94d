"""The command line of `arml train`: a recipe or the user's own data, and its options."""

import math
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console

from arml.cli.console import say
from arml.cli.errors import UsageError
from arml.cli.options import option, read, recipe_at
from arml.cli.progress import working
from arml.cli.waiting import pace
from arml.experiment.folder import check_place
from arml.experiment.options import Experiment
from arml.experiment.recipes import recipe
from arml.report.tables import duration
from arml.results.folder import read_config, seeds_in
from arml.results.lock import alone

if TYPE_CHECKING:
    from arml.experiment.choose import Choice
    from arml.experiment.running import Begun

FIELDS = (
    option("run", Path, "Folder of the run; an unfinished one is resumed."),
    option(
        "minutes",
        float | None,
        "Train for about this time; the steps of a recipe are for one CPU core.",
        None,
    ),
    option(
        "seeds",
        int,
        "Train this many seeds side by side, in RUN/seed-0, RUN/seed-1 and so on.",
        1,
    ),
    option("tensorboard", bool, "Write TensorBoard events to the run's folder tensorboard.", False),
    option(
        "devices",
        int,
        "Devices of each process that share the tasks of a step. 0 takes the CPU cores for images, "
        "as many as share the tasks evenly, and one device otherwise.",
        0,
    ),
    option(
        "coordinator",
        str | None,
        "HOST:PORT of process 0, if several processes make one run; `auto` lets JAX find it.",
        None,
    ),
    option("processes", int | None, "How many processes make the run.", None),
    option("process", int | None, "Which of them this is, from 0.", None),
)
"""The options that are not part of the experiment: where and how it is run."""
LEAST = 100
"""Steps of the shortest training that --minutes makes."""

TRAIN_HELP = """usage: arml train RECIPE --run DIR [OPTIONS]
       arml train --data FOLDER... --run DIR [--minutes MINUTES] [OPTIONS]
       arml train [RECIPE] --stream --run DIR [--data FOLDER...] [OPTIONS]

Meta-train a recipe in a folder; the same command again resumes.

  RECIPE            a setting and a method, such as starter/maml: `arml list` shows them all, and
                    `arml train RECIPE --help` the options of one
  --data FOLDER...  instead of a recipe, folders or zips of your own pictures with one folder for
                    each class, or folders that `arml features` wrote: the best of a few methods in
                    a short race is trained, with options that suit the data. The command prints
                    each choice; every option can be given.
  --stream          families arrive one after another, in the order of --order: the learner grows
                    and keeps what it knows; `arml train RECIPE --stream --help` shows the options
"""


def values_of(words: Sequence[str], option: str) -> list[str]:
    """The values of an option of the tasks: the words up to the next option."""
    for i, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name not in (f"--{option}", f"--tasks.{option}"):
            continue
        if equals:
            return [value]
        return list(takewhile(lambda value: not value.startswith("--"), words[i + 1 :]))
    return []


def whole_numbers(words: Sequence[str], options: Iterable[str]) -> dict[str, int]:
    """The values of those options that were given as a number. Other words are refused when all
    options are read."""
    given = {name: " ".join(values_of(words, name)) for name in options}
    return {name: int(value) for name, value in given.items() if re.fullmatch(r"-?\d+", value)}


class Chosen(NamedTuple):
    """An experiment for the user's own data."""

    experiment: Experiment
    lines: list[str]
    """A line for each choice."""
    timed: bool
    """Whether its steps already fit the given minutes."""
    begun: "Begun | None" = None
    """The first steps, which it made in the race."""


def chosen(words: Sequence[str], data: Sequence[str]) -> Chosen:
    """An experiment that suits the data: of several methods, the one that wins a short race."""
    from arml.experiment.choose import CHOSEN, MINUTES, choose

    given = " ".join(values_of(words, "minutes")) or MINUTES
    try:
        minutes = float(given)
    except ValueError:
        raise UsageError(f"expected --minutes as a number, got {given!r}") from None
    fixed = whole_numbers(words, CHOSEN)
    choice = choose(data, fixed=fixed, minutes=minutes)
    folder = " ".join(values_of(words, "run"))
    if not folder or {"-h", "--help", "--help-all", "--coordinator"} & {*words}:
        lines = [*choice.why, *([choice.pace] if choice.pace else [])]
        return Chosen(choice.experiment, lines, bool(choice.pace))
    devices = whole_numbers(words, ["devices"]).get("devices", 0)
    return _winner(
        words,
        choice,
        Path(folder),
        minutes,
        paced="steps" not in fixed and bool(choice.pace),
        devices=devices,
    )


def read_options(experiment: Experiment, words: Sequence[str]) -> tuple[Any, Experiment]:
    """The options of `FIELDS`, and the experiment changed by the words.

    **Raises** `UsageError` in one line.
    """
    about = f"Meta-train the recipe {experiment.recipe}; the same command again resumes."
    read_ = read(experiment, FIELDS, about, words, prog=f"arml train {experiment.recipe}")
    if read_[0].minutes is not None and values_of(words, "steps"):
        raise UsageError("expected --minutes or --steps, got both: leave one out")
    return read_


def _winner(
    words: Sequence[str],
    choice: "Choice",
    folder: Path,
    minutes: float,
    *,
    paced: bool,
    devices: int,
) -> Chosen:
    """The winner of a short race, with as many steps as fit in the minutes. A run that is resumed
    keeps its method. The words are those of the command line: every entrant must understand them.

    **Raises** `UsageError`, `ValueError` or `RunError` in one line, before the race.
    """
    from arml.experiment import race
    from arml.experiment.choose import SHORT, without_race
    from arml.training.devices import own_cores, sharing

    by_name = {entrant.recipe: entrant for entrant in choice.entrants}
    first = choice.experiment
    begun = next(iter(seeds_in(folder)), folder)
    if (begun / "config.json").exists():
        known = read_config(begun)["experiment"]
        entrant = by_name.get(known["recipe"], first)
        kept = ("steps", "batch", "validate_every")
        made = replace(entrant, **{name: known[name] for name in kept}) if paced else entrant
        lines = choice.why
        if paced and made.steps and values_of(words, "minutes"):
            went = f"steps {made.steps:,}, as the run was begun: --minutes is for a new run"
            lines = [*lines, f"{went}, and --steps trains this one on"]
        return Chosen(made, lines, bool(choice.pace))
    ends = time.monotonic() + 60 * minutes
    check_place(folder)
    with alone(folder):  # so that a folder that cannot be written is refused before the race
        # With the user's own options, so that the winner can go on from its steps in the race. The
        # steps are chosen already: none for a method that has nothing to train.
        entrants = [
            replace(read_options(entrant, words)[1], steps=entrant.steps)
            for entrant in choice.entrants
        ]
        for entrant in entrants:
            entrant.check()
    first = entrants[0]
    devices = devices or sharing(first.batch, first.chunk, own_cores())
    console = Console()
    say(console, *choice.why)
    if choice.short:
        say(console, f"race: none in less than {SHORT:g} min")
        made = without_race(entrants)
        way = "the simplest, for so short a time; `arml train RECIPE` trains another"
        lines = [f"method {made.recipe}: {way}"]
        if not paced:
            return Chosen(made, [*lines, choice.pace], True)
        with working("reading the pictures", console) as show:
            made = race.paced(made, ends=ends, devices=devices, doing=show)
        steps = f"steps {made.steps:,}: at the pace of the first ones"
        return Chosen(made, [*lines, f"{steps}; --steps or --minutes change it"], True)
    each = f"about {minutes / 20:.1f} min of training each, besides compiling and scoring"
    say(console, f"race: {len(entrants)} methods, {each}")
    with working("reading the pictures", console) as show:
        places = race.race(
            entrants,
            seconds=3 * minutes,
            least=min(20, max(1, first.steps)),
            ends=ends if paced else None,
            devices=devices,
            said=lambda place: say(
                console,
                f"  {place.name}: {place.score:.1%} ± {place.ci95:.1%} on validation classes, "
                f"{place.steps} steps, {place.steps * place.step:.0f} s",
            ),
            doing=show,
        )
    best = max(places[1:], key=lambda place: place.score)
    assert best.begun is not None  # only the floor has none
    line = f"method {best.name}: the best of the race; to choose yourself, `arml train RECIPE`"
    if best.score < places[0].score:
        line += f"; it is still below {places[0].name}"
    made, lines = best.begun.experiment, [line]
    if paced:
        took = duration((made.steps - best.steps) * best.step)
        lines.append(f"steps {made.steps:,}: about {took} more; --steps or --minutes change it")
    return Chosen(made, lines, bool(choice.pace), best.begun)


def within(experiment: Experiment, minutes: float) -> tuple[Experiment, str]:
    """The experiment with the steps that one CPU core makes in these minutes, and a line about it.

    **Raises** `UsageError` if the time is too short for `LEAST` steps.
    """
    start, step = pace(experiment)
    every = experiment.interval
    steps = int((60 * minutes - start) / step) // every * every
    least = -(-LEAST // every) * every
    if steps < least:
        needed = math.ceil((start + least * step) / 6) / 10
        raise UsageError(
            f"expected --minutes of at least {needed:g}, which is {least} steps of this recipe on "
            f"one CPU core, got {minutes:g}: raise it, or give --steps"
        )
    steps = min(steps, experiment.steps)
    took = duration(start + steps * step)
    return replace(experiment, steps=steps), f"steps {steps:,}: about {took} on one CPU core"


class Command(NamedTuple):
    """The training that a command line asks for."""

    options: Any
    """The options of `FIELDS`, by name."""
    experiment: Experiment
    lines: list[str]
    """Lines to print: the choices that were made for the user."""
    begun: "Begun | None" = None
    """The first steps of the training, where a race took them."""
    own: bool = False
    """Whether the user gave data and no recipe."""


def read_command(arguments: Sequence[str]) -> Command | None:
    """Read the arguments of `arml train`; None after the general help.

    **Raises** `UsageError` in one line, and `SystemExit(0)` after the help of a recipe.
    """
    rest = list(arguments)
    place, begun = recipe_at(rest), None
    own = place is None
    if place is None and (data := values_of(rest, "data")):
        experiment, lines, timed, begun = chosen(rest, data)
    elif place is None:
        if {"-h", "--help"} & {*rest}:
            print(TRAIN_HELP, end="")
            return None
        raise UsageError(
            "expected a recipe, got none: `arml train RECIPE --run DIR`, or "
            "`arml train --data FOLDER... --run DIR` for your own pictures; `arml list` names the "
            "recipes"
        )
    else:
        experiment, lines, timed = recipe(rest.pop(place)), list[str](), False
    untrained = own and not experiment.steps
    options, experiment = read_options(experiment, rest)
    if untrained:  # the winner of a race has nothing to train, and --steps is for the others
        experiment = replace(experiment, steps=0)
    if options.minutes is not None and not timed:
        experiment, line = within(experiment, options.minutes)
        lines.append(line)
    return Command(options, experiment, lines, begun, own)
