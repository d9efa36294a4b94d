"""The reading of inputs for the commands `adapt`, `predict` and `evaluate`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from rich.console import Console

from arml.cli.console import Display, doubts, tell
from arml.predict.base import TaskLearner
from arml.predict.kinds import Asked, inputs_of, is_table
from arml.predict.reading import OnItem


def asked_of(learner: TaskLearner, paths: Sequence[Path], name: str) -> Asked:
    """How to read the inputs of the learner of this `name`: with remarks and progress on the
    terminal. **Raises** `ValueError` for a path that cannot have inputs of its kind."""
    kind = inputs_of(learner)
    for path in paths:
        if not kind.fits(path):
            found = "a table" if is_table(path) else "not a table"
            raise ValueError(f"{path} is {found}, and {name} reads {kind.many}: {kind.advice}")
    return Asked(tell=tell, watch=_watched)


@contextmanager
def _watched(what: str) -> Iterator[OnItem]:
    with doubts(), Display(Console(stderr=True), what) as display:
        yield partial(display.show, what)
