"""`arml reproduce`: the paper's tables, run by worker processes that can be stopped and resumed."""

import os
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table as Grid
from rich.text import Text
from tyro.conf import Positional

from arml.cli.console import command, grid, parse, say
from arml.cli.errors import UsageError
from arml.cli.stopping import INTERRUPTED, Stop
from arml.datasets.store import open_store, place
from arml.report.paper import overall
from arml.report.study import export, load_study
from arml.report.study_page import write_study
from arml.report.tables import duration
from arml.reproduce.costs import seconds
from arml.reproduce.crew import Progress, carry_out_all
from arml.reproduce.plan import Table, Unit, record, units
from arml.reproduce.scales import SCALES, with_seeds
from arml.reproduce.tables import table
from arml.results.machine import cores
from arml.results.workers import Hire

PLAIN_SECONDS = 60.0
"""Seconds between two lines of progress where there is no terminal."""


@dataclass(frozen=True)
class ReproduceOptions:
    """Run the paper's tables, or some of them, and write one page about them.

    Each row and seed is an ordinary run folder in OUT/runs. The same command again continues where
    it was stopped; a row that fails does not stop the others. The page is OUT/index.html.
    """

    tables: Positional[tuple[str, ...]] = ()
    """Tables to run; all of the scale if none is named. --list names them."""
    scale: Literal["smoke", "laptop", "paper"] = "laptop"
    """Two minutes, some hours on 2 cores, or the paper's own budget on the benchmarks' data."""
    workers: int = 0
    """Worker processes; 0 for one on each CPU core, or a single one if there is an accelerator."""
    on: Literal["here", "ray"] = "here"
    """Worker processes on this machine, or actors on the Ray cluster that $RAY_ADDRESS names. Every
    node of a cluster needs the study's folder and the data under the same paths."""
    out: Path | None = None
    """Folder of the study; runs/reproduce-SCALE if not given."""
    rows: tuple[str, ...] = ()
    """Only rows whose labels begin with one of these."""
    seeds: int | None = None
    """Seeds of each row; those of the scale if not given."""
    list: bool = False
    """List the tables and rows with their expected times and scores, and run nothing."""
    page: bool = False
    """Only write the page again from the files that are there."""
    export: Path | None = None
    """Also copy the page and the small files of the runs, without checkpoints, to this folder."""


def reproduce_command(arguments: Sequence[str]) -> int:
    """Run the paper's tables; one page compares them with the paper"""
    options = parse(ReproduceOptions, arguments, prog="arml reproduce")
    if options.workers < 0:
        raise UsageError(f"workers must be 0 or more, got {options.workers}: raise it")
    if options.seeds is not None and options.seeds < 1:
        raise UsageError(f"seeds must be 1 or more, got {options.seeds}: raise it")
    console = Console()
    out = options.out or _default(options.scale)
    if options.page:
        return _finish(console, out, options)
    tables = _tables(options)
    chosen = _rows(tables, options.rows)
    work = units(chosen)
    if options.list:
        _list(console, chosen, work)
        return 0
    _check_stores(work)
    hire: Hire | None = None
    if options.on == "ray":
        from arml.reproduce.cluster import hire as join_cluster
        from arml.reproduce.cluster import places

        hire = join_cluster()
        workers = options.workers or places()
    else:
        workers = options.workers or _workers()
    # All rows are recorded, so that a call for one row hides no other.
    record([t for t in tables if t.name in {c.name for c in chosen}], options.scale, out)
    overview, listener = Overview(console, workers), Stop()
    shown = overview.live if console.is_terminal else nullcontext()
    with listener.listening(), shown:
        progress = carry_out_all(
            work, out, workers=workers, watch=overview, stop=listener, hire=hire
        )
    _finish(console, out, options)
    for folder, why in progress.failed.items():
        say(console, f"failed: {folder}: {why}")
    left = len(work) - len(progress.done) - len(progress.failed)
    again = command("reproduce", *arguments)
    if left:
        say(console, f"stopped and saved; {left} runs are left; to continue: {again}")
        return INTERRUPTED
    if progress.failed:
        say(console, f"{len(progress.failed)} runs failed; to try them again: {again}")
        return 1
    return 0


def _default(scale: str) -> Path:
    return Path("runs") / f"reproduce-{scale}"


def _tables(options: ReproduceOptions) -> list[Table]:
    """The tables that were asked for."""
    scale = SCALES[options.scale]
    if options.seeds is not None:
        scale = with_seeds(scale, options.seeds)
    return [table(name, scale) for name in options.tables or scale.tables]


def _rows(tables: Sequence[Table], rows: tuple[str, ...]) -> list[Table]:
    """The tables with the rows that were asked for, and no table without one."""
    if not rows:
        return list(tables)
    chosen = [
        replace(t, rows=tuple(row for row in t.rows if row.label.startswith(rows))) for t in tables
    ]
    chosen = [t for t in chosen if t.rows]
    if not chosen:
        labels = ", ".join(dict.fromkeys(row.label for t in tables for row in t.rows))
        raise UsageError(f"no row begins with {' or '.join(rows)}: expected one of {labels}")
    return chosen


def _check_stores(work: Sequence[Unit]) -> None:
    """Raise `UsageError` before any work if a data set is missing."""
    stores = dict.fromkeys(u["experiment"]["tasks"].get("store") for u in work)
    missing = []
    for store in filter(None, stores):
        try:
            open_store(place(store))
        except ValueError:
            missing.append(store)
    if missing:
        raise UsageError(
            f"these tables need the data sets {', '.join(missing)}, which are not prepared: "
            + "; ".join(f"`arml data prepare {name}`" for name in missing)
            + "; or name other tables"
        )


def _workers() -> int:
    """One process a core, or one where an accelerator does the work."""
    named = [d for d in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if d]
    # Asking JAX would reserve the accelerator's memory for this process.
    there = any(Path(device).exists() for device in ("/dev/nvidia0", "/dev/accel0", "/dev/kfd"))
    if there and os.environ.get("JAX_PLATFORMS") != "cpu":
        return max(1, len(named))
    return cores()


def _list(console: Console, tables: Sequence[Table], work: Sequence[Unit]) -> None:
    for one in tables:
        say(console, f"{one.name}: {one.title}")
        rows = []
        for row in one.rows:
            paper = overall(one.paper, row.paper)
            rows.append(
                (
                    *(row.label, f"{paper.mean:g}" if paper else ""),
                    f"{row.expected:g}" if row.expected is not None else "",
                    *(f"{len(one.seeds_of(row))}", f"{row.experiment.steps:,}"),
                    duration(seconds(row.experiment, tasks=one.tasks)),
                )
            )
        headings = ("row", "paper", "expected", "seeds", "steps", "a seed")
        console.print(grid(headings, rows, box=None))
        console.print()
    total = sum(unit["seconds"] for unit in work)
    say(console, "expected: what we measured; an empty cell: the paper, or we, have no such score")
    say(console, f"{len(work)} runs, about {duration(total)} on one core")


def _finish(console: Console, out: Path, options: ReproduceOptions) -> int:
    files = write_study(out)
    if options.export is not None:
        export(out, options.export)
        # On another machine the runs are in the default folder.
        write_study(options.export, _default(load_study(options.export).scale))
        say(console, f"copied to {options.export}")
    say(console, f"the page is {files[0]}")
    return 0


class Overview:
    """Shows the running, finished and failed runs and the time left: live on a terminal, and a line
    for each event elsewhere."""

    def __init__(self, console: Console, workers: int) -> None:
        self.console, self.workers = console, workers
        self.live = Live(console=console, refresh_per_second=2, transient=True)
        self.known: set[str] = set()
        self.spoken = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        if self.console.is_terminal:
            self.live.update(self.drawn(progress))
        else:
            self.said(progress)

    def summary(self, progress: Progress) -> str:
        """The state of the study in one line."""
        failed = f", {len(progress.failed)} failed" if progress.failed else ""
        left = progress.left(self.workers)
        return (
            f"{len(progress.done)} of {len(progress.units)} runs done{failed}, "
            f"about {duration(left)} left"
        )

    def drawn(self, progress: Progress) -> Group:
        """The live view."""
        running = Grid(box=None, show_header=False)
        for index, at in sorted(progress.running.items()):
            bar = ProgressBar(total=at["total"] or 1, completed=at["done"], width=24)
            running.add_row(
                f"{index}",
                Text(at["unit"]["folder"].removeprefix("runs/")),
                at["phase"],
                bar,
                f"{at['done']:,}/{at['total']:,}" if at["total"] else "",
                duration(time.monotonic() - at["since"]),
            )
        failed = [Text(f"failed: {folder}: {why}") for folder, why in progress.failed.items()]
        return Group(Text(self.summary(progress), style="bold"), running, *failed)

    def said(self, progress: Progress) -> None:
        """Lines about new events."""
        over = {**dict.fromkeys(progress.done, "done"), **progress.failed}
        if not self.known and progress.already:
            say(self.console, f"{progress.already} runs were already done")
            self.known.update(progress.done[: progress.already])
        for folder, what in over.items():
            if folder not in self.known:
                self.known.add(folder)
                outcome = "done" if what == "done" else f"failed: {what}"
                say(self.console, f"{folder}: {outcome}; {self.summary(progress)}")
        if time.monotonic() - self.spoken > PLAIN_SECONDS:
            self.spoken = time.monotonic()
            running = ", ".join(
                f"{at['unit']['folder']} {at['phase']} {at['done']:,}/{at['total']:,}"
                for at in progress.running.values()
            )
            say(self.console, f"{self.summary(progress)}; {running}")
