"""A progress bar in terminals and notebooks; nothing where the output goes to a file."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

Update = Callable[[int, str], None]
"""Called with the number of steps done and a short text, such as the loss."""


@contextmanager
def bar(title: str, total: int, *, show: bool | None = None) -> Iterator[Update]:
    """A bar of `total` steps. It is shown if `show` is True, and if `show` is None in terminals and
    notebooks."""
    console = Console(stderr=True)
    if show is False or not (show or console.is_terminal or console.is_jupyter):
        yield lambda done, said: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[said]}"),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(title, total=total, said="")
        yield lambda done, said: progress.update(task, completed=done, said=said)
