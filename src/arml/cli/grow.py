"""`arml grow` teaches new families of tasks to a trained learner."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from tyro.conf import Positional

from arml.cli.console import parse, print_json, say
from arml.report.tables import METRIC_NAMES, duration, grid, number
from arml.results.scores import format_score


@dataclass(frozen=True)
class GrowOptions:
    """Teach a trained learner new families of tasks, if the known ones lose no more than 2 points.

    The old learner does not change. The new one is a run folder for `arml adapt`, `evaluate`,
    `explain` and `report`. It is accepted only if it is better on held-out classes of each new
    family, with an interval above zero, and if no known family may lose more than 2 points of
    accuracy. Otherwise the old learner is written, and a line reports it.

    The families must be large enough for the learner's tasks: for starter 20 classes or more of 18
    pictures each.
    """

    learner: Positional[Path]
    """A run folder, an exported learner, or one of the package (starter)."""
    data: tuple[str, ...]
    """The new families: folders or zips of pictures, or folders of features."""
    out: Path
    """Folder of the new learner."""
    known: tuple[str, ...] = ()
    """Data of the known families, for an exported learner."""
    minutes: float = 5.0
    """Time of the whole command, approximately."""
    steps: int | None = None
    """Outer steps, instead of minutes."""
    replay: float = 0.5
    """Share of the training tasks that are of known families."""
    tasks: int = 200
    """Tasks of each family for each score; with fewer it is faster, and intervals are wider."""
    json: bool = False
    """Print JSON: the score of each family on test tasks, `before` and `after`."""


def grow_command(arguments: Sequence[str]) -> None:
    given = vars(parse(GrowOptions, arguments, prog="arml grow"))
    from arml.growth.teach import grow

    as_json, errors = given.pop("json"), Console(stderr=True)
    found = grow(**given, say=lambda line: say(errors, line))
    verdict = (
        f"accepted, {found['moved']:.0%} of the way from the old to the new weights; "
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
