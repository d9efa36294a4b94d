"""The progress bar of long work."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, TextColumn

Update = Callable[[int | None, str], None]
"""Called with the number of steps done (None if it is the same) and a short text, as the loss."""


@contextmanager
def bar(title: str, total: int, *, show: bool | None = None) -> Iterator[Update]:
    """A bar of `total` steps. It is shown if `show` is True, and if `show` is None in terminals and
    notebooks."""
    console = Console(stderr=True)
    hidden = show is False or not (show or console.is_terminal or console.is_jupyter)
    columns = (*Progress.get_default_columns(), TextColumn("{task.fields[note]}"))
    with Progress(*columns, console=console, disable=hidden, speed_estimate_period=600) as progress:
        task = progress.add_task(title, total=total, note="")
        yield lambda done, note: progress.update(task, completed=done, note=note)
