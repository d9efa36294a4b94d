"""`python -m study`: run the tables of the paper, or some of them, and write a page about them."""

import os
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import tyro
from rich.console import Console
from tyro.conf import Positional

from arml.cli.console import EXIT_INTERRUPTED, Display, Stop, say
from arml.datasets.prepare import open_store, place
from arml.experiment import workers
from arml.report.tables import duration
from arml.results.files import read_metrics
from arml.results.machine import cores
from study.data import collect, load, record
from study.pages import page
from study.paper import overall
from study.plan import SCALES, Table, Unit, seconds, table, units
from study.unit import is_done


@dataclass(frozen=True)
class Options:
    """Run the tables of the ARML paper and write OUT/tables.md.

    Each row and seed is an ordinary run folder in OUT/runs. The same command again continues where
    it was stopped (Ctrl-C saves); a run that fails does not stop the others.
    """

    tables: Positional[tuple[str, ...]] = ()
    """Tables to run; all of the scale if none is named. --list names them."""
    scale: Literal["smoke", "laptop", "real", "paper"] = "laptop"
    """Minutes, most of them to compile; some hours on 2 cores; real pictures, in the order of their
    turns; or the paper's own budget on the benchmarks' data, which is days of a GPU."""
    workers: int = 0
    """Processes at a time; 0 for one on each CPU core, or one if there is an NVIDIA GPU."""
    on: str | None = None
    """Run them on a Ray cluster: `ray`, which $RAY_ADDRESS names or which starts here, or
    ray://HOST:PORT. The folder must be on storage that all nodes share."""
    out: Path | None = None
    """Folder of the study; runs/study-SCALE if not given."""
    rows: tuple[str, ...] = ()
    """Only rows whose labels begin with one of these."""
    seeds: int | None = None
    """Seeds of each row; those of the scale if not given."""
    list: bool = False
    """List the tables and rows with their expected times, and run nothing."""
    draw: bool = False
    """Write OUT/tables.md from the runs that are finished, and run nothing."""
    collect: Path | None = None
    """Also write the results to COLLECT.json and COLLECT.npz, without the run folders."""


def main() -> int:
    """Run the command; returns the exit status."""
    options = tyro.cli(Options, prog="python -m study")
    try:
        return run(options)
    except ValueError as error:
        print(f"study: error: {error}", file=sys.stderr)
        return 2


def run(options: Options) -> int:
    """Carry out what the options ask for."""
    out = options.out or Path("runs") / f"study-{options.scale}"
    tables = chosen(options)
    work = units(tables)
    if options.list:
        print(listing(tables, work))
        return 0
    left = [unit for unit in work if not is_done(unit, out)]
    print(
        f"{len(work) - len(left)} of {len(work)} runs are done; about {told(left)} left", flush=True
    )
    failed = stopped = 0
    if not options.draw:
        check_data(work)
        record(tables, options.scale, out)
        count = options.workers or (usual_workers() if options.on is None else len(left))
        failed, stopped = carry_out(left, out, count, options.on) if left else (0, 0)
    found = load(out)
    (out / "tables.md").write_text(page(found), encoding="utf-8")
    print(f"the page is {out / 'tables.md'}")
    if options.collect is not None:
        collect(out, options.collect)
    if stopped:
        print(f"stopped and saved; {stopped} runs are left: give the same command to continue")
        return EXIT_INTERRUPTED
    return 1 if failed else 0


def chosen(options: Options) -> list[Table]:
    """The tables and rows that were asked for."""
    scale = SCALES[options.scale]
    if options.seeds is not None:
        if options.seeds < 1:
            raise ValueError(f"--seeds must be at least 1, got {options.seeds}")
        vectors, images = ((options.seeds, amounts[1]) for amounts in (scale.vectors, scale.images))
        scale = scale._replace(vectors=vectors, images=images, again=options.seeds)
    tables = [table(name, scale) for name in options.tables or scale.tables]
    if not options.rows:
        return tables
    labels = dict.fromkeys(row.label for one in tables for row in one.rows)
    if not any(label.startswith(options.rows) for label in labels):
        raise ValueError(
            f"no row begins with {' or '.join(options.rows)}: expected one of {', '.join(labels)}"
        )
    rows = [tuple(row for row in t.rows if row.label.startswith(options.rows)) for t in tables]
    return [replace(t, rows=own) for t, own in zip(tables, rows, strict=True) if own]


def check_data(work: list[Unit]) -> None:
    """Raise `ValueError` before any work if a data set is missing."""
    missing = []
    for name in dict.fromkeys(unit["experiment"]["tasks"].get("store") for unit in work):
        try:
            if name:
                open_store(place(name))
        except ValueError:
            missing.append(name)
    if missing:
        raise ValueError(
            f"the data sets {', '.join(missing)} are not prepared: "
            + "; ".join(f"arml data prepare {name}" for name in missing)
            + "; or name other tables"
        )


def usual_workers() -> int:
    """One process a core, or one where a GPU does the work."""
    gpu = Path("/dev/nvidia0").exists() and os.environ.get("JAX_PLATFORMS") != "cpu"
    return 1 if gpu else cores()


def carry_out(work: list[Unit], out: Path, count: int, on: str | None) -> tuple[int, int]:
    """Carry out the units, each in a process of its own; returns how many failed, and how many
    were stopped or not begun. After Ctrl-C the processes save and end."""
    begin, console = time.monotonic(), Console()
    display = Display(console, "", rows=())
    left = dict(enumerate(work))
    failed = 0

    def look() -> None:
        for number, unit in left.items():
            if records := read_metrics(out / unit["folder"] / "metrics.jsonl"):
                steps = unit["experiment"]["steps"]
                display.show(unit["folder"], records[-1]["step"], steps, row=number)

    jobs = [{"out": str(out.resolve()), "unit": unit} for unit in work]
    stop = Stop("stopping: the runs save their state")
    # Elsewhere than on a terminal a line for each unit is enough.
    shown = console.is_terminal
    watch = look if shown else lambda: None
    with stop.listening(), display if shown else nullcontext():
        for number, why in workers.carry_out(
            "study.unit:work", jobs, out, workers=count, stop=stop, watch=watch, on=on
        ):
            if why or is_done(work[number], out):
                unit = left.pop(number)
                display.drop(number)
                failed += bool(why)
                later = sum(one["seconds"] for one in left.values())
                planned = sum(one["seconds"] for one in work) - later
                more = duration(later * (time.monotonic() - begin) / planned)
                said = f"failed: {why}" if why else "done"
                say(console, f"{unit['folder']}: {said}; about {more} left")
    return failed, len(left)


def listing(tables: list[Table], work: list[Unit]) -> str:
    """The tables and rows with the paper's figures and the expected times."""
    lines = []
    for one in tables:
        lines += [f"{one.name}: {one.title}"]
        for row in one.rows:
            paper = overall(one.paper, row.paper)
            cells = (
                f"{row.label:<38}",
                f"paper {paper.mean:g}" if paper else "",
                f"{row.seeds} x {row.experiment.steps:,} steps",
                f"{duration(seconds(row.experiment, one.tasks))} a seed on a core",
            )
            lines.append("  " + "  ".join(filter(None, cells)))
    return "\n".join([*lines, f"{len(work)} runs, about {told(work)}"])


def told(work: list[Unit]) -> str:
    """The expected time of units."""
    return f"{duration(sum((unit['seconds'] for unit in work), 0.0))} on one CPU core"


if __name__ == "__main__":
    sys.exit(main())
