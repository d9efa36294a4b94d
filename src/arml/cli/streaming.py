"""`arml train --stream`: a learner is trained on families that arrive one after another."""

import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from rich.console import Console
from tyro.conf import arg

from arml.cli.console import print_json, say
from arml.cli.errors import UsageError
from arml.cli.options import Field, read, recipe_at
from arml.cli.progress import PLAIN_SECONDS
from arml.cli.training_options import values_of, whole_numbers
from arml.core.plugins import as_options
from arml.experiment.options import Experiment
from arml.experiment.recipes import recipe
from arml.grow.streaming import StreamOptions, train_stream
from arml.report.tables import duration

FIELDS: tuple[Field, ...] = (
    ("run", Annotated[Path, arg(help="Folder of the run; an unfinished one is resumed.")]),
    ("stream", Annotated[StreamOptions, arg(name="")], StreamOptions()),
    (
        "json",
        Annotated[bool, arg(help="Print JSON: the measures, and the scores of each stage.")],
        False,
    ),
)


def stream_command(arguments: Sequence[str]) -> int:
    """Meta-train on families that arrive one after another; the same command again resumes."""
    words = list(arguments)
    experiment, lines = _experiment(words)
    about = (
        f"Meta-train the recipe {experiment.recipe} on families that arrive one after another; "
        "--steps are those of the whole stream. The same command again resumes."
    )
    prog = f"arml train {experiment.recipe} --stream"
    options, experiment = read(experiment, FIELDS, about, words, prog=prog)
    from arml.report.growth import scores, summary
    from arml.report.measures import measured
    from arml.report.table import terminal

    if options.stream.grow and not getattr(experiment.algorithm, "grows", False):
        raise UsageError(
            f"expected a learner that can grow, got {experiment.recipe}: its vertices must own "
            "templates, layers or weights, and be read by place; leave --grow out, or take "
            "arml-templates"
        )
    if options.stream.grow and getattr(experiment.tasks, "shots", 2) < 2:
        lines.append(
            "with one shot the support set does not show which vertex suits a task: --shots 5 does"
        )
    console = Console(stderr=options.json)
    say(console, *lines)
    found = train_stream(
        experiment,
        options.run,
        options.stream,
        say=_Said(console),
    )
    stream = measured(found.stages, found.metric)
    if options.json:
        stages = [{"stage": one["stage"], "scores": one["scores"]} for one in found.stages]
        print_json({"metric": found.metric, **stream.plain(), "stages": stages})
        return 0
    console.print(terminal(scores(found.stages, found.metric)))
    say(console, summary(stream, found.metric))
    say(console, f"the decisions are in {options.run / 'growth.html'}")
    say(console, f"next: {shlex.join(['arml', 'evaluate', str(options.run), *as_options()])}")
    return 0


def _experiment(words: list[str]) -> tuple[Experiment, list[str]]:
    """The experiment that the words ask for, and lines about what was chosen; a recipe is taken
    out of the words."""
    place = recipe_at(words)
    if place is not None:
        return recipe(words.pop(place)), []
    data = values_of(words, "data")
    if not data:
        raise UsageError(
            "expected a recipe or --data, got none: `arml train RECIPE --stream --run DIR`, or "
            "`arml train --stream --data FOLDER... --run DIR` for your own pictures"
        )
    return suited(words, data)


def suited(words: Sequence[str], data: Sequence[str]) -> tuple[Experiment, list[str]]:
    """The experiment of the method for streams, with options that suit one's own data."""
    from arml.experiment.choose import CHOSEN, STREAM_MINUTES, choose

    fixed = whole_numbers(words, CHOSEN)
    choice = choose(data, fixed=fixed, minutes=STREAM_MINUTES, purpose="stream")
    return choice.experiment, [*choice.why, *([choice.pace] if choice.pace else [])]


class _Said:
    """Prints lines of progress: steps every ten seconds at most, other lines always."""

    def __init__(self, console: Console) -> None:
        self.console, self.born = console, time.monotonic()
        self.last = self.born

    def __call__(self, line: str) -> None:
        now = time.monotonic()
        if ": step " in line and now - self.last < PLAIN_SECONDS:
            return
        self.last = now
        say(self.console, f"{line} ({duration(now - self.born)})")
