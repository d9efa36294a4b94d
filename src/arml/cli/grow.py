"""`arml grow`: a trained learner learns families of one's own, and keeps what it knows."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from tyro.conf import Positional

from arml.cli.console import parse, print_json, say, upright


@dataclass(frozen=True)
class GrowOptions:
    """Grow a trained learner by new families of tasks, and keep what it knows.

    The learner stays as it was; the new one is a run folder for `arml adapt`, `evaluate` and
    `explain`. It is written only if it is better on held-out classes of each new family, with an
    interval above zero, and no known family may lose more than 2 points of accuracy; otherwise the
    old learner is written, and the output says so. FOLDER/growth.jsonl has each decision with its
    numbers.
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
    """About the time that the training may take; scores before and after take some more."""
    steps: int | None = None
    """Outer steps, instead of minutes."""
    replay: float = 0.5
    """Share of the training tasks that are of known families."""
    tasks: int = 200
    """Tasks of each family for each score."""
    json: bool = False
    """Print JSON: `before` and `after`, each from family to score on test tasks."""


def grow_command(arguments: Sequence[str]) -> int:
    """Teach a trained learner new families; it keeps what it knows"""
    options = parse(GrowOptions, arguments, prog="arml grow")
    from arml.grow.practice import grow
    from arml.report.growth import before_after
    from arml.report.tables import duration

    errors, console = Console(stderr=True), Console()
    found = grow(
        options.learner,
        options.data,
        options.out,
        known=options.known,
        minutes=options.minutes,
        steps=options.steps,
        replay=options.replay,
        tasks=options.tasks,
        say=lambda line: say(errors, line),
    )
    part = "" if found.way == 1 else f" with {found.way:.0%} of the change of its weights"
    verdict = (
        f"accepted{part}; written to {options.out}"
        if found.accepted
        else "not accepted: a new family does not gain, or a known one may lose too much on "
        f"held-out classes; the old learner is kept, and {options.out} has a copy"
    )
    verdict += f" ({duration(found.seconds)} in all)"
    if options.json:
        print_json({"before": found.before, "after": found.after})
        say(errors, verdict)
        return 0
    console.print(upright(before_after(vars(found))))
    say(console, f"{found.metric} on {options.tasks} test tasks of each family; {verdict}")
    return 0
