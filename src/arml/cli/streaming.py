"""`arml train --stream`: a learner is trained on families that arrive one after another."""

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from rich.console import Console
from tyro.conf import arg

from arml.cli.console import print_json, say
from arml.cli.errors import UsageError
from arml.cli.options import TrainingOptions, read, timed
from arml.core.registry import as_options
from arml.experiment.choose import STREAM_MINUTES
from arml.growth.stream import StreamOptions, train_stream

METHOD = "arml"
"""The method for data without a recipe: its vertices can grow."""


@dataclass(frozen=True, kw_only=True)
class StreamCommand(TrainingOptions):
    """Meta-train on families that arrive one after another; the same command again resumes.

    `arml train RECIPE --stream --run DIR`, or `arml train --stream --data FOLDER... --run DIR` for
    your own pictures. --steps are those of the whole stream.
    """

    stream: Annotated[StreamOptions, arg(name="")] = field(default_factory=StreamOptions)
    json: bool = False
    """Print JSON: the measures, and the scores of each stage."""


def stream_command(arguments: Sequence[str]) -> int:
    """Meta-train on families that arrive one after another; the same command again resumes."""
    since = time.monotonic()
    asked = read(StreamCommand, arguments, prog="arml train --stream", method=METHOD)
    options, experiment, lines = asked.options, asked.experiment, asked.lines
    from arml.report.growth import measured, scored, stages_table, summary
    from arml.report.tables import terminal

    if options.stream.grow and not getattr(experiment.algorithm, "grows", False):
        raise UsageError(
            f"{experiment.recipe} cannot grow: its vertices must own templates, layers or weights, "
            "and be read by place; leave --grow out, or take arml, or arml-layers for regression"
        )
    if options.stream.grow and getattr(experiment.tasks, "shots", 2) < 2:
        lines.append("one shot does not show which vertex suits a task: --shots 5 does")
    console = Console(stderr=options.json)
    say(console, *lines)
    experiment = timed(asked, since, devices=1, console=console, usual=STREAM_MINUTES)
    found = train_stream(
        experiment, options.run, options.stream, say=lambda line: say(console, line)
    )
    metric, stages = found["metric"], scored(found["records"])
    stream = measured(stages, metric)
    if options.json:
        rows = [{"family": one["family"], "scores": one["scores"]} for one in stages]
        print_json({"metric": metric, **stream.plain(), "stages": rows})
        return 0
    console.print(terminal(stages_table(stages, metric)))
    say(console, summary(stream, metric))
    say(console, f"next: {shlex.join(['arml', 'evaluate', str(options.run), *as_options()])}")
    return 0
