"""New families: `arml grow` teaches them to a trained learner, and `arml train --stream` trains a
learner on families that arrive one after another."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import Annotated

from rich.console import Console
from tyro.conf import Positional, arg

from arml.cli.console import command, parse, print_json, say
from arml.cli.options import TrainingOptions, read_command, timed
from arml.experiment.choose import STREAM_MINUTES
from arml.growth.stream import StreamOptions, train_stream
from arml.report.growth import measured
from arml.report.tables import METRIC_NAMES, duration, grid, number
from arml.results.scores import format_score, number_of


@dataclass(frozen=True)
class GrowOptions:
    """Teach a trained learner new families of tasks; it keeps what it knows.

    The learner stays as it was; the new one is a run folder for `arml adapt`, `evaluate`, `explain`
    and `report`. It is accepted only if it is better on held-out classes of each new family, with
    an interval above zero, and no known family may lose more than 2 points of accuracy; otherwise
    the old learner is written, and the output says so.

    The families must be large enough for the learner's tasks: for starter 20 classes or more of 18
    pictures each.
    """

    learner: Positional[Path]
    """A run folder, an exported learner, or one of the package, such as starter."""
    data: tuple[str, ...]
    """The new families: folders or zips of pictures, or folders of features."""
    out: Path
    """Folder of the new learner."""
    known: tuple[str, ...] = ()
    """Data of the known families; an exported learner does not have them."""
    minutes: float = 5.0
    """About the time that the command takes."""
    steps: int | None = None
    """Outer steps, instead of minutes."""
    replay: float = 0.5
    """Share of the training tasks that are of known families."""
    tasks: int = 200
    """Tasks of each family for each score; fewer need less time, and widen the intervals."""
    json: bool = False
    """Print JSON: the score of each family on test tasks, `before` and `after`."""


def grow_command(arguments: Sequence[str]) -> None:
    given = vars(parse(GrowOptions, arguments, prog="arml grow"))
    from arml.growth.teach import grow

    as_json, errors = given.pop("json"), Console(stderr=True)
    found = grow(**given, say=lambda line: say(errors, line))
    verdict = (
        f"accepted with {found['moved']:.0%} of the change of its weights; "
        f"written to {given['out']}"
        if found["moved"]
        else "not accepted: a new family does not gain, or a known one may lose too much on "
        f"held-out classes; {given['out']} has a copy of the old learner"
    )
    console = errors if as_json else Console()
    if as_json:
        print_json({name: found[name] for name in ("before", "after")})
    else:
        metric, rows = found["metric"], []
        for name, before in found["before"].items():
            gain = format_score(metric, found["gains"][name], sign="+")
            rows.append((name, number(before, metric), number(found["after"][name], metric), gain))
        tasks = f"{METRIC_NAMES[metric]} on {found['tasks']} test tasks of each family"
        say(console, f"{tasks}, the same before and after")
        console.print(grid(("family", "before", "after", "gain ± 95%"), rows))
    say(console, f"{verdict} ({duration(found['seconds'])} in all)")


@dataclass(frozen=True, kw_only=True)
class StreamCommand(TrainingOptions):
    """Meta-train on families that arrive one after another; the same command goes on after the last
    whole stage.

    `arml train RECIPE --stream --run DIR`, or `arml train --stream --data FOLDER... --run DIR` for
    your own pictures. --steps are those of the whole stream.
    """

    stream: Annotated[StreamOptions, arg(name="")] = field(default_factory=StreamOptions)
    json: bool = False
    """Print JSON: the measures, and the scores of each stage."""


def stream_command(arguments: Sequence[str]) -> None:
    since = time.monotonic()
    parsed = read_command(StreamCommand, arguments, prog="arml train --stream")
    options, experiment = parsed.options, parsed.experiment
    console = Console(stderr=options.json)
    say(console, *parsed.lines)
    experiment = timed(parsed, since, devices=1, console=console, usual=STREAM_MINUTES)
    found = train_stream(
        experiment, options.run, options.stream, say=lambda line: say(console, line)
    )
    metric, stages = found["metric"], found["records"]
    measures = measured(stages, metric)
    if options.json:
        each = [{"family": one["family"], "scores": one["scores"]} for one in stages]
        print_json({"metric": metric, **measures, "stages": each})
        return
    families = [*dict.fromkeys(stage["family"] for stage in stages)]
    rows, known = [], set[str]()
    for place, stage in enumerate(stages, 1):
        known.add(stage["family"])
        scores = {name: number(stage["scores"][name], metric) for name in families}
        cells = [score if name in known else f"({score})" for name, score in scores.items()]
        mean = fmean(number_of(stage["scores"][name]) for name in known)
        rows.append((f"{place}: {stage['family']}", *cells, number(mean, metric)))
    what = f"{METRIC_NAMES[metric]} on test tasks of each family after each stage"
    say(console, f"{what}; in brackets where the family has not come yet")
    console.print(grid(("stage", *families, "mean so far"), rows))
    forgot = ""
    if isfinite(measures["forgetting"]):
        forgot = (
            f", forgetting {measures['forgetting']:+.0%} (the mean share of its best score that a "
            "family has lost since)"
        )
    say(
        console,
        f"Final mean {number(measures['final_mean'], metric)}{forgot}; "
        f"{measures['tasks']:,} training tasks, of which {measures['replayed']:,} were replayed.",
        f"next: {command('evaluate', str(options.run))}",
    )
