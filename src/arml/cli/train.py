"""`arml train`: reads the options, trains, shows progress, and stops when asked."""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from arml.cli.console import TensorBoard, command, say
from arml.cli.errors import UsageError
from arml.cli.options import TrainingOptions, read, timed
from arml.cli.progress import Display, Quality, last_scored, working
from arml.cli.seeds import train_all
from arml.cli.stopping import INTERRUPTED, Stop
from arml.experiment.options import TASKS, Experiment, metric_of
from arml.experiment.running import Run, check_claim, check_place, run
from arml.experiment.scoring import simple_scores
from arml.training import checkpoint
from arml.training.distributed import (
    failing_together,
    is_main_process,
    join,
    own_cores,
    sharing,
    single_process,
)


@dataclass(frozen=True, kw_only=True)
class TrainOptions(TrainingOptions):
    """Meta-train in a folder; the same command again resumes.

    `arml train RECIPE --run DIR` trains a recipe, which is a setting and a method: `arml list`
    shows them, and `arml train RECIPE --help` the options of one. `arml train --data FOLDER...
    --run DIR` trains on your own pictures, with options that suit them; it prints each choice, and
    every option can be given. `arml train --stream` learns families that arrive one after another.
    """

    seeds: int = 1
    """Train this many seeds side by side, in RUN/seed-0, RUN/seed-1 and so on."""
    workers: int | None = None
    """How many seeds to train at once, one process each: by default one for each core, or one in
    all on an accelerator, where each process reserves most of the memory."""
    tensorboard: bool = False
    """Write TensorBoard events to the run's folder tensorboard."""
    devices: int = 0
    """Devices of each process that share the tasks of a step. 0 takes the CPU cores for images, as
    many as share the tasks evenly, and one device otherwise."""
    coordinator: str | None = None
    """HOST:PORT of process 0, if several processes make one run; `auto` lets JAX find it."""
    processes: int | None = None
    """How many processes make the run."""
    process: int | None = None
    """Which of them this is, from 0."""


def _quality(experiment: Experiment) -> Quality:
    usual, tasks = TASKS.of(experiment.tasks).problem, experiment.tasks
    return Quality(metric_of(tasks), getattr(tasks, "ways", usual.outputs))


def train_command(arguments: Sequence[str]) -> int:
    """Meta-train a recipe in a folder; the same command again resumes"""
    if "--stream" in arguments:
        from arml.cli.streaming import stream_command

        return stream_command([word for word in arguments if word != "--stream"])
    since = time.monotonic()
    asked = read(TrainOptions, arguments, prog="arml train")
    options, folder = asked.options, asked.options.run
    if options.seeds < 1:
        raise UsageError(f"seeds must be at least 1, got {options.seeds}: raise it")
    several = options.seeds > 1
    if options.workers is not None and options.workers < 1:
        raise UsageError(f"workers must be at least 1, got {options.workers}: raise it")
    if options.workers is not None and not several:
        raise UsageError("--workers is for --seeds, got one seed: leave it out")
    if several and (options.coordinator is not None or options.devices or options.tensorboard):
        raise UsageError(
            "expected --seeds alone, got --coordinator, --devices or --tensorboard too: each seed "
            "has one process; leave them out"
        )
    if options.coordinator is not None:
        if not options.process:
            waiting = "waiting for the other processes of the run, at most five minutes"
            print(waiting, file=sys.stderr, flush=True)
        join(options.coordinator, options.processes, options.process)
    elif options.processes is not None or options.process is not None:
        raise UsageError(
            "expected --coordinator with --processes and --process, got none: give HOST:PORT"
        )
    # Only one of several processes prints.
    console = Console(quiet=not is_main_process())
    say(console, *asked.lines)
    with failing_together():
        if not several:
            check_place(folder)
        experiment, devices = asked.experiment, options.devices
        experiment.check()
        if not devices:
            # The processes of a run must have equally many, and steps of small networks take
            # milliseconds.
            split = single_process() and not experiment.scan and not several
            devices = sharing(experiment.batch, experiment.chunk, own_cores()) if split else 1
        experiment = timed(asked, since, devices=devices, console=console)
        if not several:
            check_claim(experiment, folder)
    again = command("train", *arguments)
    if several:
        return train_all(
            console,
            experiment,
            folder,
            options.seeds,
            again,
            _quality(experiment),
            workers=options.workers,
        )
    if single_process() and _is_trained(experiment, folder):
        say(console, f"already trained for {experiment.steps:,} steps: nothing is left to do")
        _finish(console, folder, experiment)
        return 0
    display = Display(
        console,
        experiment.steps,
        quality=_quality(experiment),
        interval=experiment.interval,
        validate_every=experiment.validate_every,
    )

    def idle() -> str:
        # Only compilation is lost, and it cannot be interrupted in another way.
        if not single_process() or display.phase not in ("loading", "compiling"):
            return ""
        saved = f"the run is saved at step {display.reached:,}"
        return f"stopped; {saved if display.reached else 'no step was done yet'}"

    few = f"{experiment.interval} steps at most"
    stop = Stop(f"stopping after the steps in hand ({few}), which are then saved", idle=idle)
    write = (
        TensorBoard(folder / "tensorboard") if options.tensorboard and is_main_process() else None
    )

    def watch(step: int, record: Mapping[str, float | None]) -> None:
        if write is not None:
            write(step, record)
        display.watch(step, record)

    def reading(what: str, done: int, total: int) -> None:
        if stop():
            raise KeyboardInterrupt
        display.reading(what, done, total)

    with stop.listening(), display:
        reached = run(experiment, folder, watch=watch, stop=stop, progress=reading, devices=devices)
    if reached < experiment.steps:
        say(console, f"stopped and saved at step {reached:,}; to resume: {again}")
        return INTERRUPTED
    if asked.own and single_process():
        _print_simple(console, folder, experiment)
    if is_main_process():
        _finish(console, folder, experiment)
    return 0


def _is_trained(experiment: Experiment, folder: Path) -> bool:
    """Whether the newest checkpoint is the last one, and can be read."""
    place = folder / "checkpoints"
    done = checkpoint.latest(place) == experiment.steps
    return done and checkpoint.is_sound(place, experiment.steps)


def _finish(console: Console, folder: Path, experiment: Experiment) -> None:
    """Print the last score and the next command."""
    if last := last_scored(folder):
        said = _quality(experiment).said(last["validation"], last.get("validation_ci95"))
        say(console, f"step {last['step']:,}: {said}; ± is the 95% interval over tasks")
    say(console, f"metrics.jsonl, checkpoints and config.json are in {folder}")
    say(console, f"next: {command('evaluate', str(folder))}")


def _print_simple(console: Console, folder: Path, experiment: Experiment) -> None:
    """Print the scores of classifiers that need no meta-training on the validation tasks."""
    tasks, n = Run(folder).tasks("validation"), experiment.validation_tasks
    with working("scoring classifiers that need no meta-training", console):
        found = simple_scores(tasks, n, split="validation", chunk=experiment.chunk)
    for name, score in found.items():
        said = _quality(experiment).said(score["mean"], score["ci95"])
        say(console, f"for comparison, {name}, no meta-training: {said}")
