"""`arml grow`: a trained learner is taught new families, and keeps what it knows."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from tyro.conf import Positional

from arml.cli.console import parse, print_json, say, upright


@dataclass(frozen=True)
class GrowOptions:
    """Teach a trained learner new families of tasks; it keeps what it knows.

    The learner stays as it was; the new one is a run folder for `arml adapt`, `evaluate`, `explain`
    and `report`. It is accepted only if it is better on held-out classes of each new family, with
    an interval above zero, and no known family may lose more than 2 points of accuracy; otherwise
    the old learner is written, and the output says so. The same command again resumes.
    """

    learner: Positional[Path]
    """A run folder, an exported learner, or one of the package, such as starter."""
    data: tuple[str, ...]
    """The new families: folders or zips of pictures with one folder for each class, or folders of
    features. They must be large enough for the learner's tasks: for starter 20 classes or more of
    18 pictures each."""
    out: Path
    """Folder of the new learner."""
    known: tuple[str, ...] = ()
    """Data of the families that the learner knows; an exported learner does not have them."""
    minutes: float = 5.0
    """About the time that the command takes."""
    steps: int | None = None
    """Outer steps, instead of minutes."""
    replay: float = 0.5
    """Share of the training tasks that are of known families."""
    tasks: int = 200
    """Tasks of each family for each score; fewer need less time, and widen the intervals."""
    json: bool = False
    """Print JSON: `before` and `after`, each from family to score on test tasks."""


def grow_command(arguments: Sequence[str]) -> int:
    """Teach a trained learner new families; it keeps what it knows"""
    given = vars(parse(GrowOptions, arguments, prog="arml grow"))
    from arml.growth.teach import grow
    from arml.report.growth import before_after
    from arml.report.tables import duration

    as_json, errors = given.pop("json"), Console(stderr=True)
    found = grow(**given, say=lambda line: say(errors, line))
    verdict = (
        f"accepted with {found.moved:.0%} of the change of its weights; written to {given['out']}"
        if found.moved
        else "not accepted: a new family does not gain, or a known one may lose too much on "
        f"held-out classes; {given['out']} has a copy of the old learner"
    )
    if as_json:
        print_json({"before": found.before, "after": found.after})
    else:
        Console().print(upright(before_after(vars(found))))
    say(errors if as_json else Console(), f"{verdict} ({duration(found.seconds)} in all)")
    return 0
