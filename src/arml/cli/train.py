"""`arml train`: reads the options of a recipe, trains, shows progress, and stops when asked."""

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from arml.cli.console import TensorBoard, command, say, tell
from arml.cli.errors import UsageError
from arml.cli.progress import Display, Quality, last_scored, working
from arml.cli.seeds import train_all
from arml.cli.stopping import INTERRUPTED, Stop
from arml.cli.training_options import read_command
from arml.cli.waiting import expected, note, pace
from arml.experiment.folder import check_claim, check_place
from arml.experiment.loaded import Run
from arml.experiment.options import Experiment
from arml.experiment.parts import TASKS, metric_of
from arml.experiment.running import run
from arml.experiment.simple import simple_scores
from arml.training import checkpoint
from arml.training.devices import own_cores, sharing
from arml.training.processes import LostError, alone, join, leads, together

MESSAGE = 0.010
"""Seconds: if a step is shorter, several processes are slower than one, because they exchange
messages in each step."""


def _quality(experiment: Experiment) -> Quality:
    usual, tasks = TASKS.of(experiment.tasks).problem, experiment.tasks
    return Quality(metric_of(tasks), getattr(tasks, "ways", usual.outputs))


def _warn_of_messages(experiment: Experiment) -> None:
    step = pace(experiment)[1]
    if step < MESSAGE:
        tell(
            f"warning: a step of this recipe takes about {1000 * step:.0f} ms, and the messages "
            "between processes take longer: one process is faster; --seeds trains several seeds "
            "side by side"
        )


def train_command(arguments: Sequence[str]) -> int:
    """Meta-train a recipe in a folder; the same command again resumes"""
    if "--stream" in arguments:
        from arml.cli.streaming import stream_command

        return stream_command([word for word in arguments if word != "--stream"])
    asked = read_command(arguments)
    if asked is None:
        return 0
    options, experiment, lines, begun, own = asked
    folder = options.run
    if options.seeds < 1:
        raise UsageError(f"seeds must be at least 1, got {options.seeds}: raise it")
    if options.seeds > 1:
        if options.coordinator is not None or options.devices or options.tensorboard:
            raise UsageError(
                "expected --seeds alone, got --coordinator, --devices or --tensorboard too: each "
                "seed has one process; leave them out"
            )
        console = Console()
        say(console, *lines)
        again = command("train", *arguments)
        return train_all(console, experiment, folder, options.seeds, again, _quality(experiment))
    if options.coordinator is not None:
        if not options.process:
            waiting = "waiting for the other processes of the run, at most five minutes"
            print(waiting, file=sys.stderr, flush=True)
        join(options.coordinator, options.processes, options.process)
    elif options.processes is not None or options.process is not None:
        raise UsageError(
            "expected --coordinator with --processes and --process, got none: give HOST:PORT"
        )
    with together():
        experiment.check()
        check_place(folder)
        check_claim(experiment, folder)

    # Only one of several processes prints.
    console = Console(quiet=not leads())
    say(console, *lines)
    if alone() and _is_trained(experiment, folder):
        say(console, f"already trained for {experiment.steps:,} steps: nothing is left to do")
        _finish(console, folder, experiment)
        return 0
    devices = options.devices
    if not devices:
        # The processes of a run must have equally many, and steps of small networks take
        # milliseconds.
        several = alone() and not experiment.scan
        devices = sharing(experiment.batch, experiment.chunk, own_cores()) if several else 1
    if not alone() and leads():
        _warn_of_messages(experiment)
    display = Display(
        console,
        experiment.steps,
        quality=_quality(experiment),
        starting=expected(experiment, devices),
        interval=experiment.interval,
        validate_every=experiment.validate_every,
    )

    def idle() -> str:
        # Only compilation is lost, and it cannot be interrupted in another way.
        if not alone() or display.phase not in ("loading", "compiling"):
            return ""
        saved = f"the run is saved at step {display.reached:,}"
        return f"stopped; {saved if display.reached else 'no step was done yet'}"

    few = f"{experiment.interval} steps at most"
    stop = Stop(f"stopping after the steps in hand ({few}), which are then saved", idle=idle)
    write = TensorBoard(folder / "tensorboard") if options.tensorboard and leads() else None

    def watch(step: int, record: Mapping[str, float | None]) -> None:
        if write is not None:
            write(step, record)
        display.watch(step, record)

    def reading(what: str, done: int, total: int) -> None:
        if stop():
            raise KeyboardInterrupt
        display.reading(what, done, total)

    with leaving(), stop.listening(), display:
        reached = run(
            experiment,
            folder,
            watch=watch,
            stop=stop,
            progress=reading,
            devices=devices,
            begun=begun,
        )
    if display.started is not None and leads():
        note(experiment, display.started, devices)
    if reached < experiment.steps:
        again = command("train", *arguments)
        say(console, f"stopped and saved at step {reached:,}; to resume: {again}")
        return INTERRUPTED
    if own and alone():
        _print_simple(console, folder, experiment)
    if leads():
        _finish(console, folder, experiment)
    return 0


def _is_trained(experiment: Experiment, folder: Path) -> bool:
    """Whether the newest checkpoint is the last one, and can be read."""
    place = folder / "checkpoints"
    done = checkpoint.latest(place) == experiment.steps
    return done and checkpoint.is_sound(place, experiment.steps)


@contextlib.contextmanager
def leaving() -> Iterator[None]:
    """End the program at once if another process has gone: JAX would wait for it at the exit, and
    then end the program with a signal."""
    try:
        yield
    except LostError as error:
        print(f"arml: error: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
        os._exit(2)


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
